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

// The same level on processors that have it.
static SimdLevel with_pairs(const SimdLevel& without) {
  SimdLevel level = without;
  level.name = "avx512bf16";
  level.gemm_pairs = gemm_pairs;
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
