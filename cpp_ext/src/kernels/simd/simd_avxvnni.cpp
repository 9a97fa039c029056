// SPDX-License-Identifier: Apache-2.0
// AVX2 with FMA and AVX-VNNI: the level avx2, but for the product of bytes. All standard headers come before the
// target pragma, so that no shared inline function is compiled for a processor that may not be there.
#if defined(__x86_64__)
#include <immintrin.h>

#include <array>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "onedispatch/kernel_params.h"
#include "simd.h"

#pragma GCC target("avx2,fma,bmi,bmi2,avxvnni")
#pragma GCC diagnostic ignored "-Wunused-function"  // of what the products of bytes leave of these headers

#define OD_LEVEL avxvnni
#define OD_VNNI 1
#include "level_avx2.h"
#include "level_base.h"
#include "level_types.h"
#include "level_gemm.h"
#include "level_products.h"

namespace onedispatch::kernels {
const SimdLevel& avx2_level();
const SimdLevel& avxvnni_level();
const SimdLevel& avxvnni_level() {
  static const SimdLevel level = [] {
    SimdLevel with_vnni = avx2_level();
    with_vnni.name = "avxvnni";
    with_vnni.gemm_i8 = avxvnni::gemm_i8;
    return with_vnni;
  }();
  return level;
}
}  // namespace onedispatch::kernels
#endif
