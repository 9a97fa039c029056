// SPDX-License-Identifier: Apache-2.0
// BatchNormalization, LRN, Softmax, LogSoftmax.
#include "operator_case.h"

namespace onedispatch::operator_tests {

namespace {

TEST(OperatorBatchNormalization, ShiftsAndScalesChannels) {
  each_case("BatchNormalization", [](const OperatorCase& one) {
    const double epsilon = one.number("epsilon", 1e-5);
    one.expect_each([&](const Shape& at) {
      const Shape c{at[1]};
      const double centred = one.input(0)(at) - one.input(3)(c);
      return centred * one.input(1)(c) / std::sqrt(one.input(4)(c) + epsilon) + one.input(2)(c);
    });
  });
}

TEST(OperatorLRN, DividesByTheNeighbourhoodOfChannels) {
  each_case("LRN", [](const OperatorCase& one) {
    const Tensor& x = one.input(0);
    const int64_t size = one.ints("size")[0], before = (size - 1) / 2, after = size / 2;
    const double alpha = one.number("alpha", 1e-4), beta = one.number("beta", 0.75), bias = one.number("bias", 1);
    one.expect_each([&](const Shape& at) {
      double sum = 0;
      for (int64_t c = std::max<int64_t>(0, at[1] - before); c <= std::min(x.shape[1] - 1, at[1] + after); ++c) {
        Shape where = at;
        where[1] = c;
        sum += x(where) * x(where);
      }
      return x(at) / std::pow(bias + alpha / static_cast<double>(size) * sum, beta);
    });
  });
}

// The sum of the exponentials along the axis that runs through `at`.
double exponentials(const Tensor& x, Shape at, size_t axis) {
  double sum = 0;
  for (int64_t i = 0; i < x.shape[axis]; ++i) {
    at[axis] = i;
    sum += std::exp(x(at));
  }
  return sum;
}

TEST(OperatorSoftmax, SharesOutTheExponentials) {
  each_case("Softmax", [](const OperatorCase& one) {
    const Tensor& x = one.input(0);
    const size_t axis = static_cast<size_t>(one.ints("axis")[0]);
    one.expect_each([&](const Shape& at) { return std::exp(x(at)) / exponentials(x, at, axis); });
  });
}

TEST(OperatorLogSoftmax, IsTheLogarithmOfTheShare) {
  each_case("LogSoftmax", [](const OperatorCase& one) {
    const Tensor& x = one.input(0);
    const size_t axis = static_cast<size_t>(one.ints("axis")[0]);
    one.expect_each([&](const Shape& at) { return x(at) - std::log(exponentials(x, at, axis)); });
  });
}

}  // namespace

}  // namespace onedispatch::operator_tests
