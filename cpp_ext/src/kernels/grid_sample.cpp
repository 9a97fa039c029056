// SPDX-License-Identifier: Apache-2.0
// od::grid_sample: out chunk [T_n][T_c][T_p], rows of the image a chunk at a time. Places and weights of all taps
// of a tile are computed once for its channels; a tap whose row is not in the chunk adds nothing in this step.
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
constexpr int kMostDimensions = 3, kMostTaps = 4;
constexpr float kFar = 1 << 24;  // beyond it floats have no fractions, and further lies nothing

class GridSample final : public Kernel {
 public:
  explicit GridSample(const Setup& setup)
      : x_(setup.operands[operand::x]),
        grid_(setup.operands[operand::grid]),
        taps_(static_cast<int>(setup.scalars[scalar::taps])),
        points_(static_cast<int>(setup.scalars[scalar::points])),
        padding_(setup.scalars[scalar::padding]),
        corners_(setup.scalars[scalar::corners] != 0) {
    for (uint32_t d = 0; d < 3; ++d) {
      dim_[d] = setup.roles[d];
      tile_[d] = setup.tile(d);
    }
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
    auto* out = reinterpret_cast<float*>(call.out);
    const int64_t planes = tile_[0] * tile_[1], places = tile_[2];
    if (call.k_index == 0) std::fill_n(out, planes * places, 0.0f);
    const float* x = x_.f32_in(call) + begin(x_.axes[0], call, 0) + begin(x_.axes[1], call, 1) +
                     x_.axes[2].local(call.k_first, call.k_first, call.k_count, "grid_sample: x along k");
    const float* grid = grid_.f32_in(call) + begin(grid_.axes[0], call, 0) + begin(grid_.axes[1], call, 2);
    const auto count = static_cast<size_t>(places * points_);
    auto* at = static_cast<int32_t*>(scratch(kScratchPlan, count * sizeof(int32_t)));
    auto* weight = static_cast<float*>(scratch(kScratchColumns, count * sizeof(float)));
    for (int64_t n = 0; n < tile_[0]; ++n) {
      for (int64_t p = 0; p < places; ++p) place(call, grid + n * grid_.axes[0].stride + p * grid_.axes[1].stride, at + p * points_, weight + p * points_);
      for (int64_t c = 0; c < tile_[1]; ++c, out += places) {
        gather(x + n * x_.axes[0].stride + c * x_.axes[1].stride, at, weight, out);
      }
    }
  }

 private:
  int64_t begin(const Axis& axis, const Call& call, uint32_t d) const {
    const int64_t at = call.origin[dim_[d]];
    return axis.local(at, at, tile_[d], "grid_sample");
  }

  void gather(const float* x, const int32_t* at, const float* weight, float* out) const {
    for (int64_t p = 0; p < tile_[2]; ++p, at += points_, weight += points_) {
      float sum = out[p];
      for (int t = 0; t < points_; ++t) {
        if (at[t] < 0) continue;
        sum = taps_ == 1 ? x[at[t]] : sum + weight[t] * x[at[t]];
      }
      out[p] = sum;
    }
  }

  // Where the taps of a place lie in the chunk, -1 where not, and what they weigh.
  void place(const Call& call, const float* coordinates, int32_t* at, float* weight) const {
    int64_t along[kMostDimensions][kMostTaps] = {};
    float share[kMostDimensions][kMostTaps] = {};
    for (int d = 0; d < spatial_; ++d) split(coordinates[d * grid_.axes[2].stride], sizes_[d], along[d], share[d]);
    for (int t = 0; t < points_; ++t) {
      int64_t row = 0, step = 1;
      bool inside = along[0][t % taps_] >= 0;
      float product = share[0][t % taps_];
      for (int d = 1, rest = t / taps_; d < spatial_; ++d, rest /= taps_) {
        const int64_t line = along[d][rest % taps_];
        inside = inside && line >= 0;
        row += line * step;
        step *= sizes_[d];
        product *= share[d][rest % taps_];
      }
      inside = inside && row >= call.k_first && row < int64_t{call.k_first} + call.k_count;
      at[t] = inside ? static_cast<int32_t>((row - call.k_first) * x_.axes[2].stride + along[0][t % taps_] * x_.axes[3].stride) : -1;
      weight[t] = product;
    }
  }

  float low() const { return corners_ ? 0.0f : -0.5f; }
  float high(int64_t size) const { return static_cast<float>(size) - (corners_ ? 1.0f : 0.5f); }

  // The taps along one dimension: places (-1 outside) and weights. Borders are kept to tap by tap: what is
  // beyond them reads the last element with any weight.
  void split(float coordinate, int64_t size, int64_t* along, float* share) const {
    const auto n = static_cast<float>(size);
    float x = corners_ ? (coordinate + 1) / 2 * (n - 1) : ((coordinate + 1) * n - 1) / 2;
    if (taps_ == 1) x = std::nearbyint(x);
    x = std::isnan(x) ? -kFar : std::min(std::max(x, -kFar), kFar);
    if (padding_ == kReflection) x = reflected(x, low(), high(size));
    const float base = std::floor(x), part = x - base;
    if (taps_ == 1) {
      share[0] = 1;
    } else if (taps_ == 2) {
      share[0] = 1 - part;
      share[1] = part;
    } else {
      for (int t = 0; t < 4; ++t) share[t] = cubic(std::abs(part - static_cast<float>(t - 1)));
    }
    const int64_t first = static_cast<int64_t>(base) - (taps_ == 4 ? 1 : 0);
    for (int t = 0; t < taps_; ++t) along[t] = inside(first + t, size);
  }

  int64_t inside(int64_t at, int64_t size) const {
    if (padding_ == kZeros) return at < 0 || at >= size ? -1 : at;
    if (padding_ == kReflection) at = static_cast<int64_t>(reflected(static_cast<float>(at), low(), high(size)));
    return std::min(std::max<int64_t>(at, 0), size - 1);
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

  Operand x_, grid_;
  int taps_, points_, spatial_ = 1;
  uint32_t padding_;
  bool corners_;
  uint32_t dim_[3] = {};
  int64_t tile_[3] = {}, sizes_[kMostDimensions] = {};  // of the image, the last dimension first
};

}  // namespace

ONEDISPATCH_KERNEL(grid_sample, make<GridSample>)

}  // namespace onedispatch::kernels
