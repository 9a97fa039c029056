// SPDX-License-Identifier: Apache-2.0
// Zero points of products of integers. Where calls were joined, each panel of b may have brought its own.
#pragma once
#include "kernel.h"

namespace onedispatch::kernels {

// `n` zero points along the first axis, from element `at` of the chunk on; zeros where there are none.
void zero_points(const Operand& zero, const Call& call, int64_t at, int n, int32_t* to);

class ByteZeros {
 public:
  // Of an operation whose b lies in these panels of columns and along the reduction, if in any.
  ByteZeros(const Setup& setup, const Operand& a_zero, const Operand& b_zero, const Panels& columns, const Panels& steps);

  const Panels& panels_of_b() const { return b_columns_; }
  // All of `g` but its panels and its zero points, which begin at these elements: as many panels at once as have the same.
  void multiply(const Call& call, int64_t a_zero, int64_t b_zero, const GemmI8& g) const;

 private:
  struct Zeros {  // of one call
    const Call& call;
    int64_t a, b;   // where they begin
    int m, k;
    int32_t* made;  // room for those of all rows and columns, twice
  };
  void read_a(const Zeros& zeros, int first, int step, int32_t* to) const;
  void read_b(const Zeros& zeros, int first, int columns, int step, int32_t* to) const;
  int steps(int k) const { return steps_ && k != 0 ? static_cast<int>((k + steps_.length - 1) / steps_.length) : 1; }
  int columns_alike(const Zeros& zeros, int first, int left) const;
  void multiply_columns(const Zeros& zeros, int first, GemmI8& g) const;

  Operand a_zero_, b_zero_;
  Panels columns_, steps_;  // of b
  Panels a_columns_, a_steps_, b_columns_, b_steps_;
};

}  // namespace onedispatch::kernels
