// SPDX-License-Identifier: Apache-2.0
// Operators that no other file names: their cases bring inputs and onnxruntime's answers, so that a new
// operator is tested here by being registered.
#include "operator_case.h"

namespace onedispatch::operator_tests {
namespace {

TEST(OperatorRegistered, AnswersAsItsCasesSay) {
  ASSERT_TRUE(std::filesystem::is_directory(cases_folder())) << "run `python -m tests.cpp.make_cases` first";
  size_t answered = 0;
  for (const auto& manifest : cases_of("")) {
    const OperatorCase one(manifest);
    if (!one.is_answered()) continue;
    SCOPED_TRACE(one.name());
    ASSERT_NO_THROW(one.expect(one.answer()));
    ++answered;
  }
  EXPECT_GT(answered, 0u);
}

}  // namespace
}  // namespace onedispatch::operator_tests
