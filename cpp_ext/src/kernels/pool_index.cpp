// SPDX-License-Identifier: Apache-2.0
// od::pool_index: the largest value of every window, and where in x it lies. Out chunks [c][oh][ow]: the
// value, and channel * plane + row * row_step + column * column_step of the first tap that has it.
#include <limits>

#include "kernel.h"
#include "simd/simd.h"
#include "window.h"
#include "words.h"

namespace onedispatch::kernels {

namespace {

namespace operand = params::pool_index::operand;
namespace scalar = params::pool_index::scalar;

class PoolIndex final : public Kernel {
 public:
  explicit PoolIndex(const Setup& setup)
      : window_(setup, scalar::kh),
        index_(setup.operands[operand::index]),
        out_(setup.operands[operand::out].dtype),
        plane_(setup.scalars[scalar::plane]),
        row_step_(setup.scalars[scalar::row_step]),
        column_step_(setup.scalars[scalar::column_step]) {}

  void check(const Call& call) const override {
    window_.check(call);
    window_.channel(call);
  }

  void run(const Call& call) const override {
    if (is_float(out_)) {
      run_as<float>(call, -std::numeric_limits<float>::infinity());
    } else {
      run_as<int32_t>(call, std::numeric_limits<int32_t>::min());
    }
  }

 private:
  template <class Word>
  void run_as(const Call& call, Word least) const {
    const Window& w = window_;
    const Word* x = words_in<Word>(w.x, call, w.channel(call), w.channels_reach(w.tile_c), kScratchWords);
    auto* values = reinterpret_cast<Word*>(call.out);
    auto* places = reinterpret_cast<uint32_t*>(index_.out(call));
    auto* across = static_cast<int32_t*>(scratch(kScratchRow, static_cast<size_t>(w.columns) * 4));
    for (int c = 0; c < w.columns; ++c) across[c] = leading(w.first_column(call) + int64_t{c} * w.sw, w.dw, w.kw);
    w.for_channels(call, x, w.tile_c, least, [&](int c, TapsOf<Word> taps) {
      const uint32_t first = (call.origin[w.dim_c] + static_cast<uint32_t>(c)) * plane_;
      for (int r = 0; r < w.rows; ++r) {
        const ptrdiff_t at = (static_cast<ptrdiff_t>(c) * w.rows + r) * w.columns;
        row(call, taps, r, first, across, values + at, places + at);
      }
    });
  }

  // Taps of a window before the first one inside of x; all are outside where none is inside.
  static int32_t leading(int64_t first, int64_t step, int count) {
    int tap = 0;
    while (tap + 1 < count && first + tap * step < 0) ++tap;
    return tap;
  }

  // Position of the taps of the tile's first column in line `y` of the windows of row `r`, modulo 2^32: that
  // of taps outside of x is never taken.
  uint32_t line(const Call& call, int r, int y) const {
    const Window& w = window_;
    const int64_t h = w.first_row(call) + int64_t{r} * w.sh + int64_t{y} * w.dh;
    return static_cast<uint32_t>(h) * row_step_ + static_cast<uint32_t>(w.first_column(call)) * column_step_;
  }

  template <class Word>
  void row(const Call& call, const TapsOf<Word>& taps, int r, uint32_t first, const int32_t* across, Word* values,
           uint32_t* places) const {
    const Window& w = window_;
    const Word* plane = taps.plane + r * taps.plane_row;
    const uint32_t step = static_cast<uint32_t>(w.sw) * column_step_, tap_step = static_cast<uint32_t>(w.dw) * column_step_;
    const int32_t y0 = leading(w.first_row(call) + int64_t{r} * w.sh, w.dh, w.kh);
    const uint32_t begin = first + line(call, r, y0);
    for (int c = 0; c < w.columns; ++c) {  // the first tap inside stands unless a later one is larger
      values[c] = plane[taps.offsets[y0 * w.kw + across[c]] + c];
      places[c] = begin + static_cast<uint32_t>(c) * step + static_cast<uint32_t>(across[c]) * tap_step;
    }
    for (int y = y0; y < w.kh; ++y) {
      for (int t = 0; t < w.kw; ++t) {
        const Word* x = plane + taps.offsets[y * w.kw + t];
        const uint32_t place = first + line(call, r, y) + static_cast<uint32_t>(t) * tap_step;
        for (int c = 0; c < w.columns; ++c) {
          const bool larger = x[c] > values[c];
          values[c] = larger ? x[c] : values[c];
          places[c] = larger ? place + static_cast<uint32_t>(c) * step : places[c];
        }
      }
    }
  }

  Window window_;
  Operand index_;
  uint32_t out_;  // element type
  uint32_t plane_, row_step_, column_step_;
};

}  // namespace

ONEDISPATCH_KERNEL(pool_index, make<PoolIndex>)

}  // namespace onedispatch::kernels
