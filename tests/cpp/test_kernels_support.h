// SPDX-License-Identifier: Apache-2.0
// One kernel call in a test: a parameter block under construction, chunks of exactly their size (so
// that an address sanitizer sees every step too far), and tensors that the chunks are cut from.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "../../cpp_ext/src/kernels/kernel.h"
#include "../../cpp_ext/src/kernels/simd/simd.h"
#include "../../cpp_ext/src/program/cost.h"
#include "../../cpp_ext/src/program/operation.h"
#include "onedispatch/kernel_library.h"
#include "sampled.h"

namespace onedispatch::kernels::testing {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Runs `body` once per SIMD level that this machine has.
inline void on_every_level(const std::function<void()>& body) {
  for (const char* level : kSimdLevels) {
    if (!use_simd(level)) continue;
    SCOPED_TRACE(level);
    body();
  }
}

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  int in(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }
  bool chance(int percent) { return in(1, 100) <= percent; }
  float value() { return std::uniform_real_distribution<float>(-2, 2)(engine_); }
  std::vector<float> values(size_t n) {
    std::vector<float> v(n);
    for (float& x : v) x = value();
    return v;
  }
  uint32_t word() { return static_cast<uint32_t>(engine_()); }

 private:
  std::mt19937 engine_;
};

inline uint32_t bits(float x) {
  uint32_t word;
  std::memcpy(&word, &x, 4);
  return word;
}
// What a block calls row `code` of a table by: its mark stands above the code.
inline uint32_t named(const od_function_spec& row, uint32_t code) {
  return code | row.digest >> OD_MARK_SHIFT << OD_MARK_SHIFT;
}
inline uint32_t port(uint32_t number, uint32_t offset) { return number << 24 | offset; }

struct Block : Operation {
  std::array<uint32_t, params::kWords> words{};
  std::vector<uint8_t> in[2];
  std::vector<uint8_t> out, scratch;
  uint32_t digest = 0;
  std::set<uint32_t> given;  // words that the case put
  std::map<uint32_t, uint32_t> types;  // of operands that are not f32, by their words
  static inline int mutations = 0;  // hostile variants of every call, see run_mutated

  void put(uint32_t at, uint32_t value) {
    words[at] = value;
    given.insert(at);
  }
  void axis(uint32_t at, const Axis& a) {
    words[at] = static_cast<uint32_t>(a.extent);
    words[at + 1] = static_cast<uint32_t>(a.chunk);
    words[at + 2] = static_cast<uint32_t>(a.stride);
    words[at + 3] = static_cast<uint32_t>(a.a | a.den << 16 | a.align << 24);
    words[at + 4] = static_cast<uint32_t>(a.b);
  }
  void reduction(uint32_t extent, uint32_t tile) {
    setup.k_extent = extent;
    setup.k_tile = tile;
    setup.inner_steps = extent == 0 ? 1 : (extent + tile - 1) / tile;
  }
  template <class T>
  uint32_t append(uint32_t port_number, const std::vector<T>& data) {  // returns its PortRef
    auto& to = in[port_number];
    const size_t at = to.size();
    to.resize(at + (data.size() * sizeof(T) + 3) / 4 * 4);
    if (!data.empty()) std::memcpy(to.data() + at, data.data(), data.size() * sizeof(T));
    return port(port_number, static_cast<uint32_t>(at));
  }
  // Inputs that the case did not put are absent.
  void complete(const od_kernel_spec& spec) {
    for (uint32_t i = 0; i < spec.n_operands; ++i) {
      const od_operand_spec& operand = spec.operands[i];
      if (operand.role != OD_ROLE_OUTPUT) {
        if (given.count(operand.at) == 0) words[operand.at] = params::kAbsent;
        continue;
      }
      if (given.count(operand.at) == 0) words[operand.at] = port(kOutPort, 0);
    }
    for (const auto& [at, type] : types) {
      if (words[at] != params::kAbsent) words[at] |= type << params::kDtypeShift;
    }
  }
  std::unique_ptr<const Plan> prepare(uint32_t kernel) {
    digest = kernel;
    complete(*registry().find(kernel)->spec);
    return prepare_as_is();
  }
  std::unique_ptr<const Plan> prepare_as_is() {
    const KernelPtr kernel = registry().find(digest);
    setup.words = words.data();
    setup.spec = kernel->spec;
    for (size_t i = 0; i < 2; ++i) chunk_bytes[i] = static_cast<uint32_t>(in[i].size());
    chunk_bytes[kOutPort] = static_cast<uint32_t>(out.size());
    read_operation(*this);
    words[params::header::scratch] = params::kCoreViewMemory + 4 * kernel->spec->block_words;
    read_scratch(*this, constants(), kCoreMemoryBytes);
    scratch.resize(setup.scratch_bytes, 0xEE);
    return std::make_unique<const Plan>(kernel, setup);
  }
  void place(od_call& call) {
    bind_operands(*this, {in[0].data(), in[1].data(), out.data()}, call);
    call.scratch = scratch.empty() ? nullptr : scratch.data();
  }
  // Step `k` of the tile at `origin`, with fresh copies of the chunks.
  void run(const Plan& plan, const std::array<uint32_t, kDims>& origin, uint32_t k = 0) {
    od_call call{};
    std::copy(origin.begin(), origin.end(), call.origin);
    call.k_index = k;
    call.k_first = k * setup.k_tile;
    call.k_count = std::min(setup.k_tile, setup.k_extent - std::min(call.k_first, setup.k_extent));
    call.k_last = k + 1 == setup.inner_steps ? 1 : 0;
    place(call);
    plan.check(call);
    EXPECT_GT(cycles(call), 0u);
    plan.run(call);
    for (int i = 0; i < mutations; ++i) run_mutated(call, static_cast<uint32_t>(i));
  }
  void run_steps(const Plan& plan, const std::array<uint32_t, kDims>& origin) {
    for (uint32_t k = 0; k < setup.inner_steps; ++k) run(plan, origin, k);
  }
  static const Constants& constants() {
    static const Constants npu2(find_device("npu2"));
    return npu2;
  }
  uint64_t cycles(const od_call& call) const { return call_cycles(setup, constants(), call.k_count, call.k_last != 0); }
  // The same call with some argument words replaced: it must be refused or stay inside its chunks,
  // which are exactly as large as they say (the sanitizer build watches).
  void run_mutated(od_call call, uint32_t seed) const {
    Block other = *this;
    Random random(seed * 977 + words[45] + words[61]);
    const uint32_t values[] = {0, 1, 2, 3, 5, 16, 17, 64, 255, 4096, 65535, 65536, 0x00010001, 0x00040002,
                               0x7FFFFFFF, 0x80000000, 0xFFFFFFF0, 0xFFFFFFFE, params::kAbsent, 0x01000000, 0x01000004};
    const int changes = random.in(1, 3);
    for (int i = 0; i < changes; ++i) {
      const auto at = static_cast<size_t>(random.in(static_cast<int>(params::kArgsAt), static_cast<int>(setup.spec->words) - 1));
      other.words[at] = random.chance(50) ? values[random.in(0, 20)] : words[at] + static_cast<uint32_t>(random.in(-2, 2));
    }
    if (random.chance(20)) other.setup.dims[static_cast<size_t>(random.in(0, 4))].tile += 1;
    try {
      const auto plan = other.prepare_as_is();
      other.place(call);
      plan->check(call);
      (void)other.cycles(call);
      plan->run(call);
      ++survived;
    } catch (const ProgramError& error) {
      EXPECT_FALSE(error.what.empty());
      ++refused;
    } catch (const KernelError& error) {
      EXPECT_FALSE(error.what.empty());
      ++refused;
    }
  }
  static inline int survived = 0, refused = 0;
  float f32_out(size_t i) const {
    float x;
    std::memcpy(&x, out.data() + 4 * i, 4);
    return x;
  }
  int32_t i32_out(size_t i) const {
    int32_t x;
    std::memcpy(&x, out.data() + 4 * i, 4);
    return x;
  }
};

// x along (o, length, i), row-major.
inline void put_rows(Block& block, uint32_t x_o, int outer, int length, int inner) {
  const int extents[] = {outer, length, inner};
  int stride = outer * length * inner;
  for (uint32_t i = 0; i < 3; ++i) {
    stride /= extents[i];
    Axis axis;
    axis.a = 1;
    axis.extent = axis.chunk = extents[i];
    axis.stride = stride;
    block.axis(x_o + 5 * i, axis);
  }
}

// Origin of tile `index` of a dimension, edge tiles shifted back.
inline uint32_t tile_origin(const Dim& dim, uint32_t index) {
  return std::min(index * dim.tile, dim.extent - dim.tile);
}
inline uint32_t tiles(const Dim& dim) { return (dim.extent + dim.tile - 1) / dim.tile; }

// Runs a case for many seeds with hostile variants of each of its calls.
inline void run_hostile(void (*one_case)(uint32_t)) {
  Block::mutations = 40;
  Block::survived = Block::refused = 0;
  on_every_level([&] {
    for (int i = 0; i < sampled(60); ++i) one_case(static_cast<uint32_t>(1000 + i));
  });
  Block::mutations = 0;
  EXPECT_GT(Block::refused, 100);
  EXPECT_GT(Block::survived, 100);
}

// Cuts the chunk of `axes` at `origins` out of a row-major tensor.
template <class T>
std::vector<T> cut(const std::vector<T>& tensor, const std::vector<Axis>& axes, const std::vector<int64_t>& origins) {
  size_t size = 1;
  for (const Axis& a : axes) size += static_cast<size_t>((a.chunk - 1) * a.stride);
  std::vector<T> chunk(size, T(77));  // what lies between is never to be read
  std::vector<int64_t> at(axes.size());
  for (;;) {
    size_t from = 0, to = 0;
    for (size_t d = 0; d < axes.size(); ++d) {
      from = from * static_cast<size_t>(axes[d].extent) + static_cast<size_t>(axes[d].origin(origins[d]) + at[d]);
      to += static_cast<size_t>(at[d] * axes[d].stride);
    }
    chunk[to] = tensor[from];
    size_t d = axes.size();
    while (d-- > 0 && ++at[d] == axes[d].chunk) at[d] = 0;
    if (d == static_cast<size_t>(-1)) return chunk;
  }
}

inline void expect_close(float got, double want, double bound, const std::string& where) {
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(got)) << where << ": " << got << " instead of NaN";
  } else if (std::isinf(want) || std::isinf(got)) {
    EXPECT_EQ(got, static_cast<float>(want)) << where;
  } else {
    EXPECT_LE(std::abs(got - want), bound) << where << ": " << got << " instead of " << want;
  }
}

inline double scalar_activation(uint32_t code, double alpha, double beta, double x) {
  namespace act = params::activation;
  switch (code) {
    case act::relu_: return x < 0 ? 0 : x;
    case act::leakyrelu_: return x < 0 ? alpha * x : x;
    case act::clip_: return std::isnan(x) ? x : std::min(std::max(x, alpha), beta);
    case act::sigmoid_: return 1 / (1 + std::exp(-x));
    case act::tanh_: return std::tanh(x);
    case act::exp_: return std::exp(x);
    case act::sqrt_: return std::sqrt(x);
    case act::erf_: return std::erf(x);
    case act::abs_: return std::abs(x);
    case act::neg_: return -x;
    case act::log_: return std::log(x);
    case act::reciprocal_: return 1 / x;
    default: return x;
  }
}

inline Axis chunk_axis(int extent, int chunk, int a = 1, int b = 0, int align = 1) {
  Axis axis;
  axis.extent = extent;
  axis.chunk = chunk;
  axis.a = a;
  axis.b = b;
  axis.align = align;
  return axis;
}

// Strides of a chunk with a gap after its rows; `order` lists the axes from inner to outer.
inline void lay_out(std::vector<Axis*> order, Random& random, bool inner_gap) {
  int64_t stride = inner_gap ? random.in(1, 3) : 1;
  for (Axis* axis : order) {
    axis->stride = stride;
    stride = stride * axis->chunk + (random.chance(30) ? random.in(1, 3) : 0);
  }
}

}  // namespace onedispatch::kernels::testing
