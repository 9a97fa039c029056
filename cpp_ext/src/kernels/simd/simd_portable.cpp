// SPDX-License-Identifier: Apache-2.0
// Any processor: vectors of 16 bytes, which the compiler maps to what its baseline has.
#include <cmath>
#include <array>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "onedispatch/kernel_params.h"
#include "simd.h"

namespace onedispatch::kernels::portable {
#define OD_INLINE [[gnu::always_inline]] static inline
constexpr int kLanes = 4;
constexpr int kBigM = 4;  // rows of the register tile
constexpr int kConvSums = 12;  // of 16 registers
constexpr bool kVnni = false;
using F = float __attribute__((vector_size(16)));
using I = int32_t __attribute__((vector_size(16)));

OD_INLINE F splat(float x) { return F{x, x, x, x}; }
OD_INLINE I splat_i(int32_t x) { return I{x, x, x, x}; }
OD_INLINE F load_part(const float* p, int n) {
  F v{};
  for (int i = 0; i < n; ++i) v[i] = p[i];
  return v;
}
OD_INLINE void store_part(float* p, F v, int n) {
  for (int i = 0; i < n; ++i) p[i] = v[i];
}
OD_INLINE F fma(F a, F b, F c) { return a * b + c; }
OD_INLINE F fused(F a, F b, F c) {  // rounded once
  for (int i = 0; i < kLanes; ++i) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return c;
}
OD_INLINE F root(F x) { return F{std::sqrt(x[0]), std::sqrt(x[1]), std::sqrt(x[2]), std::sqrt(x[3])}; }
using D = double __attribute__((vector_size(16)));
OD_INLINE D fma_wide(D a, D b, D c) { return a * b + c; }
OD_INLINE D root_wide(D x) { return D{std::sqrt(x[0]), std::sqrt(x[1])}; }
// Two products of int16, added to each lane. |sum| < 2^31: the factors are differences of bytes.
OD_INLINE I dot(I acc, I a, I b) {
  using U = uint32_t __attribute__((vector_size(16)));
  const I low = ((I)((U)a << 16) >> 16) * ((I)((U)b << 16) >> 16);
  return (I)((U)acc + (U)low + (U)((a >> 16) * (b >> 16)));
}
OD_INLINE I widen_bytes(const uint8_t* p) { return I{p[0], p[1], p[2], p[3]}; }
OD_INLINE I widen_few_bytes(const uint8_t* p, int n) { return I{p[0], n > 1 ? p[1] : 0, n > 2 ? p[2] : 0, 0}; }
OD_INLINE I lane_index() { return I{0, 1, 2, 3}; }
OD_INLINE F even_lanes(F a, F b) { return F{a[0], a[2], b[0], b[2]}; }
}  // namespace onedispatch::kernels::portable

#define OD_LEVEL portable
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
