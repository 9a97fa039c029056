// SPDX-License-Identifier: Apache-2.0
// od::scatter: out = x, or zeros, then out[o][index[o][k][i][w]][i][w] becomes, or is combined with, updates[o][k][i][w], in
// the order of k. A tile keeps its part of the result while indices and updates stream by.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "indexed.h"
#include "simd/simd.h"

namespace onedispatch::kernels {

namespace {

namespace operand = params::scatter::operand;
namespace scalar = params::scatter::scalar;
namespace mode = params::scatter_mode;

enum Dimension : uint32_t { kO, kA, kI, kW };

// What an element becomes. A NaN replaces nothing in a maximum or minimum, and stays where it is.
template <uint32_t how, class T>
T combine(T old, T update) {
  if constexpr (how == mode::add_) return static_cast<T>(old + update);
  if constexpr (how == mode::mul_) return static_cast<T>(old * update);
  if constexpr (how == mode::max_) return old < update ? update : old;
  if constexpr (how == mode::min_) return update < old ? update : old;
  return update;
}

struct Half {
  uint16_t bits;
};

class Scatter final : public Kernel {
 public:
  explicit Scatter(const Setup& setup)
      : x_(setup.operands[operand::x]),
        index_(setup.operands[operand::index]),
        updates_(setup.operands[operand::updates]),
        out_(setup.operands[operand::out]),
        mode_(setup.scalars[scalar::mode]),
        extent_(setup.scalars[scalar::extent]),
        lenient_(setup.scalars[scalar::lenient] != 0),
        dtype_(setup.operands[operand::out].dtype),
        index_bytes_(element_bytes(index_.dtype)),
        roles_(setup.roles) {
    for (uint32_t d = 0; d < 4; ++d) tile_[d] = setup.tile(d);
    if (tile_[kW] > 1 && out_.axes[kW].stride != 1) reject("scatter: out; accepted: rows whose elements are neighbours");
  }

  void check(const Call& call) const override {
    if (x_.present) at(x_, call, kA, call.origin[roles_[kA]], tile_[kA], tile_[kW]);
    at(index_, call, kA, call.k_first, call.k_count, held_of(call));
    at(updates_, call, kA, call.k_first, call.k_count, held_of(call));
  }

  void run(const Call& call) const override {
    switch (mode_) {
      case mode::add_: by_type<mode::add_>(call); break;
      case mode::mul_: by_type<mode::mul_>(call); break;
      case mode::max_: by_type<mode::max_>(call); break;
      case mode::min_: by_type<mode::min_>(call); break;
      default: by_width(call); break;
    }
  }

 private:
  template <uint32_t how>
  void by_type(const Call& call) const {
    switch (dtype_) {
      case params::dtype::i8: run_as<how, int8_t>(call); break;
      case params::dtype::u8: run_as<how, uint8_t>(call); break;
      case params::dtype::i16: run_as<how, int16_t>(call); break;
      case params::dtype::u16: run_as<how, uint16_t>(call); break;
      case params::dtype::i32: run_as<how, int32_t>(call); break;
      case params::dtype::u32: run_as<how, uint32_t>(call); break;
      case params::dtype::f32: run_as<how, float>(call); break;
      default: run_as<how, Half>(call); break;
    }
  }

  void by_width(const Call& call) const {
    switch (element_bytes(dtype_)) {
      case 1: run_as<mode::none_, uint8_t>(call); break;
      case 2: run_as<mode::none_, uint16_t>(call); break;
      default: run_as<mode::none_, uint32_t>(call); break;
    }
  }

  // Members along w that indices and updates have: they may lack those that only fill up words.
  int64_t held_of(const Call& call) const {
    int64_t held = tile_[kW];
    for (const Operand* one : {&index_, &updates_}) {
      const Axis& axis = one->axes[kW];
      if (axis.stride != 0) held = std::min(held, axis.extent - int64_t{call.origin[roles_[kW]]});
    }
    const auto bytes = static_cast<int64_t>(element_bytes(dtype_));
    return std::max<int64_t>(std::max(held, tile_[kW] - (bytes < 4 ? 4 / bytes - 1 : 0)), 0);
  }

  // Where the first member lies in a chunk; `along` of its axes is walked from `first` on.
  int64_t at(const Operand& one, const Call& call, uint32_t along, int64_t first, int64_t count, int64_t held) const {
    int64_t sum = 0;
    for (uint32_t d = 0; d < 4; ++d) {
      const int64_t origin = call.origin[roles_[d]];
      if (d == along) {
        sum += one.axes[d].local(first, first, count, "scatter: along the axis");
      } else {
        sum += one.axes[d].local(origin, origin, d == kW ? held : tile_[d], "scatter: beside the axis");
      }
    }
    return sum;
  }

  // The row of the result at these members of the tile.
  template <class T>
  T* place_of(const Call& call, int64_t o, int64_t a, int64_t i) const {
    return reinterpret_cast<T*>(call.out) + o * out_.axes[kO].stride + a * out_.axes[kA].stride + i * out_.axes[kI].stride;
  }
  template <class T>
  void copy(const Call& call) const;
  template <uint32_t how, class T>
  void run_as(const Call& call) const;
  template <uint32_t how, class T>
  bool run_rows(const Call& call, const uint8_t* indices, const T* updates, int64_t held) const;
  template <uint32_t how, class T>
  bool run_lines(const Call& call, const uint8_t* indices, const T* updates, int64_t held) const;
  // Of those that fall into the tile; none where one is outside that must not be.
  std::optional<FoundIndices> find(const Call& call, const uint8_t* indices, int64_t n) const {
    const FoundIndices found = find_indices(index_bytes_, indices, n, extent_, call.origin[roles_[kA]], tile_[kA]);
    return found.outside && !lenient_ ? std::nullopt : std::optional(found);
  }
  void look_outside(const Call& call, const uint8_t* indices, int64_t held, const int32_t* at) const;
  template <uint32_t how, class T>
  void apply(T& old, T update) const {
    if constexpr (std::is_same_v<T, Half>) {  // as onnxruntime: every result is rounded
      float wide[2];
      const Half both[2] = {old, update};
      simd().widen(dtype_, both, wide, 2);
      const float result = combine<how>(wide[0], wide[1]);
      simd().narrow(dtype_, &result, &old, 1);
    } else if constexpr (std::is_same_v<T, int32_t> && (how == mode::add_ || how == mode::mul_)) {  // wraps
      old = static_cast<int32_t>(combine<how>(static_cast<uint32_t>(old), static_cast<uint32_t>(update)));
    } else {
      old = combine<how>(old, update);
    }
  }
  template <uint32_t how, class T>
  void apply_row(T* old, const T* updates, int64_t step, int64_t count) const {
    if (step == 1) {
      for (int64_t i = 0; i < count; ++i) apply<how>(old[i], updates[i]);
    } else {
      for (int64_t i = 0; i < count; ++i) apply<how>(old[i], updates[i * step]);
    }
  }

  Operand x_, index_, updates_, out_;
  uint32_t mode_;
  int64_t extent_;
  bool lenient_;
  uint32_t dtype_, index_bytes_;
  std::array<uint32_t, kDims> roles_;
  std::array<int64_t, 4> tile_{};
};

template <class T>
void Scatter::copy(const Call& call) const {
  const T* x = x_.present ? reinterpret_cast<const T*>(x_.in(call)) + at(x_, call, kA, call.origin[roles_[kA]], tile_[kA], tile_[kW]) : nullptr;
  const int64_t step = tile_[kW] == 1 ? 1 : x_.axes[kW].stride;
  // Rows that lie behind each other in both are one.
  const auto behind = [&](const Operand& one, uint32_t axis, int64_t row) { return tile_[axis] == 1 || one.axes[axis].stride == row; };
  int64_t row = tile_[kW];
  std::array<int64_t, 3> rows{tile_[kO], tile_[kA], tile_[kI]};
  for (const uint32_t axis : {kI, kA, kO}) {
    if (!behind(out_, axis, row) || (x_.present && !(step == 1 && behind(x_, axis, row)))) break;
    row *= std::exchange(rows[axis], 1);
  }
  for (int64_t o = 0; o < rows[kO]; ++o) {
    for (int64_t a = 0; a < rows[kA]; ++a) {
      for (int64_t i = 0; i < rows[kI]; ++i) {
        T* const out = place_of<T>(call, o, a, i);
        if (!x_.present) {
          std::memset(out, 0, static_cast<size_t>(row) * sizeof(T));
          continue;
        }
        const T* const from = x + o * x_.axes[kO].stride + a * x_.axes[kA].stride + i * x_.axes[kI].stride;
        if (step == 1) {
          std::memcpy(out, from, static_cast<size_t>(row) * sizeof(T));
        } else {
          for (int64_t w = 0; w < row; ++w) out[w] = from[w * step];
        }
      }
    }
  }
}

// Ends the run where an index is outside.
void Scatter::look_outside(const Call& call, const uint8_t* indices, int64_t held, const int32_t* at) const {
  const int64_t by_w = index_.axes[kW].stride, each = by_w == 0 ? std::min<int64_t>(held, 1) : held;
  for (int64_t o = 0; o < tile_[kO]; ++o) {
    for (int64_t k = 0; k < call.k_count; ++k) {
      for (int64_t i = 0; i < tile_[kI]; ++i) {
        for (int64_t w = 0; w < each; ++w) {
          const int64_t element = o * index_.axes[kO].stride + k * index_.axes[kA].stride + i * index_.axes[kI].stride + w * by_w;
          if (at[element] == kOutside) outside(index_at(index_bytes_, indices, element), extent_, " of update " + std::to_string(call.k_first + k));
        }
      }
    }
  }
}

// Where one index after the other names an element, or a row of them. False where indices lie otherwise, or one is outside.
template <uint32_t how, class T>
bool Scatter::run_rows(const Call& call, const uint8_t* indices, const T* updates, int64_t held) const {
  const bool rows = tile_[kW] == 1 || index_.axes[kW].stride == 0;
  if (tile_[kI] != 1 || !rows || index_.axes[kA].stride != 1) return false;
  const int64_t by_k = updates_.axes[kA].stride, step = updates_.axes[kW].stride;
  for (int64_t o = 0; o < tile_[kO]; ++o) {
    const T* from = updates + o * updates_.axes[kO].stride;
    const auto found = find(call, indices + o * index_.axes[kO].stride * index_bytes_, call.k_count);
    if (!found) return false;
    found->for_each([&](int64_t k, int64_t a) { apply_row<how>(place_of<T>(call, o, a, 0), from + k * by_k, step, held); });
  }
  return true;
}

// Where indices that name an element each lie in rows. False where they lie otherwise, or one is outside.
template <uint32_t how, class T>
bool Scatter::run_lines(const Call& call, const uint8_t* indices, const T* updates, int64_t held) const {
  if (index_.axes[kW].stride != 1) return false;
  const int64_t a_out = out_.axes[kA].stride, step = updates_.axes[kW].stride;
  for (int64_t o = 0; o < tile_[kO]; ++o) {
    for (int64_t k = 0; k < call.k_count; ++k) {
      for (int64_t i = 0; i < tile_[kI]; ++i) {
        const int64_t first = o * index_.axes[kO].stride + k * index_.axes[kA].stride + i * index_.axes[kI].stride;
        const T* from = updates + o * updates_.axes[kO].stride + k * updates_.axes[kA].stride + i * updates_.axes[kI].stride;
        T* const out = place_of<T>(call, o, 0, i);
        const auto found = find(call, indices + first * index_bytes_, held);
        if (!found) return false;
        found->for_each([&](int64_t w, int64_t a) { apply<how>(out[a * a_out + w], from[w * step]); });
      }
    }
  }
  return true;
}

template <uint32_t how, class T>
void Scatter::run_as(const Call& call) const {
  if (call.k_index == 0) copy<T>(call);
  const int64_t held = held_of(call);
  if (call.k_count == 0 || held == 0) return;
  const uint8_t* indices = index_.in(call) + at(index_, call, kA, call.k_first, call.k_count, held) * index_bytes_;
  const T* updates = reinterpret_cast<const T*>(updates_.in(call)) + at(updates_, call, kA, call.k_first, call.k_count, held);
  if (run_rows<how>(call, indices, updates, held) || run_lines<how>(call, indices, updates, held)) return;
  const int64_t a_out = out_.axes[kA].stride, by_w = index_.axes[kW].stride, step = updates_.axes[kW].stride;
  const int64_t span = 1 + (tile_[kO] - 1) * index_.axes[kO].stride + (call.k_count - 1) * index_.axes[kA].stride +
                       (tile_[kI] - 1) * index_.axes[kI].stride + (held - 1) * by_w;
  auto* place = static_cast<int32_t*>(scratch(kScratchPlan, static_cast<size_t>(span) * sizeof(int32_t)));
  const uint32_t seen = simd().places(index_bytes_, indices, extent_, call.origin[roles_[kA]], tile_[kA], place, static_cast<size_t>(span));
  if (!lenient_ && (seen & kSomeOutside) != 0) look_outside(call, indices, held, place);
  if ((seen & kSomeFound) == 0) return;
  for (int64_t o = 0; o < tile_[kO]; ++o) {
    for (int64_t k = 0; k < call.k_count; ++k) {
      for (int64_t i = 0; i < tile_[kI]; ++i) {
        const int32_t* own = place + o * index_.axes[kO].stride + k * index_.axes[kA].stride + i * index_.axes[kI].stride;
        const T* from = updates + o * updates_.axes[kO].stride + k * updates_.axes[kA].stride + i * updates_.axes[kI].stride;
        if (by_w == 0 && *own < 0) continue;
        T* const out = place_of<T>(call, o, 0, i);
        for (int64_t w = 0; w < held; ++w) {
          const int64_t a = own[w * by_w];
          if (a >= 0) apply<how>(out[a * a_out + w], from[w * step]);
        }
      }
    }
  }
}

}  // namespace

ONEDISPATCH_KERNEL(scatter, make<Scatter>)

}  // namespace onedispatch::kernels
