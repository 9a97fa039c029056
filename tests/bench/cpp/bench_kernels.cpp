// SPDX-License-Identifier: Apache-2.0
// The kernels on chunks as operators make them: one call of a prepared kernel, all packing included.
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "bench.h"
#include "kernels/kernel.h"
#include "onedispatch/kernel_library.h"
#include "program/operation.h"

namespace onedispatch::benchmarks {

using namespace kernels;  // NOLINT: what is measured

namespace {

struct Bench : Operation {
  std::string name;
  uint32_t kernel = 0;
  double work = 0;       // operations (or elements) per call
  const char* unit = "flop";
  std::vector<uint32_t> words = std::vector<uint32_t>(params::kWords, 0);
  std::vector<std::pair<uint32_t, uint32_t>> types;  // of operands that are not f32, by their words

  // Operands that no case put are absent; functions have their marks.
  void complete() {
    const od_kernel_spec& spec = *registry().find(kernel)->spec;
    setup.spec = &spec;
    for (uint32_t i = 0; i < spec.n_operands; ++i) {
      const od_operand_spec& operand = spec.operands[i];
      if (operand.role != OD_ROLE_OUTPUT) {
        if (words[operand.at + 1] == 0) words[operand.at] = params::kAbsent;  // no extent
        continue;
      }
      words[operand.at] = kOutPort << params::kPortShift;
    }
    for (uint32_t i = 0; i < spec.n_scalars; ++i) {
      const od_scalar_spec& scalar = spec.scalars[i];
      if (scalar.type == OD_SCALAR_FUNCTION) words[scalar.at] |= scalar.functions[words[scalar.at]].digest >> OD_MARK_SHIFT << OD_MARK_SHIFT;
    }
    for (const auto& [at, type] : types) words[at] |= type << params::kDtypeShift;
  }
  void axis(uint32_t at, uint32_t extent, uint32_t stride, uint32_t a = 1, int b = 0) {
    words[at] = words[at + 1] = extent;
    words[at + 2] = stride;
    words[at + 3] = a | 1 << 16 | 1 << 24;
    words[at + 4] = static_cast<uint32_t>(b);
  }
};

Bench gemm(uint32_t m, uint32_t n, uint32_t k, bool transposed_b, bool bytes) {
  namespace arg = params::gemm;
  Bench b;
  b.name = std::string("gemm ") + (bytes ? "i8 " : "f32 ") + std::to_string(m) + "x" + std::to_string(n) + "x" +
           std::to_string(k) + (transposed_b ? " B^T" : "");
  b.kernel = params::gemm::digest;
  b.work = 2.0 * m * n * k;
  b.setup.dims[0] = {m, m};
  b.setup.dims[1] = {n, n};
  b.setup.k_extent = b.setup.k_tile = k;
  if (bytes) {
    b.types = {{arg::a, params::dtype::i8}, {arg::b, params::dtype::i8}, {arg::out, params::dtype::i32}};
  }
  b.words[arg::dim_n] = 1;
  b.words[arg::b] = 1u << 24;
  b.axis(arg::a_m, m, k);
  b.axis(arg::a_k, k, 1);
  b.axis(arg::b_k, k, transposed_b ? 1 : n);
  b.axis(arg::b_n, n, transposed_b ? k : 1);
  const float one = 1.0f;
  std::memcpy(&b.words[arg::alpha], &one, 4);
  return b;
}

struct WindowWords {
  uint32_t dim, kh, x;
};

void window(Bench& b, const WindowWords& at, uint32_t c, uint32_t rows, uint32_t columns, uint32_t channels, uint32_t k, uint32_t stride) {
  for (uint32_t i = 0; i < 3; ++i) b.words[at.dim + i] = i;
  b.setup.dims[0] = {c, c};
  b.setup.dims[1] = {rows, rows};
  b.setup.dims[2] = {columns, columns};
  const uint32_t steps[] = {k, k, stride, stride, 1, 1};
  for (uint32_t i = 0; i < 6; ++i) b.words[at.kh + i] = steps[i];
  const uint32_t pad = k / 2, H = (rows - 1) * stride + k - 2 * pad, W = (columns - 1) * stride + k - 2 * pad;
  b.axis(at.x + 10, W, 1, stride, -static_cast<int>(pad));
  b.axis(at.x + 5, H, W, stride, -static_cast<int>(pad));
  b.axis(at.x, channels, H * W);
}

Bench conv(uint32_t co, uint32_t rows, uint32_t columns, uint32_t ci, uint32_t k, uint32_t stride) {
  namespace arg = params::conv;
  Bench b;
  b.name = "conv co " + std::to_string(co) + ", " + std::to_string(rows) + "x" + std::to_string(columns) + ", ci " +
           std::to_string(ci) + ", " + std::to_string(k) + "x" + std::to_string(k) + "/" + std::to_string(stride);
  b.kernel = params::conv::digest;
  b.work = 2.0 * co * rows * columns * ci * k * k;
  window(b, {arg::dim_co, arg::kh, arg::x_k}, co, rows, columns, ci, k, stride);
  b.setup.k_extent = b.setup.k_tile = ci;
  b.words[arg::w] = 1u << 24;
  b.axis(arg::w_co, co, 1);
  b.axis(arg::w_k, ci, k * k * co);
  b.axis(arg::w_tap, k * k, co);
  b.words[arg::act] = params::activation::relu_;
  return b;
}

Bench windowed(uint32_t kernel, const char* name, uint32_t c, uint32_t rows, uint32_t columns, uint32_t k, uint32_t stride) {
  Bench b;
  b.name = std::string(name) + " c " + std::to_string(c) + ", " + std::to_string(rows) + "x" + std::to_string(columns) +
           ", " + std::to_string(k) + "x" + std::to_string(k) + "/" + std::to_string(stride);
  b.kernel = kernel;
  const bool depthwise = kernel == params::dwconv::digest;
  b.work = (depthwise ? 2.0 : 1.0) * c * rows * columns * k * k;
  if (!depthwise) b.unit = "taps";
  namespace dw = params::dwconv;
  namespace pool = params::pool;
  window(b, depthwise ? WindowWords{dw::dim_c, dw::kh, dw::x_c} : WindowWords{pool::dim_c, pool::kh, pool::x_c}, c, rows, columns, c, k, stride);
  if (!depthwise) return b;
  b.words[dw::w] = b.words[dw::bias] = 1u << 24;
  b.axis(dw::w_c, c, k * k);
  b.axis(dw::w_tap, k * k, 1);
  b.axis(dw::bias_c, c, 1);
  return b;
}

// The operand at `word`, which comes by `port`: a matrix, element by element.
void elements(Bench& b, uint32_t word, uint32_t port, uint32_t rows, uint32_t columns, bool transposed) {
  b.words[word] = port << params::kPortShift;
  for (uint32_t d = 0; d < 3; ++d) b.axis(word + 1 + 5 * d, 1, 0);
  b.axis(word + 16, rows, transposed ? 1 : columns);
  b.axis(word + 21, columns, transposed ? rows : 1);
}

Bench eltwise(const char* name, uint32_t func, uint32_t inputs, uint32_t act, uint32_t rows, uint32_t columns, bool transposed) {
  namespace arg = params::eltwise;
  Bench b;
  b.name = std::string("eltwise ") + name + " " + std::to_string(rows) + "x" + std::to_string(columns);
  b.kernel = params::eltwise::digest;
  b.work = static_cast<double>(rows) * columns;
  b.unit = "elements";
  b.setup.dims[3] = {rows, rows};
  b.setup.dims[4] = {columns, columns};
  b.words[arg::func] = func;
  b.words[arg::act] = act;
  const float one = 1.0f;
  std::memcpy(&b.words[arg::alpha], &one, 4);
  std::memcpy(&b.words[arg::beta], &one, 4);
  for (uint32_t i = 0; i < inputs; ++i) elements(b, arg::x0 + i * (arg::x1 - arg::x0), i & 1, rows, columns, transposed);
  return b;
}

Bench combine(bool product, uint32_t rows, uint32_t columns) {
  namespace arg = params::combine;
  Bench b;
  b.name = std::string("combine i8 ") + (product ? "product " : "sum ") + std::to_string(rows) + "x" + std::to_string(columns);
  b.kernel = params::combine::digest;
  b.work = static_cast<double>(rows) * columns;
  b.unit = "elements";
  b.setup.dims[3] = {rows, rows};
  b.setup.dims[4] = {columns, columns};
  b.words[arg::product] = product ? 1 : 0;
  const float steps[] = {0.5f, 0.25f};
  std::memcpy(&b.words[arg::first], steps, sizeof steps);
  b.types = {{arg::x0, params::dtype::i8}, {arg::x1, params::dtype::i8}, {arg::out, params::dtype::i8}};
  elements(b, arg::x0, 0, rows, columns, false);
  elements(b, arg::x1, 1, rows, columns, false);
  return b;
}

Bench lines(uint32_t kernel, const char* name, uint32_t outer, uint32_t length, uint32_t inner) {
  namespace arg = params::softmax;
  Bench b;
  b.name = std::string(name) + " " + std::to_string(outer) + "x" + std::to_string(length) + "x" + std::to_string(inner);
  b.kernel = kernel;
  b.work = static_cast<double>(outer) * length * inner;
  b.unit = "elements";
  b.setup.dims[0] = {outer, outer};
  b.setup.dims[1] = {inner, inner};
  b.words[arg::dim_i] = 1;
  b.axis(arg::x_o, outer, length * inner);
  b.axis(arg::x_length, length, inner);
  b.axis(arg::x_i, inner, 1);
  if (kernel == params::lrn::digest) {
    const float values[] = {1e-4f, 0.75f, 1.0f};
    b.words[params::lrn::size] = 5;
    std::memcpy(&b.words[params::lrn::alpha], values, sizeof values);
  }
  return b;
}

Bench reduce(uint32_t rows, uint32_t k, uint32_t columns) {
  namespace arg = params::reduce;
  Bench b;
  b.name = "reduce sum " + std::to_string(rows) + "x" + std::to_string(k) + "x" + std::to_string(columns);
  b.kernel = params::reduce::digest;
  b.work = static_cast<double>(rows) * k * columns;
  b.unit = "elements";
  b.setup.dims[0] = {rows, rows};
  b.setup.dims[1] = {columns, columns};
  b.setup.k_extent = b.setup.k_tile = k;
  b.words[arg::dim_i] = 1;
  b.axis(arg::x_r, rows, k * columns);
  b.axis(arg::x_k, k, columns);
  b.axis(arg::x_i, columns, columns == 1 ? 0 : 1);
  return b;
}

// One call of a prepared kernel after the other.
void measure(benchmark::State& state, Bench b) try {
  std::vector<float> in0(16384, 0.5f), in1 = in0, out = in0;
  b.complete();
  b.setup.words = b.words.data();
  b.chunk_bytes = {65536, 65536, 65536};
  read_operation(b);
  const Plan plan(registry().find(b.kernel), b.setup);
  od_call call{};
  call.k_count = b.setup.k_extent;
  call.k_last = 1;
  const auto bytes = [](std::vector<float>& chunk) { return reinterpret_cast<uint8_t*>(chunk.data()); };
  bind_operands(b, {bytes(in0), bytes(in1), bytes(out)}, call);
  plan.check(call);
  for (auto _ : state) plan.run(call);
  set_rate(state, b.unit, b.work);
} catch (const ProgramError& error) {
  state.SkipWithError(error.what.c_str());
}

// Independent fused multiply-adds of the level's own product kernel, all from L1: the practical peak.
void peak(benchmark::State& state, const char*) {
  std::vector<float> a(48 * 96, 0.5f), b(96 * 48, 0.5f), c(48 * 48);
  const GemmF32 g{a.data(), 96, 1, b.data(), 48, c.data(), 48, 48, 48, 96, false, 0, 0, 0};
  for (auto _ : state) simd().gemm_f32(g);
  set_rate(state, "flop", 2.0 * 48 * 48 * 96);
}

}  // namespace

void register_kernels() {
  namespace fn = params::eltwise_func;
  namespace act = params::activation;
  each_level("product tile alone", peak);
  const Bench all[] = {
      gemm(64, 64, 32, false, false), gemm(64, 64, 64, false, false), gemm(64, 64, 128, false, false),
      gemm(64, 64, 64, true, false), gemm(1, 256, 64, false, false), gemm(64, 64, 64, false, true),
      gemm(96, 96, 64, false, true), gemm(96, 96, 64, true, true),
      conv(64, 2, 56, 16, 1, 1), conv(64, 2, 56, 64, 1, 1), conv(64, 2, 56, 8, 3, 1), conv(64, 1, 112, 8, 3, 1),
      conv(64, 8, 14, 8, 3, 1), conv(64, 7, 7, 8, 3, 1), conv(64, 2, 28, 16, 1, 2), conv(64, 2, 28, 8, 3, 2),
      conv(64, 2, 56, 3, 7, 2), conv(32, 8, 14, 4, 5, 1),
      windowed(params::dwconv::digest, "dwconv", 16, 8, 56, 3, 1), windowed(params::dwconv::digest, "dwconv", 16, 14, 14, 3, 1),
      windowed(params::dwconv::digest, "dwconv", 16, 14, 14, 3, 2), windowed(params::pool::digest, "max pool", 16, 8, 56, 3, 1),
      windowed(params::pool::digest, "max pool", 16, 7, 28, 3, 2), windowed(params::pool::digest, "max pool", 16, 8, 28, 2, 2),
      eltwise("add", fn::add_, 2, act::none_, 64, 128, false), eltwise("add relu", fn::add_, 2, act::relu_, 64, 128, false),
      eltwise("sigmoid", fn::copy_, 1, act::sigmoid_, 64, 128, false), eltwise("tanh", fn::copy_, 1, act::tanh_, 64, 128, false),
      eltwise("erf", fn::copy_, 1, act::erf_, 64, 128, false), eltwise("exp", fn::copy_, 1, act::exp_, 64, 128, false),
      eltwise("transpose", fn::copy_, 1, act::none_, 64, 128, true), eltwise("add", fn::add_, 2, act::none_, 512, 7, true),
      combine(false, 64, 128), combine(true, 64, 128), combine(false, 512, 7),
      lines(params::softmax::digest, "softmax", 64, 128, 1), lines(params::softmax::digest, "softmax", 1, 128, 64), lines(params::lrn::digest, "lrn", 1, 64, 128),
      reduce(128, 128, 1), reduce(4, 64, 64)};
  for (const Bench& bench : all) each_level(bench.name, [bench](benchmark::State& state, const char*) { measure(state, bench); });
}

}  // namespace onedispatch::benchmarks
