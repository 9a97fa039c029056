// SPDX-License-Identifier: Apache-2.0
// AVX-512 with VNNI. All standard headers come before the target pragma, so that no shared inline
// function is compiled for a processor that may not be there.
#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>
#include <limits>
#include <type_traits>

#include "onedispatch/kernel_params.h"
#include "simd.h"

#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,bmi,bmi2,prefer-vector-width=512")

namespace onedispatch::kernels::avx512 {
#define OD_INLINE [[gnu::always_inline]] static inline
constexpr int kLanes = 16;
constexpr int kBigM = 8;  // rows of the register tile
constexpr bool kVnni = true;
using F = float __attribute__((vector_size(64)));
using I = int32_t __attribute__((vector_size(64)));

OD_INLINE __mmask16 lane_mask(int n) { return static_cast<__mmask16>((1u << n) - 1); }
OD_INLINE F splat(float x) { return (F)_mm512_set1_ps(x); }
OD_INLINE I splat_i(int32_t x) { return (I)_mm512_set1_epi32(x); }
OD_INLINE F load_part(const float* p, int n) { return (F)_mm512_maskz_loadu_ps(lane_mask(n), p); }
OD_INLINE void store_part(float* p, F v, int n) { _mm512_mask_storeu_ps(p, lane_mask(n), (__m512)v); }
OD_INLINE F fma(F a, F b, F c) { return (F)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
OD_INLINE F root(F x) { return (F)_mm512_maskz_sqrt_ps(0xFFFF, (__m512)x); }
using D = double __attribute__((vector_size(64)));
OD_INLINE D fma_wide(D a, D b, D c) { return (D)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c); }
OD_INLINE D root_wide(D x) { return (D)_mm512_maskz_sqrt_pd(0xFF, (__m512d)x); }
// Four products of an unsigned byte of a and a signed byte of b, added to each lane.
OD_INLINE I dot(I acc, I a, I b) { return (I)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)a, (__m512i)b); }
OD_INLINE I widen_bytes(const uint8_t* p) {
  return (I)_mm512_maskz_cvtepu8_epi32(0xFFFF, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
OD_INLINE I lane_index() { return I{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}; }
OD_INLINE F even_lanes(F a, F b) {
  const __m512i pick = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  return (F)_mm512_permutex2var_ps((__m512)a, pick, (__m512)b);
}
}  // namespace onedispatch::kernels::avx512

#define OD_LEVEL avx512
#include "level_base.h"
#include "level_types.h"
#include "level_gemm.h"
#include "level_wide.h"
#include "level_math.h"
#include "level_integers.h"
#include "level_quantise.h"
#include "level_rows.h"
#include "level_windows.h"
#include "level_logic.h"
#include "level_table.h"
#endif
