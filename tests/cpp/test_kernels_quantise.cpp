// SPDX-License-Identifier: Apache-2.0
// QUANTISE and DEQUANTISE: every level gives the bits of the formula, for every step of scales and zero points.
#include "test_kernels_support.h"

namespace onedispatch::kernels::testing {
namespace {

namespace d = params::dtype;

constexpr size_t kCount = 1003;

// Multiples of a half, whatever a scale makes of them, and what is no number of integers.
std::vector<float> mixed(Random& random) {
  const float special[] = {std::nanf(""), kInfinity, -kInfinity, 3e38f, -3e38f, 1e-45f, 2147483648.0f, -0.0f};
  std::vector<float> x(kCount);
  for (size_t i = 0; i < kCount; ++i) x[i] = i % 9 == 0 ? special[i / 9 % 8] : static_cast<float>(random.in(-140000, 140000)) / 2;
  return x;
}

template <class T>
void compare(uint32_t dtype) {
  constexpr double low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
  Random random(dtype + 1);
  const std::vector<float> x = mixed(random);
  std::vector<float> scale(kCount);
  std::vector<T> zero(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    scale[i] = i % 3 == 0 ? 1.0f : std::abs(random.value()) * 40 + 0.01f;
    zero[i] = static_cast<T>(random.word());
  }
  on_every_level([&] {
    for (int steps = 0; steps < 8; ++steps) {
      const int sx = steps & 1, ss = steps >> 1 & 1, sz = steps >> 2 & 1;
      std::vector<T> made(kCount);
      std::vector<float> back(kCount);
      simd().quantise(dtype, x.data(), sx, scale.data(), ss, zero.data(), sz, made.data(), kCount);
      simd().dequantise(dtype, zero.data(), sx, scale.data(), ss, zero.data() + 1 - sz, 0, back.data(), kCount);
      for (size_t i = 0; i < kCount; ++i) {
        const float by = scale[ss != 0 ? i : 0], quotient = x[sx != 0 ? i : 0] / by;
        const double placed = std::nearbyint(static_cast<double>(quotient)) + zero[sz != 0 ? i : 0];
        const double want = std::isnan(placed) ? low : std::min(std::max(placed, low), high);
        ASSERT_EQ(static_cast<double>(made[i]), want) << "steps " << steps << ", " << i << ": " << quotient;
        const float above = static_cast<float>(int32_t{zero[sx != 0 ? i : 0]} - int32_t{zero[static_cast<size_t>(1 - sz)]});
        ASSERT_EQ(bits(back[i]), bits(above * by)) << "steps " << steps << ", " << i;
      }
    }
  });
}

TEST(Quantise, EveryLevelRoundsToEvenAndSaturates) {
  compare<int8_t>(d::i8);
  compare<uint8_t>(d::u8);
  compare<int16_t>(d::i16);
  compare<uint16_t>(d::u16);
}

TEST(Dequantise, DifferencesOfWordsWrapAndAbsentZeroPointsAreZero) {
  const int32_t x[] = {7, -2147483647 - 1, 2147483647}, zero[] = {9, 1, -1};
  const float scale = 0.5f;
  on_every_level([&] {
    float y[3];
    simd().dequantise(d::i32, x, 1, &scale, 0, zero, 1, y, 3);
    EXPECT_EQ(std::vector<float>(y, y + 3), (std::vector<float>{-1.0f, 1073741824.0f, -1073741824.0f}));
    simd().dequantise(d::i32, x, 1, &scale, 0, nullptr, 0, y, 3);
    EXPECT_EQ(std::vector<float>(y, y + 3), (std::vector<float>{3.5f, -1073741824.0f, 1073741824.0f}));
  });
}

// All pairs of bytes, and many of 16 bits: halves, what saturates, factors of all bits.
template <class T>
void combine(uint32_t dtype, bool product, float first, float second, float shift) {
  constexpr double low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
  std::vector<T> a(65536), b(65536), y(65536);
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<T>(sizeof(T) == 1 ? i >> 8 : i * 40503);
    b[i] = static_cast<T>(i);
  }
  const int32_t zero_a = 3, zero_b = -90;
  on_every_level([&] {
    for (int steps = 0; steps < 4; ++steps) {
      const int sa = steps & 1, sb = steps >> 1;
      simd().combine({dtype, product, first, second, shift, zero_a, zero_b, a.data() + 300, sa, b.data() + 300, sb, y.data(), a.size() - 300});
      for (size_t i = 0; i < a.size() - 300; ++i) {
        const T p = a[300 + (sa != 0 ? i : 0)], q = b[300 + (sb != 0 ? i : 0)];
        const volatile float left = static_cast<float>(p - zero_a), right = static_cast<float>(q - zero_b);
        const volatile float whole = left * right, scaled = whole * first, term = right * second;  // of bytes `whole` is exact
        const float sum = std::fma(static_cast<float>(p), first, std::fma(static_cast<float>(q), second, shift));
        const float placed = product ? scaled + shift : sum, bare = product ? scaled : std::fma(left, first, term);
        const double want = sizeof(T) == 1 ? std::nearbyint(static_cast<double>(placed)) : std::nearbyint(static_cast<double>(bare)) + static_cast<double>(shift);
        ASSERT_EQ(static_cast<double>(y[i]), std::min(std::max(want, low), high)) << "steps " << steps << ", " << i;
      }
    }
  });
}

TEST(Table, EveryLevelLooksUpEveryByte) {
  std::vector<uint8_t> entries(256), x(1000), y(x.size());
  for (size_t i = 0; i < entries.size(); ++i) entries[i] = static_cast<uint8_t>(i * 37 + 11);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint8_t>(i * 7 + i / 256);
  on_every_level([&] {
    for (const size_t n : {size_t{1}, size_t{7}, size_t{64}, size_t{100}, x.size()}) {
      std::fill(y.begin(), y.end(), uint8_t{1});
      simd().look_up(entries.data(), x.data(), y.data(), n);
      for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], i < n ? entries[x[i]] : 1) << i << " of " << n;
    }
  });
}

TEST(Windows, EveryLevelAddsUpTheSameTapsOfBytes) {
  constexpr int kRow = 50, kRows = 7, kColumns = 29;
  std::vector<uint8_t> plane(kRow * (kRows + 3) + kOverrun);
  for (size_t i = 0; i < plane.size(); ++i) plane[i] = static_cast<uint8_t>(i * 131 + i / 7);
  const std::vector<int32_t> offsets{0, 1, 5, kRow, 2 * kRow + 3}, weights{-255, 255, 1, -7, 100};
  std::vector<int32_t> out(kRows * kColumns);
  on_every_level([&] {
    for (const bool is_signed : {false, true}) {
      simd().taps_mac_bytes({plane.data(), kRow, offsets.data(), 5, kRows, kColumns, nullptr, kColumns}, is_signed, weights.data(), -9, out.data());
      for (int r = 0; r < kRows; ++r) {
        for (int i = 0; i < kColumns; ++i) {
          int32_t want = -9;
          for (size_t tap = 0; tap < offsets.size(); ++tap) {
            const uint8_t byte = plane[static_cast<size_t>(r * kRow + offsets[tap] + i)];
            want += weights[tap] * (is_signed ? static_cast<int8_t>(byte) : byte);
          }
          ASSERT_EQ(out[static_cast<size_t>(r * kColumns + i)], want) << r << ", " << i;
        }
      }
    }
  });
}

TEST(Combine, EveryLevelRoundsAsItsFormula) {
  combine<int8_t>(d::i8, false, 0.5f, 0.25f, -3.0f);
  combine<uint8_t>(d::u8, false, 0.2691466f, 0.8555798f, 11.30023f);
  combine<int8_t>(d::i8, true, 0.015625f, 0, -3.0f);
  combine<uint8_t>(d::u8, true, 0.010523632f, 0, 11.0f);
  combine<int16_t>(d::i16, false, 0.5f, 0.25f, -3.0f);
  combine<uint16_t>(d::u16, false, 0.2691466f, 0.8555798f, 1100.0f);
  combine<int16_t>(d::i16, true, 0.000030517578125f, 0, -3.0f);
  combine<uint16_t>(d::u16, true, 0.00004010523632f, 0, 32768.0f);
}

Axis whole(int size, int stride) {
  Axis axis;
  axis.a = 1;
  axis.extent = axis.chunk = size;
  axis.stride = stride;
  return axis;
}

// Rows with padding behind them or lines beside one another; each result is the nearest to the exact quotient, even
// where two are.
template <class T>
void softmax_bytes(uint32_t seed, uint32_t dtype) {
  namespace arg = params::softmax_bytes;
  Random random(seed);
  Block block;
  const bool rows = random.chance(50);
  const int outer = random.in(1, 3), length = random.in(1, random.chance(20) ? 600 : 40), inner = rows ? 1 : random.in(2, 9);
  const int chunk = rows ? (length + 3) / 4 * 4 : length, zero = random.in(-5, 5) + (dtype == d::u8 ? 5 : 0);
  const float scale = random.chance(50) ? 0.01f : 1.0f, factor = static_cast<float>(random.in(0, 600));
  std::vector<T> x(static_cast<size_t>(outer * chunk * inner));
  std::vector<float> powers(256);
  for (auto& one : x) one = static_cast<T>(random.chance(30) ? 100 : random.word());
  for (int i = 0; i < 256; ++i) powers[static_cast<size_t>(i)] = std::exp(static_cast<float>(i - 255) * scale + 9.0f);
  block.setup.dims[0] = {static_cast<uint32_t>(outer), static_cast<uint32_t>(outer)};
  block.setup.dims[1] = {static_cast<uint32_t>(inner), static_cast<uint32_t>(inner)};
  block.put(arg::dim_o, 0);
  block.put(arg::dim_i, 1);
  block.axis(arg::x_o, whole(outer, chunk * inner));
  block.axis(arg::x_o + params::kAxisWords, whole(chunk, inner));
  block.axis(arg::x_o + 2 * params::kAxisWords, whole(inner, 1));
  block.axis(arg::powers + 1, whole(256, 1));
  block.put(arg::length, static_cast<uint32_t>(length));
  block.put(arg::factor, bits(factor));
  block.put(arg::zero, static_cast<uint32_t>(zero));
  block.types[arg::x] = block.types[arg::out] = dtype;
  block.put(arg::x, block.append(0, x));
  block.put(arg::powers, block.append(1, powers));
  block.out.assign((x.size() + 3) / 4 * 4, 0xEE);
  block.run(*block.prepare(arg::digest), {});
  const auto at = [&](int o, int n, int i) { return static_cast<size_t>((o * chunk + n) * inner + i); };
  for (int o = 0; o < outer; ++o) {
    for (int i = 0; i < inner; ++i) {
      int most = std::numeric_limits<T>::min();
      for (int n = 0; n < length; ++n) most = std::max<int>(most, x[at(o, n, i)]);
      const auto power = [&](int n) { return powers[static_cast<size_t>(255 - most + x[at(o, n, i)])]; };
      float sum = 0;
      for (int n = 0; n < length; ++n) sum += power(n);
      for (int n = 0; n < length; ++n) {
        T made;
        std::memcpy(&made, block.out.data() + at(o, n, i), 1);
        const int found = made - zero;
        const long double rest = static_cast<long double>(power(n)) * factor - static_cast<long double>(sum) * found;  // exact
        const bool high = made == std::numeric_limits<T>::max() && rest > 0;  // saturated
        ASSERT_TRUE(high || 2 * std::abs(rest) < sum || (2 * std::abs(rest) == sum && found % 2 == 0)) << seed << ": " << o << ", " << n << ", " << i;
      }
      for (int n = length; n < chunk; ++n) ASSERT_EQ(block.out[at(o, n, i)], 0);
    }
  }
}

void softmax_bytes_case(uint32_t seed) { seed % 2 == 0 ? softmax_bytes<uint8_t>(seed, d::u8) : softmax_bytes<int8_t>(seed, d::i8); }

TEST(SoftmaxBytes, ResultsAreExactQuotientsRoundedToEven) {
  for (uint32_t seed = 0; seed < sampled(400u); ++seed) softmax_bytes_case(seed);
}

TEST(SoftmaxBytes, HostileBlocksStayInsideTheirChunks) { run_hostile(softmax_bytes_case); }

}  // namespace
}  // namespace onedispatch::kernels::testing
