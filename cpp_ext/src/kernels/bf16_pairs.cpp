// SPDX-License-Identifier: Apache-2.0
#include "bf16_pairs.h"

namespace onedispatch::kernels {

namespace {

int width_of(const Bf16Matrix& x) { return x.along_n ? static_cast<int>(x.along_n.length) : x.n; }

const uint16_t* member_of(const Bf16Matrix& x, int k) {
  const Panels::Run run = x.along_k.run(k, 1);
  return x.data + run.panel * x.along_k.stride + run.first * x.k_stride;
}

// Neighbours along k: pairs of each column, which then become rows.
void pair_columns(const Bf16Matrix& x, int first, int members, uint16_t none, uint32_t* words, ptrdiff_t row) {
  const int pairs = (members + 1) / 2;
  auto* columns = static_cast<uint32_t*>(scratch(kScratchPackB, static_cast<size_t>(x.n) * static_cast<size_t>(pairs) * 4));
  for (int n = 0; n < x.n; ++n) simd().pairs->pair_neighbours(x.data + first + n * x.n_stride, members, none, columns + ptrdiff_t{n} * pairs, pairs);
  simd().transpose(reinterpret_cast<const float*>(columns), pairs, x.n, pairs, reinterpret_cast<float*>(words), row);
}

// Members that lie alike, of all columns.
void pair_rows(const Bf16Matrix& x, const uint16_t* from, int members, uint16_t none, uint32_t* words, ptrdiff_t row) {
  const int width = width_of(x);
  for (int n = 0; n < x.n; n += width, from += x.along_n.stride) {
    const int here = std::min(width, x.n - n);
    if (x.n_stride == 1) {
      simd().pairs->pair_rows(from, x.k_stride, members, here, none, words + n, row);
      continue;
    }
    for (int k = 0; k < members; k += 2) {
      const uint16_t* first = from + k * x.k_stride;
      for (int i = 0; i < here; ++i, first += x.n_stride) words[k / 2 * row + n + i] = pair_of(*first, k + 1 < members ? first[x.k_stride] : none);
    }
  }
}

// Those of a step. Panels begin with it, or hold one member each.
void pair_step(const Bf16Matrix& all, ptrdiff_t tap, int first, int members, uint16_t none, uint32_t* words, ptrdiff_t row) {
  Bf16Matrix x = all;
  x.data += tap;
  if (x.along_k.length == 1) {
    x.k_stride = x.along_k.stride;
    x.along_k = {};
  }
  if (x.k_stride == 1 && x.n_stride != 1 && !x.along_k && width_of(x) == x.n) return pair_columns(x, first, members, none, words, row);
  for (int k = 0, some; k < members; k += some, words += some / 2 * row) {
    some = x.along_k.run(first + k, members - k).members;
    pair_rows(x, member_of(x, first + k), some, none, words, row);
  }
}

}  // namespace

// Steps of whole blocks are one.
PairSteps::PairSteps(int members, int step, int taps, bool fills) : members_(members), step_(step), taps_(taps), block_(fills ? simd().pairs->block : 1) {
  if (step % 2 == 0 && step / 2 * taps % block_ == 0) step_ = std::max(members, 1);
}

void pair_members(const Bf16Matrix& x, const PairSteps& steps, uint16_t none, uint32_t* words, ptrdiff_t row) {
  for (int step = 0; step < steps.count(); ++step) {
    uint32_t* const to = words + steps.first_row(step) * row;
    for (int tap = 0; tap < steps.taps(); ++tap) pair_step(x, tap * x.tap_stride, steps.first_member(step), steps.members(step), none, to + tap * row, steps.taps() * row);
    for (int i = steps.pairs(step); i < steps.rows(step); ++i) std::fill_n(to + i * row, x.n, 0u);
  }
}

void pair_neighbours(const uint16_t* x, const PairSteps& steps, uint16_t none, uint32_t* words) {
  for (int step = 0; step < steps.count(); ++step)
    simd().pairs->pair_neighbours(x + steps.first_member(step), steps.members(step), none, words + steps.first_row(step), steps.rows(step));
}

ptrdiff_t pair_pitch(int n) {
  constexpr ptrdiff_t kSameSets = 1024;  // words from line to line of a set of L1
  const ptrdiff_t whole = (n + kOverrun - 1) / kOverrun * kOverrun;
  return whole % (kSameSets / 4) == 0 ? whole + kOverrun : whole;
}

void multiply_rows(const GemmRows& all, const Bf16Matrix& b, const PairSteps& steps) {
  const int width = width_of(b);
  GemmRows part = all;
  part.b_k = b.k_stride;
  for (int step = 0; step < steps.count(); ++step) {
    const int first = steps.first_member(step), members = steps.members(step);
    for (int k = 0; k < members; k += part.k, part.accumulate = true) {
      part.a = all.a + steps.first_row(step) + k / 2;
      part.k = b.along_k.run(first + k, members - k).members;
      for (int n = 0; n < b.n; n += width) {
        part.b = member_of(b, first + k) + n / width * b.along_n.stride;
        part.c = all.c + n;
        part.n = std::min(width, b.n - n);
        simd().pairs->gemm_rows(part);
      }
    }
  }
}

}  // namespace onedispatch::kernels
