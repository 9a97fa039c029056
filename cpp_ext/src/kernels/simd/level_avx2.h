// SPDX-License-Identifier: Apache-2.0
// Vectors of 32 bytes, for the levels avx2 and avxvnni: they differ in the product of bytes (OD_VNNI).
namespace onedispatch::kernels::OD_LEVEL {
#define OD_INLINE [[gnu::always_inline]] static inline
constexpr int kLanes = 8;
constexpr int kBigM = 4;  // rows of the register tile
constexpr int kConvSums = 12;  // of the 16 registers
constexpr bool kVnni = OD_VNNI;
using F = float __attribute__((vector_size(32)));
using I = int32_t __attribute__((vector_size(32)));

OD_INLINE __m256i lane_mask(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
OD_INLINE F splat(float x) { return (F)_mm256_set1_ps(x); }
OD_INLINE I splat_i(int32_t x) { return (I)_mm256_set1_epi32(x); }
OD_INLINE F load_part(const float* p, int n) { return (F)_mm256_maskload_ps(p, lane_mask(n)); }
OD_INLINE void store_part(float* p, F v, int n) { _mm256_maskstore_ps(p, lane_mask(n), (__m256)v); }
OD_INLINE F fma(F a, F b, F c) { return (F)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
OD_INLINE F fused(F a, F b, F c) { return fma(a, b, c); }
OD_INLINE F root(F x) { return (F)_mm256_sqrt_ps((__m256)x); }
using D = double __attribute__((vector_size(32)));
OD_INLINE D fma_wide(D a, D b, D c) { return (D)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c); }
OD_INLINE D root_wide(D x) { return (D)_mm256_sqrt_pd((__m256d)x); }
#if OD_VNNI
// Four products of an unsigned byte of a and a signed byte of b, added to each lane.
OD_INLINE I dot(I acc, I a, I b) { return (I)_mm256_dpbusd_avx_epi32((__m256i)acc, (__m256i)a, (__m256i)b); }
// The first n of 4 * kLanes bytes; what is behind them is not read.
OD_INLINE I load_bytes(const uint8_t* p, int n) {
  if (n == 32) return (I)_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  I bytes{};
  __builtin_memcpy(&bytes, p, static_cast<size_t>(n));
  return bytes;
}
// words[v] of column i = the bytes v * kLanes + i of the four rows.
OD_INLINE void interleave_bytes(const I (&rows)[4], I (&words)[4]) {
  const __m256i low = _mm256_unpacklo_epi8((__m256i)rows[0], (__m256i)rows[1]), high = _mm256_unpackhi_epi8((__m256i)rows[0], (__m256i)rows[1]);
  const __m256i other_low = _mm256_unpacklo_epi8((__m256i)rows[2], (__m256i)rows[3]), other_high = _mm256_unpackhi_epi8((__m256i)rows[2], (__m256i)rows[3]);
  // Of every 16 columns: four words in each, in turn.
  const __m256i w0 = _mm256_unpacklo_epi16(low, other_low), w1 = _mm256_unpackhi_epi16(low, other_low);
  const __m256i w2 = _mm256_unpacklo_epi16(high, other_high), w3 = _mm256_unpackhi_epi16(high, other_high);
  words[0] = (I)_mm256_permute2x128_si256(w0, w1, 0x20);
  words[1] = (I)_mm256_permute2x128_si256(w2, w3, 0x20);
  words[2] = (I)_mm256_permute2x128_si256(w0, w1, 0x31);
  words[3] = (I)_mm256_permute2x128_si256(w2, w3, 0x31);
}
#else
// Two products of int16, added to each lane.
OD_INLINE I dot(I acc, I a, I b) {
  return (I)_mm256_add_epi32((__m256i)acc, _mm256_madd_epi16((__m256i)a, (__m256i)b));
}
#endif
OD_INLINE I widen_bytes(const uint8_t* p) {
  return (I)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
OD_INLINE I widen_few_bytes(const uint8_t* p, int n) {
  uint64_t bytes = 0;
  for (int i = n; i-- > 0;) bytes = bytes << 8 | p[i];
  return (I)_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(bytes)));
}
OD_INLINE I lane_index() { return I{0, 1, 2, 3, 4, 5, 6, 7}; }
OD_INLINE F even_lanes(F a, F b) {
  const __m256 mixed = _mm256_shuffle_ps((__m256)a, (__m256)b, 0x88);  // per 128 bits: a a b b
  return (F)_mm256_permute4x64_pd((__m256d)mixed, 0xD8);
}
}  // namespace onedispatch::kernels::OD_LEVEL
