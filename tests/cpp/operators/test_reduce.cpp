// SPDX-License-Identifier: Apache-2.0
// ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum, ReduceSumSquare, GlobalMaxPool.
#include "operator_case.h"

namespace onedispatch::operator_tests {

namespace {

using Step = std::function<double(double, double)>;

// Folds `first` and the values along the one axis, which is kept with size 1.
void reduction(const std::string& op_type, double first, const Step& step, bool mean = false) {
  each_case(op_type, [&](const OperatorCase& one) {
    const Tensor& x = one.input(0);
    const auto axis = static_cast<size_t>(one.input(1).values.at(0));
    one.expect_each([&](const Shape& at) {
      double result = first;
      for (int64_t i = 0; i < x.shape[axis]; ++i) {
        Shape where = at;
        where[axis] = i;
        result = step(result, x(where));
      }
      return mean ? result / static_cast<double>(x.shape[axis]) : result;
    });
  });
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(OperatorReduceMax, IsTheLargest) {
  reduction("ReduceMax", -kInfinity, [](double a, double b) { return std::max(a, b); });
}

TEST(OperatorReduceMin, IsTheSmallest) {
  reduction("ReduceMin", kInfinity, [](double a, double b) { return std::min(a, b); });
}

TEST(OperatorReduceProd, MultipliesAll) {
  reduction("ReduceProd", 1, [](double a, double b) { return a * b; });
}

TEST(OperatorReduceSum, AddsAll) {
  reduction("ReduceSum", 0, [](double a, double b) { return a + b; });
}

TEST(OperatorReduceSumSquare, AddsSquares) {
  reduction("ReduceSumSquare", 0, [](double a, double b) { return a + b * b; });
}

TEST(OperatorReduceMean, IsTheSumByTheCount) {
  reduction("ReduceMean", 0, [](double a, double b) { return a + b; }, true);
}

TEST(OperatorGlobalMaxPool, IsTheLargestOfEveryChannel) {
  each_case("GlobalMaxPool", [](const OperatorCase& one) {
    const Tensor& x = one.input(0);
    one.expect_each([&](const Shape& at) {
      double largest = -kInfinity;
      for_each(Shape(x.shape.begin() + 2, x.shape.end()), [&](const Shape& inner) {
        Shape where{at[0], at[1]};
        where.insert(where.end(), inner.begin(), inner.end());
        largest = std::max(largest, x(where));
      });
      return largest;
    });
  });
}

}  // namespace

}  // namespace onedispatch::operator_tests
