// SPDX-License-Identifier: Apache-2.0
// od::resample: out chunk [T_o][T_j][T_i]; x holds what the places of its rows need; index and weight [T_j][taps].
// Without weights words are copied. A row whose place is -1 gets the bits of `outside`. Narrower results are rounded once.
#include <algorithm>
#include <cstring>

#include "kernel.h"
#include "simd/simd.h"
#include "words.h"

namespace onedispatch::kernels {

namespace {

namespace operand = params::resample::operand;

constexpr int64_t kTogether = 64;  // members of o

class Resample final : public Kernel {
 public:
  explicit Resample(const Setup& setup)
      : x_(setup.operands[operand::x]),
        index_(setup.operands[operand::index]),
        weight_(setup.operands[operand::weight]),
        out_(setup.operands[operand::out].dtype),
        outside_(setup.scalars[params::resample::scalar::outside]) {
    for (uint32_t d = 0; d < 3; ++d) {
      dim_[d] = setup.roles[d];
      tile_[d] = setup.tile(d);
    }
    if (tile_[2] > 1 && x_.axes[2].stride != 1) reject(setup, setup.spec->operands[operand::x].at + 1 + 2 * params::kAxisWords, "x along i", "accepted: neighbours");
    taps_ = index_.axes[1].chunk;
    expect(setup, index_, operand::index);
    if (weight_.present) {
      expect(setup, weight_, operand::weight);
    } else if (taps_ != 1) {
      reject(setup, setup.spec->operands[operand::index].at + 1 + params::kAxisWords, "taps", "accepted: 1 without weights");
    }
  }

  void check(const Call& call) const override {
    x_.axes[0].local(call.origin[dim_[0]], call.origin[dim_[0]], tile_[0], "resample: x along o");
    x_.axes[2].local(call.origin[dim_[2]], call.origin[dim_[2]], tile_[2], "resample: x along i");
    index_.axes[0].local(call.origin[dim_[1]], call.origin[dim_[1]], tile_[1], "resample: index along j");
    if (weight_.present) weight_.axes[0].local(call.origin[dim_[1]], call.origin[dim_[1]], tile_[1], "resample: weight along j");
  }

  void run(const Call& call) const override {
    const Axis& along = x_.axes[1];
    const int64_t first = along.origin(call.origin[dim_[1]]);
    const auto* x = reinterpret_cast<const uint32_t*>(x_.in(call)) + begin(x_, 0, call) + begin(x_, 2, call);
    const auto* index = reinterpret_cast<const int32_t*>(index_.in(call)) + table(index_, call);
    const float* weight = weight_.present ? weight_.f32_in(call) + table(weight_, call) : nullptr;
    // Of one member along i, many of o are taken as neighbours instead.
    const int64_t together = tile_[2] == 1 ? std::min(tile_[0], kTogether) : 1;
    const int64_t step = together == 1 ? along.stride : together;
    // Places in the chunk, once for all of o.
    const auto places = static_cast<size_t>(tile_[1] * taps_);
    auto* at = static_cast<int32_t*>(scratch(kScratchPlan, places * sizeof(int32_t)));
    for (size_t p = 0; p < places; ++p) at[p] = index[p] < 0 ? -1 : static_cast<int32_t>(local(along, index[p] - first) * step);
    const Result<uint32_t> result(out_, call, static_cast<size_t>(tile_[0] * tile_[1] * tile_[2]));
    uint32_t* out = result.words;
    for (int64_t o = 0; o < tile_[0]; o += together, x += together * x_.axes[0].stride, out += together * tile_[1] * tile_[2]) {
      if (together == 1) {
        rows(x, at, weight, tile_[2], tile_[2], out);
      } else {
        columns(x, std::min(together, tile_[0] - o), together, at, weight, out);
      }
    }
    result.finish();
  }

 private:
  // The table has all taps of its rows, side by side.
  static void expect(const Setup& setup, const Operand& table, uint32_t which) {
    const Axis& taps = table.axes[1];
    const uint32_t at = setup.spec->operands[which].at + 1;
    if (taps.chunk != taps.extent || taps.chunk < 1 || (taps.chunk > 1 && taps.stride != 1)) {
      reject(setup, at + params::kAxisWords, "taps", "accepted: all of them side by side");
    }
    if (taps.chunk != setup.operands[operand::index].axes[1].chunk) reject(setup, at + params::kAxisWords, "taps", "accepted: as many as index has");
    if (table.axes[0].chunk > 1 && table.axes[0].stride != taps.chunk) reject(setup, at, "rows of the table", "accepted: one behind the other");
  }

  int64_t begin(const Operand& x, uint32_t d, const Call& call) const {
    const int64_t at = call.origin[dim_[d]];
    return x.axes[d].local(at, at, tile_[d], "resample: x");
  }
  int64_t table(const Operand& of, const Call& call) const {
    const int64_t at = call.origin[dim_[1]];
    return of.axes[0].local(at, at, tile_[1], "resample: a table along j");
  }
  static int64_t local(const Axis& along, int64_t place) {
    if (place < 0 || place >= along.chunk) {
      reject("resample: place " + std::to_string(place) + " of a chunk of " + std::to_string(along.chunk) + " elements along j");
    }
    return place;
  }

  // n neighbours of each row.
  void rows(const uint32_t* x, const int32_t* at, const float* weight, int64_t n, int64_t out_row, uint32_t* out) const {
    for (int64_t j = 0; j < tile_[1]; ++j) row(x, at + j * taps_, weight == nullptr ? nullptr : weight + j * taps_, static_cast<size_t>(n), out + j * out_row);
  }
  void row(const uint32_t* x, const int32_t* at, const float* weight, size_t n, uint32_t* out) const {
    if (at[0] < 0) {
      std::fill_n(out, n, outside_);
    } else if (weight == nullptr) {
      std::memcpy(out, x + at[0], n * sizeof *out);
    } else {
      const auto* values = reinterpret_cast<const float*>(x);
      auto* sums = reinterpret_cast<float*>(out);
      if (taps_ == 1) {
        simd().affine(values + at[0], weight[0], 0.0f, sums, n);
        return;
      }
      simd().add_scaled(values + at[0], 1, weight[0], values + at[1], 1, weight[1], sums, n);
      for (int64_t t = 2; t < taps_; ++t) simd().add_scaled(values + at[t], 1, weight[t], sums, 1, 1.0f, sums, n);
    }
  }

  // `count` members of o, brought together and back; `room` for each place.
  void columns(const uint32_t* x, int64_t count, int64_t room, const int32_t* at, const float* weight, uint32_t* out) const {
    const Axis& along = x_.axes[1];
    auto* turned = static_cast<uint32_t*>(scratch(kScratchPlane, static_cast<size_t>(along.chunk * room) * sizeof(uint32_t)));
    auto* made = static_cast<uint32_t*>(scratch(kScratchColumns, static_cast<size_t>(tile_[1] * room) * sizeof(uint32_t)));
    turn(x, x_.axes[0].stride, along.stride, count, along.chunk, turned, room);
    rows(turned, at, weight, count, room, made);
    turn(made, room, 1, tile_[1], count, out, tile_[1]);
  }
  // y[column][row] of x[row][column].
  static void turn(const uint32_t* x, int64_t row, int64_t column, int64_t rows, int64_t columns, uint32_t* y, int64_t y_row) {
    if (column == 1) {
      simd().transpose(reinterpret_cast<const float*>(x), row, static_cast<int>(rows), static_cast<int>(columns), reinterpret_cast<float*>(y), y_row);
      return;
    }
    for (int64_t c = 0; c < columns; ++c)
      for (int64_t r = 0; r < rows; ++r) y[c * y_row + r] = x[r * row + c * column];
  }

  Operand x_, index_, weight_;
  uint32_t out_, outside_;
  uint32_t dim_[3] = {};
  int64_t tile_[3] = {}, taps_ = 1;
};

}  // namespace

ONEDISPATCH_KERNEL(resample, make<Resample>)

}  // namespace onedispatch::kernels
