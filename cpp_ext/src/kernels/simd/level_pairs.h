// SPDX-License-Identifier: Apache-2.0
// Products of bf16, two of them by one instruction (AVX512-BF16): what gemm_f32 and conv_f32 are, of words of pairs.
namespace onedispatch::kernels::OD_LEVEL {

static void gemm_pairs(const GemmF32& g) { product<float, true>(g); }
static void conv_pairs(const ConvF32& g) { convolve<true>(g); }

OD_INLINE I upper(I x) { return (I)((U)x << 16); }

static void pair_rows(const uint16_t* first, const uint16_t* second, uint16_t none, uint32_t* words, size_t n) {
  for (size_t i = 0; i < n; i += kLanes) {
    const int part = n - i < kLanes ? static_cast<int>(n - i) : kLanes;
    const I low = second == nullptr ? splat_i(none) : widen_halves(second + i, part);
    store_part_i(reinterpret_cast<int32_t*>(words + i), upper(widen_halves(first + i, part)) | low, part);
  }
}

// In memory the first is the lower half.
static void pair_neighbours(const uint16_t* x, uint16_t none, uint32_t* words, size_t n) {
  const size_t whole = n / 2;
  for (size_t i = 0; i < whole; i += kLanes) {
    const int part = whole - i < kLanes ? static_cast<int>(whole - i) : kLanes;
    const I both = load_part_i(reinterpret_cast<const int32_t*>(x + 2 * i), part);
    store_part_i(reinterpret_cast<int32_t*>(words + i), upper(both) | (I)((U)both >> 16), part);
  }
  if (n % 2 != 0) words[whole] = static_cast<uint32_t>(x[n - 1]) << 16 | none;
}

// `count` columns of one row of A times the rows of B, of which `Vectors` vectors.
template <int Vectors>
OD_INLINE void row_of_halves(const GemmHalves& g, const uint32_t* a, const uint16_t* b, float* c, int count) {
  F sums[Vectors];
  const auto part = [count](int v) { return count - v * kLanes < kLanes ? count - v * kLanes : kLanes; };
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) sums[v] = g.accumulate ? load_part(c + v * kLanes, part(v)) : F{};
  for (int k = 0; k < g.k; k += 2, b += 2 * g.b_k, ++a) {
    const F factor = (F)splat_i(static_cast<int32_t>(*a));
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      const I low = k + 1 < g.k ? widen_halves(b + g.b_k + v * kLanes, part(v)) : I{};
      sums[v] = add_pairs(sums[v], factor, (F)(upper(widen_halves(b + v * kLanes, part(v))) | low));
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) store_part(c + v * kLanes, sums[v], part(v));
}

static void gemm_halves(const GemmHalves& g) {
  constexpr int kColumns = 4 * kLanes;
  for (int m = 0; m < g.m; ++m) {
    const auto* a = reinterpret_cast<const uint32_t*>(g.a) + m * g.a_m;
    int n = 0;
    for (; n + kColumns <= g.n; n += kColumns) row_of_halves<4>(g, a, g.b + n, g.c + m * g.c_m + n, kColumns);
    for (; n < g.n; n += kLanes) row_of_halves<1>(g, a, g.b + n, g.c + m * g.c_m + n, g.n - n < kLanes ? g.n - n : kLanes);
  }
}

// The same level on processors that have it.
static SimdLevel with_pairs(const SimdLevel& without) {
  SimdLevel level = without;
  level.name = "avx512bf16";
  level.gemm_pairs = gemm_pairs;
  level.gemm_halves = gemm_halves;
  level.conv_pairs = conv_pairs;
  level.pair_rows = pair_rows;
  level.pair_neighbours = pair_neighbours;
  return level;
}

}  // namespace onedispatch::kernels::OD_LEVEL

namespace onedispatch::kernels {
const SimdLevel& avx512bf16_level();
const SimdLevel& avx512bf16_level() {
  static const SimdLevel level = avx512::with_pairs(avx512_level());
  return level;
}
}  // namespace onedispatch::kernels
