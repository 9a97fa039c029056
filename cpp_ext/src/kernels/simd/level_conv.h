// SPDX-License-Identifier: Apache-2.0
// Convolutions with outputs in lanes: a register tile of neighbouring pixels x up to 3 vectors of output channels. Weights
// are read as they lie, a pixel by broadcast: nothing is packed, and narrow planes leave no lane idle.
namespace onedispatch::kernels::OD_LEVEL {

// Pixels of the register tile: as many as registers hold sums for, and as can be turned at once.
constexpr int most_pixels(int vectors) { return kConvSums / vectors < kLanes ? kConvSums / vectors : kLanes; }

// Lanes become pixels, or pixels lanes.
OD_INLINE void turn(I (&v)[kLanes]) {
  transpose_step<1>(v);
  transpose_step<2>(v);
  if constexpr (kLanes > 4) transpose_step<4>(v);
  if constexpr (kLanes > 8) transpose_step<8>(v);
}

// Sums of a vector of outputs, pixel by pixel.
using Square = I[kLanes];

static void load_outputs(const float* y, ptrdiff_t y_output, int outputs, int pixels, Square& sums) {
  for (int i = 0; i < kLanes; ++i) sums[i] = i < outputs ? (I)load_part(y + i * y_output, pixels) : I{};
  turn(sums);
}

static void store_outputs(Square& sums, float* y, ptrdiff_t y_output, int outputs, int pixels) {
  turn(sums);
  for (int i = 0; i < outputs; ++i) store_part(y + i * y_output, (F)sums[i], pixels);
}

constexpr int kMostVectors = 3;
constexpr int kTapsAhead = 16;     // taps between the prefetch of weights and their use
constexpr int kChannelsAhead = 8;  // channels between the prefetch of pixels and their use, with one tap

// Where the weights of each vector of outputs begin.
using Weights = const float* [kMostVectors];

// `last` outputs of the last vector. Several rows are whole ones, which lie together in y. Pixels that lie apart are
// read where a strided window finds them, others as neighbours.
template <bool Pairs, bool Apart, int Rows, int Columns, int Vectors>
static void conv_tile(const ConvF32& g, const float* first_x, const Weights& first_w, float* y, int last) {
  constexpr int kPixels = Rows * Columns;
  Square kept[Vectors]{};
  const auto outputs = [last](int v) { return v == Vectors - 1 ? last : kLanes; };
  for (int v = 0; v < Vectors && g.accumulate; ++v) load_outputs(y + v * kLanes * g.y_output, g.y_output, outputs(v), kPixels, kept[v]);
  F sums[kPixels][Vectors];
#pragma GCC unroll 16
  for (int p = 0; p < kPixels; ++p) {
#pragma GCC unroll 3
    for (int v = 0; v < Vectors; ++v) sums[p][v] = (F)kept[v][p];
  }
  const ptrdiff_t w_tap = g.w_tap, x_row = g.x_row, x_step = Apart ? g.x_step : 1;
  const bool one = g.taps == 1;  // then channels are the inner loop
  const int channels = one ? 1 : g.channels, taps = one ? g.channels : g.taps;
  const ptrdiff_t ahead = (one ? kChannelsAhead : 1) * g.x_channel, last_ahead = ahead + (Columns - 1) * x_step;
  for (int panel = 0; panel <= g.more_panels; ++panel) {
    const float* x = first_x + panel * g.channels * g.x_channel;
    ptrdiff_t w = panel * g.w_panel;
    for (int c = 0; c < channels; ++c, x += g.x_channel) {
      const float* at = x + g.offsets[0];
      for (int tap = 0; tap < taps; ++tap, w += w_tap) {
        if (tap != 0) at = one ? at + g.x_channel : x + g.offsets[tap];
        __builtin_prefetch(at + ahead);
        __builtin_prefetch(at + last_ahead);
        F weights[Vectors];
#pragma GCC unroll 3
        for (int v = 0; v < Vectors; ++v) {
          __builtin_prefetch(first_w[v] + w + kTapsAhead * w_tap);
          weights[v] = v == Vectors - 1 && last != kLanes ? load_part(first_w[v] + w, last) : (F)load_i(reinterpret_cast<const int32_t*>(first_w[v] + w));
        }
        const float* next = at;
#pragma GCC unroll 16
        for (int p = 0; p < kPixels; ++p, next += x_step) {
          if (p % Columns == 0) next = at + p / Columns * x_row;
          const F pixel = splat(*next);
#pragma GCC unroll 3
          for (int v = 0; v < Vectors; ++v) sums[p][v] = multiply_words<Pairs>(weights[v], pixel, sums[p][v]);
        }
      }
    }
  }
#pragma GCC unroll 16
  for (int p = 0; p < kPixels; ++p) {
#pragma GCC unroll 3
    for (int v = 0; v < Vectors; ++v) kept[v][p] = (I)sums[p][v];
  }
  for (int v = 0; v < Vectors; ++v) store_outputs(kept[v], y + v * kLanes * g.y_output, g.y_output, outputs(v), kPixels);
}

using ConvTile = void (*)(const ConvF32&, const float*, const Weights&, float*, int);
// [columns - 1] of one row, or two.
template <bool Pairs, bool Apart, int Rows, int Vectors, int... Column>
constexpr std::array<ConvTile, sizeof...(Column)> conv_tiles(std::integer_sequence<int, Column...>) {
  return {conv_tile<Pairs, Apart, Rows, Column + 1, Vectors>...};
}
template <bool Pairs, bool Apart, int Rows, int Vectors>
struct ConvTiles {
  static constexpr int kMost = most_pixels(Vectors) / Rows;
  static constexpr auto kOf = conv_tiles<Pairs, Apart, Rows, Vectors>(std::make_integer_sequence<int, kMost>{});
};

// Of `Vectors` vectors of outputs: rows in parts of about the same width, or two rows at once.
template <bool Pairs, bool Apart, int Vectors>
static void conv_outputs(const ConvF32& g, const Weights& w, float* y, int last) {
  constexpr int kMost = most_pixels(Vectors);
  const int parts = (g.columns + kMost - 1) / kMost;
  for (int row = 0; row < g.rows;) {
    const float* x = g.x + row * g.x_row;
    float* to = y + row * g.columns;
    if (2 * g.columns <= kMost && row + 2 <= g.rows) {
      ConvTiles<Pairs, Apart, 2, Vectors>::kOf[static_cast<size_t>(g.columns - 1)](g, x, w, to, last);
      row += 2;
      continue;
    }
    for (int part = 0, column = 0; part < parts; ++part) {
      const int width = (g.columns - column) / (parts - part);
      ConvTiles<Pairs, Apart, 1, Vectors>::kOf[static_cast<size_t>(width - 1)](g, x + column * (Apart ? g.x_step : 1), w, to + column, last);
      column += width;
    }
    ++row;
  }
}

// Panels that do not fill vectors are taken one by one.
template <bool Pairs, bool Apart>
static void convolve(const ConvF32& g) {
  constexpr void (*kOf[kMostVectors])(const ConvF32&, const Weights&, float*, int) = {conv_outputs<Pairs, Apart, 1>, conv_outputs<Pairs, Apart, 2>, conv_outputs<Pairs, Apart, 3>};
  const auto weights = [&](int output) { return g.w + output / g.width * g.next + output % g.width; };
  for (int output = 0; output < g.outputs;) {
    const int end = g.width % kLanes == 0 ? g.outputs : output - output % g.width + g.width;
    const int left = (end < g.outputs ? end : g.outputs) - output, all = (left + kLanes - 1) / kLanes;
    const int vectors = all == 1 || all == 3 ? all : 2;
    const int width = vectors * kLanes < left ? vectors * kLanes : left;
    Weights w{};
    for (int v = 0; v < vectors; ++v) w[v] = weights(output + v * kLanes);
    kOf[vectors - 1](g, w, g.y + output * g.y_output, width - (vectors - 1) * kLanes);
    output += width;
  }
}

static void conv_f32(const ConvF32& g) { g.x_step == 1 ? convolve<false, false>(g) : convolve<false, true>(g); }

}  // namespace onedispatch::kernels::OD_LEVEL
