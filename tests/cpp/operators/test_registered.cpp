// SPDX-License-Identifier: Apache-2.0
// Operators that no other file names: their cases bring inputs and onnxruntime's answers, so that a new
// operator is tested here by being registered. Device operators in narrow element types likewise: one of every
// kernel, function and combination of types that any case in those types takes.
#include <set>

#include "onedispatch/kernel_tables.h"
#include "operator_case.h"
#include "../sampled.h"

namespace onedispatch::operator_tests {
namespace {

TEST(OperatorRegistered, AnswersAsItsCasesSay) {
  ASSERT_TRUE(std::filesystem::is_directory(cases_folder())) << "run `python -m tests.cpp.make_cases` first";
  size_t answered = 0, number = 0;
  for (const auto& manifest : cases_of("")) {
    const OperatorCase one(manifest);
    if (!one.is_answered() || !one.element().empty() || !is_sampled(number++)) continue;
    SCOPED_TRACE(one.name());
    ASSERT_NO_THROW(one.expect(one.answer()));
    ++answered;
  }
  EXPECT_GT(answered, 0u);
}

class OperatorNarrow : public testing::TestWithParam<std::string> {};  // the name of a type

TEST_P(OperatorNarrow, AnswersAsItsDefinitionSays) {
  std::set<uint32_t> kernels;
  size_t number = 0;
  for (const auto& manifest : cases_of("step_" + GetParam())) {
    const OperatorCase one(manifest);
    ASSERT_EQ(one.element(), GetParam());
    if (!kernels.insert(one.kernel()).second && !is_sampled(number++)) continue;
    SCOPED_TRACE(one.name() + " of " + one.op_type());
    ASSERT_NO_THROW(one.expect(one.answer()));
  }
  EXPECT_EQ(kernels.count(params::eltwise::digest), 1u) << "no case of the element-wise kernel";
  EXPECT_EQ(kernels.count(params::cast::digest), 1u) << "no case of the cast kernel";
}

std::vector<std::string> narrow_types() {
  std::vector<std::string> found;
  for (const od_dtype_spec& row : od_dtypes) {
    if (row.bytes < 4) found.emplace_back(row.name);
  }
  return found;
}

INSTANTIATE_TEST_SUITE_P(Operator, OperatorNarrow, testing::ValuesIn(narrow_types()),
                         [](const testing::TestParamInfo<std::string>& info) { return info.param; });

}  // namespace
}  // namespace onedispatch::operator_tests
