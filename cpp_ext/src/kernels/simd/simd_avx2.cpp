// SPDX-License-Identifier: Apache-2.0
// AVX2 with FMA. All standard headers come before the target pragma, so that no shared inline
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

#pragma GCC target("avx2,fma,bmi,bmi2")

#define OD_LEVEL avx2
#define OD_VNNI 0
#include "level_avx2.h"
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
#endif
