// SPDX-License-Identifier: Apache-2.0
// Concat and Transpose; and Reshape, Flatten, Squeeze, Unsqueeze, Identity, Dropout, which move no
// data inside a model: a model of such a node alone is a copy.
#include "operator_case.h"

namespace onedispatch::operator_tests {

namespace {

TEST(OperatorConcat, PutsInputsSideBySide) {
  each_case("Concat", [](const OperatorCase& one) {
    const size_t axis = static_cast<size_t>(one.ints("axis")[0]);
    one.expect_each([&](const Shape& at) {
      Shape where = at;
      size_t i = 0;
      while (where[axis] >= one.input(i).shape[axis]) where[axis] -= one.input(i++).shape[axis];
      return one.input(i)(where);
    });
  });
}

TEST(OperatorTranspose, PermutesDimensions) {
  each_case("Transpose", [](const OperatorCase& one) {
    const Shape perm = one.ints("perm");
    one.expect_each([&](const Shape& at) {
      Shape where(at.size());
      for (size_t d = 0; d < at.size(); ++d) where[static_cast<size_t>(perm[d])] = at[d];
      return one.input(0)(where);
    });
  });
}

class Alias : public testing::TestWithParam<const char*> {};

TEST_P(Alias, HasTheSameElements) {
  each_case(GetParam(), [](const OperatorCase& one) {
    Tensor expected = one.output;
    expected.values = one.input(0).values;
    one.expect(expected);
  });
}

INSTANTIATE_TEST_SUITE_P(Operator, Alias,
                         testing::Values("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout"),
                         [](const testing::TestParamInfo<const char*>& info) { return std::string(info.param); });

}  // namespace

}  // namespace onedispatch::operator_tests
