// SPDX-License-Identifier: Apache-2.0
// od::conv and od::dwconv of integers: sum (x - x_zero) * (w - w_zero) in int32, which wraps, then the bias, then a
// scale where results are to be narrow, and a table for what they become. Bytes stay bytes on their way to the products
// of od::conv. Those of x that have 16 bits are two of them each (byte_parts.h), and have sums of 64 bits; windows of so
// few taps as od::dwconv takes need no more than 32.
#include "conv_integer.h"

#include <algorithm>

#include "byte_parts.h"
#include "simd/simd.h"
#include "window.h"
#include "words.h"

namespace onedispatch::kernels {

namespace {

constexpr int kNarrowTaps = 128;  // |x - x_zero| < 2^16, |w - w_zero| < 2^8: so many products are below 2^31
constexpr size_t kColumnBytes = 128 * 1024;  // of im2col at a time: they stay in L2

// Indices of operands and scalars in the declaration of a kernel.
struct ParameterIndices {
  uint32_t w, bias, x_zero, w_zero, scale, out_zero, table, out, kh, pad, out_zero_word, table_word;
};
namespace c = params::conv;
constexpr ParameterIndices kConv{c::operand::w,        c::operand::bias,  c::operand::x_zero, c::operand::w_zero, c::operand::scale,
                       c::operand::out_zero, c::operand::table, c::operand::out,    c::scalar::kh,      c::scalar::pad,
                       c::out_zero_co,       c::table_entries};
namespace d = params::dwconv;
constexpr ParameterIndices kDepthwise{d::operand::w,        d::operand::bias,  d::operand::x_zero, d::operand::w_zero, d::operand::scale,
                            d::operand::out_zero, d::operand::table, d::operand::out,    d::scalar::kh,      d::scalar::pad,
                            d::out_zero_c,        d::table_entries};

// What both have in common: zero points, and what becomes of sums.
class IntegerWindows : public Kernel {
 protected:
  IntegerWindows(const Setup& setup, const ParameterIndices& at)
      : window_(setup, at.kh),
        out_(setup.operands[at.out].dtype),
        wide_(element_bytes(window_.x.dtype) == 2),
        pad_(static_cast<int32_t>(setup.scalars[at.pad])),
        w_(setup.operands[at.w]),
        bias_(setup.operands[at.bias]),
        x_zero_(setup.operands[at.x_zero]),
        w_zero_(setup.operands[at.w_zero]),
        scale_(setup.operands[at.scale]),
        out_zero_(setup.operands[at.out_zero]),
        table_(setup.operands[at.table]),
        bias_panels_(setup, bias_, 0),
        scale_panels_(setup, scale_, 0),
        w_zero_panels_(setup, w_zero_, 0),
        zero_panels_(setup, out_zero_, 0),
        table_panels_(setup, table_, Panels::kWhole),
        out_apart_(static_cast<ptrdiff_t>(window_.channels_apart(setup.operands[at.out]))) {
    if (is_word(out_)) require_whole(setup, at.out);
    if (wide_ && (bias_panels_ || scale_panels_)) reject("conv: x of 16 bits has no panels");
    if (!is_word(out_) && !scale_.present) reject(setup, at.out_zero_word - 1, "scale", "sums need one to become narrow");
    if (x_zero_.axes[0].stride != 0 || out_zero_.axes[0].stride != 0) {
      reject(setup, at.out_zero_word + 2, "x_zero and out_zero: stride", "accepted: 0, one for all channels");
    }
    if (table_.present && (wide_ || !scale_.present || !is_table(table_))) {
      reject(setup, at.table_word + 1, "table", "accepted: 256 entries side by side, one for every byte that sums of bytes become by a scale");
    }
  }

  // Where the parameters of the tile's first channel lie, in elements. Rejects what the chunks do not hold.
  struct Parameters {
    int64_t bias, w_zero, scale;
  };
  Parameters parameters(const Call& call) const {
    const int64_t first = call.origin[window_.dim_c], count = window_.tile_c;
    return {local(bias_.axes[0], bias_panels_, first, count, "bias"), local(w_zero_.axes[0], w_zero_panels_, first, count, "w_zero"),
            local(scale_.axes[0], scale_panels_, first, count, "scale")};
  }

  // Value number `i` of an operand as int32; 0 where it is absent.
  static int32_t value(const Operand& x, const Call& call, int64_t i) {
    if (!x.present) return 0;
    int32_t found;
    const uint32_t bytes = element_bytes(x.dtype);
    if (bytes == 4) {
      std::memcpy(&found, x.in(call) + i * 4, 4);
    } else {
      simd().widen(x.dtype, x.in(call) + i * bytes, &found, 1);
    }
    return found;
  }
  // What x has for its zero, and what lies around it.
  int32_t x_zero(const Call& call) const { return value(x_zero_, call, 0); }
  int32_t around(const Call& call) const { return x_zero_.present ? x_zero(call) : pad_; }
  int32_t w_zero(const Call& call, const Parameters& at, int64_t c) const { return value(w_zero_, call, at.w_zero + member(w_zero_.axes[0], w_zero_panels_, c)); }

  // The sums [channel][pixel] with their biases, as they are or narrow.
  void finish(const Call& call, const Parameters& at, int32_t* sums) const {
    const int pixels = window_.pixels();
    const auto* bias = bias_.present ? reinterpret_cast<const int32_t*>(neighbours(bias_, bias_panels_, call, at.bias, window_.tile_c, kScratchRow)) : nullptr;
    const int64_t step = neighbour_step(bias_, bias_panels_), scale_step = neighbour_step(scale_, scale_panels_);
    if (scale_.present) {
      const float* scale = neighbours(scale_, scale_panels_, call, at.scale, window_.tile_c, kScratchOtherWords);
      const int rows = zero_panels_ ? static_cast<int>(zero_panels_.length) : window_.tile_c;
      for (int c = 0; c < window_.tile_c; c += rows) {
        const int32_t zero = value(out_zero_, call, c / rows * zero_panels_.stride);
        const int32_t* added = bias == nullptr ? nullptr : bias + c * step;
        uint8_t* out = call.out + c * out_apart_ * element_bytes(out_);
        simd().requantise({sums + c * pixels, pixels, added, step, scale + c * scale_step, scale_step, 0, zero, out_, out, out_apart_, rows, pixels});
      }
      const int looked_up = table_panels_ ? static_cast<int>(table_panels_.length) : window_.tile_c;
      const int together = out_apart_ == pixels ? looked_up : 1;
      for (int c = 0; table_.present && c < window_.tile_c; c += together) {
        uint8_t* out = call.out + c * out_apart_;
        simd().look_up(table_.in(call) + c / looked_up * table_panels_.stride, out, out, static_cast<size_t>(together) * static_cast<size_t>(pixels));
      }
      return;
    }
    for (int64_t c = 0; bias != nullptr && c < window_.tile_c; ++c) {
      int32_t* row = sums + c * pixels;
      simd().binary_int(params::eltwise_func::add_, params::dtype::i32, row, 1, bias + c * step, 0, row, static_cast<size_t>(pixels));
    }
  }

  // The sums [pixel] of channel `c`, which have 64 bits, with their bias, narrow.
  void finish_wide(const Call& call, const Parameters& at, int64_t c, const int64_t* row) const {
    const int64_t i = at.bias + c * bias_.axes[0].stride;
    int64_t bias = 0;
    if (bias_.present && bias_.dtype == params::dtype::i64) {
      std::memcpy(&bias, bias_.in(call) + i * 8, 8);
    } else {
      bias = value(bias_, call, i);
    }
    uint8_t* out = call.out + c * out_apart_ * element_bytes(out_);
    const float* scale = scale_.f32_in(call) + at.scale + c * scale_.axes[0].stride;
    simd().requantise_wide({row, 0, &bias, scale, false, value(out_zero_, call, 0), out_, out, 0, 1, window_.pixels()});
  }

  Window window_;
  uint32_t out_;  // element type
  bool wide_;     // sums of 64 bits
  int32_t pad_;
  Operand w_, bias_, x_zero_, w_zero_, scale_, out_zero_, table_;
  Panels bias_panels_, scale_panels_, w_zero_panels_, zero_panels_, table_panels_;
  ptrdiff_t out_apart_;  // elements from a channel of results to the next
};

class IntegerConv final : public IntegerWindows {
 public:
  explicit IntegerConv(const Setup& setup) : IntegerWindows(setup, kConv), outputs_(w_.axes[0]), channels_(w_.axes[1]), taps_(w_.axes[2]), output_panels_(setup, w_, 0), channel_panels_(setup, w_, 1) {
    if (!w_.present) return;
    const int64_t held = output_panels_ ? window_.tile_c / output_panels_.length * output_panels_.length : outputs_.chunk;
    if (wide_ && (output_panels_ || channel_panels_)) reject("conv: x of 16 bits has no panels");
    if (held != window_.tile_c || taps_.chunk < window_.taps() || taps_.stride > 1) {
      reject(setup, c::w_k + 2, "weights", "accepted: the tile of co, kh * kw taps or more that lie side by side");
    }
  }

  void check(const Call& call) const override {
    parameters(call);
    if (call.k_count == 0) return;
    window_.check(call);
    channel(call);
    first_weight(call);
  }

  void run(const Call& call) const override {
    const Parameters at = parameters(call);
    const auto elements = static_cast<size_t>(window_.tile_c) * static_cast<size_t>(window_.pixels());
    if (wide_) return run_wide(call, at, elements);
    const Result<int32_t> result(out_, call, elements);
    if (call.k_count == 0) {
      if (call.k_index == 0) std::fill_n(result.words, elements, 0);
    } else {
      const uint8_t* x = window_.x.in(call) + channel(call);
      accumulate(call, at, {x, window_.x.dtype == params::dtype::i8, 0, true}, result.words, call.k_index != 0);
    }
    if (call.k_last) finish(call, at, result.words);
  }

 private:
  static ptrdiff_t column_row(int pixels) { return (pixels + kOverrun - 1) / kOverrun * kOverrun; }
  // Rows of columns that are there at a time.
  static int most_columns(int pixels) { return std::max<int>(4, static_cast<int>(kColumnBytes / static_cast<size_t>(column_row(pixels))) / 4 * 4); }
  // Channels of each panel of weights, of so many in all.
  int panel_channels(int all) const { return channel_panels_ ? std::min(static_cast<int>(channel_panels_.length), all) : all; }
  int channels_together(const Call& call, int all, int pixels) const;
  bool reads_in_place(const Call& call, int64_t& first) const { return window_.single_tap(call, first) && window_.contiguous(); }
  int64_t channel(const Call& call) const { return window_.x_c.local(call.k_first, call.k_first, call.k_count, "conv: x along k"); }
  // First weight of the call; its chunk may be shifted back into the tensor.
  int64_t first_weight(const Call& call) const { return local(channels_, channel_panels_, call.k_first, call.k_count, "conv: w along k"); }

  void run_wide(const Call& call, const Parameters& at, size_t elements) const;
  void accumulate(const Call& call, const Parameters& at, const BytePart& x, int32_t* sums, bool further) const;
  void point_at_weights(GemmI8& g, int channels) const;
  void accumulate_channels(const Call& call, GemmI8& g, const BytePart& x, int channels) const;
  void accumulate_planes(const Call& call, GemmI8& g, const BytePart& x, int channels) const;

  Axis outputs_, channels_, taps_;
  Panels output_panels_, channel_panels_;
};

void IntegerConv::run_wide(const Call& call, const Parameters& at, size_t elements) const {
  const Result<int64_t> result(out_, call, elements);
  if (call.k_count == 0) {
    if (call.k_index == 0) std::fill_n(result.words, elements, 0);
  } else {
    auto* sums = static_cast<int32_t*>(scratch(kScratchPart, elements * 4));
    bool further = call.k_index != 0;
    for (const BytePart& x : byte_parts(window_.x, call, channel(call), window_.channels_reach(call.k_count), kScratchWords)) {
      accumulate(call, at, x, sums, false);
      simd().add_part(result.words, sums, x.shift, further, elements);
      further = true;
    }
  }
  if (!call.k_last) return;
  for (int64_t c = 0; c < window_.tile_c; ++c) finish_wide(call, at, c, result.words + c * window_.pixels());
}

// Channels and taps are one reduction, in as many panels of it as the weights have. Windows that are filled up to whole
// words are brought together, in one.
void IntegerConv::point_at_weights(GemmI8& g, int channels) const {
  const int taps = window_.taps();
  g.a_m = outputs_.stride;
  g.a_k = taps == 1 ? channels_.stride : 1;
  g.m_panel = static_cast<int>(output_panels_.length);
  g.a_m_panel = output_panels_.stride;
  const int most = panel_channels(channels);
  g.k_panel = most * taps;
  g.a_k_panel = channel_panels_.stride;
  if (taps == 1 || channels_.stride == taps || channels == 1) return;
  const ptrdiff_t row = ptrdiff_t{channels} * taps;
  const int rows = g.m_panel == 0 ? g.m : g.m_panel;
  auto* together = static_cast<uint8_t*>(scratch(kScratchOtherWords, static_cast<size_t>(g.m) * static_cast<size_t>(row)));
  for (int m = 0; m < g.m; ++m) {
    const uint8_t* from = g.a + (m / rows) * g.a_m_panel + (m % rows) * g.a_m;
    uint8_t* out = together + m * row;
    for (int c = 0; c < channels; c += most, from += g.a_k_panel, out += g.k_panel) {
      simd().copy_byte_rows(from, channels_.stride, 1, out, taps, std::min(most, channels - c), taps);
    }
  }
  g.a = together;
  g.a_m = row;
  g.a_m_panel = rows * row;
  g.k_panel = 0;
}

void IntegerConv::accumulate(const Call& call, const Parameters& at, const BytePart& x, int32_t* sums, bool further) const {
  GemmI8 g{};
  g.m = window_.tile_c;
  g.n = window_.pixels();
  g.b_n = 1;
  g.c = sums;
  g.c_m = g.n;
  g.a_signed = w_.dtype == params::dtype::i8;
  g.b_signed = x.is_signed;
  g.accumulate = further;
  auto* zeros = static_cast<int32_t*>(scratch(kScratchRow, static_cast<size_t>(g.m + g.n) * 4));
  for (int m = 0; m < g.m; ++m) zeros[m] = w_zero(call, at, m);
  std::fill_n(zeros + g.m, g.n, x.zero(x_zero(call)));
  g.a_zero = zeros;
  g.b_zero = zeros + g.m;
  const int all = static_cast<int>(call.k_count), panel = panel_channels(all), most = channels_together(call, all, g.n);
  const uint8_t* w = w_.in(call) + first_weight(call);
  for (int done = 0; done < all; done += most, w += most / panel * channel_panels_.stride, g.accumulate = true) {
    const int channels = std::min(most, all - done);
    const BytePart part{x.data + done * window_.x_c.stride, x.is_signed, x.shift, x.is_whole};
    g.a = w;
    g.k = 0;
    point_at_weights(g, channels);
    accumulate_channels(call, g, part, channels);
  }
}

// Whole panels of channels that are one reduction: all where x is read as it lies, else those whose columns fit.
int IntegerConv::channels_together(const Call& call, int all, int pixels) const {
  int64_t first = 0;
  if (reads_in_place(call, first)) return all;
  const int panel = panel_channels(all);
  return panel * std::max(1, most_columns(pixels) / (panel * window_.taps()));
}

void IntegerConv::accumulate_channels(const Call& call, GemmI8& g, const BytePart& x, int channels) const {
  int64_t first = 0;
  if (!reads_in_place(call, first)) return accumulate_planes(call, g, x, channels);
  g.b = x.data + first;
  g.b_k = window_.x_c.stride;
  g.b_k_panel = g.k_panel * g.b_k;
  g.k = channels;
  simd().gemm_i8(g);
}

// Blocks of columns: rows are appended, and what is there is multiplied when full.
void IntegerConv::accumulate_planes(const Call& call, GemmI8& g, const BytePart& x, int channels) const {
  const int taps = window_.taps();
  const ptrdiff_t row = column_row(g.n);
  const int block = most_columns(g.n);
  auto* columns = static_cast<uint8_t*>(scratch(kScratchColumns, static_cast<size_t>(row) * static_cast<size_t>(block) + kOverrun));
  g.b = columns;
  g.b_k = row;
  g.b_k_panel = g.k_panel * row;
  const auto flush = [&] {
    if (g.k == 0) return;
    simd().gemm_i8(g);
    g.a += g.k * g.a_k;
    g.k = 0;
    g.accumulate = true;
  };
  window_.for_channels<uint8_t>(call, x.data, channels, static_cast<uint8_t>(x.zero(around(call))), [&](int, TapsOf<uint8_t> some) {
    const int32_t* offsets = some.offsets;
    some.out_row = row;
    for (int tap = 0; tap < taps; tap += some.taps) {
      if (g.k == block) flush();
      some.offsets = offsets + tap;
      some.taps = std::min(taps - tap, block - g.k);
      some.out = columns + g.k * row;
      simd().im2col_bytes(some);
      g.k += some.taps;
    }
  });
  flush();
}

class IntegerDepthwiseConv final : public IntegerWindows {
 public:
  explicit IntegerDepthwiseConv(const Setup& setup) : IntegerWindows(setup, kDepthwise), channels_(w_.axes[0]), taps_(w_.axes[1]), w_panels_(setup, w_, 0) {
    if (taps_.chunk < window_.taps() || taps_.stride > 1 || (!w_panels_ && channels_.chunk != window_.tile_c)) {
      reject(setup, d::w_c, "weights", "accepted: [tile of c][kh * kw or more], row-major");
    }
    if (wide_ && window_.taps() > kNarrowTaps) reject(setup, d::w_tap + 2, "taps", "x of 16 bits: at most 128");
  }

  void check(const Call& call) const override {
    parameters(call);
    window_.check(call);
    window_.channel(call);
  }

  void run(const Call& call) const override {
    const Parameters at = parameters(call);
    const int taps = window_.taps(), channels = window_.tile_c;
    const auto pixels = static_cast<size_t>(window_.pixels());
    const size_t elements = static_cast<size_t>(channels) * pixels;
    int32_t* sums = wide_ ? static_cast<int32_t*>(scratch(kScratchPart, elements * 4)) : Result<int32_t>(out_, call, elements).words;
    auto* weights = static_cast<int32_t*>(scratch(kScratchOtherWords, static_cast<size_t>(taps) * 4));
    // The weights of a channel less their zero point; returns what its sums begin with.
    const auto prepare = [&](int c) {
      simd().widen(w_.dtype, w_.in(call) + member(channels_, w_panels_, c) * element_bytes(w_.dtype), weights, static_cast<size_t>(taps));
      const int32_t zero = w_zero(call, at, c);
      uint32_t sum = 0;
      for (int tap = 0; tap < taps; ++tap) sum += static_cast<uint32_t>(weights[tap] -= zero);
      return static_cast<int32_t>(0 - static_cast<uint32_t>(x_zero(call)) * sum);
    };
    if (element_bytes(window_.x.dtype) == 1) {
      const bool is_signed = window_.x.dtype == params::dtype::i8;
      const uint8_t* x = window_.x.in(call) + window_.channel(call);
      window_.for_channels<uint8_t>(call, x, channels, static_cast<uint8_t>(around(call)), [&](int c, TapsOf<uint8_t> some) {
        const int32_t start = prepare(c);
        some.out_row = window_.columns;
        simd().taps_mac_bytes(some, is_signed, weights, start, sums + static_cast<size_t>(c) * pixels);
      });
    } else {
      const int32_t* x = words_in<int32_t>(window_.x, call, window_.channel(call), window_.channels_reach(channels), kScratchWords);
      window_.for_channels<int32_t>(call, x, channels, around(call), [&](int c, TapsOf<int32_t> some) {
        const int32_t start = prepare(c);
        some.out = sums + static_cast<size_t>(c) * pixels;
        some.out_row = window_.columns;
        simd().taps_mac_i32(some, weights, start);
      });
    }
    if (!wide_) return finish(call, at, sums);
    auto* row = static_cast<int64_t*>(scratch(kScratchResult, pixels * sizeof(int64_t)));
    for (int64_t c = 0; c < channels; ++c) {
      simd().add_part(row, sums + static_cast<size_t>(c) * pixels, 0, false, pixels);
      finish_wide(call, at, c, row);
    }
  }

 private:
  Axis channels_, taps_;
  Panels w_panels_;
};

}  // namespace

std::unique_ptr<const Kernel> make_integer_conv(const Setup& setup) { return std::make_unique<const IntegerConv>(setup); }
std::unique_ptr<const Kernel> make_integer_depthwise_conv(const Setup& setup) { return std::make_unique<const IntegerDepthwiseConv>(setup); }

}  // namespace onedispatch::kernels
