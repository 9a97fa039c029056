// SPDX-License-Identifier: Apache-2.0
// PairLevel by AVX512-BF16: gemm_f32 and conv_f32 of words that hold pairs of bf16.
namespace onedispatch::kernels::OD_LEVEL {

static void gemm_pairs(const GemmF32& g) { product<float, true>(g); }
static void conv_pairs(const ConvF32& g) { convolve<true, false>(g); }

OD_INLINE I upper(I x) { return (I)((U)x << 16); }

static void pair_rows(const uint16_t* x, ptrdiff_t x_row, int rows, int columns, uint16_t none, uint32_t* words, ptrdiff_t row) {
  for (int k = 0; k < rows; k += 2, x += 2 * x_row, words += row) {
    for (int i = 0; i < columns; i += kLanes) {
      const int part = columns - i < kLanes ? columns - i : kLanes;
      const I low = k + 1 == rows ? splat_i(none) : widen_u16(x + x_row + i, part);
      store_part_i(reinterpret_cast<int32_t*>(words + i), upper(widen_u16(x + i, part)) | low, part);
    }
  }
}

// In memory the first is the lower half.
static void pair_neighbours(const uint16_t* x, int n, uint16_t none, uint32_t* words, int pairs) {
  const int whole = n / 2;
  for (int i = 0; i < pairs; i += kLanes) {
    const auto lanes = [i](int end) { return end - i < 0 ? 0 : end - i < kLanes ? end - i : kLanes; };
    const I both = load_part_i(reinterpret_cast<const int32_t*>(x + 2 * i), lanes(whole));
    store_part_i(reinterpret_cast<int32_t*>(words + i), upper(both) | (I)((U)both >> 16), lanes(pairs));
  }
  if (n % 2 != 0) words[whole] = pair_of(x[n - 1], none);
}

// Calls row(vectors, a, b, c, count) for a row of A and `count` columns of B, of so many vectors.
template <class Row>
OD_INLINE void for_rows(const GemmRows& g, Row row) {
  constexpr int kColumns = 4 * kLanes;
  for (int m = 0; m < g.m; ++m) {
    const auto* a = reinterpret_cast<const uint32_t*>(g.a) + m * g.a_m;
    float* c = g.c + m * g.c_m;
    int n = 0;
    for (; n + kColumns <= g.n; n += kColumns) row(std::integral_constant<int, 4>{}, a, g.b + n, c + n, kColumns);
    for (; n < g.n; n += kLanes) row(std::integral_constant<int, 1>{}, a, g.b + n, c + n, g.n - n < kLanes ? g.n - n : kLanes);
  }
}

template <int Vectors>
OD_INLINE void row_in_order(const GemmRows& g, const uint32_t* a, const uint16_t* b, float* c, int count) {
  F sums[Vectors];
  const auto part = [count](int v) { return count - v * kLanes < kLanes ? count - v * kLanes : kLanes; };
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) sums[v] = g.accumulate ? load_part(c + v * kLanes, part(v)) : F{};
  for (int k = 0; k < g.k; k += 2, b += 2 * g.b_k, ++a) {
    const F factor = (F)splat_i(static_cast<int32_t>(*a));
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      const I low = k + 1 < g.k ? widen_u16(b + g.b_k + v * kLanes, part(v)) : I{};
      sums[v] = add_pairs(sums[v], factor, (F)(upper(widen_u16(b + v * kLanes, part(v))) | low));
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) store_part(c + v * kLanes, sums[v], part(v));
}

static void gemm_rows(const GemmRows& g) {
  for_rows(g, [&](auto vectors, auto... at) { row_in_order<decltype(vectors)::value>(g, at...); });
}

}  // namespace onedispatch::kernels::OD_LEVEL

namespace onedispatch::kernels {
const SimdLevel& avx512bf16_level();
const SimdLevel& avx512bf16_level() {
  using namespace OD_LEVEL;
  static constexpr PairLevel pairs{1, gemm_pairs, gemm_rows, conv_pairs, pair_rows, pair_neighbours};
  static const SimdLevel level = [] {
    SimdLevel with_pairs = avx512_level();
    with_pairs.name = "avx512bf16";
    with_pairs.pairs = &pairs;
    return with_pairs;
  }();
  return level;
}
}  // namespace onedispatch::kernels
