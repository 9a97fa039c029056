// SPDX-License-Identifier: Apache-2.0
// MatMul, Gemm, MatMulInteger, QLinearMatMul.
#include "operator_case.h"

namespace onedispatch::operator_tests {

namespace {

// Index of a factor of a matrix product: batch dimensions of `at` broadcast, then row and column.
double factor(const Tensor& tensor, const Shape& at, int64_t row, int64_t column) {
  Shape full(at.begin(), at.end() - 2);
  full.push_back(row);
  full.push_back(column);
  return tensor.broadcast(full);
}

TEST(OperatorMatMul, IsASumOfProducts) {
  each_case("MatMul", [](const OperatorCase& one) {
    const Tensor &a = one.input(0), &b = one.input(1);
    one.expect_each([&](const Shape& at) {
      const int64_t m = at[at.size() - 2], n = at.back();
      double sum = 0;
      for (int64_t k = 0; k < a.shape.back(); ++k) sum += factor(a, at, m, k) * factor(b, at, k, n);
      return sum;
    });
  });
}

TEST(OperatorGemm, ScalesTransposesAndAdds) {
  each_case("Gemm", [](const OperatorCase& one) {
    const Tensor &a = one.input(0), &b = one.input(1);
    const bool ta = one.ints("transA", {0})[0] != 0, tb = one.ints("transB", {0})[0] != 0;
    const double alpha = one.number("alpha", 1), beta = one.number("beta", 1);
    one.expect_each([&](const Shape& at) {
      double sum = 0;
      for (int64_t k = 0; k < a.shape[ta ? 0 : 1]; ++k) {
        sum += (ta ? a({k, at[0]}) : a({at[0], k})) * (tb ? b({at[1], k}) : b({k, at[1]}));
      }
      return alpha * sum + (one.has(2) ? beta * one.input(2).broadcast(at) : 0);
    });
  });
}

TEST(OperatorMatMulInteger, SubtractsZeroPointsFirst) {
  each_case("MatMulInteger", [](const OperatorCase& one) {
    const Tensor &a = one.input(0), &b = one.input(1);
    one.expect_each([&](const Shape& at) {
      const int64_t m = at[at.size() - 2], n = at.back();
      double a_zero = 0, b_zero = 0;
      if (one.has(2)) a_zero = one.input(2).values[one.input(2).size() > 1 ? static_cast<size_t>(m) : 0];
      if (one.has(3)) b_zero = one.input(3).values[one.input(3).size() > 1 ? static_cast<size_t>(n) : 0];
      double sum = 0;
      for (int64_t k = 0; k < a.shape.back(); ++k) {
        sum += (factor(a, at, m, k) - a_zero) * (factor(b, at, k, n) - b_zero);
      }
      return sum;
    });
  });
}

TEST(OperatorQLinearMatMul, RoundsTheScaledSumAndSaturates) {
  each_case("QLinearMatMul", [](const OperatorCase& one) {
    const Tensor &a = one.input(0), &b = one.input(3);
    const auto scalar = [&](size_t i) { return one.input(i).values[0]; };
    const float scale = static_cast<float>(scalar(1)) * static_cast<float>(scalar(4)) / static_cast<float>(scalar(6));
    const bool is_signed = one.output.dtype == "int8";
    one.expect_each([&](const Shape& at) {
      const int64_t m = at[at.size() - 2], n = at.back();
      double sum = 0;
      for (int64_t k = 0; k < a.shape.back(); ++k) sum += (factor(a, at, m, k) - scalar(2)) * (factor(b, at, k, n) - scalar(5));
      const double scaled = std::nearbyint(static_cast<float>(sum) * scale) + scalar(7);
      return std::clamp(scaled, is_signed ? -128.0 : 0.0, is_signed ? 127.0 : 255.0);
    });
  });
}

}  // namespace

}  // namespace onedispatch::operator_tests
