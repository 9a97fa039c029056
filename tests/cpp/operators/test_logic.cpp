// SPDX-License-Identifier: Apache-2.0
// Greater, Where, Mod: a function of each of the kernels whose operands or results are of several types.
#include "operator_case.h"

namespace onedispatch::operator_tests {

namespace {

TEST(OperatorGreater, ComparesBroadcastElements) {
  each_case("Greater", [](const OperatorCase& one) {
    one.expect_each([&](const Shape& at) { return one.input(0).broadcast(at) > one.input(1).broadcast(at) ? 1.0 : 0.0; });
  });
}

TEST(OperatorWhere, TakesTheSecondWhereTheFirstIsTrue) {
  each_case("Where", [](const OperatorCase& one) {
    one.expect_each([&](const Shape& at) { return one.input(one.input(0).broadcast(at) != 0 ? 1 : 2).broadcast(at); });
  });
}

TEST(OperatorMod, LeavesWhatTheQuotientCutsOff) {
  each_case("Mod", [](const OperatorCase& one) {
    one.expect_each([&](const Shape& at) { return std::fmod(one.input(0).broadcast(at), one.input(1).broadcast(at)); });
  });
}

}  // namespace

}  // namespace onedispatch::operator_tests
