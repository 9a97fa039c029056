// SPDX-License-Identifier: Apache-2.0
// AVX-512 with VNNI. All standard headers come before the target pragma, so that no shared inline
// function is compiled for a processor that may not be there.
#if defined(__x86_64__)
#include <immintrin.h>

#include <array>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "onedispatch/kernel_params.h"
#include "simd.h"

#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,bmi,bmi2,prefer-vector-width=512")

namespace onedispatch::kernels::avx512 {
#define OD_INLINE [[gnu::always_inline]] static inline
constexpr int kLanes = 16;
constexpr int kBigM = 8;  // rows of the register tile
constexpr int kConvSums = 28;  // of the 32 registers
constexpr bool kVnni = true;
using F = float __attribute__((vector_size(64)));
using I = int32_t __attribute__((vector_size(64)));

OD_INLINE __mmask16 lane_mask(int n) { return static_cast<__mmask16>((1u << n) - 1); }
OD_INLINE F splat(float x) { return (F)_mm512_set1_ps(x); }
OD_INLINE I splat_i(int32_t x) { return (I)_mm512_set1_epi32(x); }
OD_INLINE F load_part(const float* p, int n) { return (F)_mm512_maskz_loadu_ps(lane_mask(n), p); }
OD_INLINE void store_part(float* p, F v, int n) { _mm512_mask_storeu_ps(p, lane_mask(n), (__m512)v); }
OD_INLINE F fma(F a, F b, F c) { return (F)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
OD_INLINE F fused(F a, F b, F c) { return fma(a, b, c); }
// sum + the products of the upper halves, then + those of the lower ones. As assembly, since this file is also compiled
// for processors without AVX512-BF16.
OD_INLINE F add_pairs(F sum, F a, F b) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  return sum;
}
OD_INLINE I widen_u16(const uint16_t* p, int n) { return (I)_mm512_maskz_cvtepu16_epi32(0xFFFF, _mm256_maskz_loadu_epi16(lane_mask(n), p)); }
// A NaN of x stays one.
#define OD_BOUNDS 1
OD_INLINE F at_most(F x, float limit) { return (F)_mm512_maskz_min_ps(0xFFFF, _mm512_set1_ps(limit), (__m512)x); }
OD_INLINE F at_least(F x, float limit) { return (F)_mm512_maskz_max_ps(0xFFFF, _mm512_set1_ps(limit), (__m512)x); }
// x * 2^power for whole powers, rounded once.
#define OD_SCALES 1
OD_INLINE F scaled(F x, F power) { return (F)_mm512_maskz_scalef_ps(0xFFFF, (__m512)x, (__m512)power); }
OD_INLINE F root(F x) { return (F)_mm512_maskz_sqrt_ps(0xFFFF, (__m512)x); }
using D = double __attribute__((vector_size(64)));
OD_INLINE D fma_wide(D a, D b, D c) { return (D)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c); }
OD_INLINE D root_wide(D x) { return (D)_mm512_maskz_sqrt_pd(0xFF, (__m512d)x); }
// Four products of an unsigned byte of a and a signed byte of b, added to each lane.
OD_INLINE I dot(I acc, I a, I b) { return (I)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)a, (__m512i)b); }
// Bytes as words, and the low bytes of words.
OD_INLINE I words_of(__m128i bytes, bool is_signed) {
  return (I)(is_signed ? _mm512_maskz_cvtepi8_epi32(0xFFFF, bytes) : _mm512_maskz_cvtepu8_epi32(0xFFFF, bytes));
}
OD_INLINE I widen_bytes(const uint8_t* p) { return words_of(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)), false); }
OD_INLINE I widen_few_bytes(const uint8_t* p, int n) { return words_of(_mm_maskz_loadu_epi8(lane_mask(n), p), false); }
#define OD_LOOKS_UP_FLOATS 1
OD_INLINE F look_up_floats(I x) {  // the lower four bits of each word as a float
  const __m512 all = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return (F)_mm512_maskz_permutexvar_ps(0xFFFF, (__m512i)x, all);
}
OD_INLINE __m128i bytes_of(I words) { return _mm512_maskz_cvtepi32_epi8(0xFFFF, (__m512i)words); }
// The first n of 4 * kLanes bytes; zeros behind them.
OD_INLINE I load_bytes(const uint8_t* p, int n) {
  return (I)_mm512_maskz_loadu_epi8(~uint64_t{0} >> (64 - n), p);
}
template <int Pick>  // two lanes of 128 bits of each
OD_INLINE __m512i pick_lanes(__m512i a, __m512i b) {
  return _mm512_maskz_shuffle_i32x4(0xFFFF, a, b, Pick);
}
// words[v] of column i = the bytes v * kLanes + i of the four rows.
OD_INLINE void interleave_bytes(const I (&rows)[4], I (&words)[4]) {
  const __m512i low = _mm512_unpacklo_epi8((__m512i)rows[0], (__m512i)rows[1]), high = _mm512_unpackhi_epi8((__m512i)rows[0], (__m512i)rows[1]);
  const __m512i other_low = _mm512_unpacklo_epi8((__m512i)rows[2], (__m512i)rows[3]), other_high = _mm512_unpackhi_epi8((__m512i)rows[2], (__m512i)rows[3]);
  // Of every 16 columns: four words in each, in turn.
  const __m512i w0 = _mm512_unpacklo_epi16(low, other_low), w1 = _mm512_unpackhi_epi16(low, other_low);
  const __m512i w2 = _mm512_unpacklo_epi16(high, other_high), w3 = _mm512_unpackhi_epi16(high, other_high);
  words[0] = (I)pick_lanes<0x88>(pick_lanes<0x44>(w0, w1), pick_lanes<0x44>(w2, w3));
  words[1] = (I)pick_lanes<0xDD>(pick_lanes<0x44>(w0, w1), pick_lanes<0x44>(w2, w3));
  words[2] = (I)pick_lanes<0x88>(pick_lanes<0xEE>(w0, w1), pick_lanes<0xEE>(w2, w3));
  words[3] = (I)pick_lanes<0xDD>(pick_lanes<0xEE>(w0, w1), pick_lanes<0xEE>(w2, w3));
}
// The same of rows of 16 or 32 bytes that lie side by side.
#define OD_INTERLEAVES_NEIGHBOURS 1
OD_INLINE void interleave_neighbours(const uint8_t* rows, int columns, I (&words)[2]) {
  const __m512i quads = _mm512_set4_epi32(0x0F0B0703, 0x0E0A0602, 0x0D090501, 0x0C080400);  // bytes of four words in turn
  if (columns == 16) {
    const __m512i by_column = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    words[0] = (I)_mm512_shuffle_epi8(_mm512_maskz_permutexvar_epi32(0xFFFF, by_column, _mm512_loadu_si512(rows)), quads);
    return;
  }
  const __m512i by_column = _mm512_setr_epi32(0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27), further = _mm512_set1_epi32(4);
  const __m512i first = _mm512_loadu_si512(rows), second = _mm512_loadu_si512(rows + 64);
  words[0] = (I)_mm512_shuffle_epi8(_mm512_permutex2var_epi32(first, by_column, second), quads);
  words[1] = (I)_mm512_shuffle_epi8(_mm512_permutex2var_epi32(first, _mm512_add_epi32(by_column, further), second), quads);
}
// y[i] = entries[x[i]] of whole vectors, by AVX-512 VBMI; returns of how many.
[[gnu::target("avx512vbmi")]] static size_t look_up_vectors(const uint8_t* entries, const uint8_t* x, uint8_t* y, size_t n) {
  __m512i part[4];
  for (size_t j = 0; j < 4; ++j) part[j] = _mm512_loadu_si512(entries + 64 * j);
  size_t i = 0;
  for (; i + 64 <= n; i += 64) {
    const __m512i at = _mm512_loadu_si512(x + i);
    const __m512i low = _mm512_permutex2var_epi8(part[0], at, part[1]), high = _mm512_permutex2var_epi8(part[2], at, part[3]);
    _mm512_storeu_si512(y + i, _mm512_mask_blend_epi8(_mm512_movepi8_mask(at), low, high));
  }
  return i;
}
OD_INLINE I lane_index() { return I{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}; }
OD_INLINE F even_lanes(F a, F b) {
  const __m512i pick = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  return (F)_mm512_permutex2var_ps((__m512)a, pick, (__m512)b);
}
}  // namespace onedispatch::kernels::avx512

#define OD_LEVEL avx512
#define OD_VNNI 1
#define OD_VBMI 1
#define OD_CONVERTS_BYTES 1
#include "level_base.h"
#include "level_types.h"
#include "level_gemm.h"
#include "level_conv.h"
#include "level_products.h"
#include "level_wide.h"
#include "level_math.h"
#include "level_integers.h"
#include "level_quantise.h"
#include "level_packed.h"
#include "level_normal.h"
#include "level_sums.h"
#include "level_rows.h"
#include "level_windows.h"
#include "level_logic.h"
#include "level_table.h"
#include "level_pairs.h"
#include "level_amx.h"
#include "level_amx_pairs.h"
#endif
