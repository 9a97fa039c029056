// SPDX-License-Identifier: Apache-2.0
// ConvTranspose by its formula.
#include "operator_case.h"

namespace onedispatch::operator_tests {

namespace {

// Every input adds its multiple of the kernel at its place.
TEST(OperatorConvTranspose, IsASumOfKernelsAtEveryInput) {
  each_case("ConvTranspose", [](const OperatorCase& one) {
    const Tensor &x = one.input(0), &w = one.input(1);
    const size_t rank = x.shape.size() - 2;
    const Shape ones(rank, 1), kernel(w.shape.begin() + 2, w.shape.end());
    const Shape strides = one.ints("strides", ones), dilations = one.ints("dilations", ones);
    const Shape pads = one.ints("pads", Shape(2 * rank, 0));
    const int64_t group = one.ints("group", {1})[0], inside = x.shape[1] / group;
    one.expect_each([&](const Shape& at) {
      double sum = one.has(2) ? one.input(2)({at[1]}) : 0;
      for_each(kernel, [&](const Shape& tap) {
        Shape from{at[0], 0}, by{0, at[1] % w.shape[1]};
        for (size_t d = 0; d < rank; ++d) {
          const int64_t reach = at[2 + d] + pads[d] - tap[d] * dilations[d], step = reach / strides[d];
          if (reach < 0 || reach % strides[d] != 0 || step >= x.shape[2 + d]) return;
          from.push_back(step);
          by.push_back(tap[d]);
        }
        for (int64_t c = 0; c < inside; ++c) {
          from[1] = by[0] = at[1] / w.shape[1] * inside + c;
          sum += x(from) * w(by);
        }
      });
      return sum;
    });
  });
}

}  // namespace

}  // namespace onedispatch::operator_tests
