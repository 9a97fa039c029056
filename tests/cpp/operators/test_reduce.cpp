// SPDX-License-Identifier: Apache-2.0
// ReduceL1, ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum, ReduceSumSquare, GlobalMaxPool; ArgMax,
// ArgMin; CumSum.
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

TEST(OperatorReduceL1, AddsMagnitudes) {
  reduction("ReduceL1", 0, [](double a, double b) { return a + std::abs(b); });
}

// The first place of the value that none is `better` than, along the one axis.
void place(const std::string& op_type, const std::function<bool(double, double)>& better) {
  each_case(op_type, [&](const OperatorCase& one) {
    const Tensor& x = one.input(0);
    const auto axis = static_cast<size_t>(one.ints("axis")[0]);
    one.expect_each([&](const Shape& at) {
      Shape where = at, best = at;
      for (int64_t i = 1; i < x.shape[axis]; ++i) {
        where[axis] = i;
        if (better(x(where), x(best))) best = where;
      }
      return static_cast<double>(best[axis]);
    });
  });
}

TEST(OperatorArgMax, FindsTheFirstLargest) { place("ArgMax", std::greater<>()); }

TEST(OperatorArgMin, FindsTheFirstSmallest) { place("ArgMin", std::less<>()); }

TEST(OperatorCumSum, AddsWhatComesBefore) {
  each_case("CumSum", [](const OperatorCase& one) {
    const Tensor& x = one.input(0);
    const auto axis = static_cast<size_t>(one.input(1).values.at(0));
    const bool reverse = !one.ints("reverse").empty(), exclusive = !one.ints("exclusive").empty();
    one.expect_each([&](const Shape& at) {
      double sum = 0;
      for (int64_t i = 0; i < x.shape[axis]; ++i) {
        const bool before = reverse ? i > at[axis] : i < at[axis];
        if (!before && (exclusive || i != at[axis])) continue;
        Shape where = at;
        where[axis] = i;
        sum += x(where);
      }
      return sum;
    });
  });
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
