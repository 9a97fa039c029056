// SPDX-License-Identifier: Apache-2.0
// od::pool: maximum, average or sum over windows. Out chunk [c][oh][ow]. Averages are of floats, in f32.
// Of a maximum, a NaN that leads its window stays, others are passed over.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernel.h"
#include "simd/simd.h"
#include "window.h"
#include "words.h"

namespace onedispatch::kernels {

namespace {

namespace scalar = params::pool::scalar;
namespace mode = params::pool_mode;

// What changes no maximum.
template <class Word>
constexpr Word least() {
  using Limits = std::numeric_limits<Word>;
  return Limits::has_infinity ? -Limits::infinity() : Limits::min();
}

class Pool final : public Kernel {
 public:
  explicit Pool(const Setup& setup)
      : window_(setup, scalar::kh),
        mode_(setup.scalars[scalar::mode]),
        out_(setup.operands[params::pool::operand::out].dtype),
        activation_(setup, scalar::act) {
    for (uint32_t i = 0; i < 4; ++i) pads_[i] = static_cast<int32_t>(setup.scalars[scalar::pad_top + i]);
    if (is_float(out_)) return;
    if (mode_ != mode::max_) reject(setup, params::pool::mode, "mode", "integers accept max (0)");
    if (activation_.code != params::activation::none_) reject(setup, params::pool::act, "act", "integers accept none (0)");
  }

  void check(const Call& call) const override {
    window_.check(call);
    window_.channel(call);
  }

  void run(const Call& call) const override {
    with_word(out_, [&](auto word) { run_as<decltype(word)>(call); });
  }

 private:
  template <class Word>
  void run_as(const Call& call) const {
    // One by one: they may lie far apart.
    const int64_t first = window_.channel(call), reach = window_.channels_reach(1);
    const auto channel = [&](int c) { return words_in<Word>(window_.x, call, first + c * window_.x_c.stride, reach, kScratchWords); };
    const auto pixels = static_cast<size_t>(window_.pixels()), all = static_cast<size_t>(window_.tile_c) * pixels;
    const Result<Word> result(out_, call, all);
    const float* counts = mode_ == mode::max_ || mode_ == mode::sum_ ? nullptr : cell_counts(call);
    const Word padding = mode_ == mode::max_ ? least<Word>() : Word{0};
    window_.for_each_channel(call, window_.tile_c, padding, channel, [&](int c, TapsOf<Word> taps) {
      taps.out = result.words + static_cast<size_t>(c) * pixels;
      taps.out_row = window_.columns;
      if (mode_ == mode::max_) {
        simd().of<Word>().taps_max(taps);
        if constexpr (std::is_same_v<Word, float>) keep_leading_nans(call, taps);
        return;
      }
      simd().of<Word>().taps_sum(taps);
      if constexpr (std::is_same_v<Word, float>) {
        if (counts != nullptr) simd().binary(params::eltwise_func::div_, taps.out, 1, counts, 1, taps.out, pixels);
      }
    });
    if constexpr (std::is_same_v<Word, float>) activation_.apply(result.words, all);
    result.finish();
  }

  // As onnxruntime's plain loops (which it has for dilated windows): the largest value is compared with every
  // later one, so a NaN stays where it is the first of its window inside of x, and is passed over elsewhere.
  void keep_leading_nans(const Call& call, const Taps& taps) const {
    const Window& w = window_;
    const auto leading = [](int64_t first, int64_t step, int count) {
      int tap = 0;
      while (tap + 1 < count && first + tap * step < 0) ++tap;
      return tap;
    };
    auto* across = static_cast<int32_t*>(scratch(kScratchRow, static_cast<size_t>(w.columns) * 4));
    for (int c = 0; c < w.columns; ++c) across[c] = leading(w.first_column(call) + int64_t{c} * w.sw, w.dw, w.kw);
    int edge = 0;  // columns whose windows begin outside of x; the others' first elements are neighbours
    while (edge < w.columns && across[edge] != 0) ++edge;
    for (int r = 0; r < w.rows; ++r) {
      const int32_t* offsets = taps.offsets + leading(w.first_row(call) + int64_t{r} * w.sh, w.dh, w.kh) * w.kw;
      const float* x = taps.plane + r * taps.plane_row;
      const int end = any_nan(x + offsets[0] + edge, w.columns - edge) ? w.columns : edge;
      for (int c = 0; c < end; ++c) {
        const float first = x[offsets[across[c]] + c];
        if (std::isnan(first)) taps.out[r * taps.out_row + c] = first;
      }
    }
  }
  static bool any_nan(const float* x, int n) {
    uint32_t any = 0;
    for (int i = 0; i < n; ++i) any |= x[i] != x[i] ? 1 : 0;
    return any != 0;
  }

  // Cells of one window line that count: coordinates first, first + step, ... in [-before, extent + after).
  static int line_count(int64_t first, int taps, int step, int64_t extent, int64_t before, int64_t after) {
    int count = 0;
    for (int t = 0; t < taps; ++t) {
      const int64_t at = first + int64_t{t} * step;
      count += at >= -before && at < extent + after;
    }
    return count;
  }

  const float* cell_counts(const Call& call) const {
    const Window& w = window_;
    const bool with_pads = mode_ == mode::average_include_pad_;
    auto* counts = static_cast<float*>(
        scratch(kScratchRow, static_cast<size_t>(w.pixels() + w.columns) * 4));
    float* across = counts + w.pixels();
    for (int c = 0; c < w.columns; ++c) {
      const int64_t first = w.first_column(call) + int64_t{c} * w.sw;
      across[c] = static_cast<float>(line_count(first, w.kw, w.dw, w.width, with_pads ? pads_[1] : 0, with_pads ? pads_[3] : 0));
    }
    for (int r = 0; r < w.rows; ++r) {
      const int64_t first = w.first_row(call) + int64_t{r} * w.sh;
      const auto down = static_cast<float>(line_count(first, w.kh, w.dh, w.x_h.extent, with_pads ? pads_[0] : 0, with_pads ? pads_[2] : 0));
      for (int c = 0; c < w.columns; ++c) counts[r * w.columns + c] = down * across[c];
    }
    return counts;
  }

  Window window_;
  uint32_t mode_, out_;
  Activation activation_;
  int32_t pads_[4] = {};  // top, left, bottom, right
};

}  // namespace

ONEDISPATCH_KERNEL(pool, make<Pool>)

}  // namespace onedispatch::kernels
