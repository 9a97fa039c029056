// SPDX-License-Identifier: Apache-2.0
// Kernels over element types other than f32, against scalar loops; and with hostile parameters.
#include "onedispatch/kernel_tables.h"
#include "test_kernels_support.h"

namespace onedispatch::kernels::testing {
namespace {

namespace d = params::dtype;

constexpr uint32_t kNarrow[] = {d::bf16, d::f16, d::i8, d::u8, d::i16, d::u16, d::i32, d::u32};

bool is_short_float(uint32_t dtype) { return dtype == d::bf16 || dtype == d::f16; }
uint32_t bytes_of(uint32_t dtype) { return od_dtypes[dtype].bytes; }

struct Range {
  int64_t low, high;
};
Range range_of(uint32_t dtype) {
  const int64_t top = int64_t{1} << (8 * bytes_of(dtype));
  const bool is_signed = dtype == d::i8 || dtype == d::i16 || dtype == d::i32;
  return is_signed ? Range{-top / 2, top / 2 - 1} : Range{0, top - 1};
}

// A tensor of any type: its elements, and their values.
struct Typed {
  uint32_t dtype;
  std::vector<uint8_t> bytes;
  std::vector<double> values;

  Typed(Random& random, uint32_t type, size_t n) : dtype(type), bytes(n * bytes_of(type)), values(n) {
    if (is_short_float(type)) {
      std::vector<float> wide = random.values(n);
      simd().narrow(type, wide.data(), bytes.data(), n);
      simd().widen(type, bytes.data(), wide.data(), n);
      std::copy(wide.begin(), wide.end(), values.begin());
      return;
    }
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.word());
    for (size_t i = 0; i < n; ++i) values[i] = read(bytes, type, i);
  }
  static double read(const std::vector<uint8_t>& from, uint32_t type, size_t i) {
    uint32_t word = 0;
    std::memcpy(&word, from.data() + i * bytes_of(type), bytes_of(type));
    if (is_short_float(type)) {
      float value;
      simd().widen(type, &word, &value, 1);
      return value;
    }
    const auto value = static_cast<int64_t>(word);
    return static_cast<double>(value > range_of(type).high ? value - (int64_t{1} << (8 * bytes_of(type))) : value);
  }
};

// What is left of a sum or product in 32 bits, saturated to the result's type.
double kept(uint32_t dtype, uint32_t word) {
  const Range range = range_of(dtype);
  const int64_t value = dtype == d::u32 ? int64_t{word} : int64_t{static_cast<int32_t>(word)};
  return static_cast<double>(std::clamp(value, range.low, range.high));
}

double reduced(uint32_t mode, uint32_t dtype, const std::vector<double>& x) {
  namespace m = params::reduce_mode;
  if (mode == m::max_) return *std::max_element(x.begin(), x.end());
  if (mode == m::min_) return *std::min_element(x.begin(), x.end());
  double sum = mode == m::prod_ ? 1 : 0;
  uint32_t wrapped = mode == m::prod_ ? 1 : 0;
  for (const double v : x) {
    if (mode == m::sum_abs_) {
      sum += std::abs(v), wrapped += static_cast<uint32_t>(static_cast<int64_t>(std::abs(v)));
      continue;
    }
    const auto word = static_cast<uint32_t>(static_cast<int64_t>(v));
    sum = mode == m::prod_ ? sum * v : sum + (mode == m::sum_square_ ? v * v : v);
    wrapped = mode == m::prod_ ? wrapped * word : wrapped + (mode == m::sum_square_ ? word * word : word);
  }
  if (is_short_float(dtype)) return mode == m::mean_ ? sum / static_cast<double>(x.size()) : sum;
  if (mode != m::mean_) return kept(dtype, wrapped);
  const int64_t total = dtype == d::u32 ? int64_t{wrapped} : int64_t{static_cast<int32_t>(wrapped)};
  return kept(dtype, static_cast<uint32_t>(total / static_cast<int64_t>(x.size())));
}

void typed_reduce_case(uint32_t seed) {
  namespace arg = params::reduce;
  Random random(seed);
  Block block;
  const uint32_t dtype = kNarrow[random.in(0, 7)], mode = static_cast<uint32_t>(random.in(0, 6));
  const int R = random.in(1, 5), K = random.in(1, 40), I = random.chance(40) ? 1 : random.in(1, 40);
  block.reduction(static_cast<uint32_t>(K), static_cast<uint32_t>(random.in(1, K)));
  block.setup.dims[0] = {static_cast<uint32_t>(R), static_cast<uint32_t>(R)};
  block.setup.dims[4] = {static_cast<uint32_t>(I), static_cast<uint32_t>(I)};
  Axis r, k, i;
  r.extent = r.chunk = R, k.extent = k.chunk = K, i.extent = i.chunk = I;
  r.a = k.a = i.a = 1;
  std::vector<Axis*> order{&i, &k, &r};
  std::shuffle(order.begin(), order.end(), std::mt19937(seed));
  int64_t stride = 1;
  for (Axis* axis : order) axis->stride = stride, stride *= axis->chunk;
  const Typed x(random, dtype, static_cast<size_t>(R * K * I));
  block.types = {{arg::x, dtype}, {arg::out, dtype}};
  block.put(arg::mode, named(od_reduce_mode[mode], mode));
  block.put(arg::dim_i, 4);
  block.axis(arg::x_r, r);
  block.axis(arg::x_k, k);
  block.axis(arg::x_i, i);
  block.put(arg::x, block.append(0, x.bytes));
  block.out.assign((static_cast<size_t>(R * I) * bytes_of(dtype) + 3) / 4 * 4, 0xEE);
  block.run_steps(*block.prepare(arg::digest), {});
  for (int a = 0; a < R; ++a) {
    for (int b = 0; b < I; ++b) {
      std::vector<double> line;
      for (int n = 0; n < K; ++n) line.push_back(x.values[static_cast<size_t>(a * r.stride + n * k.stride + b * i.stride)]);
      const double want = reduced(mode, dtype, line), got = Typed::read(block.out, dtype, static_cast<size_t>(a * I + b));
      if (!is_short_float(dtype)) {
        EXPECT_EQ(got, want) << "type " << dtype << ", mode " << mode;
        continue;
      }
      const double unit = dtype == d::bf16 ? 1.0 / 256 : 1.0 / 2048, tiny = dtype == d::f16 ? 1e-7 : 1e-30;
      expect_close(static_cast<float>(got), want, std::abs(want) * unit + 1e-6 * K + tiny, "type " + std::to_string(dtype) + ", mode " + std::to_string(mode));
    }
  }
}

void typed_pool_case(uint32_t seed) {
  namespace arg = params::pool;
  Random random(seed);
  Block block;
  const uint32_t dtype = kNarrow[random.in(0, 7)];
  const int C = random.in(1, 3), kh = random.in(1, 3), kw = random.in(1, 3), sh = random.in(1, 3), sw = random.in(1, 3);
  const int rows = random.in(1, 6), columns = random.in(1, 20), pad = random.in(0, 1);
  const int H = std::max(1, (rows - 1) * sh + kh - 2 * pad), W = std::max(1, (columns - 1) * sw + kw - 2 * pad);
  const int pitch = W + random.in(0, 3);  // what a row has beyond its width only fills up words
  const Typed x(random, dtype, static_cast<size_t>(C * H * pitch));
  const auto axis = [&](int extent, int stride, int a, int b) {
    Axis made;
    made.extent = made.chunk = extent, made.stride = stride, made.a = a, made.b = b;
    return made;
  };
  block.setup.dims[0] = {static_cast<uint32_t>(C), static_cast<uint32_t>(C)};
  block.setup.dims[1] = {static_cast<uint32_t>(rows), static_cast<uint32_t>(rows)};
  block.setup.dims[2] = {static_cast<uint32_t>(columns), static_cast<uint32_t>(columns)};
  for (uint32_t dim = 0; dim < 3; ++dim) block.put(arg::dim_c + dim, dim);
  const int steps[] = {kh, kw, sh, sw, 1, 1, W};
  for (uint32_t s = 0; s < 7; ++s) block.put(arg::kh + s, static_cast<uint32_t>(steps[s]));
  block.types = {{arg::x, dtype}, {arg::out, dtype}};
  block.axis(arg::x_c, axis(C, H * pitch, 1, 0));
  block.axis(arg::x_oh, axis(H, pitch, sh, -pad));
  block.axis(arg::x_ow, axis(pitch, 1, sw, -pad));
  block.put(arg::x, block.append(0, x.bytes));
  block.out.assign((static_cast<size_t>(C * rows * columns) * bytes_of(dtype) + 3) / 4 * 4, 0xEE);
  block.run(*block.prepare(arg::digest), {});
  for (int at = 0; at < C * rows * columns; ++at) {
    const int c = at / (rows * columns), oh = at / columns % rows, ow = at % columns;
    double want = is_short_float(dtype) ? -static_cast<double>(kInfinity) : static_cast<double>(range_of(dtype).low);
    for (int y = oh * sh - pad; y < oh * sh - pad + kh; ++y) {
      for (int z = ow * sw - pad; z < ow * sw - pad + kw; ++z) {
        if (y >= 0 && y < H && z >= 0 && z < W) want = std::max(want, x.values[static_cast<size_t>((c * H + y) * pitch + z)]);
      }
    }
    EXPECT_EQ(Typed::read(block.out, dtype, static_cast<size_t>(at)), want) << "type " << dtype << " at " << at;
  }
}

void requantised_case(uint32_t seed) {
  namespace arg = params::gemm;
  Random random(seed);
  Block block;
  constexpr uint32_t kNarrow[] = {d::i8, d::u8, d::i16, d::u16};
  const bool wide = random.chance(50);
  const uint32_t a_type = wide ? kNarrow[random.in(2, 3)] : kNarrow[random.in(0, 1)];
  const uint32_t b_type = kNarrow[random.in(0, wide ? 3 : 1)];
  const uint32_t out = !wide && random.chance(30) ? d::i32 : kNarrow[random.in(0, wide ? 3 : 2)];
  const int M = random.in(1, 9), N = random.in(1, 40), K = random.in(1, 40);
  const bool per_column = random.chance(50), transposed = random.chance(50);
  const Typed a(random, a_type, static_cast<size_t>(M * K)), b(random, b_type, static_cast<size_t>(K * N));
  std::vector<float> scales(static_cast<size_t>(per_column ? N : 1));
  for (float& scale : scales) scale = std::ldexp(1.0f + std::abs(random.value()), !wide ? -12 : bytes_of(b_type) == 2 ? -28 : -20);
  const int zero = random.in(0, 100);
  block.reduction(static_cast<uint32_t>(K), static_cast<uint32_t>(random.in(1, K)));
  block.setup.dims[0] = {static_cast<uint32_t>(M), static_cast<uint32_t>(M)};
  block.setup.dims[1] = {static_cast<uint32_t>(N), static_cast<uint32_t>(N)};
  const auto axis = [&](int extent, int stride) {
    Axis made;
    made.extent = made.chunk = extent, made.stride = stride, made.a = 1;
    return made;
  };
  block.types = {{arg::a, a_type}, {arg::b, b_type}, {arg::out, out}};
  block.put(arg::dim_m, 0);
  block.put(arg::dim_n, 1);
  block.put(arg::a, block.append(0, a.bytes));
  block.axis(arg::a_m, axis(M, K));
  block.axis(arg::a_k, axis(K, 1));
  block.put(arg::b, block.append(1, b.bytes));
  block.axis(arg::b_k, axis(K, transposed ? 1 : N));
  block.axis(arg::b_n, axis(N, transposed ? K : 1));
  block.put(arg::scale, block.append(1, scales));
  block.axis(arg::scale_n, axis(per_column ? N : 1, per_column ? 1 : 0));
  block.put(arg::alpha, bits(1.0f));
  block.types[arg::out_zero] = out;
  std::vector<uint8_t> zero_bytes(4);
  std::memcpy(zero_bytes.data(), &zero, bytes_of(out));
  block.put(arg::out_zero, block.append(1, zero_bytes));
  block.axis(arg::out_zero_n, axis(1, 0));
  block.out.assign((static_cast<size_t>(M * N) * bytes_of(out) + 3) / 4 * 4, 0xEE);
  block.run_steps(*block.prepare(arg::digest), {});
  const Range range = range_of(out);
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; ++n) {
      double sum = 0;
      for (int k = 0; k < K; ++k) sum += a.values[static_cast<size_t>(m * K + k)] * b.values[static_cast<size_t>(transposed ? n * K + k : k * N + n)];
      const float scaled = (wide ? static_cast<float>(sum) : static_cast<float>(static_cast<int32_t>(sum))) * scales[per_column ? static_cast<size_t>(n) : 0];
      const double want = std::clamp(std::nearbyint(scaled) + static_cast<double>(zero), static_cast<double>(range.low), static_cast<double>(range.high));
      EXPECT_EQ(Typed::read(block.out, out, static_cast<size_t>(m * N + n)), want) << a_type << " x " << b_type << " -> " << out;
    }
  }
}

void on_every_seed(void (*one_case)(uint32_t)) {
  on_every_level([&] {
    for (uint32_t seed = 0; seed < 150; ++seed) {
      SCOPED_TRACE(seed);
      one_case(seed);
      if (::testing::Test::HasFailure()) return;
    }
  });
}

TEST(KernelTypes, ReductionsMatchScalarLoops) { on_every_seed(typed_reduce_case); }
TEST(KernelTypes, WindowsMatchScalarLoops) { on_every_seed(typed_pool_case); }
TEST(KernelTypes, ScaledProductsMatchScalarLoops) { on_every_seed(requantised_case); }

TEST(Hostile, TypedReductions) { run_hostile(typed_reduce_case); }
TEST(Hostile, TypedWindows) { run_hostile(typed_pool_case); }
TEST(Hostile, TypedProducts) { run_hostile(requantised_case); }

TEST(KernelTypes, ThatDoNotGoTogetherAreRefused) {
  namespace arg = params::reduce;
  Block block;
  block.reduction(1, 1);
  block.types = {{arg::x, d::f32}, {arg::out, d::i32}};
  block.put(arg::dim_i, 1);
  Axis axis;
  axis.a = 1;
  for (const uint32_t word : {arg::x_r, arg::x_k, arg::x_i}) block.axis(word, axis);
  block.put(arg::x, block.append(0, std::vector<float>{1}));
  block.out.assign(4, 0);
  try {
    block.prepare(arg::digest);
    FAIL() << "float32 was reduced to int32";
  } catch (const ProgramError& error) {
    EXPECT_NE(error.what.find("element types (bits 16..23) of the operands together"), std::string::npos) << error.what;
  }
}

}  // namespace
}  // namespace onedispatch::kernels::testing
