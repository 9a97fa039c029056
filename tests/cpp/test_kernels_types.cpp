// SPDX-License-Identifier: Apache-2.0
// Element types in the vector primitives: every level gives the bits of scalar loops.
#include "test_kernels_support.h"

namespace onedispatch::kernels::testing {
namespace {

namespace d = params::dtype;

// The value of a float of `exponent` and `mantissa` bits below its sign.
double value_of(uint32_t code, int exponent, int mantissa) {
  const uint32_t field = code >> mantissa & ((1u << exponent) - 1), fraction = code & ((1u << mantissa) - 1);
  const int bias = (1 << (exponent - 1)) - 1;
  const double sign = code >> (exponent + mantissa) & 1 ? -1 : 1;
  if (field + 1 == 1u << exponent) return fraction != 0 ? std::nan("") : sign * static_cast<double>(kInfinity);
  const double one = std::ldexp(1.0, mantissa);
  return sign * std::ldexp(field == 0 ? fraction / one : 1 + fraction / one, (field == 0 ? 1 : static_cast<int>(field)) - bias);
}

// The code next to x, the even one of two: between neighbours of the table of all finite ones.
uint32_t nearest(float x, int exponent, int mantissa) {
  const uint32_t sign = std::signbit(x) ? 0x8000u : 0, infinity = ((1u << exponent) - 1) << mantissa;
  if (std::isnan(x)) return infinity | 1;
  const double size = std::abs(static_cast<double>(x));
  uint32_t low = 0, high = infinity;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    (value_of(middle, exponent, mantissa) <= size ? low : high) = middle;
  }
  // Beyond the largest, infinity stands for what would come next.
  const double below = value_of(low, exponent, mantissa), step = below - value_of(low - (low != 0), exponent, mantissa);
  const double above = high == infinity ? below + step : value_of(high, exponent, mantissa);
  const double middle = (below + above) / 2;
  return sign | (size > middle || (size == middle && low % 2 != 0) ? high : low);
}

struct Format {
  uint32_t dtype;
  int exponent, mantissa;
};
constexpr Format kFormats[] = {{d::bf16, 8, 7}, {d::f16, 5, 10}};

TEST(ElementTypes, EveryHalfWidensToItsValueAndComesBack) {
  std::vector<uint16_t> codes(65536), back(codes.size());
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint16_t>(i);
  std::vector<float> values(codes.size());
  on_every_level([&] {
    for (const Format& f : kFormats) {
      simd().widen(f.dtype, codes.data(), values.data(), codes.size());
      simd().narrow(f.dtype, values.data(), back.data(), codes.size());
      for (uint32_t i = 0; i < codes.size(); ++i) {
        const double want = value_of(i, f.exponent, f.mantissa);
        if (std::isnan(want)) {
          ASSERT_TRUE(std::isnan(values[i]) && std::isnan(value_of(back[i], f.exponent, f.mantissa))) << f.dtype << " " << i;
        } else {
          ASSERT_EQ(values[i], want) << f.dtype << " " << i;
          ASSERT_EQ(back[i], i) << f.dtype;
        }
      }
    }
  });
}

TEST(ElementTypes, FloatsAreRoundedToTheNearestEvenHalf) {
  Random random(5);
  std::vector<float> values = {0.0f, -0.0f, 1.0f, kInfinity, -kInfinity, kNan, 65504.0f, 65519.9f, 65520.0f, 65536.0f, 3.4e38f, 3.39e38f,
                               -3.4028e38f, 5.9604645e-8f, 2.9802322e-8f, 2.98023259e-8f, 6.0975552e-5f, 6.1035156e-5f, 1e-45f, 1.17549435e-38f};
  for (int i = 0; i < 20000; ++i) {
    const uint32_t word = random.word();
    values.push_back(0);
    std::memcpy(&values.back(), &word, 4);
    const auto exponent = static_cast<uint32_t>(random.in(100, 145)) << 23;  // what halves have, and a little more
    const uint32_t tie = (word & 0x807FE000u) | exponent | 0x1000u;          // between two f16
    values.push_back(0);
    std::memcpy(&values.back(), &tie, 4);
  }
  std::vector<uint16_t> got(values.size());
  on_every_level([&] {
    for (const Format& f : kFormats) {
      simd().narrow(f.dtype, values.data(), got.data(), values.size());
      for (size_t i = 0; i < values.size(); ++i) {
        if (std::isnan(values[i])) {
          ASSERT_TRUE(std::isnan(value_of(got[i], f.exponent, f.mantissa))) << f.dtype << " " << i;
        } else {
          ASSERT_EQ(got[i], nearest(values[i], f.exponent, f.mantissa)) << f.dtype << ": " << values[i];
        }
      }
    }
  });
}

template <class Element>
void check_integers(uint32_t dtype) {
  using Limits = std::numeric_limits<Element>;
  Random random(dtype);
  for (const size_t n : {0, 1, 7, 16, 17, 100}) {
    std::vector<Element> narrow(n), back(n);
    std::vector<int32_t> words(n), wide(n);
    for (size_t i = 0; i < n; ++i) {
      narrow[i] = static_cast<Element>(random.word());
      wide[i] = random.chance(30) ? static_cast<int32_t>(random.word()) : random.in(Limits::min() - 300, Limits::max() + 300);
    }
    simd().widen(dtype, narrow.data(), words.data(), n);
    for (size_t i = 0; i < n; ++i) EXPECT_EQ(words[i], narrow[i]);
    simd().narrow(dtype, wide.data(), back.data(), n);
    for (size_t i = 0; i < n; ++i) EXPECT_EQ(back[i], std::clamp<int32_t>(wide[i], Limits::min(), Limits::max())) << wide[i];
  }
}

TEST(ElementTypes, IntegersWidenExactlyAndNarrowSaturated) {
  on_every_level([] {
    check_integers<int8_t>(d::i8);
    check_integers<uint8_t>(d::u8);
    check_integers<int16_t>(d::i16);
    check_integers<uint16_t>(d::u16);
  });
}

template <class Word>
Word reduced(uint32_t mode, Word acc, Word x) {
  namespace m = params::reduce_mode;
  const auto a = static_cast<uint32_t>(acc), b = static_cast<uint32_t>(x);
  switch (mode) {
    case m::max_: return std::max(acc, x);
    case m::min_: return std::min(acc, x);
    case m::prod_: return static_cast<Word>(a * b);
    case m::sum_square_: return static_cast<Word>(a + b * b);
    default: return static_cast<Word>(a + b);
  }
}

template <class Word>
Word reduction_start(uint32_t mode) {
  namespace m = params::reduce_mode;
  using Limits = std::numeric_limits<Word>;
  return mode == m::max_ ? Limits::min() : mode == m::min_ ? Limits::max() : mode == m::prod_ ? Word{1} : Word{0};
}

template <class Word>
void check_reductions(uint32_t seed) {
  Random random(seed);
  const int rows = random.in(1, 3), count = random.in(1, 90), columns = random.in(1, 40);
  std::vector<Word> x(static_cast<size_t>(rows * count * columns)), out(static_cast<size_t>(rows * columns));
  for (Word& value : x) value = static_cast<Word>(random.word());
  for (uint32_t mode = 0; mode <= params::reduce_mode::prod_; ++mode) {
    Reduction<Word> r{mode, x.data(), count * columns, columns, out.data(), columns, rows, count, columns, false};
    simd().of<Word>().reduce_columns(r);
    for (int row = 0; row < rows; ++row) {
      for (int i = 0; i < columns; ++i) {
        Word want = reduction_start<Word>(mode);
        for (int k = 0; k < count; ++k) want = reduced(mode, want, x[static_cast<size_t>((row * count + k) * columns + i)]);
        EXPECT_EQ(out[static_cast<size_t>(row * columns + i)], want) << "mode " << mode;
      }
    }
    const int n = rows * count * columns;
    Word want = reduction_start<Word>(mode);
    for (const Word value : x) want = reduced(mode, want, value);
    EXPECT_EQ(simd().of<Word>().reduce_row(mode, x.data(), n), want) << "mode " << mode;
  }
}

TEST(ElementTypes, ReductionsOfIntegersWrapAndOrderBySign) {
  on_every_level([] {
    for (uint32_t seed = 0; seed < 20; ++seed) {
      check_reductions<int32_t>(seed);
      check_reductions<uint32_t>(seed);
    }
  });
}

template <class Word>
void check_largest(uint32_t seed) {
  Random random(seed);
  const int rows = random.in(1, 9), columns = random.in(1, 40), row = columns + 3;
  std::vector<Word> plane(static_cast<size_t>((rows + 2) * row + kOverrun)), out(static_cast<size_t>(rows * columns));
  for (Word& value : plane) value = static_cast<Word>(random.word());
  const std::vector<int32_t> offsets = {0, 1, 2, row, row + 2, 2 * row + 1};
  simd().of<Word>().taps_max({plane.data(), row, offsets.data(), 6, rows, columns, out.data(), columns});
  for (int y = 0; y < rows; ++y) {
    for (int x = 0; x < columns; ++x) {
      Word want = std::numeric_limits<Word>::min();
      for (const int32_t tap : offsets) want = std::max(want, plane[static_cast<size_t>(y * row + x + tap)]);
      EXPECT_EQ(out[static_cast<size_t>(y * columns + x)], want);
    }
  }
}

TEST(ElementTypes, TheLargestOfAWindowKnowsSigns) {
  on_every_level([] {
    for (uint32_t seed = 0; seed < 20; ++seed) {
      check_largest<int32_t>(seed);
      check_largest<uint32_t>(seed);
    }
  });
}

// Whole numbers, whose sums are exact: in panels of channels and of outputs, with gaps between the channels of the result,
// and pixels that lie apart.
TEST(Levels, ConvolutionsWithOutputsInLanes) {
  on_every_level([] {
    Random random(5);
    const auto fill = [&random](size_t count) {
      std::vector<float> values(count);
      for (float& x : values) x = static_cast<float>(random.in(0, 16) - 8);
      return values;
    };
    for (int turn = 0; turn < 60; ++turn) {
      const int taps = random.in(1, 9), channels = random.in(1, 5), panels = random.in(1, 3);
      const int width = random.chance(50) ? random.in(1, 70) : 16 * random.in(1, 3), outputs = width * random.in(1, 4);
      const int rows = random.in(1, 5), columns = random.in(1, 40), w_tap = width + random.in(0, 3), gap = random.in(0, 5);
      const int x_step = random.chance(50) ? 1 : random.in(2, 5), x_row = columns * x_step + 3, x_channel = x_row * (rows + 3);
      const int w_panel = channels * taps * w_tap + 5, next = panels * w_panel + 7, pixels = rows * columns + gap;
      std::vector<int32_t> offsets;
      for (int tap = 0; tap < taps; ++tap) offsets.push_back(random.in(0, 2) * x_row + random.in(0, 2));
      const std::vector<float> x = fill(static_cast<size_t>(x_channel * channels * panels)), w = fill(static_cast<size_t>(outputs / width * next));
      std::vector<float> y = fill(static_cast<size_t>(outputs * pixels)), want = y;
      const bool accumulate = random.chance(50);
      simd().conv_f32({x.data(), x_channel, x_row, x_step, offsets.data(), taps, channels, panels - 1, w.data(), w_tap, w_panel, width, next, y.data(), pixels, outputs, rows, columns, accumulate});
      for (int i = 0; i < outputs * rows * columns; ++i) {
        const int output = i / (rows * columns), row = i / columns % rows, column = i % columns;
        float& sum = want[static_cast<size_t>(output * pixels + row * columns + column)];
        if (!accumulate) sum = 0;
        for (int k = 0; k < panels * channels * taps; ++k) {
          const int channel = k / taps, tap = k % taps, lane = output / width * next + output % width;
          const int at = lane + channel / channels * w_panel + (channel % channels * taps + tap) * w_tap;
          sum += w[static_cast<size_t>(at)] * x[static_cast<size_t>(channel * x_channel + offsets[static_cast<size_t>(tap)] + row * x_row + column * x_step)];
        }
      }
      ASSERT_EQ(y, want) << taps << " " << channels << " " << panels << " " << width << " of " << outputs << " " << rows << " x " << columns;
    }
  });
}

// Members of a reduction that pairs add to `sum`, the upper halves of two words first: each sum rounded in their order, or
// in blocks of two sums that begin with zero.
class PairedSum {
 public:
  explicit PairedSum(float start) : sum_(start) {}
  void add(uint32_t a, uint32_t b) {
    const auto half = [](uint32_t word) {
      float value;
      std::memcpy(&value, &word, 4);
      return value;
    };
    const int block = simd().pairs->block;
    float &upper = block == 1 ? sum_ : first_, &lower = block == 1 ? sum_ : second_;
    upper = std::fma(half(a & 0xFFFF0000u), half(b & 0xFFFF0000u), upper);
    lower = std::fma(half(a << 16), half(b << 16), lower);
    if (++pairs_ % block == 0) close();
  }
  float value() {
    close();
    return sum_;
  }

 private:
  void close() {
    if (simd().pairs->block == 1) return;
    sum_ += first_ + second_;
    first_ = second_ = 0;
  }

  float sum_, first_ = 0, second_ = 0;
  int pairs_ = 0;
};

std::vector<uint32_t> random_pairs(Random& random, size_t count) {
  std::vector<uint32_t> words(count);
  for (uint32_t& word : words) {
    const std::vector<float> two = random.values(2);
    word = (bits(two[0]) & 0xFFFF0000u) | bits(two[1]) >> 16;
  }
  return words;
}

const float* as_floats(const std::vector<uint32_t>& words) { return reinterpret_cast<const float*>(words.data()); }

TEST(Levels, ProductsOfPairs) {
  on_every_level([] {
    if (simd().pairs == nullptr) return;
    Random random(8);
    for (int turn = 0; turn < 60; ++turn) {
      const int m = random.in(1, 70), n = random.in(1, 150), k = random.in(1, 30) * simd().pairs->block, b_k = n + random.in(0, 3);
      const bool turned = random.chance(30);  // A lies column by column
      const ptrdiff_t a_m = turned ? 1 : k, a_k = turned ? m : 1;
      const std::vector<uint32_t> a = random_pairs(random, static_cast<size_t>((m + kPairRows) * k)), b = random_pairs(random, static_cast<size_t>(k * b_k + kOverrun));
      std::vector<float> c = random.values(static_cast<size_t>(m * n)), want = c;
      GemmF32 g{as_floats(a), a_m, a_k, as_floats(b), b_k, c.data(), n, m, n, k, random.chance(50), 0, 0, 0};
      simd().pairs->gemm(g);
      for (int i = 0; i < m * n; ++i) {
        PairedSum sum(g.accumulate ? want[static_cast<size_t>(i)] : 0);
        for (int j = 0; j < k; ++j) sum.add(a[static_cast<size_t>(i / n * a_m + j * a_k)], b[static_cast<size_t>(j * b_k + i % n)]);
        want[static_cast<size_t>(i)] = sum.value();
      }
      ASSERT_EQ(c, want) << m << " " << n << " " << k;
    }
  });
}

TEST(Levels, ProductsOfPairsAndRows) {
  on_every_level([] {
    if (simd().pairs == nullptr) return;
    Random random(11);
    for (int turn = 0; turn < 60; ++turn) {
      const int m = random.in(1, 3), n = random.in(1, 150), k = random.in(1, 131), pairs = (k + 1) / 2, b_k = n + random.in(0, 3);
      std::vector<uint32_t> a = random_pairs(random, static_cast<size_t>(m * pairs));
      std::vector<uint16_t> b;
      for (const uint32_t word : random_pairs(random, static_cast<size_t>(k * b_k))) b.push_back(static_cast<uint16_t>(word));
      std::vector<float> c = random.values(static_cast<size_t>(m * n)), want = c;
      const bool accumulate = random.chance(50);
      simd().pairs->gemm_rows({as_floats(a), pairs, b.data(), b_k, c.data(), n, m, n, k, accumulate});
      for (int i = 0; i < m * n; ++i) {
        PairedSum sum(accumulate ? want[static_cast<size_t>(i)] : 0);
        for (int j = 0; j < pairs; ++j) {
          const auto at = [&](int row) { return row < k ? b[static_cast<size_t>(row * b_k + i % n)] : uint16_t{0}; };
          sum.add(a[static_cast<size_t>(i / n * pairs + j)], uint32_t{at(2 * j)} << 16 | at(2 * j + 1));
        }
        want[static_cast<size_t>(i)] = sum.value();
      }
      ASSERT_EQ(c, want) << m << " " << n << " " << k;
    }
  });
}

// Infinities, NaN, numbers of all sizes: denormals count as zeros, and what fills a block decides the sign of no zero.
TEST(Levels, RowsOfPairsHaveTheBitsOfProducts) {
  on_every_level([] {
    if (simd().pairs == nullptr) return;
    Random random(12);
    for (int turn = 0; turn < 200; ++turn) {
      const int n = random.in(1, 40), k = random.in(1, 70), block = simd().pairs->block, pairs = (k + 1) / 2, rows = (pairs + block - 1) / block * block;
      const uint32_t exponent = static_cast<uint32_t>(random.in(0, 200)), range = random.chance(20) ? 56 : 16;
      const auto half = [&] { return (random.word() & 0x807Fu) | ((exponent + random.word() % range) & 0xFF) << 7; };
      std::vector<uint32_t> a(static_cast<size_t>(rows * kPairRows)), b(static_cast<size_t>(rows * n + kOverrun));
      std::vector<uint16_t> b_rows;
      for (int i = 0; i < pairs; ++i) a[static_cast<size_t>(i)] = half() << 16 | (2 * i + 1 < k ? half() : 0x8000u);
      for (int i = 0; i < k * n; ++i) b_rows.push_back(static_cast<uint16_t>(half()));
      simd().pairs->pair_rows(b_rows.data(), n, k, n, 0, b.data(), n);
      std::vector<float> c(static_cast<size_t>(n)), other(c);
      simd().pairs->gemm({as_floats(a), rows, 1, as_floats(b), n, c.data(), n, 1, n, rows, false, 0, 0, 0});
      simd().pairs->gemm_rows({as_floats(a), rows, b_rows.data(), n, other.data(), n, 1, n, k, false});
      for (size_t i = 0; i < c.size(); ++i) {
        if (std::isnan(c[i]) && std::isnan(other[i])) continue;
        ASSERT_EQ(bits(c[i]), bits(other[i])) << n << " " << k << " " << i;
      }
    }
  });
}

TEST(Levels, ConvolutionsOfPairs) {
  on_every_level([] {
    if (simd().pairs == nullptr || simd().pairs->conv == nullptr) return;
    Random random(9);
    for (int turn = 0; turn < 40; ++turn) {
      const int taps = random.in(1, 9), channels = random.in(1, 6), outputs = random.in(1, 70), rows = random.in(1, 5), columns = random.in(1, 40);
      const int x_row = columns + 3, x_channel = x_row * (rows + 3), pixels = rows * columns;
      std::vector<int32_t> offsets;
      for (int tap = 0; tap < taps; ++tap) offsets.push_back(random.in(0, 2) * x_row + random.in(0, 2));
      const std::vector<uint32_t> x = random_pairs(random, static_cast<size_t>(x_channel * channels)), w = random_pairs(random, static_cast<size_t>(channels * taps * outputs));
      std::vector<float> y(static_cast<size_t>(outputs * pixels)), want = y;
      simd().pairs->conv({as_floats(x), x_channel, x_row, 1, offsets.data(), taps, channels, 0, as_floats(w), outputs, 0, outputs, 0, y.data(), pixels, outputs, rows, columns, false});
      for (int i = 0; i < outputs * pixels; ++i) {
        PairedSum sum(0);
        for (int k = 0; k < channels * taps; ++k) {
          const size_t at = static_cast<size_t>(k / taps * x_channel + offsets[static_cast<size_t>(k % taps)] + i % pixels / columns * x_row + i % columns);
          sum.add(x[at], w[static_cast<size_t>(k * outputs + i / pixels)]);
        }
        want[static_cast<size_t>(i)] = sum.value();
      }
      ASSERT_EQ(y, want) << taps << " " << channels << " " << outputs << " " << rows << " x " << columns;
    }
  });
}

TEST(Levels, PairsOfRowsAndOfNeighbours) {
  on_every_level([] {
    if (simd().pairs == nullptr) return;
    Random random(10);
    for (int n = 1; n < 70; ++n) {
      const int rows = random.in(1, 7), x_row = n + random.in(0, 3), row = n + random.in(0, 3);
      std::vector<uint16_t> x(static_cast<size_t>(rows * x_row));
      for (uint16_t& one : x) one = static_cast<uint16_t>(random.word());
      const auto at = [&](int k, int i) -> uint32_t { return k < rows ? x[static_cast<size_t>(k * x_row + i)] : 7u; };
      std::vector<uint32_t> made(static_cast<size_t>((rows + 1) / 2 * row), 5u), side(static_cast<size_t>((n + 1) / 2 + rows), 5u);
      simd().pairs->pair_rows(x.data(), x_row, rows, n, 7, made.data(), row);
      simd().pairs->pair_neighbours(x.data(), n, 7, side.data(), static_cast<int>(side.size()) - 1);
      for (int i = 0; i < (rows + 1) / 2 * row; ++i) {
        const int k = i / row * 2;
        ASSERT_EQ(made[static_cast<size_t>(i)], i % row < n ? at(k, i % row) << 16 | at(k + 1, i % row) : 5u);
      }
      for (size_t i = static_cast<size_t>(n + 1) / 2; i < side.size(); ++i) ASSERT_EQ(side[i], i + 1 == side.size() ? 5u : 0u);
      for (int i = 0; i < n; i += 2) ASSERT_EQ(side[static_cast<size_t>(i / 2)], uint32_t{x[static_cast<size_t>(i)]} << 16 | (i + 1 < n ? x[static_cast<size_t>(i + 1)] : 7u));
    }
  });
}

TEST(Levels, ProductsOfPanels) {
  on_every_level([] {
    Random random(6);
    for (int turn = 0; turn < 30; ++turn) {
      const int m = random.in(1, 20), n = random.in(1, 150), k = random.in(1, 9), panels = random.in(1, 4), a_panel = k * m + 3, b_panel = k * n + 7;
      std::vector<float> a(static_cast<size_t>(a_panel * panels)), b(static_cast<size_t>(b_panel * panels)), c(static_cast<size_t>(m * n), 7);
      for (float& x : a) x = static_cast<float>(random.in(0, 16) - 8);
      for (float& x : b) x = static_cast<float>(random.in(0, 16) - 8);
      const bool accumulate = random.chance(50);
      simd().gemm_f32({a.data(), k, 1, b.data(), n, c.data(), n, m, n, k, accumulate, panels - 1, a_panel, b_panel});
      for (int i = 0; i < m * n; ++i) {
        float want = accumulate ? 7 : 0;
        for (int p = 0; p < panels; ++p)
          for (int j = 0; j < k; ++j) want += a[static_cast<size_t>(p * a_panel + i / n * k + j)] * b[static_cast<size_t>(p * b_panel + j * n + i % n)];
        ASSERT_EQ(c[static_cast<size_t>(i)], want);
      }
    }
  });
}

// Rows of one matrix and of many, panels that vectors end with and others, the last one in part.
TEST(Levels, ColumnsInPanels) {
  on_every_level([] {
    Random random(7);
    for (int turn = 0; turn < 60; ++turn) {
      const int m = random.chance(60) ? 1 : random.in(2, 9), n = random.in(1, 300), k = random.in(1, 9), panels = random.in(1, 3);
      const int width = random.chance(60) ? 16 * random.in(1, 4) : random.in(1, 70), b_panel = k * width + 3, next = b_panel * panels + 5;
      std::vector<float> a(static_cast<size_t>(m * k * panels)), b(static_cast<size_t>((n / width + 1) * next)), c(static_cast<size_t>(m * n), 7);
      for (float& x : a) x = static_cast<float>(random.in(0, 16) - 8);
      for (float& x : b) x = static_cast<float>(random.in(0, 16) - 8);
      const bool accumulate = random.chance(50);
      simd().gemm_f32({a.data(), k * panels, 1, b.data(), width, c.data(), n, m, n, k, accumulate, panels - 1, k, b_panel, width, next});
      for (int i = 0; i < m * n; ++i) {
        const int column = i % n, from = column / width * next + column % width;
        float want = accumulate ? 7 : 0;
        for (int j = 0; j < k * panels; ++j) want += a[static_cast<size_t>(i / n * k * panels + j)] * b[static_cast<size_t>(from + j / k * b_panel + j % k * width)];
        ASSERT_EQ(c[static_cast<size_t>(i)], want);
      }
    }
  });
}

TEST(ElementTypes, ProductsOfWordsWrap) {
  on_every_level([] {
    Random random(3);
    for (int turn = 0; turn < 30; ++turn) {
      const int m = random.in(1, 20), n = random.in(1, 70), k = random.in(1, 30);
      std::vector<int32_t> a(static_cast<size_t>(m * k)), b(static_cast<size_t>(k * n)), c(static_cast<size_t>(m * n), 7);
      for (int32_t& x : a) x = static_cast<int32_t>(random.word());
      for (int32_t& x : b) x = static_cast<int32_t>(random.word());
      const bool accumulate = random.chance(50);
      simd().gemm_i32({a.data(), k, 1, b.data(), n, c.data(), n, m, n, k, accumulate, 0, 0, 0});
      for (int i = 0; i < m * n; ++i) {
        uint32_t want = accumulate ? 7 : 0;
        for (int j = 0; j < k; ++j) want += static_cast<uint32_t>(a[static_cast<size_t>(i / n * k + j)]) * static_cast<uint32_t>(b[static_cast<size_t>(j * n + i % n)]);
        ASSERT_EQ(static_cast<uint32_t>(c[static_cast<size_t>(i)]), want);
      }
    }
  });
}

template <class Element>
void check_requantised(uint32_t dtype, uint32_t seed) {
  using Limits = std::numeric_limits<Element>;
  Random random(seed);
  const int m = random.in(1, 4), n = random.in(1, 50), row = n + random.in(0, 5);
  std::vector<int32_t> x(static_cast<size_t>(m * n));
  std::vector<float> scale(static_cast<size_t>(std::max(m, n)));
  for (float& s : scale) s = random.chance(30) ? 0.5f : std::ldexp(random.value(), -random.in(0, 20));
  for (int32_t& v : x) v = random.chance(20) ? static_cast<int32_t>(random.word()) : random.in(-3000, 3000);
  std::vector<Element> y(static_cast<size_t>(m * row), Element{99});
  const bool per_column = random.chance(50);
  const int zero = std::is_same_v<Element, int32_t> ? random.in(-100, 100) : random.in(std::max<int>(Limits::min(), -40000), std::min<int>(Limits::max(), 40000));
  const bool per_row = !per_column && random.chance(50), biased = random.chance(50);
  std::vector<int32_t> bias(static_cast<size_t>(m));
  for (int32_t& v : bias) v = random.chance(20) ? static_cast<int32_t>(random.word()) : random.in(-3000, 3000);
  simd().requantise({x.data(), n, biased ? bias.data() : nullptr, 1, scale.data(), per_row, per_column, zero, dtype, y.data(), row, m, n});
  for (int i = 0; i < m * row; ++i) {
    const int line = i / row, column = i % row;
    if (column >= n) {
      EXPECT_EQ(y[static_cast<size_t>(i)], Element{99}) << "beyond the row";
      continue;
    }
    const uint32_t add = biased ? static_cast<uint32_t>(bias[static_cast<size_t>(line)]) : 0u;
    const auto sum = static_cast<int32_t>(static_cast<uint32_t>(x[static_cast<size_t>(line * n + column)]) + add);
    const float value = static_cast<float>(sum) * scale[static_cast<size_t>(per_column ? column : per_row ? line : 0)];
    const double want = std::clamp<double>(std::nearbyint(value) + static_cast<double>(zero), Limits::min(), Limits::max());
    ASSERT_EQ(y[static_cast<size_t>(i)], static_cast<Element>(want)) << value << " + " << zero;
  }
}

TEST(ElementTypes, SumsAreRequantisedAsOnnxruntimeDoes) {
  on_every_level([] {
    for (uint32_t seed = 0; seed < 40; ++seed) {
      check_requantised<int8_t>(d::i8, seed);
      check_requantised<uint8_t>(d::u8, seed);
      check_requantised<int16_t>(d::i16, seed);
      check_requantised<int32_t>(d::i32, seed);
    }
  });
}

template <class Element>
void check_wide(uint32_t dtype, uint32_t seed) {
  using Limits = std::numeric_limits<Element>;
  Random random(seed);
  const int m = random.in(1, 4), n = random.in(1, 50), row = n + random.in(0, 5);
  const auto all = static_cast<size_t>(m * n);
  std::vector<uint16_t> halves(all);
  std::vector<int32_t> part(all);
  std::vector<int64_t> sums(all, 5), bias(static_cast<size_t>(n)), want_sums(all);
  std::vector<uint8_t> low(all), high(all);
  std::vector<float> scale(static_cast<size_t>(n));
  for (uint16_t& x : halves) x = static_cast<uint16_t>(random.word());
  for (int32_t& x : part) x = static_cast<int32_t>(random.word());
  for (int64_t& x : bias) x = int64_t{static_cast<int32_t>(random.word())} * random.in(0, 1 << 17);
  for (float& x : scale) x = std::ldexp(random.value(), -random.in(0, 40));
  simd().split_bytes(halves.data(), low.data(), high.data(), all);
  const bool accumulate = random.chance(50);
  const int shift = random.chance(50) ? 8 : 16;
  simd().add_part(sums.data(), part.data(), shift, accumulate, all);
  for (size_t i = 0; i < all; ++i) {
    ASSERT_EQ(high[i] * 256 + low[i], halves[i]);
    want_sums[i] = (accumulate ? 5 : 0) + int64_t{part[i]} * (int64_t{1} << shift);
    ASSERT_EQ(sums[i], want_sums[i]);
  }
  std::vector<Element> y(static_cast<size_t>(m * row), Element{99});
  const bool per_column = random.chance(50);
  const int zero = random.in(Limits::min(), Limits::max());
  simd().requantise_wide({sums.data(), n, bias.data(), scale.data(), per_column, zero, dtype, y.data(), row, m, n});
  for (int i = 0; i < m * row; ++i) {
    const auto column = static_cast<size_t>(per_column ? i % row : 0);
    if (i % row >= n) {
      EXPECT_EQ(y[static_cast<size_t>(i)], Element{99}) << "beyond the row";
      continue;
    }
    const float value = static_cast<float>(sums[static_cast<size_t>(i / row * n + i % row)] + bias[column]) * scale[column];
    const double want = std::clamp<double>(std::nearbyint(value) + static_cast<double>(zero), Limits::min(), Limits::max());
    ASSERT_EQ(y[static_cast<size_t>(i)], static_cast<Element>(want)) << value << " + " << zero;
  }
}

TEST(ElementTypes, SumsOf64BitsAreRoundedOnce) {
  on_every_level([] {
    for (uint32_t seed = 0; seed < 40; ++seed) {
      check_wide<int8_t>(d::i8, seed);
      check_wide<uint8_t>(d::u8, seed);
      check_wide<int16_t>(d::i16, seed);
      check_wide<uint16_t>(d::u16, seed);
    }
  });
}

}  // namespace
}  // namespace onedispatch::kernels::testing
