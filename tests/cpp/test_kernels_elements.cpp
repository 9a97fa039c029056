// SPDX-License-Identifier: Apache-2.0
// ELTWISE, REDUCE, SOFTMAX, LRN and the elementary functions.
#include "test_kernels_support.h"

namespace onedispatch::kernels::testing {
namespace {

namespace act = params::activation;
namespace fn = params::eltwise_func;

// Distance in units in the last place of `want`.
double ulps(float got, double want) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : 1e9;
  const auto rounded = static_cast<float>(want);
  if (std::isinf(rounded) || rounded == 0) return got == rounded || std::abs(got) < 1e-44 ? 0 : 1e9;
  const double unit = std::ldexp(1.0, std::max(std::ilogb(rounded), -126) - 23);
  return std::abs(got - want) / unit;
}

std::vector<float> inputs_for(uint32_t code) {
  std::vector<float> x = {0.0f, -0.0f, 1.0f, -1.0f, kNan, kInfinity, -kInfinity, 1e-40f, -1e-40f, 1e-30f, 3e38f, -3e38f,
                          88.7f, 88.8f, -87.4f, -95.0f, -103.9f, -110.0f, 0.625f, 0.92f, 0.93f, 4.0f, 3.9f, 9.1f};
  Random random(code);
  for (int i = 0; i < sampled(200000); ++i) {
    x.push_back(random.value() * 5);
    x.push_back(random.value() * 50);
    x.push_back(std::ldexp(random.value(), random.in(-140, 100)));
  }
  return x;
}

TEST(Functions, StayWithinAFewUlps) {
  // Bounds per function: what was measured on all levels, rounded up.
  const double bounds[] = {0, 0, 0.51, 0, 3, 3, 2, 0.51, 3, 0, 0, 2, 0.51};
  on_every_level([&] {
    for (uint32_t code = 0; code <= act::reciprocal_; ++code) {
      const std::vector<float> x = inputs_for(code);
      std::vector<float> y(x.size());
      const float alpha = code == act::clip_ ? -0.75f : 0.1f, beta = 1.5f;
      simd().unary(code, alpha, beta, x.data(), y.data(), x.size());
      double worst = 0;
      float at = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const double off = ulps(y[i], scalar_activation(code, alpha, beta, x[i]));
        if (off > worst) worst = off, at = x[i];
      }
      EXPECT_LE(worst, bounds[code]) << "activation " << code << " at " << at;
    }
  });
}

double scalar_function(uint32_t func, double a, double b, double c, float alpha, float beta) {
  switch (func) {
    case fn::copy_: return a;
    case fn::add_: return alpha * a + beta * b;
    case fn::sub_: return a - b;
    case fn::mul_: return a * b;
    case fn::div_: return a / b;
    case fn::muladd_: return a * b + c;
    case fn::fill_: return alpha;
    case fn::max_: return std::isnan(a) || std::isnan(b) ? kNan : std::max(a, b);
    case fn::min_: return std::isnan(a) || std::isnan(b) ? kNan : std::min(a, b);
    default: return std::pow(a, b);
  }
}

void eltwise_case(uint32_t seed) {
  namespace arg = params::eltwise;
  Random random(seed);
  Block block;
  const auto func = static_cast<uint32_t>(random.in(0, 9));
  const int inputs = func == fn::fill_ ? 0 : func == fn::copy_ ? 1 : func == fn::muladd_ ? 3 : 2;
  size_t elements = 1;
  for (auto& dim : block.setup.dims) {
    dim.tile = static_cast<uint32_t>(random.chance(30) ? 1 : random.in(1, random.chance(20) ? 40 : 6));
    if (elements * dim.tile > 6000) dim.tile = 1;
    dim.extent = dim.tile + static_cast<uint32_t>(random.in(0, 3));
    elements *= dim.tile;
  }
  const float alpha = random.chance(50) ? 1.0f : 0.5f, beta = random.chance(50) ? 1.0f : -2.0f;
  block.put(arg::func, named(od_eltwise_func[func], func));
  block.put(arg::alpha, bits(alpha));
  block.put(arg::beta, bits(beta));
  std::vector<float> data[3];
  size_t strides[3][kDims] = {}, dens[3][kDims] = {};
  const bool fractions = random.chance(20);
  for (int i = 0; i < inputs; ++i) {
    size_t order[kDims] = {4, 3, 2, 1, 0};
    if (random.chance(40)) std::shuffle(order, order + kDims, std::mt19937(seed));
    size_t span = 1;
    for (const size_t d : order) {
      if (random.chance(15)) continue;  // broadcast
      strides[i][d] = span;
      span = span * block.setup.dims[d].tile + static_cast<size_t>(random.chance(10) ? 2 : 0);
    }
    data[i] = random.values(span);
    if (func == fn::pow_ && i == 0) for (float& x : data[i]) x = std::abs(x);
    if (random.chance(20)) data[i][static_cast<size_t>(random.in(0, static_cast<int>(span) - 1))] = kNan;
    const uint32_t words[] = {arg::x0, arg::x1, arg::x2};
    block.put(words[i], block.append(static_cast<uint32_t>(random.in(0, 1)), data[i]));
    for (uint32_t d = 0; d < kDims; ++d) {
      Axis axis;
      axis.a = 1;
      axis.extent = axis.chunk = strides[i][d] == 0 ? 1 : block.setup.dims[d].tile;
      axis.stride = static_cast<int64_t>(strides[i][d]);
      dens[i][d] = fractions ? static_cast<size_t>(random.in(1, 3)) : 1;
      axis.den = static_cast<int64_t>(dens[i][d]);
      block.axis(words[i] + 1 + params::kAxisWords * d, axis);
    }
  }
  block.out.assign(elements * 4, 0xEE);
  block.run(*block.prepare(params::eltwise::digest), {});
  for (size_t e = 0; e < elements; ++e) {
    double x[3] = {};
    for (int i = 0; i < inputs; ++i) {
      size_t rest = e, from = 0;
      for (size_t d = kDims; d-- > 0;) {
        from += rest % block.setup.dims[d].tile / dens[i][d] * strides[i][d];
        rest /= block.setup.dims[d].tile;
      }
      x[i] = data[i][from];
    }
    const double want = scalar_function(func, x[0], x[1], x[2], alpha, beta);
    const double bound = 3e-7 * (std::abs(want) + std::abs(x[0] * x[1]) * (func == fn::muladd_) + 5 * (func == fn::add_));
    expect_close(block.f32_out(e), want, bound, "func " + std::to_string(func) + " element " + std::to_string(e));
  }
}

TEST(Eltwise, MatchesScalarLoop) {
  on_every_level([] {
    for (uint32_t seed = 0; seed < sampled(600u) && !::testing::Test::HasFailure(); ++seed) {
      SCOPED_TRACE(seed);
      eltwise_case(seed);
    }
  });
}

TEST(Eltwise, TransposedCopyKeepsEveryBit) {
  namespace arg = params::eltwise;
  on_every_level([] {
    constexpr uint32_t kRows = 37, kColumns = 50;
    Block block;
    Random random(1);
    std::vector<uint32_t> x(kRows * kColumns);
    for (auto& word : x) word = random.word() | 0x7F800000;  // NaNs of all kinds
    block.setup.dims[1] = {kColumns, kColumns};
    block.setup.dims[4] = {kRows, kRows};
    block.put(arg::x0, block.append(1, x));
    for (uint32_t d = 0; d < kDims; ++d) {
      Axis axis;
      axis.a = 1;
      axis.extent = axis.chunk = block.setup.dims[d].tile;
      axis.stride = d == 1 ? 1 : d == 4 ? kColumns : 0;
      block.axis(arg::x0_d0 + 5 * d, axis);
    }
    block.out.resize(x.size() * 4);
    block.run(*block.prepare(params::eltwise::digest), {});
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(static_cast<uint32_t>(block.i32_out(i)), x[i % kRows * kColumns + i / kRows]);
    }
  });
}

void reduce_case(uint32_t seed) {
  namespace arg = params::reduce;
  namespace mode = params::reduce_mode;
  Random random(seed);
  Block block;
  const int R = random.in(1, 12), K = random.in(1, 60), I = random.chance(40) ? 1 : random.in(1, 40);
  const auto tile_k = static_cast<uint32_t>(random.in(1, K));
  block.reduction(static_cast<uint32_t>(K), tile_k);
  const Dim r{static_cast<uint32_t>(R), static_cast<uint32_t>(random.in(1, R))};
  const Dim i{static_cast<uint32_t>(I), static_cast<uint32_t>(random.in(1, I))};
  block.setup.dims[0] = r;
  block.setup.dims[4] = i;
  Axis x_r, x_k, x_i;
  x_r.extent = R, x_r.chunk = r.tile, x_r.a = 1;
  x_k.extent = K, x_k.chunk = tile_k, x_k.a = 1;
  x_i.extent = I, x_i.chunk = i.tile, x_i.a = 1;
  std::vector<Axis*> order{&x_i, &x_k, &x_r};
  std::shuffle(order.begin(), order.end(), std::mt19937(seed));
  int64_t stride = random.chance(20) ? 2 : 1;
  for (Axis* axis : order) axis->stride = stride, stride *= axis->chunk;
  const auto m = static_cast<uint32_t>(random.in(0, 6));
  auto X = random.values(static_cast<size_t>(R * K * I));
  if (random.chance(30)) X[static_cast<size_t>(random.in(0, R * K * I - 1))] = kNan;
  std::array<uint32_t, kDims> origin{};
  origin[0] = tile_origin(r, static_cast<uint32_t>(random.in(0, static_cast<int>(tiles(r)) - 1)));
  origin[4] = tile_origin(i, static_cast<uint32_t>(random.in(0, static_cast<int>(tiles(i)) - 1)));
  block.put(arg::mode, named(od_reduce_mode[m], m));
  block.put(arg::dim_i, 4);
  block.axis(arg::x_r, x_r);
  block.axis(arg::x_k, x_k);
  block.axis(arg::x_i, x_i);
  block.out.assign(static_cast<size_t>(r.tile * i.tile) * 4, 0xEE);
  for (uint32_t k = 0; k < block.setup.inner_steps; ++k) {
    block.in[0].clear();
    block.put(arg::x, block.append(0, cut(X, {x_r, x_k, x_i}, {origin[0], k * int64_t{tile_k}, origin[4]})));
    block.run(*block.prepare(params::reduce::digest), origin, k);
  }
  for (uint32_t a = 0; a < r.tile; ++a) {
    for (uint32_t b = 0; b < i.tile; ++b) {
      double want = m == mode::max_ ? -kInfinity : m == mode::min_ ? kInfinity : m == mode::prod_ ? 1 : 0, size = 1;
      for (int k = 0; k < K; ++k) {
        const double x = X[((origin[0] + a) * static_cast<size_t>(K) + static_cast<size_t>(k)) * static_cast<size_t>(I) + origin[4] + b];
        size += x * x;
        if (m == mode::max_ || m == mode::min_) want = scalar_function(m == mode::max_ ? fn::max_ : fn::min_, want, x, 0, 1, 1);
        if (m == mode::sum_ || m == mode::mean_) want += x;
        if (m == mode::sum_square_) want += x * x;
        if (m == mode::sum_abs_) want += std::abs(x);
        if (m == mode::prod_) want *= x;
      }
      if (m == mode::mean_) want /= K;
      const double bound = m == mode::prod_ ? 2e-5 * std::abs(want) : 5e-7 * size;
      expect_close(block.f32_out(a * i.tile + b), want, bound, "mode " + std::to_string(m));
    }
  }
}

TEST(Reduce, MatchesScalarLoop) {
  on_every_level([] {
    for (uint32_t seed = 0; seed < sampled(400u) && !::testing::Test::HasFailure(); ++seed) {
      SCOPED_TRACE(seed);
      reduce_case(seed);
    }
  });
}

TEST(Reduce, EmptyReductionGivesTheIdentity) {
  namespace arg = params::reduce;
  on_every_level([] {
    const float want[] = {0, kNan, -kInfinity, kInfinity, 0, 1, 0};
    for (uint32_t m = 0; m < 7; ++m) {
      Block block;
      block.setup.dims[1] = {3, 3};
      block.reduction(0, 0);
      block.put(arg::mode, named(od_reduce_mode[m], m));
      block.put(arg::dim_i, 1);
      block.put(arg::x, params::kAbsent);
      Axis empty;
      empty.extent = empty.chunk = 0;
      for (const uint32_t word : {arg::x_r, arg::x_k, arg::x_i}) block.axis(word, empty);
      block.out.assign(12, 0xEE);
      block.run(*block.prepare(params::reduce::digest), {});
      for (size_t i = 0; i < 3; ++i) expect_close(block.f32_out(i), want[m], 0, "mode " + std::to_string(m));
    }
  });
}

void softmax_case(uint32_t seed) {
  namespace arg = params::softmax;
  Random random(seed);
  Block block;
  const int O = random.in(1, 6), L = random.in(1, 70), I = random.chance(50) ? 1 : random.in(2, 30);
  const bool log = random.chance(50);
  auto X = random.values(static_cast<size_t>(O * L * I));
  for (float& x : X) x *= random.chance(50) ? 1 : 40;
  if (random.chance(20)) X[static_cast<size_t>(random.in(0, O * L * I - 1))] = kNan;
  if (random.chance(20)) X[static_cast<size_t>(random.in(0, O * L * I - 1))] = -kInfinity;
  block.setup.dims[0] = {static_cast<uint32_t>(O), static_cast<uint32_t>(O)};
  block.setup.dims[3] = {static_cast<uint32_t>(I), static_cast<uint32_t>(I)};
  block.put(arg::log, log);
  block.put(arg::dim_i, 3);
  put_rows(block, arg::x_o, O, L, I);
  block.put(arg::x, block.append(0, X));
  block.out.resize(X.size() * 4);
  block.run(*block.prepare(params::softmax::digest), {});
  for (int o = 0; o < O; ++o) {
    for (int i = 0; i < I; ++i) {
      double top = -kInfinity, sum = 0;
      const auto at = [&](int k) { return static_cast<size_t>((o * L + k) * I + i); };
      for (int k = 0; k < L; ++k) top = scalar_function(fn::max_, top, X[at(k)], 0, 1, 1);
      for (int k = 0; k < L; ++k) sum += std::exp(X[at(k)] - top);
      for (int k = 0; k < L; ++k) {
        const double want = log ? X[at(k)] - top - std::log(sum) : std::exp(X[at(k)] - top) / sum;
        const double shift = 1e-6 + 6e-8 * std::abs(X[at(k)] - top);  // x - max is rounded to f32 first
        expect_close(block.f32_out(at(k)), want, shift * (std::abs(want) + (log ? 1 : 1e-30)), "softmax");
      }
    }
  }
}

// The same rows as one and as columns: each step is what bfloat16 holds of it.
TEST(Softmax, RoundsStepsToHalfTypes) {
  namespace arg = params::softmax;
  const auto rounded = [](float x) {
    const uint32_t word = (bits(x) + 0x7FFFu + (bits(x) >> 16 & 1u)) & 0xFFFF0000u;
    float half;
    std::memcpy(&half, &word, 4);
    return half;
  };
  on_every_level([&] {
    for (const int I : {1, 19}) {
      Random random(static_cast<uint32_t>(I));
      Block block;
      const int O = 3, L = 37;
      auto X = random.values(static_cast<size_t>(O * L * I));
      std::vector<uint16_t> narrow;
      for (float& x : X) narrow.push_back(static_cast<uint16_t>(bits(x = rounded(x)) >> 16));
      block.setup.dims[0] = {static_cast<uint32_t>(O), static_cast<uint32_t>(O)};
      block.setup.dims[3] = {static_cast<uint32_t>(I), static_cast<uint32_t>(I)};
      block.put(arg::log, 0);
      block.put(arg::dim_i, 3);
      put_rows(block, arg::x_o, O, L, I);
      block.put(arg::x, block.append(0, narrow));
      block.types = {{arg::x, params::dtype::bf16}, {arg::out, params::dtype::bf16}};
      block.out.resize((X.size() * 2 + 3) / 4 * 4);
      block.run(*block.prepare(arg::digest), {});
      int wrong = 0;
      for (int o = 0; o < O; ++o) {
        for (int i = 0; i < I; ++i) {
          const auto at = [&](int k) { return static_cast<size_t>((o * L + k) * I + i); };
          float top = -kInfinity, sum = 0;
          for (int k = 0; k < L; ++k) top = std::max(top, X[at(k)]);
          const auto power = [&](int k) { return rounded(std::exp(rounded(X[at(k)] - top))); };
          for (int k = 0; k < L; ++k) sum += power(k);
          for (int k = 0; k < L; ++k) {
            uint16_t found;
            std::memcpy(&found, block.out.data() + 2 * at(k), 2);
            wrong += found != bits(rounded(power(k) / rounded(sum))) >> 16;
          }
        }
      }
      EXPECT_LE(wrong, O * L * I / 200) << "a sum in another order may round otherwise, and so may a tie";
    }
  });
}

TEST(Softmax, MatchesScalarLoop) {
  on_every_level([] {
    for (uint32_t seed = 0; seed < sampled(300u) && !::testing::Test::HasFailure(); ++seed) {
      SCOPED_TRACE(seed);
      softmax_case(seed);
    }
  });
}

TEST(Lrn, MatchesScalarLoop) {
  namespace arg = params::lrn;
  on_every_level([] {
    for (uint32_t seed = 0; seed < 100; ++seed) {
      Random random(seed);
      Block block;
      const int O = random.in(1, 3), L = random.in(1, 12), I = random.in(1, 40), size = random.in(1, 8);
      const float betas[] = {0.75f, 0.5f, 1.0f, 0.3f};
      const float alpha = 0.1f, beta = betas[random.in(0, 3)], bias = 1.5f;
      const auto X = random.values(static_cast<size_t>(O * L * I));
      block.setup.dims[0] = {static_cast<uint32_t>(O), static_cast<uint32_t>(O)};
      block.setup.dims[1] = {static_cast<uint32_t>(I), static_cast<uint32_t>(I)};
      block.put(arg::dim_i, 1);
      put_rows(block, arg::x_o, O, L, I);
      block.put(arg::x, block.append(0, X));
      block.put(arg::size, static_cast<uint32_t>(size));
      block.put(arg::alpha, bits(alpha));
      block.put(arg::beta, bits(beta));
      block.put(arg::bias, bits(bias));
      block.out.resize(X.size() * 4);
      block.run(*block.prepare(params::lrn::digest), {});
      for (int e = 0; e < O * L * I; ++e) {
        const int c = e / I % L;
        double sum = 0;
        for (int k = std::max(0, c - (size - 1) / 2); k <= std::min(L - 1, c + size / 2); ++k) {
          const double x = X[static_cast<size_t>(e + (k - c) * I)];
          sum += x * x;
        }
        const double want = X[static_cast<size_t>(e)] / std::pow(bias + double{alpha} / size * sum, double{beta});
        expect_close(block.f32_out(static_cast<size_t>(e)), want, 1e-6 * std::abs(want), "lrn");
      }
    }
  });
}

// Rows with any of what may be beside them; the last of a row's elements may be padding.
void normalise_case(uint32_t seed) {
  namespace arg = params::normalise;
  Random random(seed);
  Block block;
  const int B = random.in(1, 3), O = random.in(1, 5), W = random.in(1, 70);
  const int L = random.chance(50) ? W : random.in(1, W), sections = L % 2 == 0 && random.chance(40) ? 2 : 0;
  const bool centre = random.chance(60), scaled = random.chance(70), moved = scaled && random.chance(70), added = random.chance(60);
  const float epsilon = 0.125f;
  const auto X = random.values(static_cast<size_t>(B * O * W)), R = random.values(X.size());
  const auto per_row = static_cast<size_t>(sections == 0 ? L : sections), count = sections == 0 ? per_row : per_row * static_cast<size_t>(O);
  const auto S = random.values(count), Y = random.values(count);
  block.setup.dims[1] = {static_cast<uint32_t>(B), static_cast<uint32_t>(B)};
  block.setup.dims[2] = {static_cast<uint32_t>(O), static_cast<uint32_t>(O)};
  block.put(arg::dim_b, 1);
  block.put(arg::dim_o, 2);
  block.put(arg::epsilon, bits(epsilon));
  block.put(arg::centre, centre);
  block.put(arg::sections, static_cast<uint32_t>(sections));
  block.put(arg::length, static_cast<uint32_t>(L));
  put_rows(block, arg::x_b, B, O, W);
  block.put(arg::x, block.append(0, X));
  const auto parameter = [&](uint32_t word, const std::vector<float>& values) {
    Axis along;
    along.a = 1;
    along.extent = along.chunk = O;
    along.stride = sections;
    block.axis(word + 1, along);
    along.extent = along.chunk = static_cast<int>(per_row);
    along.stride = 1;
    block.axis(word + 6, along);
    block.put(word, block.append(1, values));
  };
  if (scaled) parameter(arg::scale, S);
  if (moved) parameter(arg::bias, Y);
  if (added) {
    put_rows(block, arg::residual_b, B, O, W);
    block.put(arg::residual, block.append(1, R));
  }
  const bool total = added && random.chance(50);
  block.put(arg::total, total ? port(kOutPort, static_cast<uint32_t>(X.size() * 4)) : params::kAbsent);
  block.out.resize(X.size() * (total ? 8 : 4));
  block.run(*block.prepare(arg::digest), {});
  for (size_t i = 0; total && i < X.size(); ++i) EXPECT_EQ(block.f32_out(X.size() + i), X[i] + R[i]) << "total " << i;
  for (size_t row = 0; row < static_cast<size_t>(B * O); ++row) {
    const auto x = [&](int i) {
      const size_t at = row * static_cast<size_t>(W) + static_cast<size_t>(i);
      return double{X[at]} + (added ? double{R[at]} : 0.0);
    };
    double sum = 0, squares = 0;
    for (int i = 0; i < L; ++i) sum += x(i);
    const double mean = centre ? sum / L : 0;
    for (int i = 0; i < L; ++i) squares += (x(i) - mean) * (x(i) - mean);
    for (int i = 0; i < W; ++i) {
      const size_t o = row % static_cast<size_t>(O), part = static_cast<size_t>(sections == 0 ? 0 : i * sections / L);
      const size_t of = sections == 0 ? static_cast<size_t>(i) : o * per_row + part;
      double want = (x(i) - mean) / std::sqrt(squares / L + double{epsilon});
      want = i >= L ? 0 : want * (scaled ? double{S[of]} : 1) + (moved ? double{Y[of]} : 0);
      expect_close(block.f32_out(row * static_cast<size_t>(W) + static_cast<size_t>(i)), want, 1e-5 * (1 + std::abs(want)), "normalise");
    }
  }
}

TEST(Normalise, MatchesScalarLoop) {
  on_every_level([] {
    for (uint32_t seed = 0; seed < sampled(300u) && !::testing::Test::HasFailure(); ++seed) {
      SCOPED_TRACE(seed);
      normalise_case(seed);
    }
  });
}

TEST(Normalise, HasNoTotalWithoutAResidual) {
  namespace arg = params::normalise;
  Block block;
  block.setup.dims[1] = block.setup.dims[2] = {1, 1};
  block.put(arg::dim_b, 1);
  block.put(arg::dim_o, 2);
  put_rows(block, arg::x_b, 1, 1, 4);
  block.put(arg::x, block.append(0, std::vector<float>(4)));
  block.put(arg::total, port(kOutPort, 16));
  block.out.resize(32);
  EXPECT_THROW(block.prepare(arg::digest), KernelError);
}

TEST(Hostile, Elements) {
  run_hostile(eltwise_case);
  run_hostile(reduce_case);
  run_hostile(softmax_case);
  run_hostile(normalise_case);
}

}  // namespace
}  // namespace onedispatch::kernels::testing
