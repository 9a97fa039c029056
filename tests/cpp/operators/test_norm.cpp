// SPDX-License-Identifier: Apache-2.0
// BatchNormalization, InstanceNormalization, RMSNormalization, SimplifiedLayerNormalization, LRN, Softmax, LogSoftmax.
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

TEST(OperatorInstanceNormalization, MovesAndScalesEveryPlane) {
  each_case("InstanceNormalization", [](const OperatorCase& one) {
    const Tensor& x = one.input(0);
    const double epsilon = one.number("epsilon", 1e-5);
    const Shape plane(x.shape.begin() + 2, x.shape.end());
    one.expect_each([&](const Shape& at) {
      double count = 0, sum = 0, squares = 0;
      for_each(plane, [&](const Shape& inner) {
        Shape where{at[0], at[1]};
        where.insert(where.end(), inner.begin(), inner.end());
        count += 1, sum += x(where), squares += x(where) * x(where);
      });
      const double mean = sum / count, variance = squares / count - mean * mean;
      return (x(at) - mean) / std::sqrt(variance + epsilon) * one.input(1)({at[1]}) + one.input(2)({at[1]});
    });
  });
}

void divides_by_the_root_mean_square(const char* op_type) {
  each_case(op_type, [](const OperatorCase& one) {
    const Tensor& x = one.input(0);
    const double epsilon = one.number("epsilon", 1e-5);
    one.expect_each([&](const Shape& at) {
      double squares = 0;
      for (int64_t i = 0; i < x.shape[1]; ++i) squares += x({at[0], i}) * x({at[0], i});
      return x(at) / std::sqrt(squares / static_cast<double>(x.shape[1]) + epsilon) * one.input(1)({at[1]});
    });
  });
}

TEST(OperatorRMSNormalization, DividesByTheRootMeanSquare) {
  divides_by_the_root_mean_square("RMSNormalization");
}

TEST(OperatorSimplifiedLayerNormalization, DividesByTheRootMeanSquare) {
  divides_by_the_root_mean_square("SimplifiedLayerNormalization");
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
