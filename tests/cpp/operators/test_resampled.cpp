// SPDX-License-Identifier: Apache-2.0
// Resize and GridSample, where they are linear: what lies between neighbours.
#include "operator_case.h"

namespace onedispatch::operator_tests {

namespace {

// The mean of the two elements on either side of `at` in every dimension from `first` on, each by its nearness.
// What lies outside counts as `beyond`: nothing, or the element at the border.
double between(const Tensor& x, Shape from, const std::vector<double>& at, size_t first, bool beyond) {
  if (at.empty()) return x(from);
  const auto last = static_cast<double>(x.shape[first] - 1), below = std::floor(at[0]);
  const std::vector<double> rest(at.begin() + 1, at.end());
  double sum = 0;
  for (const double place : {below, below + 1}) {
    const double weight = 1 - std::abs(at[0] - place);
    if (weight == 0 || (!beyond && (place < 0 || place > last))) continue;
    from[first] = static_cast<int64_t>(std::min(std::max(place, 0.0), last));
    sum += weight * between(x, from, rest, first + 1, beyond);
  }
  return sum;
}

TEST(OperatorResize, LiesBetweenNeighbours) {
  size_t linear = 0;
  each_case("Resize", [&](const OperatorCase& one) {
    if (one.text("mode", "nearest") != "linear") return;  // answered by onnxruntime
    ++linear;
    one.expect_each([&](const Shape& at) {
      std::vector<double> place;
      for (size_t d = 0; d < at.size(); ++d) {
        const double half = (static_cast<double>(at[d]) + 0.5) / one.input(2).values[d] - 0.5;
        place.push_back(std::min(std::max(half, 0.0), static_cast<double>(one.input(0).shape[d] - 1)));
      }
      return between(one.input(0), Shape(at.size()), place, 0, true);
    });
  });
  EXPECT_GT(linear, 0u);
}

TEST(OperatorGridSample, LiesBetweenNeighboursOfAPlace) {
  size_t linear = 0;
  each_case("GridSample", [&](const OperatorCase& one) {
    const std::string padding = one.text("padding_mode", "zeros");
    if (one.text("mode", "linear") != "linear" || padding == "reflection") return;
    ++linear;
    const Tensor &x = one.input(0), &grid = one.input(1);
    const bool corners = one.ints("align_corners", {0})[0] != 0;
    one.expect_each([&](const Shape& at) {
      const size_t rank = at.size() - 2;
      std::vector<double> place;
      for (size_t d = 0; d < rank; ++d) {
        Shape named{at[0]};
        named.insert(named.end(), at.begin() + 2, at.end());
        named.push_back(static_cast<int64_t>(rank - 1 - d));  // the last dimension first
        const auto n = static_cast<double>(x.shape[2 + d]);
        const double on = grid(named) + 1;
        place.push_back(corners ? on / 2 * (n - 1) : (on * n - 1) / 2);
      }
      Shape from(at.size());
      from[0] = at[0];
      from[1] = at[1];
      return between(x, from, place, 2, padding == "border");
    });
  });
  EXPECT_GT(linear, 0u);
}

}  // namespace

}  // namespace onedispatch::operator_tests
