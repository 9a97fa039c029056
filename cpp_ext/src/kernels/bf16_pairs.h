// SPDX-License-Identifier: Apache-2.0
// Operands of bf16 as words of pairs, for kernels on processors that multiply such (simd.h: PairLevel).
#pragma once
#include <cstdint>

#include "kernel.h"
#include "simd/simd.h"

namespace onedispatch::kernels {

// Stands in A for the second member of a pair that has one, where B has 0: the product changes no sum, -0 neither.
constexpr uint16_t kNegativeZero = 0x8000;

// [k][n], in panels along both.
struct Bf16Matrix {
  const uint16_t* data;
  ptrdiff_t k_stride, n_stride;
  Panels along_k, along_n;
  int k, n;
};

// Pairs of members 2i and 2i + 1 of k, with `none` where there is no second one: rows of n words, `row` words apart.
void pair_members(const Bf16Matrix& x, uint16_t none, uint32_t* words, ptrdiff_t row);

// The product with rows of `b` as they lie, which has neighbours along n. Few rows of A do not pay for pairs of B.
// `all` says the rest, with room for b, b_k, n and k.
void multiply_rows(const GemmRows& all, const Bf16Matrix& b);

}  // namespace onedispatch::kernels
