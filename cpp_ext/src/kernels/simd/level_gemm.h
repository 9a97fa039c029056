// SPDX-License-Identifier: Apache-2.0
// Matrix products: a register tile of up to kBigM rows x 3 vectors, A read by broadcast straight
// from where it lies, B row by row. Nothing is packed.
namespace onedispatch::kernels::OD_LEVEL {

OD_INLINE F multiply_add(F a, F b, F sum) { return fma(a, b, sum); }
OD_INLINE I multiply_add(I a, I b, I sum) { return add_wrap(mul_wrap(a, b), sum); }

// Pairs: the words hold two bf16 (PairLevel).
template <bool Pairs, class V>
OD_INLINE V multiply_words(V a, V b, V sum) {
  if constexpr (Pairs) {
    return add_pairs(sum, a, b);
  } else {
    return multiply_add(a, b, sum);
  }
}

// Rows of B that are fetched before they are used: where they lie far apart, hardware prefetchers do not follow.
constexpr int kRowsAhead = 6;
constexpr int kPanelsAhead = 3;  // few rows of sums: B comes from memory, which takes longer

template <class Word, int MR, int NV, bool Part, bool Pairs = false>
static void tile_words(const Product<Word>& g, const Word* first_a, const Word* first_b, Word* c, int part) {
  using V = Vector<Word>;
  const ptrdiff_t c_m = g.c_m;
  V acc[MR][NV];
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) {
      const Word* p = c + m * c_m + v * kLanes;
      __builtin_prefetch(p, 1);  // on its way while sums are added up
      acc[m][v] = !g.accumulate ? V{} : Part && v == NV - 1 ? load_part_as(p, part) : load_as(p);
    }
  }
  // Few strides and pointers, which leaves registers for all of them.
  constexpr int kHalf = 4;
  constexpr bool kFewRows = MR < kHalf;
  const ptrdiff_t a_k = g.a_k, b_k = g.b_k, a_m[kHalf] = {0, g.a_m, 2 * g.a_m, 3 * g.a_m};
  for (int panel = 0; panel <= g.more_panels; ++panel) {
    const Word *a = first_a + panel * g.a_panel, *lower = a + (MR > kHalf ? kHalf * g.a_m : 0), *b = first_b + panel * g.b_panel;
    const Word* ahead = b + (kFewRows ? (g.more_panels - panel < kPanelsAhead ? g.more_panels - panel : kPanelsAhead) * g.b_panel : kRowsAhead * b_k);
    for (int k = 0; k < g.k; ++k, a += a_k, lower += a_k, b += b_k, ahead += b_k) {
#pragma GCC unroll 8
      for (int v = 0; v < NV; ++v) __builtin_prefetch(ahead + v * kLanes, 0, kFewRows ? 2 : 3);
      V row[NV];
#pragma GCC unroll 8
      for (int v = 0; v < NV; ++v) row[v] = Part && v == NV - 1 ? load_part_as(b + v * kLanes, part) : load_as(b + v * kLanes);
#pragma GCC unroll 8
      for (int m = 0; m < MR; ++m) {
        const Word* const rows = m < kHalf ? a : lower;  // as one expression GCC 12's sanitizers take the wrong one
        const V factor = splat_as(rows[a_m[m % kHalf]]);
#pragma GCC unroll 8
        for (int v = 0; v < NV; ++v) acc[m][v] = multiply_words<Pairs>(factor, row[v], acc[m][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) {
      Word* p = c + m * c_m + v * kLanes;
      if (Part && v == NV - 1) {
        store_part_as(p, acc[m][v], part);
      } else {
        store_as(p, acc[m][v]);
      }
    }
  }
}

template <class Word>
using Tile = void (*)(const Product<Word>&, const Word*, const Word*, Word*, int);
template <class Word, bool Pairs, int MR>
struct TilesOfRows {  // [vectors - 1][last vector is a part]
  static constexpr Tile<Word> kTiles[3][2] = {{tile_words<Word, MR, 1, false, Pairs>, tile_words<Word, MR, 1, true, Pairs>},
                                              {tile_words<Word, MR, 2, false, Pairs>, tile_words<Word, MR, 2, true, Pairs>},
                                              {tile_words<Word, MR, 3, false, Pairs>, tile_words<Word, MR, 3, true, Pairs>}};
};

// How many vectors the next panel takes of those that remain: 4 split as 2 + 2, never 3 + 1.
OD_INLINE int panel_vectors(int vectors) { return vectors == 4 ? 2 : vectors < 3 ? vectors : 3; }

// A row's product with `count` vectors of columns in whole vectors of panels, from vector `first` on: with few at a time it
// waits for its own sums.
template <class Word, int count, bool Pairs>
static void row_of_panels(const Product<Word>& g, int first) {
  using V = Vector<Word>;
  const int vectors = g.width / kLanes;
  const Word* from[count];
  V sums[count];
#pragma GCC unroll 8
  for (int v = 0; v < count; ++v) {
    from[v] = g.b + (first + v) / vectors * g.next + (first + v) % vectors * kLanes;
    sums[v] = g.accumulate ? load_as(g.c + (first + v) * kLanes) : V{};
  }
  for (int panel = 0; panel <= g.more_panels; ++panel) {
    const Word* a = g.a + panel * g.a_panel;
    const ptrdiff_t behind = panel * g.b_panel;
    for (int k = 0; k < g.k; ++k) {
      const V factor = splat_as(a[k * g.a_k]);
#pragma GCC unroll 8
      for (int v = 0; v < count; ++v) sums[v] = multiply_words<Pairs>(factor, load_as(from[v] + behind + k * g.b_k), sums[v]);
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < count; ++v) store_as(g.c + (first + v) * kLanes, sums[v]);
}

template <class Word, bool Pairs = false>
static void product(const Product<Word>& g);

template <class Word, bool Pairs>
static void product_of_panels(const Product<Word>& all) {
  int n = 0;
  if (all.m == 1 && all.width % kLanes == 0) {
    for (; n + 8 * kLanes <= all.n; n += 8 * kLanes) row_of_panels<Word, 8, Pairs>(all, n / kLanes);
    for (; n + 4 * kLanes <= all.n; n += 4 * kLanes) row_of_panels<Word, 4, Pairs>(all, n / kLanes);
    for (; n + kLanes <= all.n; n += kLanes) row_of_panels<Word, 1, Pairs>(all, n / kLanes);
  }
  Product<Word> g = all;
  g.width = 0;
  for (; n < all.n; n += g.n) {
    const int at = n % all.width;
    g.n = all.width - at < all.n - n ? all.width - at : all.n - n;
    g.b = all.b + n / all.width * all.next + at;
    g.c = all.c + n;
    product<Word, Pairs>(g);
  }
}

template <class Word, bool Pairs>
static void product(const Product<Word>& g) {
  if (g.width != 0 && g.width < g.n) return product_of_panels<Word, Pairs>(g);
  constexpr int kRows[4] = {kBigM, 4, 2, 1};
  constexpr const Tile<Word>(*kTiles[4])[2] = {TilesOfRows<Word, Pairs, kBigM>::kTiles, TilesOfRows<Word, Pairs, 4>::kTiles,
                                               TilesOfRows<Word, Pairs, 2>::kTiles, TilesOfRows<Word, Pairs, 1>::kTiles};
  int n = 0;
  // A single row needs more columns at a time, or it waits for its own sums.
  for (; g.m == 1 && n + 8 * kLanes <= g.n; n += 8 * kLanes) tile_words<Word, 1, 8, false, Pairs>(g, g.a, g.b + n, g.c + n, kLanes);
  while (n < g.n) {
    const int vectors = panel_vectors((g.n - n + kLanes - 1) / kLanes);
    const int width = vectors * kLanes < g.n - n ? vectors * kLanes : g.n - n;
    const int part = width - (vectors - 1) * kLanes;
    for (int m = 0, step = 0; m < g.m; m += kRows[step]) {
      while (kRows[step] > g.m - m) ++step;
      kTiles[step][vectors - 1][part != kLanes](g, g.a + m * g.a_m, g.b + n, g.c + m * g.c_m + n, part);
    }
    n += width;
  }
}

static void gemm_f32(const GemmF32& g) { product(g); }
static void gemm_i32(const GemmI32& g) { product(g); }

// 32-bit words, so also groups of four bytes. Whole kLanes x kLanes blocks by shuffles.
template <int Step>
OD_INLINE void transpose_step(I (&v)[kLanes]) {
  I low{}, high{};  // shuffle masks: blocks of Step lanes of a and b interleaved
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    const bool odd = (i / Step) % 2 != 0;
    low[i] = odd ? kLanes + i - Step : i;
    high[i] = odd ? kLanes + i : i + Step;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    if ((i / Step) % 2 != 0) continue;
    const I a = v[i], b = v[i + Step];
    v[i] = __builtin_shuffle(a, b, low);
    v[i + Step] = __builtin_shuffle(a, b, high);
  }
}

OD_INLINE void transpose_block(const float* x, ptrdiff_t x_row, float* y, ptrdiff_t y_row) {
  I v[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) v[i] = load_i(x + i * x_row);
  transpose_step<1>(v);
  transpose_step<2>(v);
  if constexpr (kLanes > 4) transpose_step<4>(v);
  if constexpr (kLanes > 8) transpose_step<8>(v);
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) store_i(y + i * y_row, v[i]);
}

static void transpose(const float* x, ptrdiff_t x_row, int rows, int columns, float* y, ptrdiff_t y_row) {
  const int whole_rows = rows / kLanes * kLanes, whole_columns = columns / kLanes * kLanes;
  for (int c = 0; c < whole_columns; c += kLanes) {
    for (int r = 0; r < whole_rows; r += kLanes) transpose_block(x + r * x_row + c, x_row, y + c * y_row + r, y_row);
  }
  for (int r = 0; r < rows; ++r) {
    for (int c = r < whole_rows ? whole_columns : 0; c < columns; ++c) y[c * y_row + r] = x[r * x_row + c];
  }
}

}  // namespace onedispatch::kernels::OD_LEVEL
