// SPDX-License-Identifier: Apache-2.0
// Operands of bf16 as words of pairs, for kernels on processors that multiply such (simd.h: PairLevel).
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernel.h"
#include "simd/simd.h"

namespace onedispatch::kernels {

// Stands in A for the second member of a pair that has one, where B has 0: the product changes no sum, -0 neither.
constexpr uint16_t kNegativeZero = 0x8000;

// The steps of a reduction, in each of which pairs begin anew and fill whole blocks (PairLevel).
class PairSteps {
 public:
  // Of `members`, so many in a step. Each pair is there for every tap; without `fills` only as many as members make.
  PairSteps(int members, int step, int taps = 1, bool fills = true);

  int count() const { return (members_ + step_ - 1) / step_; }
  int members() const { return members_; }
  int members(int step) const { return std::min(step_, members_ - step * step_); }
  int first_member(int step) const { return step * step_; }
  int taps() const { return taps_; }
  // Pairs of all taps: in a step, without those that fill a block, and with them; before it; in all.
  int pairs(int step) const { return (members(step) + 1) / 2 * taps_; }
  int rows(int step) const { return whole(pairs(step)); }
  int first_row(int step) const { return step * rows(0); }
  int rows() const { return first_row(count() - 1) + rows(count() - 1); }

 private:
  int whole(int pairs) const { return (pairs + block_ - 1) / block_ * block_; }

  int members_, step_, taps_, block_;
};

// Members of a step as the device takes them, of which a call of a joined operation may have several.
inline int step_of(const Setup& setup) { return static_cast<int>(std::max(setup.words[params::header::k_tile], 1u)); }

// [k][n], in panels along both; of every tap, one so far behind the other.
struct Bf16Matrix {
  const uint16_t* data;
  ptrdiff_t k_stride, n_stride;
  Panels along_k, along_n;
  int k, n;
  ptrdiff_t tap_stride = 0;
};

// [pair of k][tap][n] as rows of n words, `row` words apart, with `none` where there is no second member. What fills a
// block is zero.
void pair_members(const Bf16Matrix& x, const PairSteps& steps, uint16_t none, uint32_t* words, ptrdiff_t row);
// The same of one row of members that lie side by side.
void pair_neighbours(const uint16_t* x, const PairSteps& steps, uint16_t none, uint32_t* words);

// Words from row to row of n pairs: whole vectors, which do not share few sets of the caches.
ptrdiff_t pair_pitch(int n);

// The product with rows of `b` as they lie, which has neighbours along n. Few rows of A do not pay for pairs of B.
// `all` says the rest, with room for b, b_k, n and k.
void multiply_rows(const GemmRows& all, const Bf16Matrix& b, const PairSteps& steps);

}  // namespace onedispatch::kernels
