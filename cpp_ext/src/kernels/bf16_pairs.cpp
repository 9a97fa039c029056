// SPDX-License-Identifier: Apache-2.0
#include "bf16_pairs.h"

#include <algorithm>

namespace onedispatch::kernels {

namespace {

int width_of(const Bf16Matrix& x) { return x.along_n ? static_cast<int>(x.along_n.length) : x.n; }

const uint16_t* member_of(const Bf16Matrix& x, int k) {
  const Panels::Run run = x.along_k.run(k, 1);
  return x.data + run.panel * x.along_k.stride + run.first * x.k_stride;
}

// Neighbours along k: pairs of each column, which then become rows.
void pair_columns(const Bf16Matrix& x, uint16_t none, uint32_t* words, ptrdiff_t row) {
  const int pairs = (x.k + 1) / 2;
  auto* columns = static_cast<uint32_t*>(scratch(kScratchPackB, static_cast<size_t>(x.n) * static_cast<size_t>(pairs) * 4));
  for (int n = 0; n < x.n; ++n) simd().pairs->pair_neighbours(x.data + n * x.n_stride, none, columns + ptrdiff_t{n} * pairs, static_cast<size_t>(x.k));
  simd().transpose(reinterpret_cast<const float*>(columns), pairs, x.n, pairs, reinterpret_cast<float*>(words), row);
}

}  // namespace

void pair_members(const Bf16Matrix& x, uint16_t none, uint32_t* words, ptrdiff_t row) {
  const int width = width_of(x);
  if (x.k_stride == 1 && x.n_stride != 1 && !x.along_k && width == x.n) return pair_columns(x, none, words, row);
  for (int k = 0; k < x.k; k += 2, words += row) {
    const uint16_t *first = member_of(x, k), *second = k + 1 < x.k ? member_of(x, k + 1) : nullptr;
    for (int n = 0; n < x.n; n += width) {
      const ptrdiff_t panel = n / width * x.along_n.stride;
      const int here = std::min(width, x.n - n);
      if (x.n_stride == 1) {
        simd().pairs->pair_rows(first + panel, second == nullptr ? nullptr : second + panel, none, words + n, static_cast<size_t>(here));
        continue;
      }
      for (ptrdiff_t at = panel, i = 0; i < here; ++i, at += x.n_stride) words[n + i] = pair_of(first[at], second == nullptr ? none : second[at]);
    }
  }
}

void multiply_rows(const GemmRows& all, const Bf16Matrix& b) {
  const int width = width_of(b), depth = b.along_k.run(0, b.k).members;
  GemmRows part = all;
  part.b_k = b.k_stride;
  for (int k = 0; k < b.k; k += depth, part.accumulate = true) {
    part.a = all.a + k / 2;
    part.k = std::min(depth, b.k - k);
    for (int n = 0; n < b.n; n += width) {
      part.b = member_of(b, k) + n / width * b.along_n.stride;
      part.c = all.c + n;
      part.n = std::min(width, b.n - n);
      simd().pairs->gemm_rows(part);
    }
  }
}

}  // namespace onedispatch::kernels
