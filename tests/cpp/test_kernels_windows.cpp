// SPDX-License-Identifier: Apache-2.0
// Convolutions and pooling against scalar loops over whole tensors.
#include "test_kernels_support.h"

namespace onedispatch::kernels::testing {
namespace {

namespace act = params::activation;

struct WindowShape {
  int kh, kw, sh, sw, dh, dw, top, left, H, W, C;
  Dim c, oh, ow;
  Axis x_c, x_h, x_w;
};

// Where a kernel's dimensions, its first window scalar and the axes of x begin.
struct WindowWords {
  uint32_t dim, kh, x;
};

// Those words, the tile of index dims 1, 2, 3, and the chunk's axes.
WindowShape random_window(Random& random, Block& block, const WindowWords& at, bool reduced_channels) {
  WindowShape s{};
  int* const steps[] = {&s.kh, &s.kw, &s.sh, &s.sw, &s.dh, &s.dw};
  for (int* step : steps) *step = random.chance(40) ? 1 : random.in(1, 3);
  s.top = random.in(0, s.kh);
  s.left = random.in(0, s.kw);
  s.H = random.in(1, 12) + (s.kh - 1) * s.dh;
  s.W = random.in(1, 40) + (s.kw - 1) * s.dw;
  s.C = random.in(1, 9);
  const auto outputs = [&](int size, int taps, int stride, int step, int pad) {
    return static_cast<uint32_t>((size + pad + random.in(0, taps) - (taps - 1) * step - 1) / stride + 1);
  };
  const uint32_t rows = outputs(s.H, s.kh, s.sh, s.dh, s.top), columns = outputs(s.W, s.kw, s.sw, s.dw, s.left);
  s.oh = {rows, static_cast<uint32_t>(random.in(1, static_cast<int>(rows)))};
  s.ow = {columns, static_cast<uint32_t>(random.chance(50) ? static_cast<int>(columns) : random.in(1, static_cast<int>(columns)))};
  const int co = random.in(1, 20);
  s.c = {static_cast<uint32_t>(co), static_cast<uint32_t>(random.in(1, co))};
  const auto along = [&](int extent, const Dim& dim, int taps, int stride, int step, int pad) {
    const int align = random.chance(30) ? 4 : 1;
    const int span = (static_cast<int>(dim.tile) - 1) * stride + (taps - 1) * step + align;
    return chunk_axis(extent, std::min(extent, span), stride, -pad, align);
  };
  s.x_h = along(s.H, s.oh, s.kh, s.sh, s.dh, s.top);
  s.x_w = along(s.W, s.ow, s.kw, s.sw, s.dw, s.left);
  if (reduced_channels) {
    const int tile = random.in(1, s.C);
    block.reduction(static_cast<uint32_t>(s.C), static_cast<uint32_t>(tile));
    s.x_c = chunk_axis(s.C, tile);
  } else {
    s.C = co;
    s.x_c = chunk_axis(co, static_cast<int>(s.c.tile));
  }
  if (random.chance(70)) {
    lay_out({&s.x_w, &s.x_h, &s.x_c}, random, random.chance(20));
  } else {
    lay_out({&s.x_c, &s.x_w, &s.x_h}, random, false);
  }
  for (uint32_t i = 0; i < 3; ++i) block.put(at.dim + i, i + 1);
  for (uint32_t i = 0; i < 6; ++i) block.put(at.kh + i, static_cast<uint32_t>(*steps[i]));
  block.axis(at.x, s.x_c);
  block.axis(at.x + 5, s.x_h);
  block.axis(at.x + 10, s.x_w);
  block.setup.dims[1] = s.c;
  block.setup.dims[2] = s.oh;
  block.setup.dims[3] = s.ow;
  block.out.assign(static_cast<size_t>(s.c.tile * s.oh.tile * s.ow.tile) * 4, 0xEE);
  return s;
}

std::array<uint32_t, kDims> random_origin(Random& random, const Block& block) {
  std::array<uint32_t, kDims> origin{};
  for (size_t d = 0; d < kDims; ++d) {
    const Dim& dim = block.setup.dims[d];
    origin[d] = tile_origin(dim, static_cast<uint32_t>(random.in(0, static_cast<int>(tiles(dim)) - 1)));
  }
  return origin;
}

// Calls visit(tap, value) for the taps of one output and channel that are not padding.
template <class Visit>
void visit_window(const WindowShape& s, const std::vector<float>& X, int64_t c, int64_t oh, int64_t ow, Visit visit) {
  for (int y = 0; y < s.kh; ++y) {
    for (int x = 0; x < s.kw; ++x) {
      const int64_t h = oh * s.sh - s.top + y * s.dh, w = ow * s.sw - s.left + x * s.dw;
      if (h < 0 || w < 0 || h >= s.H || w >= s.W) continue;
      visit(y * s.kw + x, X[static_cast<size_t>((c * s.H + h) * s.W + w)]);
    }
  }
}

// The axes of w in a chunk [channel][tap][co], and of the bias.
void put_weights(Block& block, const WindowShape& s, int T, int taps) {
  namespace arg = params::conv;
  const int k_tile = static_cast<int>(block.setup.k_tile), steps = static_cast<int>(block.setup.inner_steps);
  Axis co = chunk_axis(static_cast<int>(s.c.extent), T), k = chunk_axis(steps * k_tile, k_tile), tap = chunk_axis(taps, taps);
  co.stride = 1;
  tap.stride = T;
  k.stride = taps * T;
  block.axis(arg::w_co, co);
  block.axis(arg::w_k, k);
  block.axis(arg::w_tap, tap);
  block.axis(arg::bias_co, co);
}

void conv_case(uint32_t seed) {
  namespace arg = params::conv;
  Random random(seed);
  Block block;
  const WindowShape s = random_window(random, block, {arg::dim_co, arg::kh, arg::x_k}, true);
  const int taps = s.kh * s.kw, T = static_cast<int>(s.c.tile), outputs = static_cast<int>(s.c.extent);
  const auto X = random.values(static_cast<size_t>(s.C * s.H * s.W)), W = random.values(static_cast<size_t>(outputs * s.C * taps));
  const auto bias = random.values(static_cast<size_t>(outputs));
  const auto origin = random_origin(random, block);
  const bool has_bias = random.chance(50);
  block.put(arg::act, act::relu_);
  put_weights(block, s, T, taps);
  for (uint32_t k = 0; k < block.setup.inner_steps; ++k) {
    const int64_t first = k * block.setup.k_tile;
    block.in[0].clear();
    block.in[1].clear();
    block.put(arg::x, block.append(0, cut(X, {s.x_c, s.x_h, s.x_w}, {first, origin[2], origin[3]})));
    std::vector<float> weights(block.setup.k_tile * static_cast<size_t>(taps * T), 0.0f);
    for (size_t row = 0; row < block.setup.k_tile * static_cast<size_t>(taps); ++row) {
      const auto channel = static_cast<size_t>(first) + row / static_cast<size_t>(taps);
      for (size_t co = 0; co < s.c.tile && channel < static_cast<size_t>(s.C); ++co) {
        weights[row * s.c.tile + co] = W[((origin[1] + co) * static_cast<size_t>(s.C) + channel) * static_cast<size_t>(taps) + row % static_cast<size_t>(taps)];
      }
    }
    block.put(arg::w, block.append(1, weights));
    if (has_bias) block.put(arg::bias, block.append(1, std::vector<float>(bias.begin() + origin[1], bias.begin() + origin[1] + T)));
    block.run(*block.prepare(params::conv::digest), origin, k);
  }
  size_t at = 0;
  for (uint32_t co = 0; co < s.c.tile; ++co) {
    for (uint32_t oh = 0; oh < s.oh.tile; ++oh) {
      for (uint32_t ow = 0; ow < s.ow.tile; ++ow, ++at) {
        double sum = has_bias ? bias[origin[1] + co] : 0.0f, size = 1;
        for (int c = 0; c < s.C; ++c) {
          visit_window(s, X, c, origin[2] + oh, origin[3] + ow, [&](int tap, float x) {
            const double product = double{x} * W[((origin[1] + co) * static_cast<size_t>(s.C) + static_cast<size_t>(c)) * static_cast<size_t>(taps) + static_cast<size_t>(tap)];
            sum += product;
            size += std::abs(product);
          });
        }
        expect_close(block.f32_out(at), std::max(sum, 0.0), 4e-7 * size, "output " + std::to_string(at));
      }
    }
  }
}

TEST(Conv, MatchesScalarLoop) {
  on_every_level([] {
    for (uint32_t seed = 0; seed < sampled(300u) && !::testing::Test::HasFailure(); ++seed) {
      SCOPED_TRACE(seed);
      conv_case(seed);
    }
  });
}

// Elements of x and out, and what is added to their sums.
struct Bytes {
  using Element = uint8_t;
  using Bias = int32_t;
  static constexpr uint32_t kElement = params::dtype::u8, kBias = params::dtype::i32;
};
struct Halves {
  using Element = uint16_t;
  using Bias = int64_t;
  static constexpr uint32_t kElement = params::dtype::u16, kBias = params::dtype::i64;
};

// Around x lies what it has for its zero, and the bias is as long as the sums, which have 64 bits where x has 16. What
// bytes become may be looked up.
template <class Type>
void integer_conv_case(uint32_t seed) {
  namespace arg = params::conv;
  namespace d = params::dtype;
  using Element = typename Type::Element;
  constexpr int kHighest = std::numeric_limits<Element>::max();
  Random random(seed);
  Block block;
  const WindowShape s = random_window(random, block, {arg::dim_co, arg::kh, arg::x_k}, true);
  const int taps = s.kh * s.kw, T = static_cast<int>(s.c.tile), outputs = static_cast<int>(s.c.extent), k_tile = static_cast<int>(block.setup.k_tile);
  std::vector<Element> X(static_cast<size_t>(s.C * s.H * s.W));
  std::vector<int8_t> W(static_cast<size_t>(outputs * s.C * taps));
  std::vector<typename Type::Bias> bias(static_cast<size_t>(T));
  std::vector<float> scales(static_cast<size_t>(T));
  for (Element& x : X) x = static_cast<Element>(random.chance(30) ? kHighest : static_cast<int>(random.word()));
  for (int8_t& w : W) w = static_cast<int8_t>(random.chance(30) ? -128 : random.in(-128, 127));
  for (auto& b : bias) b = sizeof b == 8 ? int64_t{static_cast<int32_t>(random.word())} * random.in(0, 16) : random.in(-70000, 70000);
  for (float& scale : scales) scale = std::ldexp(1.0f + std::abs(random.value()), -random.in(8, 24));
  const auto origin = random_origin(random, block);
  const int pad = random.in(0, kHighest);
  std::vector<uint8_t> table(sizeof(Element) == 1 && random.chance(50) ? 256 : 0);
  for (uint8_t& entry : table) entry = static_cast<uint8_t>(random.word());
  Axis entries = chunk_axis(256, 256);
  entries.stride = 1;
  block.axis(arg::table_entries, entries);
  Axis co = chunk_axis(outputs, T), k = chunk_axis(static_cast<int>(block.setup.inner_steps) * k_tile, k_tile), tap = chunk_axis(taps, taps);
  tap.stride = 1;
  k.stride = taps;
  co.stride = 1;
  for (const uint32_t word : {arg::bias_co, arg::scale_co}) block.axis(word, co);
  co.stride = ptrdiff_t{k_tile} * taps;
  block.axis(arg::w_co, co);
  block.axis(arg::w_k, k);
  block.axis(arg::w_tap, tap);
  block.types = {{arg::x, Type::kElement}, {arg::w, d::i8}, {arg::bias, Type::kBias}, {arg::out, Type::kElement}, {arg::table, d::u8}};
  block.put(arg::pad, static_cast<uint32_t>(pad));
  const auto elements = s.c.tile * s.oh.tile * s.ow.tile;
  block.out.assign((elements * sizeof(Element) + 3) / 4 * 4, 0xEE);
  const auto weight = [&](size_t output, int c, int t) { return W[(output * static_cast<size_t>(s.C) + static_cast<size_t>(c)) * static_cast<size_t>(taps) + static_cast<size_t>(t)]; };
  for (uint32_t step = 0; step < block.setup.inner_steps; ++step) {
    const int first = static_cast<int>(step) * k_tile;
    block.in[0].clear();
    block.in[1].clear();
    block.put(arg::x, block.append(0, cut(X, {s.x_c, s.x_h, s.x_w}, {first, origin[2], origin[3]})));
    std::vector<int8_t> weights;
    for (uint32_t o = 0; o < s.c.tile; ++o) {
      for (int c = first; c < first + k_tile; ++c) {
        for (int t = 0; t < taps; ++t) weights.push_back(c < s.C ? weight(origin[1] + o, c, t) : int8_t{77});
      }
    }
    block.put(arg::w, block.append(1, weights));
    block.put(arg::bias, block.append(1, bias));
    block.put(arg::scale, block.append(1, scales));
    if (!table.empty()) block.put(arg::table, block.append(1, table));
    block.run(*block.prepare(params::conv::digest), origin, step);
  }
  size_t at = 0;
  for (uint32_t o = 0; o < s.c.tile; ++o) {
    for (uint32_t oh = 0; oh < s.oh.tile; ++oh) {
      for (uint32_t ow = 0; ow < s.ow.tile; ++ow, ++at) {
        int64_t sum = bias[o];
        for (int c = 0; c < s.C; ++c) {
          for (int t = 0; t < taps; ++t) {
            const int64_t h = int64_t{origin[2] + oh} * s.sh - s.top + t / s.kw * s.dh, w = int64_t{origin[3] + ow} * s.sw - s.left + t % s.kw * s.dw;
            const bool inside = h >= 0 && w >= 0 && h < s.H && w < s.W;
            sum += int64_t{weight(origin[1] + o, c, t)} * (inside ? X[static_cast<size_t>((c * s.H + h) * s.W + w)] : pad);
          }
        }
        auto want = static_cast<Element>(std::clamp<double>(std::nearbyint(static_cast<float>(sum) * scales[o]), 0, kHighest));
        if (!table.empty()) want = table[want];
        Element got;
        std::memcpy(&got, block.out.data() + at * sizeof got, sizeof got);
        ASSERT_EQ(got, want) << "output " << at << " of sum " << sum;
      }
    }
  }
}

TEST(Conv, SumsOf64BitsAreExact) {
  on_every_level([] {
    for (uint32_t seed = 0; seed < sampled(200u) && !::testing::Test::HasFailure(); ++seed) {
      SCOPED_TRACE(seed);
      integer_conv_case<Halves>(seed);
    }
  });
}

TEST(Conv, SumsOfBytesAreExactAndLookedUp) {
  on_every_level([] {
    for (uint32_t seed = 0; seed < sampled(200u) && !::testing::Test::HasFailure(); ++seed) {
      SCOPED_TRACE(seed);
      integer_conv_case<Bytes>(seed);
    }
  });
}

void depthwise_case(uint32_t seed) {
  namespace arg = params::dwconv;
  Random random(seed);
  Block block;
  const WindowShape s = random_window(random, block, {arg::dim_c, arg::kh, arg::x_c}, false);
  const auto taps = static_cast<size_t>(s.kh * s.kw);
  const auto X = random.values(static_cast<size_t>(s.C * s.H * s.W));
  const auto weights = random.values(s.c.tile * taps), bias = random.values(s.c.tile);
  const auto origin = random_origin(random, block);
  block.put(arg::x, block.append(0, cut(X, {s.x_c, s.x_h, s.x_w}, {origin[1], origin[2], origin[3]})));
  block.put(arg::w, block.append(1, weights));
  block.put(arg::bias, block.append(1, bias));
  Axis c = chunk_axis(static_cast<int>(s.c.extent), static_cast<int>(s.c.tile)), tap = chunk_axis(static_cast<int>(taps), static_cast<int>(taps));
  c.stride = tap.stride = 1;
  block.axis(arg::bias_c, c);
  c.stride = static_cast<int64_t>(taps);
  block.axis(arg::w_c, c);
  block.axis(arg::w_tap, tap);
  block.run(*block.prepare(params::dwconv::digest), origin);
  size_t at = 0;
  for (uint32_t c = 0; c < s.c.tile; ++c) {
    for (uint32_t oh = 0; oh < s.oh.tile; ++oh) {
      for (uint32_t ow = 0; ow < s.ow.tile; ++ow, ++at) {
        double sum = bias[c], size = 2;
        visit_window(s, X, origin[1] + c, origin[2] + oh, origin[3] + ow, [&](int tap, float x) {
          sum += double{x} * weights[c * taps + static_cast<size_t>(tap)];
          size += std::abs(double{x} * weights[c * taps + static_cast<size_t>(tap)]);
        });
        expect_close(block.f32_out(at), sum, 4e-7 * size, "output " + std::to_string(at));
      }
    }
  }
}

TEST(DepthwiseConv, MatchesScalarLoop) {
  on_every_level([] {
    for (uint32_t seed = 0; seed < sampled(200u) && !::testing::Test::HasFailure(); ++seed) {
      SCOPED_TRACE(seed);
      depthwise_case(seed);
    }
  });
}

void pool_case(uint32_t seed) {
  namespace arg = params::pool;
  Random random(seed);
  Block block;
  const WindowShape s = random_window(random, block, {arg::dim_c, arg::kh, arg::x_c}, false);
  auto X = random.values(static_cast<size_t>(s.C * s.H * s.W));
  if (random.chance(30)) X[static_cast<size_t>(random.in(0, static_cast<int>(X.size()) - 1))] = kNan;
  if (random.chance(30)) X[static_cast<size_t>(random.in(0, static_cast<int>(X.size()) - 1))] = -kInfinity;
  const auto origin = random_origin(random, block);
  const auto mode = static_cast<uint32_t>(random.in(0, 2));
  const int bottom = random.in(0, 2), right = random.in(0, 2);
  const int pads[] = {s.top, s.left, bottom, right};
  block.put(arg::mode, mode);
  for (uint32_t i = 0; i < 4; ++i) block.put(arg::pad_top + i, static_cast<uint32_t>(pads[i]));
  block.put(arg::x, block.append(0, cut(X, {s.x_c, s.x_h, s.x_w}, {origin[1], origin[2], origin[3]})));
  block.run(*block.prepare(params::pool::digest), origin);
  size_t at = 0;
  for (uint32_t c = 0; c < s.c.tile; ++c) {
    for (uint32_t oh = 0; oh < s.oh.tile; ++oh) {
      for (uint32_t ow = 0; ow < s.ow.tile; ++ow, ++at) {
        float top = -kInfinity;
        double sum = 0;
        int inside = 0, counted = 0;
        visit_window(s, X, origin[1] + c, origin[2] + oh, origin[3] + ow, [&](int, float x) {
          if (inside == 0 || x > top) top = x;  // a NaN stays where it leads
          sum += x;
          ++inside;
        });
        for (int y = 0; y < s.kh; ++y) {
          for (int x = 0; x < s.kw; ++x) {
            const int64_t h = int64_t{origin[2] + oh} * s.sh - s.top + y * s.dh, w = int64_t{origin[3] + ow} * s.sw - s.left + x * s.dw;
            counted += h < s.H + bottom && w < s.W + right;
          }
        }
        const double want = mode == 0 ? top : sum / (mode == 1 ? inside : counted);
        expect_close(block.f32_out(at), want, mode == 0 ? 0 : 2e-6, "output " + std::to_string(at));
      }
    }
  }
}

TEST(Pool, MatchesScalarLoop) {
  on_every_level([] {
    for (uint32_t seed = 0; seed < sampled(400u) && !::testing::Test::HasFailure(); ++seed) {
      SCOPED_TRACE(seed);
      pool_case(seed);
    }
  });
}

TEST(Hostile, Windows) {
  run_hostile(conv_case);
  run_hostile(integer_conv_case<Bytes>);
  run_hostile(depthwise_case);
  run_hostile(pool_case);
}

}  // namespace
}  // namespace onedispatch::kernels::testing
