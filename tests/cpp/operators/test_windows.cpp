// SPDX-License-Identifier: Apache-2.0
// Conv, MaxPool, AveragePool, GlobalAveragePool.
#include "operator_case.h"

namespace onedispatch::operator_tests {

namespace {

// Window attributes over one or two spatial dimensions.
struct Window {
  Shape kernel, strides, dilations, pads;

  Window(const OperatorCase& one, const Shape& size) : kernel(size) {
    const Shape ones(size.size(), 1);
    strides = one.ints("strides", ones);
    dilations = one.ints("dilations", ones);
    pads = one.ints("pads", Shape(2 * size.size(), 0));
  }

  // Calls use(tap, coordinate, in the tensor) for each tap of the output at `at` [N, C, ...].
  void taps(const Shape& at, const Tensor& x, const std::function<void(const Shape&, const Shape&, bool)>& use) const {
    for_each(kernel, [&](const Shape& tap) {
      Shape where(tap.size());
      bool inside = true;
      for (size_t d = 0; d < tap.size(); ++d) {
        where[d] = at[2 + d] * strides[d] + tap[d] * dilations[d] - pads[d];
        inside = inside && where[d] >= 0 && where[d] < x.shape[2 + d];
      }
      use(tap, where, inside);
    });
  }
};

Shape joined(int64_t a, int64_t b, const Shape& rest) {
  Shape result{a, b};
  result.insert(result.end(), rest.begin(), rest.end());
  return result;
}

TEST(OperatorConv, IsASumOverTapsAndChannels) {
  each_case("Conv", [](const OperatorCase& one) {
    const Tensor &x = one.input(0), &w = one.input(1);
    const Window window(one, Shape(w.shape.begin() + 2, w.shape.end()));
    const int64_t group = one.ints("group", {1})[0], per_group = w.shape[0] / group;
    one.expect_each([&](const Shape& at) {
      double sum = one.has(2) ? one.input(2)({at[1]}) : 0;
      window.taps(at, x, [&](const Shape& tap, const Shape& where, bool inside) {
        for (int64_t c = 0; inside && c < w.shape[1]; ++c) {
          sum += x(joined(at[0], at[1] / per_group * w.shape[1] + c, where)) * w(joined(at[1], c, tap));
        }
      });
      return sum;
    });
  });
}

TEST(OperatorMaxPool, IsTheLargestOfTheWindow) {
  each_case("MaxPool", [](const OperatorCase& one) {
    const Window window(one, one.ints("kernel_shape"));
    one.expect_each([&](const Shape& at) {
      double largest = -std::numeric_limits<double>::infinity();
      window.taps(at, one.input(0), [&](const Shape&, const Shape& where, bool inside) {
        if (inside) largest = std::max(largest, one.input(0)(joined(at[0], at[1], where)));
      });
      return largest;
    });
  });
}

TEST(OperatorAveragePool, IsTheMeanOfTheWindow) {
  each_case("AveragePool", [](const OperatorCase& one) {
    const Window window(one, one.ints("kernel_shape"));
    const bool padding_counts = one.ints("count_include_pad", {0})[0] != 0;
    one.expect_each([&](const Shape& at) {
      double sum = 0, count = 0;
      window.taps(at, one.input(0), [&](const Shape&, const Shape& where, bool inside) {
        if (inside) sum += one.input(0)(joined(at[0], at[1], where));
        count += inside || padding_counts ? 1 : 0;
      });
      return sum / count;
    });
  });
}

TEST(OperatorGlobalAveragePool, IsTheMeanOfTheChannel) {
  each_case("GlobalAveragePool", [](const OperatorCase& one) {
    const Tensor& x = one.input(0);
    const Shape inner(x.shape.begin() + 2, x.shape.end());
    one.expect_each([&](const Shape& at) {
      double sum = 0, count = 0;
      for_each(inner, [&](const Shape& where) {
        sum += x(joined(at[0], at[1], where));
        count += 1;
      });
      return sum / count;
    });
  });
}

}  // namespace

}  // namespace onedispatch::operator_tests
