// SPDX-License-Identifier: Apache-2.0
#include "byte_zeros.h"

#include <algorithm>

#include "words.h"

namespace onedispatch::kernels {

void zero_points(const Operand& zero, const Call& call, int64_t at, int n, int32_t* to) {
  if (!zero.present) {
    std::fill(to, to + n, 0);
    return;
  }
  const Axis& axis = zero.axes[0];
  const int64_t count = axis.stride * (n - 1) + 1;
  const int32_t* from = words_in<int32_t>(zero, call, at, count, kScratchRow);
  for (int i = 0; i < n; ++i) to[i] = from[i * axis.stride];
}

ByteZeros::ByteZeros(const Setup& setup, const Operand& a_zero, const Operand& b_zero, const Panels& columns, const Panels& steps)
    : a_zero_(a_zero),
      b_zero_(b_zero),
      columns_(columns),
      steps_(steps),
      a_columns_(setup, a_zero, Panels::kWhole),
      a_steps_(setup, a_zero, Panels::kWholeSteps),
      b_columns_(setup, b_zero, 0),
      b_steps_(setup, b_zero, Panels::kWholeSteps) {
  const auto fits = [](const Panels& own, const Panels& of_b) { return !own || own.length == of_b.length; };
  if (!fits(a_columns_, columns) || !fits(b_columns_, columns) || !fits(a_steps_, steps) || !fits(b_steps_, steps)) {
    reject("gemm: panels of zero points; accepted: those of b");
  }
}

// Those of the panel of b that column `first` and step `step` of the panels along k are in.
void ByteZeros::read_a(const Zeros& zeros, int first, int step, int32_t* to) const {
  const int64_t panel = columns_ ? first / columns_.length : 0;
  zero_points(a_zero_, zeros.call, zeros.a + panel * a_columns_.stride + step * a_steps_.stride, zeros.m, to);
}

void ByteZeros::read_b(const Zeros& zeros, int first, int columns, int step, int32_t* to) const {
  for (int n = 0, here; n < columns; n += here) {
    const Panels::Run run = b_columns_.run(first + n, columns - n);
    here = run.members;
    const int64_t from = run.panel * b_columns_.stride + run.first * b_zero_.axes[0].stride;
    zero_points(b_zero_, zeros.call, zeros.b + from + step * b_steps_.stride, here, to + n);
  }
}

// How many columns from `first` on are multiplied at once: of panels that vectors end with, and a has the same zero points in.
int ByteZeros::columns_alike(const Zeros& zeros, int first, int left) const {
  const int width = columns_ ? static_cast<int>(columns_.length) : left;
  if (width >= left || width % kOverrun != 0) return std::min(width, left);
  if (!a_columns_) return left;
  int32_t *const own = zeros.made, *const next = own + zeros.m;
  for (int behind = width; behind < left; behind += width) {
    for (int step = 0; step < steps(zeros.k); ++step) {
      read_a(zeros, first, step, own);
      read_a(zeros, first + behind, step, next);
      if (!std::equal(own, next, next)) return behind;
    }
  }
  return left;
}

// Columns from `first` on: all steps at once where those have the same zero points.
void ByteZeros::multiply_columns(const Zeros& zeros, int first, GemmI8& g) const {
  const int all = g.m + g.n, count = steps(g.k);
  const auto read = [&](int step, int32_t* to) {
    read_a(zeros, first, step, to);
    read_b(zeros, first, g.n, step, to + g.m);
  };
  g.a_zero = zeros.made;
  g.b_zero = zeros.made + g.m;
  read(0, zeros.made);
  bool same = true;
  for (int step = 1; (a_steps_ || b_steps_) && same && step < count; ++step) {
    read(step, zeros.made + all);
    same = std::equal(zeros.made, zeros.made + all, zeros.made + all);
  }
  if (same) return simd().gemm_i8(g);
  GemmI8 part = g;
  for (int step = 0, left = g.k; step < count; ++step, left -= g.k_panel) {
    read(step, zeros.made);
    part.k = std::min(g.k_panel, left);
    part.a = g.a + step * g.a_k_panel;
    part.b = g.b + step * g.b_k_panel;
    part.accumulate = g.accumulate || step != 0;
    simd().gemm_i8(part);
  }
}

void ByteZeros::multiply(const Call& call, int64_t a_zero, int64_t b_zero, const GemmI8& g) const {
  auto* const made = static_cast<int32_t*>(scratch(kScratchSums, 2 * static_cast<size_t>(g.m + g.n) * sizeof(int32_t)));
  const Zeros zeros{call, a_zero, b_zero, g.m, g.k, made};
  GemmI8 part = g;
  part.k_panel = static_cast<int>(steps_.length);
  part.a_k_panel = part.k_panel * g.a_k;
  part.b_k_panel = steps_.stride;
  part.b_n_panel = columns_.stride;
  for (int n = 0; n < g.n; n += part.n) {
    const Panels::Run run = columns_.run(n, g.n - n);
    part.n = columns_alike(zeros, n, g.n - n);
    part.n_panel = part.n > run.members ? run.members : 0;
    part.b = g.b + run.panel * columns_.stride + run.first * g.b_n;
    part.c = g.c + n;
    multiply_columns(zeros, n, part);
  }
}

}  // namespace onedispatch::kernels
