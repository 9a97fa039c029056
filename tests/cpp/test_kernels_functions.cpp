// SPDX-License-Identifier: Apache-2.0
// Functions that came after their tables were sealed, beside the C library's in double precision.
#include "test_kernels_support.h"

namespace onedispatch::kernels::testing {
namespace {

namespace act = params::activation;
namespace fn = params::eltwise_func;

struct Row {
  uint32_t code;
  double ulps;      // of the result
  double absolute;  // of results that are what is left of a sum
  double (*exact)(double x);
  float alpha = 0, beta = 0;
};

const Row kRows[] = {
    {act::ceil_, 0, 0, [](double x) { return std::ceil(x); }},
    {act::floor_, 0, 0, [](double x) { return std::floor(x); }},
    {act::round_, 0, 0, [](double x) { return std::nearbyint(x); }},
    {act::sign_, 0, 0, [](double x) { return x > 0 ? 1 : x < 0 ? -1 : x; }},
    {act::elu_, 3, 0, [](double x) { return x < 0 ? 0.5 * std::expm1(x) : x; }, 0.5f},
    {act::selu_, 3, 0, [](double x) { return 2 * (x < 0 ? 0.5 * std::expm1(x) : x); }, 0.5f, 2},
    {act::celu_, 3, 0, [](double x) { return x < 0 ? -2 * std::expm1(x / -2) : x; }, -2},
    {act::gelu_, 3, 4e-7, [](double x) { return 0.5 * x * (1 + std::erf(x * std::sqrt(0.5))); }},
    {act::gelu_tanh_, 5, 1e-6, [](double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }},
    {act::mish_, 6, 1e-42, [](double x) { return x * std::tanh(std::log1p(std::exp(x))); }},
    {act::hardsigmoid_, 1, 1e-7, [](double x) { return std::isnan(x) ? x : std::min(std::max(0.25 * x + 0.5, 0.0), 1.0); }, 0.25f, 0.5f},
    {act::hardswish_, 2, 4e-7, [](double x) { return std::isnan(x) ? x : x * std::min(std::max(x / 6 + 0.5, 0.0), 1.0); }},
    {act::swish_, 4, 1e-42, [](double x) { return x / (1 + std::exp(-0.5 * x)); }, 0.5f},
    {act::softplus_, 3, 0, [](double x) { return (x < 0 ? 0 : x) + std::log1p(std::exp(-std::abs(x))); }},
    {act::thresholded_relu_, 0, 0, [](double x) { return x > 0.5 ? x : 0; }, 0.5f},
    {act::shrink_, 1, 0, [](double x) { return x < -0.5 ? x + 0.25 : x > 0.5 ? x - 0.25 : 0; }, 0.5f, 0.25f},
    {act::square_, 1, 0, [](double x) { return x * x; }},
    {act::cube_, 2, 0, [](double x) { return x * x * x; }},
    {act::half_power_, 1, 0, [](double x) { return std::pow(x, 0.5); }},
    {act::power_, 1, 0, [](double x) { return std::pow(x, -1.75); }, -1.75f},
    {act::power_, 1, 0, [](double x) { return std::pow(x, 5.0); }, 5},
    {act::power_, 1, 0, [](double x) { return std::pow(x, -4.0); }, -4},
    {act::power_, 0, 0, [](double x) { return std::pow(x, 0.0); }, 0},
    {act::power_, 0, 0, [](double x) { return std::pow(x, HUGE_VAL); }, HUGE_VALF},
    {act::sin_, 1, 0, [](double x) { return std::sin(x); }},
    {act::cos_, 1, 0, [](double x) { return std::cos(x); }},
    {act::tan_, 1, 0, [](double x) { return std::tan(x); }},
    {act::asin_, 1, 0, [](double x) { return std::asin(x); }},
    {act::acos_, 1, 0, [](double x) { return std::acos(x); }},
    {act::atan_, 1, 0, [](double x) { return std::atan(x); }},
    {act::sinh_, 1, 0, [](double x) { return std::sinh(x); }},
    {act::cosh_, 1, 0, [](double x) { return std::cosh(x); }},
    {act::asinh_, 1, 0, [](double x) { return std::asinh(x); }},
    {act::acosh_, 1, 0, [](double x) { return std::acosh(x); }},
    {act::atanh_, 1, 0, [](double x) { return std::atanh(x); }},
};

std::vector<float> arguments() {
  std::vector<float> x = {0.0f, -0.0f, 1.0f, -1.0f, 0.5f, -0.5f, 1.5f, 2.5f, -2.5f, kNan, kInfinity, -kInfinity, 1e-40f, -1e-40f,
                          8388607.5f, 8388609.0f, 1e30f, -1e30f, 3.4e38f, -3.4e38f, 1048576.0f, 1e-4f, 88.7f, 89.4f, -103.9f};
  Random random(7);
  for (int i = 0; i < sampled(60000); ++i) {
    x.push_back(random.value());
    x.push_back(random.value() * 40);
    x.push_back(std::ldexp(random.value(), random.in(-140, 127)));
  }
  return x;
}

// How far `got` is beyond what is allowed, in units in the last place of what is wanted.
double excess(float got, double want, double absolute) {
  const auto rounded = static_cast<float>(want);
  if (std::isnan(want)) return std::isnan(got) ? 0 : 1e9;
  if (std::isinf(rounded)) return got == rounded ? 0 : 1e9;
  const double unit = rounded == 0 ? 1.5e-45 : std::ldexp(1.0, std::max(std::ilogb(rounded), -126) - 23);
  return std::max(0.0, std::abs(got - want) - absolute) / unit;
}

TEST(LaterFunctions, StayWithinAFewUlps) {
  const std::vector<float> x = arguments();
  std::vector<float> y(x.size());
  on_every_level([&] {
    for (const Row& row : kRows) {
      simd().unary(row.code, row.alpha, row.beta, x.data(), y.data(), x.size());
      double worst = 0;
      float at = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const double off = excess(y[i], row.exact(x[i]), row.absolute);
        if (off > worst) worst = off, at = x[i];
      }
      EXPECT_LE(worst, row.ulps) << "activation " << row.code << " with " << row.alpha << " at " << at;
    }
  });
}

// Signs of zeros are the C library's too, where a function has its own zero at zero.
TEST(LaterFunctions, KeepTheSignOfZero) {
  on_every_level([] {
    for (const uint32_t code : {act::ceil_, act::floor_, act::round_, act::elu_, act::sin_, act::tan_, act::asin_, act::atan_,
                                act::sinh_, act::asinh_, act::atanh_, act::cube_, act::mish_, act::gelu_}) {
      const float x[] = {-0.0f, 0.0f};
      float y[2];
      simd().unary(code, 1, 1, x, y, 2);
      EXPECT_TRUE(y[0] == 0 && std::signbit(y[0]) && y[1] == 0 && !std::signbit(y[1])) << "activation " << code;
    }
  });
}

TEST(LaterFunctions, PowersAreTheLibrarys) {
  std::vector<float> a, b;
  const float special[] = {0.0f, -0.0f, 1.0f, -1.0f, 2.0f, -2.0f, 3.0f, -3.0f, 0.5f, -0.5f, kNan, kInfinity, -kInfinity, 16777217.0f, 1e30f, -1e30f, 1e-40f};
  for (const float x : special) {
    for (const float y : special) a.push_back(x), b.push_back(y);
  }
  Random random(3);
  for (int i = 0; i < sampled(60000); ++i) {
    a.push_back(std::abs(random.value()) * (i % 3 == 0 ? 100 : 1));
    b.push_back(random.value() * (i % 5 == 0 ? 30 : 3));
  }
  std::vector<float> y(a.size());
  on_every_level([&] {
    simd().binary(fn::pow_, a.data(), 1, b.data(), 1, y.data(), y.size());
    for (size_t i = 0; i < y.size(); ++i) {
      EXPECT_LE(excess(y[i], std::pow(double{a[i]}, double{b[i]}), 0), 1) << a[i] << " to the power of " << b[i];
      EXPECT_TRUE(y[i] != 0 || std::signbit(y[i]) == std::signbit(std::pow(a[i], b[i]))) << a[i] << " to the power of " << b[i];
    }
  });
}

TEST(LaterFunctions, IntegersAreRaisedBySquares) {
  on_every_level([] {
    const int32_t a[] = {2, -3, 5, 1, -1, -1, 2, 0, 7, -2}, b[] = {10, 3, 0, -7, -7, -8, -1, 0, 40, 31};
    int32_t y[10];
    simd().binary_int(fn::ipow_, params::dtype::i32, a, 1, b, 1, y, 10);
    uint32_t wrapped = 1;
    for (int i = 0; i < 40; ++i) wrapped *= 7;
    const int32_t want[] = {1024, -27, 1, 1, -1, 1, 0, 1, static_cast<int32_t>(wrapped), INT32_MIN};
    for (int i = 0; i < 10; ++i) EXPECT_EQ(y[i], want[i]) << a[i] << " to the power of " << b[i];
  });
}

// Indices of either width at odd addresses: in the part, elsewhere on the axis, from its end on, outside of it.
template <class Index>
void expect_places(int64_t extent, int64_t first, int64_t size) {
  constexpr size_t kCount = 83;
  std::vector<uint8_t> bytes(1 + kCount * sizeof(Index));
  const auto given = [&](size_t i) { return static_cast<Index>((static_cast<int64_t>(i) - 41) * extent / 37); };
  for (size_t i = 0; i < kCount; ++i) {
    const Index index = given(i);
    std::memcpy(bytes.data() + 1 + i * sizeof index, &index, sizeof index);
  }
  std::vector<int32_t> at(kCount);
  const uint32_t seen = simd().places(sizeof(Index), bytes.data() + 1, extent, first, size, at.data(), kCount);
  uint32_t expected = 0;
  for (size_t i = 0; i < kCount; ++i) {
    const int64_t member = given(i) < 0 ? given(i) + extent : given(i);
    const bool outside = member < 0 || member >= extent, found = !outside && member >= first && member < first + size;
    ASSERT_EQ(at[i], found ? member - first : int64_t{outside ? kOutside : kElsewhere}) << given(i);
    expected |= (outside ? kSomeOutside : 0u) | (found ? kSomeFound : 0u);
  }
  EXPECT_EQ(seen, expected);
  EXPECT_EQ(simd().places(sizeof(Index), bytes.data() + 1, extent, first, size, at.data(), 0), 0u);
  std::vector<int32_t> which(kCount), where(kCount);
  size_t count = 0, next = 0;
  EXPECT_EQ(simd().found_places(sizeof(Index), bytes.data() + 1, extent, first, size, which.data(), where.data(), kCount, &count), expected);
  for (size_t i = 0; i < kCount; ++i) {
    if (at[i] < 0) continue;
    ASSERT_LT(next, count);
    EXPECT_EQ(which[next], static_cast<int32_t>(i));
    EXPECT_EQ(where[next++], at[i]);
  }
  EXPECT_EQ(next, count);
}

TEST(LaterFunctions, IndicesFallIntoAPartOfTheirAxis) {
  on_every_level([&] {
    expect_places<int32_t>(1000, 100, 300);
    expect_places<int64_t>(1000, 0, 1000);
    expect_places<int32_t>(INT32_MAX - 40, 5, INT32_MAX - 50);
    expect_places<int64_t>(int64_t{1} << 40, 1 << 20, INT32_MAX);
    expect_places<int64_t>(1000, 100, 0);
    expect_places<int32_t>(1000, 900, 120);  // a part that ends behind the axis holds none of what is there
  });
}

TEST(LaterFunctions, IntegersShrinkAndHaveSigns) {
  on_every_level([] {
    const int8_t x[] = {-128, -3, -1, 0, 1, 3, 127};
    int8_t y[7];
    simd().unary_int(act::sign_, 0, 0, params::dtype::i8, x, y, 7);
    for (int i = 0; i < 7; ++i) EXPECT_EQ(y[i], (x[i] > 0) - (x[i] < 0));
    simd().unary_int(act::shrink_, 1.5f, -2, params::dtype::i8, x, y, 7);
    EXPECT_EQ(y[0], 126);   // it wraps
    EXPECT_EQ(y[6], -127);
    simd().unary_int(act::shrink_, 1.5f, 2, params::dtype::i8, x, y, 7);
    const int8_t want[] = {-126, -1, 0, 0, 0, 1, 125};
    for (int i = 0; i < 7; ++i) EXPECT_EQ(y[i], want[i]);
  });
}

}  // namespace
}  // namespace onedispatch::kernels::testing
