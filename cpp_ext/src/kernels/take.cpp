// SPDX-License-Identifier: Apache-2.0
// od::take: out[o][j][i][w] = x[o][index[o][j][i][w]][i][w]. The axis of x that indices count along is the
// reduction: a step holds a part of it, and writes what its indices find there.
#include <algorithm>
#include <cstring>

#include "indexed.h"

namespace onedispatch::kernels {

namespace {

namespace operand = params::take::operand;
namespace scalar = params::take::scalar;

enum Dimension : uint32_t { kO, kJ, kI, kW };

class Take final : public Kernel {
 public:
  explicit Take(const Setup& setup)
      : x_(setup.operands[operand::x]),
        index_(setup.operands[operand::index]),
        out_(setup.operands[operand::out]),
        extent_(setup.k_extent),
        filled_(setup.scalars[scalar::filled] != 0),
        fill_{setup.scalars[scalar::fill_low], setup.scalars[scalar::fill_high]},
        roles_(setup.roles),
        bytes_(element_bytes(setup.operands[operand::out].dtype)),
        index_bytes_(element_bytes(index_.dtype)) {
    for (uint32_t d = 0; d < 4; ++d) tile_[d] = setup.tile(d);
    if (tile_[kW] > 1 && out_.axes[kW].stride != 1) reject("take: out; accepted: rows whose elements are neighbours");
    if (filled_ && bytes_ == 4 && fill_[0] != fill_[1] && tile_[kW] % 2 != 0) {
      reject(setup, params::take::fill_high, "fill_high", "where elements are halves, tiles of w are even");
    }
  }

  void check(const Call& call) const override {
    const int64_t held = held_of(call);
    at_x(call, held);
    at_index(call, held);
  }

  void run(const Call& call) const override {
    switch (bytes_) {
      case 1: run_as<uint8_t>(call); break;
      case 2: run_as<uint16_t>(call); break;
      default: run_as<uint32_t>(call); break;
    }
  }

 private:
  int64_t origin(const Call& call, uint32_t dim) const { return call.origin[roles_[dim]]; }

  // Members along w: inputs may lack those that only fill up the words of the output's rows.
  int64_t held_of(const Call& call) const {
    int64_t held = tile_[kW];
    for (const Axis* axis : {&x_.axes[kW], &index_.axes[kW]}) {
      if (axis->stride != 0) held = std::min(held, axis->extent - origin(call, kW));
    }
    const int64_t lacked = bytes_ < 4 ? 4 / static_cast<int64_t>(bytes_) - 1 : 0;
    return std::max<int64_t>(std::max(held, tile_[kW] - lacked), 0);
  }

  // Where the first member lies in the chunk of x, and of the indices.
  int64_t at_x(const Call& call, int64_t held) const {
    const int64_t o = origin(call, kO), i = origin(call, kI), w = origin(call, kW), k = call.k_first;
    return x_.axes[0].local(o, o, tile_[kO], "take: x along o") + x_.axes[1].local(k, k, call.k_count, "take: x along k") +
           x_.axes[2].local(i, i, tile_[kI], "take: x along i") + x_.axes[3].local(w, w, held, "take: x along w");
  }
  int64_t at_index(const Call& call, int64_t held) const {
    const int64_t o = origin(call, kO), j = origin(call, kJ), i = origin(call, kI), w = origin(call, kW);
    return index_.axes[0].local(o, o, tile_[kO], "take: index along o") + index_.axes[1].local(j, j, tile_[kJ], "take: index along j") +
           index_.axes[2].local(i, i, tile_[kI], "take: index along i") + index_.axes[3].local(w, w, held, "take: index along w");
  }

  // The indices of a line along w that find something in this step, or nothing at all.
  struct Line {
    const int32_t* at;
    int32_t* found;
    int64_t count = -1;  // of `found`; -1: not looked for
  };

  // The row of the result at these members of the tile.
  template <class T>
  T* row_of(const Call& call, int64_t o, int64_t j, int64_t i) const {
    return reinterpret_cast<T*>(call.out) + o * out_.axes[kO].stride + j * out_.axes[kJ].stride + i * out_.axes[kI].stride;
  }
  template <class T>
  void clear(const Call& call) const;
  template <class T>
  void run_as(const Call& call) const;
  template <class T>
  bool take_rows(const Call& call, const uint8_t* indices, int64_t held, const T* x) const;
  template <class T>
  bool take_lines(const Call& call, const uint8_t* indices, int64_t held, const T* x) const;
  FoundIndices find(const Call& call, const uint8_t* indices, int64_t n) const {
    return find_indices(index_bytes_, indices, n, extent_, call.k_first, call.k_count);
  }
  void look_for(Line& line, int64_t held) const;
  template <class T>
  void move(const Line& line, const T* from, T* out) const;
  void look_outside(const Call& call, int64_t held, const int32_t* at) const;
  template <class T>
  void put_fill(T* out, int64_t first, int64_t count) const;

  Operand x_, index_, out_;
  int64_t extent_;
  bool filled_;
  uint32_t fill_[2];
  std::array<uint32_t, kDims> roles_;
  uint32_t bytes_, index_bytes_;
  std::array<int64_t, 4> tile_{};
};

// Elements of two words alternate between the two; narrow ones repeat what is in both.
template <class T>
void Take::put_fill(T* out, int64_t first, int64_t count) const {
  for (int64_t n = 0; n < count; ++n) std::memcpy(out + n, &fill_[(first + n) % 2], sizeof(T));
}

// Ends the run where an index is outside and stands for no fill.
void Take::look_outside(const Call& call, int64_t held, const int32_t* at) const {
  const uint8_t* indices = index_.in(call) + at_index(call, held) * index_bytes_;
  const int64_t by_w = index_.axes[3].stride, each = by_w == 0 ? std::min<int64_t>(held, 1) : held;
  for (int64_t o = 0; o < tile_[kO]; ++o) {
    for (int64_t j = 0; j < tile_[kJ]; ++j) {
      for (int64_t i = 0; i < tile_[kI]; ++i) {
        for (int64_t w = 0; w < each; ++w) {
          const int64_t element = o * index_.axes[0].stride + j * index_.axes[1].stride + i * index_.axes[2].stride + w * by_w;
          const int64_t given = index_at(index_bytes_, indices, element);
          if (at[element] != kOutside || (filled_ && given == extent_)) continue;
          outside(given, extent_, " at [" + std::to_string(origin(call, kO) + o) + ", " + std::to_string(origin(call, kJ) + j) + ", " +
                                      std::to_string(origin(call, kI) + i) + ", " + std::to_string(origin(call, kW) + w) + "] of the indices as they are walked");
        }
      }
    }
  }
}

void Take::look_for(Line& line, int64_t held) const {
  const int64_t by_w = index_.axes[3].stride;
  int64_t n = 0;
  for (int64_t w = 0; w < held; ++w) {
    line.found[n] = static_cast<int32_t>(w);
    n += line.at[w * by_w] != kElsewhere ? 1 : 0;
  }
  line.count = n;
}

template <class T>
void Take::move(const Line& line, const T* from, T* out) const {
  const int64_t x_k = x_.axes[1].stride, x_w = x_.axes[3].stride, by_w = index_.axes[3].stride;
  for (int64_t n = 0; n < line.count; ++n) {
    const int64_t w = line.found[n], k = line.at[w * by_w];
    if (k < 0) {
      put_fill(out + w, w, 1);
    } else {
      out[w] = from[k * x_k + w * x_w];
    }
  }
}

// Where one index after the other names an element, or a row. False where indices lie otherwise, or one is outside.
template <class T>
bool Take::take_rows(const Call& call, const uint8_t* indices, int64_t held, const T* x) const {
  const bool rows = tile_[kW] == 1 || (index_.axes[3].stride == 0 && x_.axes[3].stride == 1);
  if (tile_[kI] != 1 || !rows || (tile_[kJ] != 1 && index_.axes[1].stride != 1)) return false;
  const int64_t x_k = x_.axes[1].stride, out_j = out_.axes[kJ].stride;
  const auto bytes = static_cast<size_t>(held) * sizeof(T);
  for (int64_t o = 0; o < tile_[kO]; ++o) {
    const T* from = x + o * x_.axes[0].stride;
    T* const out = row_of<T>(call, o, 0, 0);
    const FoundIndices found = find(call, indices + o * index_.axes[0].stride * index_bytes_, tile_[kJ]);
    if (found.outside) return false;
    if (held == 1) {
      found.for_each([&](int64_t j, int64_t k) { out[j * out_j] = from[k * x_k]; });
    } else {
      found.for_each([&](int64_t j, int64_t k) { std::memcpy(out + j * out_j, from + k * x_k, bytes); });
    }
  }
  return true;
}

// Where indices that name an element each lie in rows. False where they lie otherwise, or one is outside.
template <class T>
bool Take::take_lines(const Call& call, const uint8_t* indices, int64_t held, const T* x) const {
  if (index_.axes[3].stride != 1) return false;
  const int64_t x_k = x_.axes[1].stride, x_w = x_.axes[3].stride;
  const uint8_t* looked_for = nullptr;  // neighbours may share their indices
  FoundIndices found{};
  for (int64_t o = 0; o < tile_[kO]; ++o) {
    for (int64_t j = 0; j < tile_[kJ]; ++j) {
      for (int64_t i = 0; i < tile_[kI]; ++i) {
        const uint8_t* own = indices + (o * index_.axes[0].stride + j * index_.axes[1].stride + i * index_.axes[2].stride) * index_bytes_;
        if (own != looked_for) found = find(call, own, held);
        if (found.outside) return false;
        looked_for = own;
        const T* from = x + o * x_.axes[0].stride + i * x_.axes[2].stride;
        T* const out = row_of<T>(call, o, j, i);
        found.for_each([&](int64_t w, int64_t k) { out[w] = from[k * x_k + w * x_w]; });
      }
    }
  }
  return true;
}

template <class T>
void Take::clear(const Call& call) const {
  for (int64_t o = 0; o < tile_[kO]; ++o) {
    for (int64_t j = 0; j < tile_[kJ]; ++j) {
      for (int64_t i = 0; i < tile_[kI]; ++i) std::memset(row_of<T>(call, o, j, i), 0, static_cast<size_t>(tile_[kW]) * sizeof(T));
    }
  }
}

template <class T>
void Take::run_as(const Call& call) const {
  const int64_t held = held_of(call);
  const T* x = reinterpret_cast<const T*>(x_.in(call)) + at_x(call, held);
  if (held < tile_[kW] && call.k_index == 0) clear<T>(call);
  if (held == 0) return;
  const uint8_t* indices = index_.in(call) + at_index(call, held) * index_bytes_;
  if (take_rows(call, indices, held, x) || take_lines(call, indices, held, x)) return;
  // Where every index of the tile lies along k in this step, if it does.
  const int64_t x_k = x_.axes[1].stride, x_w = x_.axes[3].stride, by_w = index_.axes[3].stride;
  int64_t span = 1 + (held - 1) * by_w;
  for (uint32_t d = 0; d < 3; ++d) span += (tile_[d] - 1) * index_.axes[d].stride;
  auto* at = static_cast<int32_t*>(scratch(kScratchPlan, static_cast<size_t>(span) * sizeof(int32_t)));
  const uint32_t seen = simd().places(index_bytes_, indices, extent_, call.k_first, call.k_count, at, static_cast<size_t>(span));
  if ((seen & kSomeOutside) != 0) look_outside(call, held, at);
  if (seen == 0) return;
  Line line{nullptr, static_cast<int32_t*>(scratch(kScratchColumns, static_cast<size_t>(held) * sizeof(int32_t)))};
  for (int64_t o = 0; o < tile_[kO]; ++o) {
    for (int64_t j = 0; j < tile_[kJ]; ++j) {
      for (int64_t i = 0; i < tile_[kI]; ++i) {
        T* const out = row_of<T>(call, o, j, i);
        const int32_t* own = at + o * index_.axes[0].stride + j * index_.axes[1].stride + i * index_.axes[2].stride;
        const T* from = x + o * x_.axes[0].stride + i * x_.axes[2].stride;
        if (by_w != 0) {
          if (own != line.at) {
            line.at = own;
            look_for(line, held);
          }
          move(line, from, out);
          continue;
        }
        if (*own == kOutside) put_fill(out, 0, held);
        if (*own < 0) continue;
        from += *own * x_k;
        if (x_w == 1) {
          std::memcpy(out, from, static_cast<size_t>(held) * sizeof(T));
        } else {
          for (int64_t w = 0; w < held; ++w) out[w] = from[w * x_w];
        }
      }
    }
  }
}

}  // namespace

ONEDISPATCH_KERNEL(take, make<Take>)

}  // namespace onedispatch::kernels
