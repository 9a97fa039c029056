// SPDX-License-Identifier: Apache-2.0
// Add, Sub, Mul, Div, Sum, Max, Min, Relu, LeakyRelu, Clip, Sigmoid, Tanh, Exp, Sqrt, Erf, Abs, Neg, Log,
// Reciprocal.
#include "operator_case.h"

namespace onedispatch::operator_tests {

namespace {

void binary(const std::string& op_type, const std::function<double(double, double)>& compute) {
  each_case(op_type, [&](const OperatorCase& one) {
    one.expect_each([&](const Shape& at) {
      return compute(one.input(0).broadcast(at), one.input(1).broadcast(at));
    });
  });
}

void unary(const std::string& op_type, const std::function<double(double)>& compute) {
  each_case(op_type, [&](const OperatorCase& one) {
    one.expect_each([&](const Shape& at) { return compute(one.input(0)(at)); });
  });
}

TEST(OperatorAdd, AddsBroadcastElements) {
  binary("Add", [](double a, double b) { return a + b; });
}

TEST(OperatorSub, SubtractsBroadcastElements) {
  binary("Sub", [](double a, double b) { return a - b; });
}

TEST(OperatorMul, MultipliesBroadcastElements) {
  binary("Mul", [](double a, double b) { return a * b; });
}

TEST(OperatorDiv, DividesBroadcastElements) {
  binary("Div", [](double a, double b) { return a / b; });
}

void folded(const std::string& op_type, const std::function<double(double, double)>& compute) {
  each_case(op_type, [&](const OperatorCase& one) {
    one.expect_each([&](const Shape& at) {
      double result = one.input(0).broadcast(at);
      for (size_t i = 1; i < one.inputs.size(); ++i) result = compute(result, one.inputs[i].broadcast(at));
      return result;
    });
  });
}

TEST(OperatorSum, AddsAllInputs) {
  folded("Sum", [](double a, double b) { return a + b; });
}

TEST(OperatorMax, TakesTheLargest) {
  folded("Max", [](double a, double b) { return std::max(a, b); });
}

TEST(OperatorMin, TakesTheSmallest) {
  folded("Min", [](double a, double b) { return std::min(a, b); });
}

TEST(OperatorRelu, KeepsWhatIsPositive) {
  unary("Relu", [](double x) { return std::max(x, 0.0); });
}

TEST(OperatorLeakyRelu, ScalesWhatIsNegative) {
  each_case("LeakyRelu", [](const OperatorCase& one) {
    const double alpha = one.number("alpha", 0.01);
    one.expect_each([&](const Shape& at) {
      const double x = one.input(0)(at);
      return x < 0 ? alpha * x : x;
    });
  });
}

TEST(OperatorClip, KeepsBetweenItsBounds) {
  each_case("Clip", [](const OperatorCase& one) {
    const double low = one.input(1)({}), high = one.input(2)({});
    one.expect_each([&](const Shape& at) { return std::min(std::max(one.input(0)(at), low), high); });
  });
}

TEST(OperatorSigmoid, IsTheLogisticFunction) {
  unary("Sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); });
}

TEST(OperatorTanh, IsTheHyperbolicTangent) {
  unary("Tanh", [](double x) { return std::tanh(x); });
}

TEST(OperatorExp, IsTheExponential) {
  unary("Exp", [](double x) { return std::exp(x); });
}

TEST(OperatorSqrt, IsTheRoot) {
  unary("Sqrt", [](double x) { return std::sqrt(x); });
}

TEST(OperatorAbs, DropsTheSign) {
  unary("Abs", [](double x) { return std::abs(x); });
}

TEST(OperatorNeg, ChangesTheSign) {
  unary("Neg", [](double x) { return -x; });
}

TEST(OperatorLog, IsTheNaturalLogarithm) {
  unary("Log", [](double x) { return std::log(x); });
}

TEST(OperatorReciprocal, DividesOne) {
  unary("Reciprocal", [](double x) { return 1 / x; });
}

TEST(OperatorErf, IsTheErrorFunction) {
  unary("Erf", [](double x) { return std::erf(x); });
}

}  // namespace

}  // namespace onedispatch::operator_tests
