// SPDX-License-Identifier: Apache-2.0
// Rows of od::normalise between integers: the bits of onnxruntime's order of sums, at every level.
#include <cmath>

#include "onedispatch/kernel_tables.h"
#include "test_kernels_support.h"

namespace onedispatch::kernels::testing {
namespace {

namespace normalise = params::normalise;
namespace d = params::dtype;

struct Ends {
  uint32_t x, out;
  float x_scale = 0, out_scale = 0;
  int x_zero = 0, out_zero = 0;
};

// Eight sums, added by halves; four of what is left as products, the rest fused.
float squares(const std::vector<float>& x) {
  float sums[8] = {};
  size_t i = 0;
  for (; i + 8 <= x.size(); i += 8) {
    for (size_t j = 0; j < 8; ++j) sums[j] = std::fma(x[i + j], x[i + j], sums[j]);
  }
  float sum = ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
  const size_t products = x.size() - i >= 4 ? i + 4 : i;
  for (; i < products; ++i) {
    volatile float product = x[i] * x[i];
    sum = sum + product;
  }
  for (; i < x.size(); ++i) sum = std::fma(x[i], x[i], sum);
  return sum;
}

std::vector<float> row_of(std::vector<float> x, bool centre, float epsilon, const float* scale, const float* bias) {
  double sum = 0;
  for (const float one : x) sum += one;
  const auto n = static_cast<float>(x.size());
  const float mean = centre ? static_cast<float>(sum / static_cast<double>(n)) : 0.0f;
  for (float& one : x) one -= mean;
  const float inverse = 1.0f / std::sqrt(squares(x) / n + epsilon);
  for (size_t i = 0; i < x.size(); ++i) {
    volatile float normal = x[i] * inverse;
    x[i] = scale == nullptr ? normal : bias == nullptr ? normal * scale[i] : std::fma(normal, scale[i], bias[i]);
  }
  return x;
}

template <class T>
T quantised(float x, float scale, int zero) {
  const double placed = std::nearbyint(double{x / scale}) + zero;
  using Ends = std::numeric_limits<T>;
  return static_cast<T>(std::min(std::max(placed, double{Ends::min()}), double{Ends::max()}));
}

template <class T>
void expect_rows(const Block& block, const std::vector<float>& want, const Ends& ends) {
  for (size_t i = 0; i < want.size(); ++i) {
    T made;
    std::memcpy(&made, block.out.data() + sizeof(T) * i, sizeof(T));
    if constexpr (std::is_same_v<T, float>) {
      EXPECT_EQ(made, want[i]) << i;
    } else {
      EXPECT_EQ(made, quantised<T>(want[i], ends.out_scale, ends.out_zero)) << i << ": " << want[i];
    }
  }
}

uint32_t put_integers(Block& block, const std::vector<int>& x, uint32_t dtype) {
  if (dtype == d::u8) return block.append(0, std::vector<uint8_t>(x.begin(), x.end()));
  if (dtype == d::i8) return block.append(0, std::vector<int8_t>(x.begin(), x.end()));
  return block.append(0, std::vector<uint16_t>(x.begin(), x.end()));
}

void put_ends(Block& block, const Ends& ends) {
  block.put(normalise::x_scale, bits(ends.x_scale));
  block.put(normalise::x_zero, static_cast<uint32_t>(ends.x_zero));
  block.put(normalise::out_scale, bits(ends.out_scale));
  block.put(normalise::out_zero, static_cast<uint32_t>(ends.out_zero));
  block.types[normalise::x] = ends.x;
  block.types[normalise::out] = ends.out;
}

Ends drawn(Random& random) {
  const uint32_t types[] = {d::f32, d::u8, d::i8, d::u16};
  Ends ends{types[random.in(0, 3)], types[random.in(0, 3)]};
  if (ends.x != d::f32) ends.x_scale = 0.01f + std::abs(random.value()), ends.x_zero = random.in(0, 100);
  if (ends.out != d::f32) ends.out_scale = 0.01f + 0.02f * std::abs(random.value()), ends.out_zero = random.in(0, 100);
  return ends;
}

void integers_case(uint32_t seed) {
  Random random(seed);
  Block block;
  const int rows = random.in(1, 4), n = 4 * random.in(1, 24);
  const Ends ends = drawn(random);
  const bool centre = random.chance(70), scaled = random.chance(80), moved = scaled && random.chance(70);
  const float epsilon = 1e-3f;
  const auto count = static_cast<size_t>(rows * n), wide = static_cast<size_t>(n);
  std::vector<float> x = random.values(count);
  if (ends.x == d::f32) {
    block.put(normalise::x, block.append(0, x));
  } else {
    std::vector<int> integers(count);
    const int low = ends.x == d::i8 ? -128 : 0, high = ends.x == d::i8 ? 127 : ends.x == d::u8 ? 255 : 65535;
    for (int& one : integers) one = random.in(low, high);
    for (size_t i = 0; i < count; ++i) x[i] = static_cast<float>(integers[i] - ends.x_zero) * ends.x_scale;
    block.put(normalise::x, put_integers(block, integers, ends.x));
  }
  const auto scale = random.values(wide), bias = random.values(wide);
  block.setup.dims[1] = {1, 1};
  block.setup.dims[2] = {static_cast<uint32_t>(rows), static_cast<uint32_t>(rows)};
  block.put(normalise::dim_b, 1);
  block.put(normalise::dim_o, 2);
  block.put(normalise::epsilon, bits(epsilon));
  block.put(normalise::centre, centre);
  block.put(normalise::total, params::kAbsent);
  put_ends(block, ends);
  put_rows(block, normalise::x_b, 1, rows, n);
  const auto parameter = [&](uint32_t word, const std::vector<float>& values) {
    Axis along;
    along.a = 1;
    along.extent = along.chunk = rows;
    block.axis(word + 1, along);
    along.extent = along.chunk = n;
    along.stride = 1;
    block.axis(word + 6, along);
    block.put(word, block.append(1, values));
  };
  if (scaled) parameter(normalise::scale, scale);
  if (moved) parameter(normalise::bias, bias);
  block.out.resize(count * od_dtypes[ends.out].bytes);
  block.run(*block.prepare(normalise::digest), {});
  std::vector<float> want;
  for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
    const std::vector<float> one(x.begin() + static_cast<ptrdiff_t>(row * wide), x.begin() + static_cast<ptrdiff_t>((row + 1) * wide));
    const auto made = row_of(one, centre, epsilon, scaled ? scale.data() : nullptr, moved ? bias.data() : nullptr);
    want.insert(want.end(), made.begin(), made.end());
  }
  if (ends.out == d::f32) expect_rows<float>(block, want, ends);
  if (ends.out == d::u8) expect_rows<uint8_t>(block, want, ends);
  if (ends.out == d::i8) expect_rows<int8_t>(block, want, ends);
  if (ends.out == d::u16) expect_rows<uint16_t>(block, want, ends);
}

TEST(Normalise, HasTheBitsOfOnnxruntimeAtEveryLevel) {
  on_every_level([] {
    for (uint32_t seed = 0; seed < sampled(200u) && !::testing::Test::HasFailure(); ++seed) {
      SCOPED_TRACE(seed);
      integers_case(seed);
    }
  });
}

TEST(Hostile, NormaliseOfIntegers) { run_hostile(integers_case); }

}  // namespace
}  // namespace onedispatch::kernels::testing
