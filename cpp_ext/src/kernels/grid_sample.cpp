// SPDX-License-Identifier: Apache-2.0
// od::grid_sample: out chunk [T_n][T_c][T_p], rows of the image a chunk at a time. Places and weights of all taps
// of a tile are computed once for its channels; a tap whose row is not in the chunk adds nothing in this step. So
// of a block of places the rows come first, and only those that have one in the chunk are looked at further.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernel.h"
#include "simd/simd.h"

namespace onedispatch::kernels {

namespace {

namespace operand = params::grid_sample::operand;
namespace scalar = params::grid_sample::scalar;

enum { kZeros, kBorder, kReflection };  // PADDINGS in grid_sample.py
constexpr int kMostDimensions = 3, kMostTaps = 4, kMostLines = kMostTaps * kMostTaps;
constexpr int64_t kBlock = 128;  // places whose rows are looked for at a time
constexpr float kFar = 1 << 24;  // beyond it floats have no fractions, and further lies nothing

class GridSample final : public Kernel {
 public:
  explicit GridSample(const Setup& setup)
      : x_(setup.operands[operand::x]),
        grid_(setup.operands[operand::grid]),
        out_(setup.operands[operand::out]),
        taps_(static_cast<int>(setup.scalars[scalar::taps])),
        points_(static_cast<int>(setup.scalars[scalar::points])),
        padding_(setup.scalars[scalar::padding]),
        corners_(setup.scalars[scalar::corners] != 0) {
    for (uint32_t d = 0; d < 3; ++d) {
      dim_[d] = setup.roles[d];
      tile_[d] = setup.tile(d);
    }
    if (tile_[2] > 1 && out_.axes[2].stride != 1) reject("grid_sample: out; accepted: rows whose elements are neighbours");
    const auto spatial = static_cast<uint64_t>(grid_.axes[2].chunk);
    spatial_ = static_cast<int>(std::min<uint64_t>(spatial, kMostDimensions + 1));
    if (spatial < 1 || spatial > kMostDimensions) reject(setup, setup.spec->operands[operand::grid].at + 1 + 2 * params::kAxisWords, "coordinates", "accepted: 1 to 3");
    if (taps_ == 3) reject(setup, params::grid_sample::taps, "taps", "accepted: 1, 2 or 4");
    int64_t points = 1;
    for (int d = 0; d < spatial_; ++d) points *= taps_;
    if (points != points_) reject(setup, params::grid_sample::points, "points", "accepted: taps to the power of the dimensions");
    const int64_t height = setup.scalars[scalar::height], rows = setup.k_extent;
    if (rows % height != 0 || (spatial_ < 2 && rows != 1) || (spatial_ == 2 && rows != height)) {
      reject(setup, params::grid_sample::height, "height", "accepted: what divides the rows of the image");
    }
    if (rows > INT32_MAX) reject(setup, params::header::k_extent, "rows", "accepted: fewer than 2^31");
    if (x_.axes[3].chunk != x_.axes[3].extent) reject(setup, setup.spec->operands[operand::x].at + 1 + 3 * params::kAxisWords, "row", "accepted: whole rows");
    sizes_[0] = x_.axes[3].extent;
    sizes_[1] = height;
    sizes_[2] = rows / height;
  }

  void check(const Call& call) const override {
    for (uint32_t d = 0; d < 2; ++d) begin(x_.axes[d], call, d);
    begin(grid_.axes[0], call, 0);
    begin(grid_.axes[1], call, 2);
    x_.axes[2].local(call.k_first, call.k_first, call.k_count, "grid_sample: x along k");
  }

  void run(const Call& call) const override {
    const int64_t places = tile_[2];
    const float* x = x_.f32_in(call) + begin(x_.axes[0], call, 0) + begin(x_.axes[1], call, 1) +
                     x_.axes[2].local(call.k_first, call.k_first, call.k_count, "grid_sample: x along k");
    const float* grid = grid_.f32_in(call) + begin(grid_.axes[0], call, 0) + begin(grid_.axes[1], call, 2);
    const auto taps = static_cast<size_t>(places * points_);
    Plan plan{static_cast<int32_t*>(scratch(kScratchRow, static_cast<size_t>(places) * sizeof(int32_t))),
              static_cast<int32_t*>(scratch(kScratchPlan, taps * sizeof(int32_t))),
              static_cast<float*>(scratch(kScratchColumns, taps * sizeof(float)))};
    for (int64_t n = 0; n < tile_[0]; ++n) {
      plan.count = 0;
      for (int64_t p = 0; p < places; p += kBlock) place(call, grid + n * grid_.axes[0].stride, p, std::min(kBlock, places - p), plan);
      for (int64_t c = 0; c < tile_[1]; ++c) {
        float* const out = reinterpret_cast<float*>(call.out) + n * out_.axes[0].stride + c * out_.axes[1].stride;
        if (call.k_index == 0) std::fill_n(out, places, 0.0f);
        gather(x + n * x_.axes[0].stride + c * x_.axes[1].stride, plan, out);
      }
    }
  }

 private:
  // Places that have taps in the chunk; where these lie in it, -1 where not, and what they weigh.
  struct Plan {
    int32_t* place;
    int32_t* at;
    float* weight;
    int64_t count = 0;
  };
  // What the taps of a block have along one dimension.
  struct Taps {
    int32_t at[kMostTaps][kBlock];
    float share[kMostTaps][kBlock];
  };

  struct Lines {
    int line[kMostLines];
    int count;
    const int* begin() const { return line; }
    const int* end() const { return line + count; }
  };

  int64_t begin(const Axis& axis, const Call& call, uint32_t d) const {
    const int64_t at = call.origin[dim_[d]];
    return axis.local(at, at, tile_[d], "grid_sample");
  }

  void gather(const float* x, const Plan& plan, float* out) const {
    const int32_t* at = plan.at;
    const float* weight = plan.weight;
    for (int64_t i = 0; i < plan.count; ++i, at += points_, weight += points_) {
      float sum = out[plan.place[i]];
      for (int t = 0; t < points_; ++t) {
        if (at[t] < 0) continue;
        sum = taps_ == 1 ? x[at[t]] : sum + weight[t] * x[at[t]];
      }
      out[plan.place[i]] = sum;
    }
  }

  // Adds what `count` places from `first` on have in the chunk.
  void place(const Call& call, const float* grid, int64_t first, int64_t count, Plan& plan) const {
    const int64_t step = grid_.axes[1].stride, along = grid_.axes[2].stride;
    const int lines = points_ / taps_;  // rows of the image that a place has taps in
    Taps taps[kMostDimensions];
    float x[kBlock];
    grid += first * step;
    for (int d = 1; d < spatial_; ++d) {
      for (int64_t i = 0; i < count; ++i) x[i] = grid[i * step + d * along];
      split(x, count, sizes_[d], taps[d]);
    }
    int32_t row[kMostLines][kBlock], whose[kBlock];
    const int64_t held = look_for(call, taps, lines, count, row, whose);
    for (int64_t i = 0; i < held; ++i) x[i] = grid[whose[i] * step];
    split(x, held, sizes_[0], taps[0]);
    for (int64_t i = 0; i < held; ++i) {
      const int32_t p = whose[i];
      plan.place[plan.count] = static_cast<int32_t>(first) + p;
      int32_t* at = plan.at + plan.count * points_;
      float* weight = plan.weight + plan.count * points_;
      ++plan.count;
      for (const int line : in_order(row, p, lines)) {
        for (int t = 0; t < taps_; ++t) {
          const int32_t column = taps[0].at[t][i];
          float product = taps[0].share[t][i];
          for (int d = 1, rest = line; d < spatial_; ++d, rest /= taps_) product *= taps[d].share[rest % taps_][p];
          *at++ = row[line][p] < 0 || column < 0 ? -1 : row[line][p] + column * static_cast<int32_t>(x_.axes[3].stride);
          *weight++ = product;
        }
      }
    }
  }

  // A place's lines as they lie in the image, so that sums are the same to the bit however many steps there are: reflected
  // rows come in reverse.
  Lines in_order(const int32_t (*row)[kBlock], int32_t place, int lines) const {
    Lines order{{}, lines};
    for (int line = 0; line < lines; ++line) {
      int at = line;
      for (; padding_ == kReflection && at > 0 && row[order.line[at - 1]][place] > row[line][place]; --at) order.line[at] = order.line[at - 1];
      order.line[at] = line;
    }
    return order;
  }

  // Where the rows of a block's places begin in the chunk, -1 where they are not in it; returns how many places
  // have one, and puts these into `whose`.
  int64_t look_for(const Call& call, const Taps* taps, int lines, int64_t count, int32_t (*row)[kBlock], int32_t* whose) const {
    int32_t any[kBlock];
    std::fill_n(any, count, -1);
    const auto first = static_cast<int32_t>(call.k_first), end = static_cast<int32_t>(call.k_first + call.k_count);
    const auto pitch = static_cast<uint32_t>(x_.axes[2].stride);
    for (int line = 0; line < lines; ++line) {
      int32_t* own = row[line];
      std::fill_n(own, count, 0);
      int32_t step = 1;
      for (int d = 1, rest = line; d < spatial_; ++d, rest /= taps_) {
        const int32_t* at = taps[d].at[rest % taps_];
        for (int64_t i = 0; i < count; ++i) own[i] = (own[i] < 0) | (at[i] < 0) ? -1 : own[i] + at[i] * step;
        step *= static_cast<int32_t>(sizes_[d]);
      }
      for (int64_t i = 0; i < count; ++i) {
        const auto begins = static_cast<int32_t>(static_cast<uint32_t>(own[i] - first) * pitch);
        own[i] = (own[i] >= first) & (own[i] < end) ? begins : -1;
        any[i] &= own[i];  // its sign stays where no row was found
      }
    }
    int64_t held = 0;
    for (int64_t i = 0; i < count; ++i) {
      whose[held] = static_cast<int32_t>(i);
      held += any[i] >= 0 ? 1 : 0;
    }
    return held;
  }

  float low() const { return corners_ ? 0.0f : -0.5f; }
  float high(int64_t size) const { return static_cast<float>(size) - (corners_ ? 1.0f : 0.5f); }

  // The taps along one dimension: places (-1 outside) and weights of `count` coordinates, which are used up. Borders
  // are kept to tap by tap: what is beyond them reads the last element with any weight.
  void split(float* x, int64_t count, int64_t size, Taps& taps) const {
    const auto n = static_cast<float>(size);
    if (corners_) {
      for (int64_t i = 0; i < count; ++i) x[i] = (x[i] + 1) / 2 * (n - 1);
    } else {
      for (int64_t i = 0; i < count; ++i) x[i] = ((x[i] + 1) * n - 1) / 2;
    }
    if (taps_ == 1) {
      for (int64_t i = 0; i < count; ++i) x[i] = std::nearbyint(x[i]);
    }
    for (int64_t i = 0; i < count; ++i) x[i] = x[i] >= -kFar ? (x[i] < kFar ? x[i] : kFar) : -kFar;  // a NaN lies outside
    if (padding_ == kReflection) {
      for (int64_t i = 0; i < count; ++i) x[i] = reflected(x[i], low(), high(size));
    }
    int32_t base[kBlock];
    for (int64_t i = 0; i < count; ++i) {
      const auto cut = static_cast<int32_t>(x[i]);
      base[i] = cut - (static_cast<float>(cut) > x[i] ? 1 : 0);
      x[i] -= static_cast<float>(base[i]);
    }
    for (int t = 0; t < taps_; ++t) {
      const int32_t ahead = t - (taps_ == 4 ? 1 : 0);
      float* share = taps.share[t];
      if (taps_ == 1) {
        std::fill_n(share, count, 1.0f);
      } else if (taps_ == 2) {
        for (int64_t i = 0; i < count; ++i) share[i] = t == 0 ? 1 - x[i] : x[i];
      } else {
        for (int64_t i = 0; i < count; ++i) share[i] = cubic(std::abs(x[i] - static_cast<float>(ahead)));
      }
      keep_inside(base, ahead, count, static_cast<int32_t>(size), taps.at[t]);
    }
  }

  void keep_inside(const int32_t* base, int32_t ahead, int64_t count, int32_t size, int32_t* to) const {
    if (padding_ == kZeros) {
      for (int64_t i = 0; i < count; ++i) to[i] = (base[i] + ahead < 0) | (base[i] + ahead >= size) ? -1 : base[i] + ahead;
      return;
    }
    for (int64_t i = 0; i < count; ++i) {
      int32_t at = base[i] + ahead;
      if (padding_ == kReflection) at = static_cast<int32_t>(reflected(static_cast<float>(at), low(), high(size)));
      to[i] = std::min(std::max(at, 0), size - 1);
    }
  }

  static float reflected(float x, float low, float high) {
    const float span = high - low;
    if (x >= low && x <= high) return x;
    if (span <= 0) return low;
    const bool below = x < low;
    const float beyond = below ? low - x : x - high, turns = std::floor(beyond / span), rest = beyond - turns * span;
    const bool even = std::fmod(turns, 2.0f) == 0.0f;
    return below == even ? low + rest : high - rest;
  }

  static float cubic(float d) {
    constexpr float a = -0.75f;
    return d <= 1 ? ((a + 2) * d - (a + 3)) * d * d + 1 : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
  }

  Operand x_, grid_, out_;
  int taps_, points_, spatial_ = 1;
  uint32_t padding_;
  bool corners_;
  uint32_t dim_[3] = {};
  int64_t tile_[3] = {}, sizes_[kMostDimensions] = {};  // of the image, the last dimension first
};

}  // namespace

ONEDISPATCH_KERNEL(grid_sample, make<GridSample>)

}  // namespace onedispatch::kernels
