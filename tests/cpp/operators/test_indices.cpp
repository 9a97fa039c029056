// SPDX-License-Identifier: Apache-2.0
// Gather, GatherElements, ScatterElements, TopK: what indices say, and what finds them.
#include "operator_case.h"

namespace onedispatch::operator_tests {

namespace {

// Counted from the end of an axis where it is below zero.
int64_t counted(int64_t at, int64_t extent) { return at < 0 ? at + extent : at; }

size_t axis_of(const OperatorCase& one, int64_t otherwise) {
  return static_cast<size_t>(counted(one.ints("axis", {otherwise})[0], one.input(0).rank()));
}

TEST(OperatorGather, TakesWhatIndicesName) {
  each_case("Gather", [](const OperatorCase& one) {
    const Tensor &x = one.input(0), &indices = one.input(1);
    const auto axis = static_cast<ptrdiff_t>(axis_of(one, 0)), wide = static_cast<ptrdiff_t>(indices.rank());
    one.expect_each([&](const Shape& at) {
      const auto first = at.begin() + axis;
      const auto index = static_cast<int64_t>(indices(Shape(first, first + wide)));
      Shape from(at.begin(), first);
      from.push_back(counted(index, x.shape[static_cast<size_t>(axis)]));
      from.insert(from.end(), first + wide, at.end());
      return x(from);
    });
  });
}

TEST(OperatorGatherElements, TakesAnElementForEveryIndex) {
  each_case("GatherElements", [](const OperatorCase& one) {
    const size_t axis = axis_of(one, 0);
    one.expect_each([&](const Shape& at) {
      Shape from = at;
      from[axis] = counted(static_cast<int64_t>(one.input(1)(at)), one.input(0).shape[axis]);
      return one.input(0)(from);
    });
  });
}

double combined(const std::string& reduction, double old, double update) {
  if (reduction == "add") return static_cast<double>(static_cast<float>(old + update));
  if (reduction == "mul") return static_cast<double>(static_cast<float>(old * update));
  if (reduction == "max") return std::max(old, update);
  return reduction == "min" ? std::min(old, update) : update;
}

TEST(OperatorScatterElements, AppliesUpdatesInTheirOrder) {
  each_case("ScatterElements", [](const OperatorCase& one) {
    const size_t axis = axis_of(one, 0);
    Tensor expected = one.output;
    expected.values = one.input(0).values;
    for_each(one.input(1).shape, [&](const Shape& at) {
      Shape to = at;
      to[axis] = counted(static_cast<int64_t>(one.input(1)(at)), expected.shape[axis]);
      expected(to) = combined(one.text("reduction", "none"), expected(to), one.input(2)(at));
    });
    one.expect(expected);
  });
}

TEST(OperatorTopK, SortsAndKeepsTheFirst) {
  each_case("TopK", [](const OperatorCase& one) {
    const Tensor& x = one.input(0);
    const size_t axis = axis_of(one, -1);
    const bool largest = one.ints("largest", {1})[0] != 0;
    one.expect_each([&](const Shape& at) {
      std::vector<double> line;
      Shape from = at;
      for (from[axis] = 0; from[axis] < x.shape[axis]; ++from[axis]) line.push_back(x(from));
      std::sort(line.begin(), line.end());
      if (largest) std::reverse(line.begin(), line.end());
      return line[static_cast<size_t>(at[axis])];
    });
  });
}

}  // namespace

}  // namespace onedispatch::operator_tests
