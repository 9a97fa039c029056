// SPDX-License-Identifier: Apache-2.0
// Matrix products against scalar loops over whole tensors.
#include "test_kernels_support.h"

namespace onedispatch::kernels::testing {
namespace {

namespace act = params::activation;

struct GemmShape {
  int M, N, K;
  Dim m, n;
  Axis a_m, a_k, b_k, b_n;
};

GemmShape random_gemm(Random& random, Block& block) {
  GemmShape g{};
  g.M = random.chance(15) ? 1 : random.in(1, 50);
  g.N = g.M == 1 ? random.in(1, 300) : random.in(1, 90);
  g.K = random.in(1, 70);
  g.m = {static_cast<uint32_t>(g.M), static_cast<uint32_t>(random.in(1, g.M))};
  g.n = {static_cast<uint32_t>(g.N), static_cast<uint32_t>(random.in(1, g.N))};
  const int tile_k = random.in(1, g.K);
  block.reduction(static_cast<uint32_t>(g.K), static_cast<uint32_t>(tile_k));
  block.setup.dims[1] = g.m;
  block.setup.dims[3] = g.n;
  g.a_m = chunk_axis(g.M, static_cast<int>(g.m.tile));
  g.a_k = chunk_axis(g.K, std::min(g.K, tile_k + 3), 1, 0, random.chance(50) ? 4 : 1);
  g.b_k = chunk_axis(g.K, std::min(g.K, tile_k + 3), 1, 0, random.chance(50) ? 4 : 1);
  g.b_n = chunk_axis(g.N, static_cast<int>(g.n.tile));
  std::vector<Axis*> a{&g.a_k, &g.a_m}, b{&g.b_n, &g.b_k};
  if (random.chance(50)) std::swap(a[0], a[1]);
  if (random.chance(50)) std::swap(b[0], b[1]);
  lay_out(a, random, random.chance(20));
  lay_out(b, random, random.chance(20));
  return g;
}

void put_gemm(Block& block, const GemmShape& g) {
  namespace arg = params::gemm;
  block.put(arg::dim_m, 1);
  block.put(arg::dim_n, 3);
  block.axis(arg::a_m, g.a_m);
  block.axis(arg::a_k, g.a_k);
  block.axis(arg::b_k, g.b_k);
  block.axis(arg::b_n, g.b_n);
  block.out.assign(static_cast<size_t>(g.m.tile * g.n.tile) * 4, 0xEE);
}

void gemm_f32_case(uint32_t seed) {
  namespace arg = params::gemm;
  Random random(seed);
  Block block;
  const GemmShape g = random_gemm(random, block);
  const auto A = random.values(static_cast<size_t>(g.M * g.K)), B = random.values(static_cast<size_t>(g.K * g.N));
  const auto bias = random.values(static_cast<size_t>(g.N));
  const bool has_bias = random.chance(50);
  const float alpha = random.chance(50) ? 1.0f : 0.75f;
  const uint32_t code = random.chance(50) ? act::none_ : act::leakyrelu_;
  put_gemm(block, g);
  block.put(arg::act, code);
  block.put(arg::act_alpha, bits(0.25f));
  block.put(arg::alpha, bits(alpha));
  std::array<uint32_t, kDims> origin{};
  origin[1] = tile_origin(g.m, static_cast<uint32_t>(random.in(0, static_cast<int>(tiles(g.m)) - 1)));
  origin[3] = tile_origin(g.n, static_cast<uint32_t>(random.in(0, static_cast<int>(tiles(g.n)) - 1)));
  for (uint32_t k = 0; k < block.setup.inner_steps; ++k) {
    const int64_t first = k * block.setup.k_tile;
    block.in[0].clear();
    block.in[1].clear();
    block.put(arg::a, block.append(0, cut(A, {g.a_m, g.a_k}, {origin[1], first})));
    block.put(arg::b, block.append(1, cut(B, {g.b_k, g.b_n}, {first, origin[3]})));
    if (has_bias) {
      Axis axis = chunk_axis(g.N, static_cast<int>(g.n.tile));
      axis.stride = 1;
      block.put(arg::bias, block.append(1, cut(bias, {axis}, {origin[3]})));
      block.axis(arg::bias_n, axis);
    }
    block.run(*block.prepare(params::gemm::digest), origin, k);
  }
  for (uint32_t m = 0; m < g.m.tile; ++m) {
    for (uint32_t n = 0; n < g.n.tile; ++n) {
      double sum = 0, size = 0;
      for (int k = 0; k < g.K; ++k) {
        const double product = double{A[(origin[1] + m) * g.K + k]} * B[k * g.N + origin[3] + n];
        sum += product;
        size += std::abs(product);
      }
      const double want = alpha * sum + (has_bias ? bias[origin[3] + n] : 0.0f);
      expect_close(block.f32_out(m * g.n.tile + n), scalar_activation(code, 0.25, 0, want), 4e-7 * (size + 4),
                   "m " + std::to_string(m) + " n " + std::to_string(n));
    }
  }
}

TEST(Gemm, MatchesScalarLoop) {
  on_every_level([] {
    for (uint32_t seed = 0; seed < sampled(200u) && !::testing::Test::HasFailure(); ++seed) {
      SCOPED_TRACE(seed);
      gemm_f32_case(seed);
    }
  });
}

int32_t widened(uint8_t x, bool is_signed) { return is_signed ? static_cast<int8_t>(x) : x; }

std::vector<uint8_t> random_bytes(Random& random, size_t n) {
  std::vector<uint8_t> v(n);
  const int style = random.in(0, 3);  // extremes are where saturating instructions go wrong
  for (auto& x : v) x = static_cast<uint8_t>(style == 0 ? 0x80 : style == 1 ? (random.chance(50) ? 0xFF : 0x7F) : random.in(0, 255));
  return v;
}

void gemm_i8_case(uint32_t seed) {
  namespace arg = params::gemm;
  Random random(seed);
  Block block;
  const GemmShape g = random_gemm(random, block);
  const auto A = random_bytes(random, static_cast<size_t>(g.M * g.K)), B = random_bytes(random, static_cast<size_t>(g.K * g.N));
  const bool a_signed = random.chance(50), b_signed = random.chance(50), has_bias = random.chance(50);
  const int a_zeros = random.in(0, 2), b_zeros = random.in(0, 2);  // none, per tensor, per row or column
  const auto az = random_bytes(random, static_cast<size_t>(g.M)), bz = random_bytes(random, static_cast<size_t>(g.N));
  std::vector<int32_t> bias(static_cast<size_t>(g.N));
  for (auto& x : bias) x = static_cast<int32_t>(random.word());
  put_gemm(block, g);
  block.put(arg::alpha, bits(1.0f));
  namespace dtype = params::dtype;
  const uint32_t a_type = a_signed ? dtype::i8 : dtype::u8, b_type = b_signed ? dtype::i8 : dtype::u8;
  for (const uint32_t word : {arg::a, arg::a_zero}) block.types[word] = a_type;
  for (const uint32_t word : {arg::b, arg::b_zero}) block.types[word] = b_type;
  for (const uint32_t word : {arg::bias, arg::out}) block.types[word] = dtype::i32;
  std::array<uint32_t, kDims> origin{};
  origin[1] = tile_origin(g.m, static_cast<uint32_t>(random.in(0, static_cast<int>(tiles(g.m)) - 1)));
  origin[3] = tile_origin(g.n, static_cast<uint32_t>(random.in(0, static_cast<int>(tiles(g.n)) - 1)));
  const auto zero_point = [&](uint32_t ref, uint32_t axis_word, const std::vector<uint8_t>& zeros, int kind, const Dim& dim, int64_t at) {
    if (kind == 0) return;
    Axis axis = kind == 1 ? chunk_axis(1, 1) : chunk_axis(static_cast<int>(dim.extent), static_cast<int>(dim.tile));
    axis.stride = kind - 1;
    block.put(ref, block.append(1, kind == 1 ? std::vector<uint8_t>{zeros[0]} : cut(zeros, {axis}, {at})));
    block.axis(axis_word, axis);
  };
  for (uint32_t k = 0; k < block.setup.inner_steps; ++k) {
    const int64_t first = k * block.setup.k_tile;
    block.in[0].clear();
    block.in[1].clear();
    block.put(arg::a, block.append(0, cut(A, {g.a_m, g.a_k}, {origin[1], first})));
    block.put(arg::b, block.append(1, cut(B, {g.b_k, g.b_n}, {first, origin[3]})));
    zero_point(arg::a_zero, arg::a_zero_m, az, a_zeros, g.m, origin[1]);
    zero_point(arg::b_zero, arg::b_zero_n, bz, b_zeros, g.n, origin[3]);
    if (has_bias) {
      Axis axis = chunk_axis(g.N, static_cast<int>(g.n.tile));
      axis.stride = 1;
      block.put(arg::bias, block.append(1, cut(bias, {axis}, {origin[3]})));
      block.axis(arg::bias_n, axis);
    }
    block.run(*block.prepare(params::gemm::digest), origin, k);
  }
  for (uint32_t m = 0; m < g.m.tile; ++m) {
    for (uint32_t n = 0; n < g.n.tile; ++n) {
      const int32_t zero_a = a_zeros == 0 ? 0 : widened(az[a_zeros == 1 ? 0 : origin[1] + m], a_signed);
      const int32_t zero_b = b_zeros == 0 ? 0 : widened(bz[b_zeros == 1 ? 0 : origin[3] + n], b_signed);
      int64_t sum = has_bias ? bias[origin[3] + n] : 0;
      for (int k = 0; k < g.K; ++k) {
        sum += int64_t{widened(A[(origin[1] + m) * g.K + k], a_signed) - zero_a} * (widened(B[k * g.N + origin[3] + n], b_signed) - zero_b);
      }
      ASSERT_EQ(block.i32_out(m * g.n.tile + n), static_cast<int32_t>(static_cast<uint64_t>(sum))) << "m " << m << " n " << n;
    }
  }
}

TEST(Gemm, BytesAreExact) {
  on_every_level([] {
    for (uint32_t seed = 0; seed < sampled(300u) && !::testing::Test::HasFailure(); ++seed) {
      SCOPED_TRACE(seed);
      gemm_i8_case(seed);
    }
  });
}

// The matrix as panels of rows and columns: [panel of columns][panel of rows][rows][columns], the last ones not full.
std::vector<uint8_t> in_panels(const std::vector<uint8_t>& x, int rows, int columns, int high, int wide) {
  const int down = (rows + high - 1) / high;
  std::vector<uint8_t> panels(static_cast<size_t>((columns + wide - 1) / wide * down * high * wide));
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j)
      panels[static_cast<size_t>(((j / wide * down + i / high) * high + i % high) * wide + j % wide)] = x[static_cast<size_t>(i * columns + j)];
  return panels;
}

TEST(Gemm, PanelsOfBytesAreTheMatrixThatTheyArePartsOf) {
  on_every_level([] {
    for (uint32_t seed = 0; seed < sampled(200u) && !::testing::Test::HasFailure(); ++seed) {
      SCOPED_TRACE(seed);
      Random random(seed);
      const int high = random.in(1, 33), m = high * random.in(1, 4), n = random.in(1, 200), k = random.in(1, 190), deep = random.in(1, 80), wide = 16 * random.in(1, 6);
      const auto a = random_bytes(random, static_cast<size_t>(m * k)), b = random_bytes(random, static_cast<size_t>(k * n));
      const int of_k = (k + deep - 1) / deep;
      const auto a_panels = in_panels(a, m, k, high, deep), b_panels = in_panels(b, k, n, deep, wide);
      std::vector<int32_t> a_zero(static_cast<size_t>(m)), b_zero(static_cast<size_t>(n)), whole(static_cast<size_t>(m * n)), parts(whole.size(), -1);
      GemmI8 g{};
      g.a = a.data(), g.a_m = k, g.a_k = 1;
      g.b = b.data(), g.b_k = n, g.b_n = 1;
      g.c = whole.data(), g.c_m = n;
      g.m = m, g.n = n, g.k = k;
      g.a_signed = random.chance(50), g.b_signed = random.chance(50);
      g.a_zero = a_zero.data(), g.b_zero = b_zero.data();
      const bool same = random.chance(50);  // one zero point for all rows, and one for all columns
      for (auto& zero : a_zero) zero = same ? 3 : widened(static_cast<uint8_t>(random.in(0, 255)), g.a_signed);
      for (auto& zero : b_zero) zero = same ? 7 : widened(static_cast<uint8_t>(random.in(0, 255)), g.b_signed);
      simd().gemm_i8(g);
      g.c = parts.data();
      g.m_panel = high, g.k_panel = deep, g.n_panel = wide;
      g.a = a_panels.data(), g.a_m = deep, g.a_m_panel = high * deep, g.a_k_panel = m * deep;
      g.b = b_panels.data(), g.b_k = wide, g.b_k_panel = deep * wide, g.b_n_panel = of_k * deep * wide;
      simd().gemm_i8(g);
      EXPECT_EQ(whole, parts);
    }
  });
}

// Products of whole bytes whose sums wait in bytes: loaded, added to, shifted, rounded half to even, saturated.
void narrow_i8_case(uint32_t seed) {
  namespace arg = params::gemm;
  namespace dtype = params::dtype;
  Random random(seed);
  Block block;
  const GemmShape g = random_gemm(random, block);
  const auto A = random_bytes(random, static_cast<size_t>(g.M * g.K)), B = random_bytes(random, static_cast<size_t>(g.K * g.N));
  const int shift = random.chance(30) ? 0 : random.in(1, 14);
  put_gemm(block, g);
  block.put(arg::alpha, bits(1.0f));
  block.put(arg::narrow_sums, static_cast<uint32_t>(shift + 1));
  for (const uint32_t word : {arg::a, arg::b, arg::out}) block.types[word] = dtype::i8;
  std::array<uint32_t, kDims> origin{};
  origin[1] = tile_origin(g.m, static_cast<uint32_t>(random.in(0, static_cast<int>(tiles(g.m)) - 1)));
  origin[3] = tile_origin(g.n, static_cast<uint32_t>(random.in(0, static_cast<int>(tiles(g.n)) - 1)));
  std::vector<int64_t> wanted(static_cast<size_t>(g.m.tile * g.n.tile));
  for (uint32_t k = 0; k < block.setup.inner_steps; ++k) {
    const int64_t first = k * block.setup.k_tile;
    block.in[0].clear();
    block.in[1].clear();
    block.put(arg::a, block.append(0, cut(A, {g.a_m, g.a_k}, {origin[1], first})));
    block.put(arg::b, block.append(1, cut(B, {g.b_k, g.b_n}, {first, origin[3]})));
    block.run(*block.prepare(params::gemm::digest), origin, k);
    const int64_t end = std::min<int64_t>(g.K, first + block.setup.k_tile);
    for (uint32_t m = 0; m < g.m.tile; ++m) {
      for (uint32_t n = 0; n < g.n.tile; ++n) {
        int64_t& kept = wanted[m * g.n.tile + n];
        int64_t sum = kept * (1 << shift);
        for (int64_t i = first; i < end; ++i) sum += widened(A[(origin[1] + m) * g.K + i], true) * widened(B[i * g.N + origin[3] + n], true);
        kept = std::clamp<int64_t>(static_cast<int64_t>(std::nearbyint(static_cast<double>(sum) / (1 << shift))), -128, 127);
        ASSERT_EQ(static_cast<int8_t>(block.out[m * g.n.tile + n]), kept) << "step " << k << " m " << m << " n " << n;
      }
    }
  }
}

TEST(Gemm, SumsThatWaitInBytesAreRoundedAndSaturatedAfterEveryStep) {
  on_every_level([] {
    for (uint32_t seed = 0; seed < sampled(200u) && !::testing::Test::HasFailure(); ++seed) {
      SCOPED_TRACE(seed);
      narrow_i8_case(seed);
    }
  });
}

TEST(Gemm, EmptyReductionGivesBias) {
  namespace arg = params::gemm;
  on_every_level([] {
    Block block;
    block.setup.dims[0] = {3, 3};
    block.setup.dims[1] = {5, 5};
    block.reduction(0, 0);
    block.put(arg::dim_n, 1);
    for (const uint32_t word : {arg::a_m, arg::a_k, arg::b_k, arg::b_n}) block.axis(word, chunk_axis(0, 0));
    block.put(arg::alpha, bits(1.0f));
    block.put(arg::bias, block.append(0, std::vector<float>{4.0f}));
    block.axis(arg::bias_n, chunk_axis(1, 1));
    block.out.assign(60, 0xEE);
    block.run(*block.prepare(params::gemm::digest), {});
    for (size_t i = 0; i < 15; ++i) EXPECT_EQ(block.f32_out(i), 4.0f);
  });
}

TEST(Hostile, MatrixProducts) {
  run_hostile(gemm_f32_case);
  run_hostile(gemm_i8_case);
}

}  // namespace
}  // namespace onedispatch::kernels::testing
