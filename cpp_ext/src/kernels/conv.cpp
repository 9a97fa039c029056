// SPDX-License-Identifier: Apache-2.0
// od::conv: implicit GEMM. Weights [channel * taps][co] times im2col rows [channel * taps][pixels],
// summed in f32 over the channel steps, in the out chunk [co][oh][ow] or in scratch where that is narrower. bf16 of two
// channels go in one word where the processor multiplies such pairs.
// Integers: conv_integer.cpp.
#include <algorithm>
#include <cmath>

#include "bf16_pairs.h"
#include "conv_integer.h"
#include "kernel.h"
#include "simd/simd.h"
#include "window.h"
#include "words.h"

namespace onedispatch::kernels {

namespace {

namespace operand = params::conv::operand;
namespace scalar = params::conv::scalar;

constexpr int kLeastOutputs = 8;            // for vectors of them
constexpr uint32_t kLeastSummed = 64;       // products of a sum in lanes
constexpr double kWorthTurning = 1.05;      // times as many lanes in use
constexpr int kLeastRowsOfTile = 4;         // of registers, in products that do not wait for their own sums
constexpr double kGathering = 10;           // pixels that are multiplied while a weight is gathered
constexpr int kLeastPixels = 16;            // that pay for gathering a row of weights
constexpr ptrdiff_t kSameSets = 4096;       // bytes from line to line of a set of L1
constexpr size_t kPlanes = 128 * 1024;      // elements of planes at a time: 512 KB stay in L2
constexpr size_t kFinished = 2 * 1024;      // elements of results at a time
constexpr size_t kColumnBlock = 32 * 1024;  // elements of im2col at a time: 128 KB stay in L2

// Of the lanes of the widest vectors, how many `n` elements use.
double used_lanes(int n) { return static_cast<double>(n) / (kOverrun * ((n + kOverrun - 1) / kOverrun)); }

// Rows so many words apart share the few places that L1 has for them.
bool shares_sets(ptrdiff_t words) { return words * ptrdiff_t{sizeof(float)} % kSameSets == 0; }

class Conv final : public Kernel {
 public:
  explicit Conv(const Setup& setup);

  void check(const Call& call) const override {
    if (call.k_count == 0) return;
    window_.check(call);
    channel(call);
    weights(call);
  }
  void run(const Call& call) const override;

 private:
  int64_t channel(const Call& call) const {
    return window_.x_c.local(call.k_first, call.k_first, call.k_count, "conv: x along k");
  }
  // First weight of the call; its chunk may be shifted back into the tensor.
  int64_t weights(const Call& call) const { return local(w_.axes[1], w_channels_, call.k_first, call.k_count, "conv: w along k"); }
  // Where channels of x and panels of weights lie, as words: in the chunks, or widened in scratch, or as pairs of them.
  struct Sources {
    const float* x;
    ptrdiff_t x_channel;
    const float* w;
    ptrdiff_t w_outputs, w_channels;  // from panel to panel
    Panels outputs, channels;
    int lanes, count;  // outputs that lie together; channels, or pairs of them
    int step;  // of pairs: those of a step of the reduction; 0 of words
    bool one_tap;  // of windows without padding; the pixels that they read lie together, from x on
  };
  void find_pairs(const Call& call, const PairSteps& taps, Sources& from) const;
  Bf16Matrix bf16_weights(const Call& call) const;
  void find_pairs_of_weights(const Call& call, const PairSteps& steps, GemmF32& g, Sources& from) const;
  bool is_one_pixel(const Call& call, const GemmF32& g) const;
  void find_words(const Call& call, GemmF32& g, Sources& from) const;
  void find_channels(const Call& call, Sources& from) const;
  void find_pixels(const Call& call, Sources& from) const;
  void find_weights(const Call& call, Sources& from) const;
  void gather_outputs(const Call& call, GemmF32& g, Sources& from) const;
  bool fills_lanes(const GemmF32& g, const Sources& from) const;
  void accumulate_in_lanes(const Call& call, GemmF32& g, const Sources& from) const;
  void multiply_pixel(const ConvF32& c, const GemmF32& g, const Sources& from) const;
  void accumulate(const Call& call, GemmF32& g) const;
  struct Columns;
  void accumulate_planes(const Call& call, GemmF32& g, const Sources& from) const;
  void multiply(GemmF32 g, const Sources& from, int64_t row) const;
  void multiply_copied(GemmF32 g, const Sources& from) const;
  void finish(const Call& call, const Result<float>& result) const;

  Window window_;
  uint32_t out_;       // element type
  size_t out_apart_;   // elements from a channel to the next
  Operand w_, bias_;
  Panels w_outputs_, w_channels_, bias_outputs_;
  // Weights of all panels of outputs are gathered, which alone leave lanes idle, or rows of a product's tile of registers.
  bool gathers_ = false, gathers_rows_ = false;
  bool bf16_;             // x and w
  int step_;              // channels of a step
  Activation activation_;
};

Conv::Conv(const Setup& setup)
    : window_(setup, scalar::kh),
      out_(setup.operands[operand::out].dtype),
      out_apart_(window_.channels_apart(setup.operands[operand::out])),
      w_(setup.operands[operand::w]),
      bias_(setup.operands[operand::bias]),
      w_outputs_(setup, w_, 0),
      w_channels_(setup, w_, 1),
      bias_outputs_(setup, bias_, 0),
      bf16_(window_.x.dtype == params::dtype::bf16 && w_.dtype == params::dtype::bf16),
      step_(step_of(setup)),
      activation_(setup, scalar::act) {
  if (!w_.present) return;
  const Axis& outputs = w_.axes[0];
  const Axis& channels = w_.axes[1];
  const Axis& taps = w_.axes[2];
  // Channels and taps are one reduction: one stride serves both, whichever way the weights lie.
  const bool one_stride = setup.k_extent == 1 || window_.taps() == 1 || channels.stride == taps.stride * window_.taps();
  // Where a call has them all, they may lie apart, too: as panels of one.
  const bool apart = !one_stride && !w_channels_ && channels.chunk == int64_t{setup.k_extent};
  if (apart) w_channels_ = {1, channels.stride};
  if (w_outputs_ && window_.pixels() >= kLeastPixels) {
    gathers_ = used_lanes(static_cast<int>(w_outputs_.length)) * (1 + kGathering / window_.pixels()) < used_lanes(window_.tile_c);
    gathers_rows_ = outputs.stride == 1 && w_outputs_.length % kLeastRowsOfTile != 0;
  }
  const int64_t held = w_outputs_ ? window_.tile_c / w_outputs_.length * w_outputs_.length : outputs.chunk;
  if (held != window_.tile_c || taps.chunk != window_.taps() || !(one_stride || apart)) {
    reject(setup, params::conv::w_k + 2, "weights", "accepted: the tile of co, kh * kw taps, channels that follow the taps");
  }
}

// The product of the weights with rows of columns, from row `row` of all on: of each panel of outputs, whose rows may lie
// in panels, too.
void Conv::multiply(GemmF32 g, const Sources& from, int64_t row) const {
  const int rows = g.k, width = from.outputs ? static_cast<int>(from.outputs.length) : g.m;
  Panels panels = from.channels;  // of rows
  panels.length *= window_.taps();
  const GemmF32 all = g;
  g.m = width;
  g.a_panel = from.w_channels;
  g.b_panel = panels.length * g.b_k;
  for (int done = 0; done < rows; done += g.k * (g.more_panels + 1)) {
    const Panels::Run run = panels.run(row + done, rows - done);
    g.k = run.members;
    g.more_panels = run.more;
    g.b = all.b + done * all.b_k;
    for (int m = 0; m < all.m; m += width) {
      g.a = all.a + run.panel * from.w_channels + run.first * all.a_k + (m / width) * from.w_outputs;
      g.c = all.c + m * all.c_m;
      (from.step != 0 ? simd().pairs->gemm : simd().gemm_f32)(g);
    }
    g.accumulate = true;
  }
}

// The same of some columns at a time, brought together.
void Conv::multiply_copied(GemmF32 g, const Sources& from) const {
  const int columns = g.n;
  const float* const b = g.b;
  auto* const made = static_cast<float*>(scratch(kScratchPackB, (static_cast<size_t>(kTileColumns) * static_cast<size_t>(g.k) + kOverrun) * sizeof(float)));
  g.b = made;
  g.b_k = kTileColumns;
  for (int first = 0; first < columns; first += kTileColumns, g.c += kTileColumns) {
    g.n = std::min(kTileColumns, columns - first);
    simd().copy_rows(b + first, from.x_channel, 1, made, kTileColumns, g.k, g.n);
    multiply(g, from, 0);
  }
}

// The columns of one GEMM: `next` appends rows, and what is there is multiplied when full.
struct Conv::Columns {
  const Conv& conv;
  GemmF32& g;
  const Sources& from;
  ptrdiff_t row;
  int whole;  // rows that are multiplied together
  int block;
  int64_t done = 0;  // rows
  float* data;

  Columns(const Conv& of, GemmF32& gemm, const Sources& sources) : conv(of), g(gemm), from(sources), row(pair_pitch(of.window_.pixels())) {
    whole = from.step == 0 ? 1 : simd().pairs->block;
    block = std::max<int>(whole, static_cast<int>(kColumnBlock / static_cast<size_t>(row)) / whole * whole);
    const int64_t panel = from.channels.length * conv.window_.taps();
    if (panel != 0 && panel < block) block -= block % static_cast<int>(panel);
    const size_t elements = static_cast<size_t>(row) * static_cast<size_t>(block) + kOverrun;
    data = static_cast<float*>(scratch(kScratchColumns, elements * 4));
    g.b = data;
    g.b_k = row;
    g.k = 0;
  }
  float* next() { return data + g.k * row; }
  void fill() {
    for (; g.k % whole != 0; ++g.k) std::fill_n(next(), row, 0.0f);
  }
  void flush() {
    if (g.k == 0) return;
    conv.multiply(g, from, done);
    done += g.k;
    g.k = 0;
    g.accumulate = true;
  }
};

// Whether a vector of outputs serves better than one of pixels: their weights are neighbours, their sums pay for being
// turned, and pixels would have to be copied, or leave more lanes idle.
bool Conv::fills_lanes(const GemmF32& g, const Sources& from) const {
  if (from.step != 0 && simd().pairs->conv == nullptr) return false;
  if (g.a_m != 1 || from.lanes < kLeastOutputs || static_cast<uint32_t>(from.count * window_.taps()) < kLeastSummed) return false;
  return !from.one_tap || used_lanes(from.lanes) > kWorthTurning * used_lanes(window_.pixels());
}

// The weights of all outputs of a channel's tap as neighbours.
void Conv::gather_outputs(const Call& call, GemmF32& g, Sources& from) const {
  const int64_t all = call.k_count, depth = w_channels_ ? std::min(w_channels_.length, all) : all, taps = window_.taps();
  const int width = static_cast<int>(w_outputs_.length);
  auto* made = static_cast<float*>(scratch(kScratchColumns, static_cast<size_t>(all * taps * g.m + kOverrun) * sizeof(float)));
  for (int64_t channel = 0; channel < all; channel += depth) {
    const int rows = static_cast<int>(std::min(depth, all - channel) * taps);
    const float* panel = from.w + channel / depth * from.w_channels;
    for (int m = 0; m < g.m; m += width, panel += from.w_outputs)
      simd().copy_byte_rows(reinterpret_cast<const uint8_t*>(panel), g.a_k * 4, 1, reinterpret_cast<uint8_t*>(made + channel * taps * g.m + m), ptrdiff_t{g.m} * 4, rows, 4 * width);
  }
  g.a = from.w = made;
  g.a_k = g.m;
  from.w_channels = depth * taps * g.m;
  from.outputs = {};
}

// As many channels at once as planes of them stay in L2; what needs none is read where it lies.
void Conv::accumulate_in_lanes(const Call& call, GemmF32& g, const Sources& from) const {
  constexpr int32_t kOneTap = 0;
  int64_t first = 0;
  const ptrdiff_t step = from.one_tap ? 1 : window_.sw * window_.x_w.stride;
  const int32_t* const offsets = from.one_tap ? &kOneTap : from.step != 0 && step != 1 ? nullptr : window_.without_planes(call, first);
  const bool direct = offsets != nullptr;
  ConvF32 c{};
  c.taps = window_.taps();
  c.w_tap = g.a_k;
  c.w_panel = from.w_channels;
  c.y_output = g.c_m;
  c.rows = window_.rows;
  c.columns = window_.columns;
  c.accumulate = g.accumulate;
  c.offsets = offsets;
  c.x_step = step;
  c.x_channel = from.x_channel;
  c.x_row = from.one_tap ? window_.columns : window_.sh * window_.x_h.stride;
  const int all = from.count;
  const int most = direct ? all : std::max(1, static_cast<int>(kPlanes / window_.plane_elements()));
  for (int channel = 0, count = 0; channel < all; channel += count, c.accumulate = true) {
    const Panels::Run run = from.channels.run(channel, std::min(most, all - channel));
    c.channels = run.members;
    c.more_panels = run.more;
    count = run.all();
    c.x = from.x + channel * from.x_channel + first;
    if (!direct) {
      const Taps taps = window_.planes(call, from.x + channel * from.x_channel, from.x_channel, count);
      c.x = taps.plane;
      c.x_channel = static_cast<ptrdiff_t>(window_.plane_elements());
      c.x_row = taps.plane_row;
      c.x_step = 1;
      c.offsets = taps.offsets;
    }
    if (c.rows > 1 && c.x_row == c.columns * c.x_step) {
      c.columns *= c.rows;
      c.rows = 1;
    }
    c.outputs = g.m;
    c.width = from.lanes;
    c.next = from.w_outputs;
    c.y = g.c;
    c.w = g.a + run.panel * from.w_channels + run.first * c.taps * g.a_k;
    if (c.taps == 1 && c.rows * c.columns == 1 && c.y_output == 1) {
      multiply_pixel(c, g, from);
      continue;
    }
    (from.step != 0 ? simd().pairs->conv : simd().conv_f32)(c);
  }
}

// The channels of one pixel are a row, times the weights.
void Conv::multiply_pixel(const ConvF32& c, const GemmF32& g, const Sources& from) const {
  GemmF32 row{};
  row.a = c.x + c.offsets[0];
  row.a_k = c.x_channel;
  row.a_panel = c.channels * c.x_channel;
  row.b = c.w;
  row.b_k = c.w_tap;
  row.b_panel = c.w_panel;
  row.more_panels = c.more_panels;
  row.width = c.width;
  row.next = c.next;
  row.c = g.c;
  row.m = 1;
  row.n = c.outputs;
  row.k = c.channels;
  row.accumulate = c.accumulate;
  (from.step != 0 ? simd().pairs->gemm : simd().gemm_f32)(row);
}

// Blocks of whole channels where they fit, else blocks of a channel's taps.
void Conv::accumulate_planes(const Call& call, GemmF32& g, const Sources& from) const {
  const int taps = window_.taps();
  Columns columns(*this, g, from);
  const auto channel = [&](int c) { return from.x + c * from.x_channel; };
  window_.for_each_channel(call, from.count, 0.0f, channel, [&](int c, Taps some) {
    const int32_t* offsets = some.offsets;
    some.out_row = columns.row;
    if (columns.whole == 1 && g.k + taps > columns.block) columns.flush();
    for (int tap = 0; tap < taps; tap += some.taps) {
      if (g.k == columns.block) columns.flush();
      some.offsets = offsets + tap;
      some.taps = std::min(taps - tap, columns.block - g.k);
      some.out = columns.next();
      simd().im2col(some);
      g.k += some.taps;
    }
    if (from.step != 0 && ((c + 1) % from.step == 0 || c + 1 == from.count)) columns.fill();
  });
  columns.flush();
}

// Of 1x1 windows: pixels that a stride leaves apart are gathered, channel by channel.
void Conv::find_pixels(const Call& call, Sources& from) const {
  int64_t first = 0;
  from.one_tap = window_.single_tap(call, first);
  if (!from.one_tap) return;
  from.x += first;
  if (window_.contiguous()) return;
  const ptrdiff_t plane = window_.pixels() + (shares_sets(window_.pixels()) ? kOverrun : 0);
  auto* made = static_cast<float*>(scratch(kScratchPlane, static_cast<size_t>(from.count * plane + kOverrun) * sizeof(float)));
  for (int c = 0; c < from.count; ++c) {
    simd().copy_rows(from.x + c * from.x_channel, window_.sh * window_.x_h.stride, window_.sw * window_.x_w.stride, made + c * plane, window_.columns, window_.rows, window_.columns);
  }
  from.x = made;
  from.x_channel = plane;
}

// Narrow elements are widened: rows that the chunk has of each channel.
void Conv::find_channels(const Call& call, Sources& from) const {
  const int64_t plane = window_.channels_reach(1), count = call.k_count;
  from.x_channel = window_.x_c.stride;
  if (is_word(window_.x.dtype) || from.x_channel <= plane) {
    from.x = words_in<float>(window_.x, call, channel(call), window_.channels_reach(count), kScratchWords);
    return;
  }
  from.x_channel = plane;
  from.x = widened_panels<float>(window_.x, call, channel(call), {1, 0, count, window_.x_c.stride, plane}, kScratchWords);
}

// Narrow ones are widened, panel by panel.
void Conv::find_weights(const Call& call, Sources& from) const {
  const Axis &outputs = w_.axes[0], &channels = w_.axes[1], &taps = w_.axes[2];
  const int64_t all = call.k_count, depth = w_channels_ ? std::min(w_channels_.length, all) : all;
  const int64_t reach = (outputs.chunk - 1) * outputs.stride + (depth - 1) * channels.stride + (taps.chunk - 1) * taps.stride + 1;
  from.w_outputs = w_outputs_.stride;
  from.w_channels = w_channels_.stride;
  if (is_word(w_.dtype) || !(w_outputs_ || w_channels_)) {
    from.w = words_in<float>(w_, call, weights(call), reach, kScratchOtherWords);
    return;
  }
  const int64_t rows = w_outputs_ ? window_.tile_c / w_outputs_.length : 1, panels = (all + depth - 1) / depth;
  from.w = widened_panels<float>(w_, call, weights(call), {rows, w_outputs_.stride, panels, w_channels_.stride, reach}, kScratchOtherWords);
  from.w_channels = reach;
  from.w_outputs = panels * reach;
}

void Conv::find_words(const Call& call, GemmF32& g, Sources& from) const {
  from.outputs = w_outputs_;
  from.channels = w_channels_;
  from.lanes = w_outputs_ && !gathers_ ? static_cast<int>(w_outputs_.length) : window_.tile_c;
  find_channels(call, from);
  find_weights(call, from);
  g.a = from.w;
  g.a_m = w_.axes[0].stride;
  g.a_k = window_.taps() == 1 ? w_.axes[1].stride : w_.axes[2].stride;
}

// Neighbouring channels in a word. Of windows of one tap they are the rows of a product.
void Conv::find_pairs(const Call& call, const PairSteps& taps, Sources& from) const {
  const auto plane = static_cast<int>(window_.channels_reach(1));
  const auto* x = reinterpret_cast<const uint16_t*>(window_.x.in(call)) + channel(call);
  const PairSteps steps(from.count, step_, 1, window_.taps() == 1);
  const ptrdiff_t row = plane == 1 ? 1 : pair_pitch(plane);
  auto* made = static_cast<uint32_t*>(scratch(kScratchWords, static_cast<size_t>(steps.rows() * row + kOverrun) * 4));
  pair_members({x, window_.x_c.stride, 1, {}, {}, from.count, plane}, steps, kNegativeZero, made, row);
  from.x = reinterpret_cast<const float*>(made);
  from.x_channel = row;
  from.count = steps.rows();
  from.step = window_.taps() == 1 ? steps.rows(0) : taps.pairs(0) / taps.taps();
}

// Of every tap.
Bf16Matrix Conv::bf16_weights(const Call& call) const {
  const auto* w = reinterpret_cast<const uint16_t*>(w_.in(call)) + weights(call);
  return {w, w_.axes[1].stride, w_.axes[0].stride, w_channels_, w_outputs_, static_cast<int>(call.k_count), window_.tile_c, w_.axes[2].stride};
}

// As [pair of channels][tap][output].
void Conv::find_pairs_of_weights(const Call& call, const PairSteps& steps, GemmF32& g, Sources& from) const {
  auto* made = static_cast<uint32_t*>(scratch(kScratchOtherWords, static_cast<size_t>(ptrdiff_t{steps.rows()} * g.m + kOverrun) * 4));
  pair_members(bf16_weights(call), steps, 0, made, g.m);
  g.a = from.w = reinterpret_cast<const float*>(made);
  g.a_m = 1;
  g.a_k = from.lanes = g.m;
}

// Its outputs are a row, which does not pay for pairs of weights.
bool Conv::is_one_pixel(const Call& call, const GemmF32& g) const {
  int64_t first = 0;
  return window_.pixels() == 1 && g.c_m == 1 && window_.channels_reach(1) == 1 && w_.axes[0].stride == 1 && window_.single_tap(call, first);
}

void Conv::accumulate(const Call& call, GemmF32& g) const {
  Sources from{};
  from.count = static_cast<int>(call.k_count);
  if (bf16_ && simd().pairs != nullptr) {
    const PairSteps steps(from.count, step_, window_.taps());
    find_pairs(call, steps, from);
    if (is_one_pixel(call, g)) return multiply_rows({from.x, 0, nullptr, 0, g.c, 0, 1, 0, 0, g.accumulate}, bf16_weights(call), steps);
    find_pairs_of_weights(call, steps, g, from);
  } else {
    find_words(call, g, from);
  }
  find_pixels(call, from);
  const bool lanes = fills_lanes(g, from);
  if (from.step == 0 && (lanes ? gathers_ : from.one_tap && gathers_rows_)) gather_outputs(call, g, from);
  if (lanes) return accumulate_in_lanes(call, g, from);
  if (!from.one_tap) return accumulate_planes(call, g, from);
  g.b = from.x;
  g.b_k = from.x_channel;
  g.k = from.count;
  if (shares_sets(from.x_channel) && g.m >= kLeastCopiedRows) return multiply_copied(g, from);
  multiply(g, from, 0);
}

void Conv::run(const Call& call) const {
  const Result<float> result(out_, call, static_cast<size_t>(window_.tile_c), static_cast<size_t>(window_.pixels()), out_apart_);
  GemmF32 g{};
  g.m = window_.tile_c;
  g.n = window_.pixels();
  g.c = result.words;
  g.c_m = static_cast<ptrdiff_t>(result.pitch);
  g.accumulate = call.k_index != 0;
  if (call.k_count == 0) {
    simd().gemm_f32(g);
  } else {
    accumulate(call, g);
  }
  if (call.k_last) finish(call, result);
}

// Some channels at a time, while they are in L1.
void Conv::finish(const Call& call, const Result<float>& result) const {
  const auto pixels = static_cast<size_t>(window_.pixels()), channels = static_cast<size_t>(window_.tile_c);
  const float* bias = bias_.present ? neighbours(bias_, bias_outputs_, call, 0, window_.tile_c) : nullptr;
  const auto each = static_cast<size_t>(neighbour_step(bias_, bias_outputs_));
  const size_t block = result.pitch == pixels ? std::max<size_t>(1, kFinished / pixels) : 1;
  for (size_t first = 0; first < channels; first += block) {
    const size_t end = std::min(channels, first + block);
    for (size_t co = first; bias != nullptr && co < end; ++co) {
      float* plane = result.words + co * result.pitch;
      simd().affine(plane, 1.0f, bias[co * each], plane, pixels);
    }
    activation_.apply(result.words + first * result.pitch, (end - first) * pixels);
    result.finish(first, end - first);
  }
}

std::unique_ptr<const Kernel> make_by_type(const Setup& setup) {
  return is_float(setup.operands[operand::out].dtype) ? make<Conv>(setup) : make_integer_conv(setup);
}

}  // namespace

ONEDISPATCH_KERNEL(conv, make_by_type)

}  // namespace onedispatch::kernels
