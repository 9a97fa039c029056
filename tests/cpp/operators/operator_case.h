// SPDX-License-Identifier: Apache-2.0
// Operator cases written by tests/cpp/make_cases.py: runs one and compares with what scalar loops compute.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "case_file.h"

namespace onedispatch::operator_tests {

class OperatorCase : public CaseFile {
 public:
  using CaseFile::CaseFile;

  // Expects what the array computes to be `expected` within the case's tolerance.
  void expect(const Tensor& expected) const {
    const Tensor actual = run();
    ASSERT_EQ(actual.shape, expected.shape);
    double largest = 0;
    for (const double value : expected.values) {
      if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
    }
    for (size_t i = 0; i < expected.values.size(); ++i) {
      const double wanted = expected.values[i];
      if (!std::isfinite(wanted)) {  // the same infinity, or a NaN as well
        const bool same = actual.values[i] == wanted || (std::isnan(wanted) && std::isnan(actual.values[i]));
        ASSERT_TRUE(same) << "element " << i << ": " << actual.values[i] << ", expected " << wanted;
        continue;
      }
      const double spacing = std::max(std::abs(wanted) * 0x1p-23, 0x1p-149);
      const double allowed = std::max({absolute_, scale_ * largest, ulp_ * spacing});
      // Half a spacing of rounding the expected value itself to float32.
      const double near = allowed + (output.dtype == "float32" ? spacing / 2 : 0);
      ASSERT_LE(std::abs(actual.values[i] - wanted), near)
          << "element " << i << " of " << expected.values.size() << ": " << actual.values[i] << ", expected " << wanted;
    }
  }

  // A tensor like the output, each element what `compute` says of its index.
  void expect_each(const std::function<double(const Shape&)>& compute) const {
    Tensor expected = output;
    expected.values.assign(static_cast<size_t>(output.size()), 0);
    for_each(output.shape, [&](const Shape& at) { expected(at) = compute(at); });
    expect(expected);
  }
};

// Where the cases are: the environment, else what the build was configured with.
inline std::filesystem::path cases_folder() {
  const char* given = std::getenv("ONEDISPATCH_CASES");
  if (given != nullptr) return given;
#ifdef ONEDISPATCH_CASES
  return ONEDISPATCH_CASES;
#else
  return "build/cases";
#endif
}

// Every case of `op_type`, or of all operators where that is empty.
inline std::vector<std::filesystem::path> cases_of(const std::string& op_type) {
  std::vector<std::filesystem::path> manifests;
  for (const auto& entry : std::filesystem::directory_iterator(cases_folder())) {
    const std::string name = entry.path().filename().string();
    const bool wanted = op_type.empty() || name.find("_" + op_type + "_") != std::string::npos;
    if (entry.path().extension() == ".case" && wanted) manifests.push_back(entry.path());
  }
  std::sort(manifests.begin(), manifests.end());
  return manifests;
}

// Runs `test` on every case of `op_type`; fails where there is none.
inline void each_case(const std::string& op_type, const std::function<void(const OperatorCase&)>& test) {
  const std::filesystem::path folder = cases_folder();
  ASSERT_TRUE(std::filesystem::is_directory(folder))
      << folder << " is missing: run `python -m tests.cpp.make_cases " << folder.string() << "`";
  const std::vector<std::filesystem::path> manifests = cases_of(op_type);
  ASSERT_FALSE(manifests.empty()) << "no case of " << op_type << " in " << folder;
  for (const auto& manifest : manifests) {
    const OperatorCase one(manifest);
    ASSERT_EQ(one.op_type(), op_type);
    SCOPED_TRACE(one.name());
    ASSERT_NO_THROW(test(one));
  }
}

}  // namespace onedispatch::operator_tests
