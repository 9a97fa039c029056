// SPDX-License-Identifier: Apache-2.0
// Products with packed weights against scalar loops over whole tensors.
#include "test_kernels_support.h"

namespace onedispatch::kernels::testing {
namespace {

namespace nbits = params::gemm_nbits;
namespace d = params::dtype;

Axis laid(int64_t extent, int64_t chunk, int64_t stride) {
  Axis axis;
  axis.extent = extent;
  axis.chunk = chunk;
  axis.stride = stride;
  axis.a = 1;
  return axis;
}

std::vector<float> rounded(uint32_t dtype, const std::vector<float>& x, std::vector<uint16_t>& narrow) {
  narrow.resize(x.size());
  std::vector<float> back(x.size());
  simd().narrow(dtype, x.data(), narrow.data(), x.size());
  simd().widen(dtype, narrow.data(), back.data(), x.size());
  return back;
}

struct Weights {
  int N, blocks, block, bits;
  std::vector<uint8_t> levels, zeros;  // [blocks * block][N], [blocks][N]
  std::vector<float> scales, shifts;   // [blocks][N]; shifts: zero points that are floats

  double at(int k, int n, int zero_kind) const {
    const auto place = static_cast<size_t>(k / block * N + n);
    const double zero = zero_kind == 0 ? 1 << (bits - 1) : zero_kind == 1 ? zeros[place] : static_cast<double>(shifts[place]);
    return levels[static_cast<size_t>(k * N + n)] - zero;
  }
  // The chunk of so many blocks from `first` on, of `n` columns from `column` on: [block][byte][n].
  std::vector<uint8_t> chunk(int first, int count, int column, int n) const {
    std::vector<uint8_t> bytes;
    const int step = 8 / bits;
    for (int k = first * block; k < (first + count) * block; k += step) {
      for (int i = column; i < column + n; ++i) {
        uint32_t byte = 0;
        for (int j = 0; j < step && k + j < blocks * block; ++j) byte |= uint32_t{levels[static_cast<size_t>((k + j) * N + i)]} << (j * bits);
        bytes.push_back(static_cast<uint8_t>(byte));
      }
    }
    return bytes;
  }
  template <class T>
  std::vector<T> rows(const std::vector<T>& of, int first, int count, int column, int n) const {
    std::vector<T> found;
    for (int k = first; k < first + count; ++k) {
      for (int i = column; i < column + n; ++i) found.push_back(k < blocks ? of[static_cast<size_t>(k * N + i)] : T{});
    }
    return found;
  }
};

Weights random_weights(Random& random) {
  Weights w{};
  w.N = random.in(1, 40);
  w.blocks = random.in(1, 5);
  w.block = 16 << random.in(0, 2);
  w.bits = random.chance(50) ? 4 : 8;
  for (int i = 0; i < w.blocks * w.block * w.N; ++i) w.levels.push_back(static_cast<uint8_t>(random.in(0, (1 << w.bits) - 1)));
  for (int i = 0; i < w.blocks * w.N; ++i) {
    w.zeros.push_back(static_cast<uint8_t>(random.in(0, (1 << w.bits) - 1)));
    w.scales.push_back(random.value());
    w.shifts.push_back(random.value() * 5);
  }
  return w;
}

void nbits_case(uint32_t seed) {
  Random random(seed);
  Block block;
  Weights w = random_weights(random);
  const uint32_t dtypes[] = {d::f32, d::bf16, d::f16}, dtype = dtypes[random.in(0, 2)];
  const bool narrow = dtype != d::f32, has_bias = random.chance(50);
  const int zero_kind = random.in(0, 2), M = random.in(1, 20), K = w.blocks * w.block;
  const Dim m{static_cast<uint32_t>(M), static_cast<uint32_t>(random.in(1, M))};
  const Dim n{static_cast<uint32_t>(w.N), static_cast<uint32_t>(random.in(1, w.N))};
  const int tile_k = random.in(1, w.blocks), n_tile = static_cast<int>(n.tile);
  block.reduction(static_cast<uint32_t>(w.blocks), static_cast<uint32_t>(tile_k));
  block.setup.dims[1] = m;
  block.setup.dims[3] = n;
  std::vector<float> A = random.values(static_cast<size_t>(M * K));
  std::vector<uint16_t> halves, other;
  if (narrow) {
    A = rounded(dtype, A, halves);
    w.scales = rounded(dtype, w.scales, other);
    w.shifts = rounded(dtype, w.shifts, other);
  }
  const auto bias = random.values(static_cast<size_t>(w.N));
  const int whole = static_cast<int>(block.setup.inner_steps) * tile_k;  // blocks, the last step filled up
  const Axis a_m = laid(M, m.tile, tile_k * w.block), a_k = laid(w.blocks, tile_k, w.block), a_in = laid(w.block, w.block, 1);
  const Axis row_k = laid(whole, tile_k, n_tile), column = laid(w.N, n_tile, 1);
  const int64_t bytes = w.block * w.bits / 8;
  block.put(nbits::dim_m, 1);
  block.put(nbits::dim_n, 3);
  block.put(nbits::bits, static_cast<uint32_t>(w.bits));
  block.axis(nbits::a_m, a_m);
  block.axis(nbits::a_k, a_k);
  block.axis(nbits::a_block, a_in);
  block.axis(nbits::b_k, laid(whole, tile_k, bytes * n_tile));
  block.axis(nbits::b_bytes, laid(bytes, bytes, n_tile));
  block.axis(nbits::b_n, column);
  block.axis(nbits::scale_k, row_k);
  block.axis(nbits::scale_n, column);
  block.axis(nbits::zero_k, row_k);
  block.axis(nbits::zero_n, column);
  block.axis(nbits::bias_n, column);
  for (const uint32_t at : {nbits::a, nbits::scale, nbits::out}) block.types[at] = dtype;
  block.types[nbits::b] = d::u8;
  block.types[nbits::zero] = zero_kind == 1 ? d::u8 : dtype;
  block.out.assign((static_cast<size_t>(m.tile * n.tile) * (narrow ? 2 : 4) + 3) / 4 * 4, 0xEE);
  std::array<uint32_t, kDims> origin{};
  origin[1] = tile_origin(m, static_cast<uint32_t>(random.in(0, static_cast<int>(tiles(m)) - 1)));
  origin[3] = tile_origin(n, static_cast<uint32_t>(random.in(0, static_cast<int>(tiles(n)) - 1)));
  const int on = static_cast<int>(origin[3]);
  const auto floats = [&](uint32_t to, int place, const std::vector<float>& values) {
    std::vector<uint16_t> made;
    if (narrow) (void)rounded(dtype, values, made);
    block.put(to, narrow ? block.append(place, made) : block.append(place, values));
  };
  for (uint32_t k = 0; k < block.setup.inner_steps; ++k) {
    const int first = static_cast<int>(k) * tile_k;
    block.in[0].clear();
    block.in[1].clear();
    floats(nbits::a, 0, cut(A, {a_m, a_k, a_in}, {origin[1], first, 0}));
    block.put(nbits::b, block.append(1, w.chunk(first, std::min(tile_k, w.blocks - first), on, n_tile)));
    block.in[1].resize(static_cast<size_t>((tile_k * bytes * n_tile + 3) / 4 * 4));
    floats(nbits::scale, 1, w.rows(w.scales, first, tile_k, on, n_tile));
    if (zero_kind == 1) block.put(nbits::zero, block.append(1, w.rows(w.zeros, first, tile_k, on, n_tile)));
    if (zero_kind == 2) floats(nbits::zero, 1, w.rows(w.shifts, first, tile_k, on, n_tile));
    if (has_bias) block.put(nbits::bias, block.append(1, std::vector<float>(bias.begin() + on, bias.begin() + on + n_tile)));
    block.run(*block.prepare(nbits::digest), origin, k);
  }
  std::vector<float> got(m.tile * n.tile);
  simd().widen(dtype, block.out.data(), got.data(), got.size());
  for (uint32_t i = 0; i < m.tile; ++i) {
    for (uint32_t j = 0; j < n.tile; ++j) {
      double sum = has_bias ? bias[origin[3] + j] : 0.0f, size = std::abs(sum) + 1;
      for (int k = 0; k < K; ++k) {
        const int column_at = static_cast<int>(origin[3] + j);
        const auto scale = w.scales[static_cast<size_t>(k / w.block * w.N + column_at)];
        auto weight = static_cast<float>(w.at(k, column_at, zero_kind)) * scale;
        if (dtype == d::bf16) weight = rounded(dtype, {weight}, other)[0];
        const double product = static_cast<double>(A[(origin[1] + i) * static_cast<size_t>(K) + static_cast<size_t>(k)]) * weight;
        sum += product;
        size += std::abs(product);
      }
      const double last = dtype == d::f32 ? 0 : std::abs(sum) * (dtype == d::bf16 ? 0x1p-8 : 0x1p-11);
      expect_close(got[i * n.tile + j], sum, last + 1e-6 * size, "m " + std::to_string(i) + " n " + std::to_string(j));
    }
  }
}

TEST(GemmNbits, MatchesScalarLoop) {
  on_every_level([] {
    for (uint32_t seed = 0; seed < sampled(120u) && !::testing::Test::HasFailure(); ++seed) {
      SCOPED_TRACE(seed);
      nbits_case(seed);
    }
  });
}

TEST(GemmNbits, SurvivesHostileArguments) { run_hostile(nbits_case); }

}  // namespace
}  // namespace onedispatch::kernels::testing
