// SPDX-License-Identifier: Apache-2.0
#include "kernel.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "simd.h"
#include "onedispatch/phrases.h"

namespace onedispatch::kernels {

namespace {

namespace id = params::kernel_id;

constexpr KernelEntry kKernels[] = {
    {id::ELTWISE, "ELTWISE", prepare_eltwise}, {id::GEMM, "GEMM", prepare_gemm},
    {id::CONV, "CONV", prepare_conv},          {id::DWCONV, "DWCONV", prepare_dwconv},
    {id::POOL, "POOL", prepare_pool},          {id::REDUCE, "REDUCE", prepare_reduce},
    {id::SOFTMAX, "SOFTMAX", prepare_softmax}, {id::LRN, "LRN", prepare_lrn},
};

}  // namespace

const KernelEntry* find_kernel(uint32_t id) {
  for (const KernelEntry& entry : kKernels) {
    if (entry.id == id) return &entry;
  }
  return nullptr;
}

std::string known_kernels() {
  std::string text;
  for (const KernelEntry& entry : kKernels) {
    text += (text.empty() ? "" : ", ") + std::to_string(entry.id) + " " + entry.name;
  }
  return text;
}

Timing Timing::from(const DeviceDescription& device) {
  Timing t;
  t.i8_macs_per_cycle = device.at("kernel.i8_macs_per_cycle");
  t.i8_output_cycles = device.at("kernel.i8_output_cycles");
  t.i8_call_cycles = device.at("kernel.i8_call_cycles");
  t.f32_macs_per_cycle = device.at("kernel.f32_macs_per_cycle");
  t.f32_output_cycles = device.at("kernel.f32_output_cycles");
  t.f32_call_cycles = device.at("kernel.f32_call_cycles");
  t.window_macs_per_cycle = device.at("kernel.window_macs_per_cycle");
  t.words_per_cycle = device.at("kernel.words_per_cycle");
  t.special_cycles_per_element = device.at("kernel.special_cycles_per_element");
  t.call_cycles = device.at("kernel.call_cycles");
  return t;
}

void reject(const std::string& text) { throw ProgramError{"super kernel: " + text}; }

void reject(const Setup& setup, uint32_t at, const std::string& what, const std::string& accepted) {
  reject(what + ": word " + std::to_string(at) + " of the parameter block is " + std::to_string(setup.words[at]) +
         "; " + accepted);
}

uint32_t word_in(const Setup& setup, uint32_t at, const char* name, uint32_t low, uint32_t high) {
  const uint32_t value = setup.words[at];
  if (value < low || value > high) {
    reject(setup, at, name, "accepted: " + span(low, high));
  }
  return value;
}

float word_f32(const Setup& setup, uint32_t at) {
  float value;
  std::memcpy(&value, setup.words + at, sizeof value);
  return value;
}

template <size_t N>
std::array<uint32_t, N> dims_at(const Setup& setup, uint32_t at, const char* name) {
  std::array<uint32_t, N> result{};
  std::array<bool, kDims> used{};
  for (size_t i = 0; i < N; ++i) {
    const auto word = at + static_cast<uint32_t>(i);
    result[i] = word_in(setup, word, name, i == 0 ? 0 : result[i - 1] + 1, kDims - 1);
    used[result[i]] = true;
  }
  for (uint32_t d = 0; d < kDims; ++d) {
    if (!used[d] && setup.dims[d].tile != 1) {
      reject(setup, params::header::dims + 4 * d + 1, std::string(name) + ": tile of another dimension",
             "this kernel accepts 1");
    }
  }
  return result;
}
template std::array<uint32_t, 2> dims_at<2>(const Setup&, uint32_t, const char*);
template std::array<uint32_t, 3> dims_at<3>(const Setup&, uint32_t, const char*);

void require_out(const Setup& setup, uint64_t elements) {
  if (elements * 4 > setup.chunk_bytes[2]) {
    reject(setup, params::header::port_out + 3, "out chunk bytes", "the tile needs " + std::to_string(elements * 4));
  }
}

void require_no_reduction(const Setup& setup) {
  if (setup.inner_steps != 1) {
    reject(setup, params::header::inner_steps, "inner steps", "this kernel has no reduction and accepts 1");
  }
}

PortRef port_at(const Setup& setup, uint32_t at, const char* name, uint32_t element, bool optional) {
  const uint32_t value = setup.words[at];
  if (value == params::kAbsent) {
    if (!optional) reject(setup, at, name, "it must be present");
    return {};
  }
  PortRef ref;
  ref.present = true;
  ref.port = value >> 24;
  ref.offset = value & 0xFFFFFF;
  if (ref.port > 1) reject(setup, at, name, "accepted ports: 0 (in0), 1 (in1)");
  if (ref.offset > setup.chunk_bytes[ref.port] || ref.offset % element != 0) {
    reject(setup, at, name,
           "the offset must be a multiple of " + std::to_string(element) + " inside the chunk of " +
               counted(setup.chunk_bytes[ref.port], "byte"));
  }
  ref.bytes = setup.chunk_bytes[ref.port] - ref.offset;
  return ref;
}

int64_t Axis::origin(int64_t tile_origin) const {
  int64_t wanted = a * tile_origin + b;
  const int64_t rest = wanted % align;
  wanted -= rest < 0 ? rest + align : rest;
  return std::min(std::max<int64_t>(wanted, 0), extent - chunk);
}

int64_t Axis::local(int64_t tile_origin, int64_t first, int64_t count, const char* name) const {
  if (count == 0 || (stride == 0 && chunk > 0)) return 0;
  const int64_t at = first - origin(tile_origin);
  if (at < 0 || at + count > chunk) {
    reject(std::string(name) + ": the tile needs coordinates " + span(first, first + count - 1) +
           ", its chunk holds " + std::to_string(chunk) + " from " +
           std::to_string(origin(tile_origin)) + " of " + std::to_string(extent));
  }
  return at * stride;
}

Axis axis_at(const Setup& setup, uint32_t at, const char* name) {
  Axis axis;
  axis.extent = setup.words[at];
  axis.chunk = setup.words[at + 1];
  axis.stride = setup.words[at + 2];
  axis.a = setup.words[at + 3] & 0xFFFF;
  axis.align = setup.words[at + 3] >> 16;
  axis.b = static_cast<int32_t>(setup.words[at + 4]);
  if (axis.chunk > axis.extent) {
    reject(setup, at + 1, std::string(name) + ": chunk extent",
           "accepted: at most the full extent " + std::to_string(axis.extent));
  }
  if (axis.align == 0) reject(setup, at + 3, std::string(name) + ": align (upper half)", "accepted: 1 or more");
  return axis;
}

void require_span(const PortRef& ref, std::initializer_list<Axis> axes, uint32_t element, const char* name) {
  if (!ref.present) return;
  uint64_t last = 0;
  bool empty = false;
  for (const Axis& axis : axes) {
    if (axis.chunk == 0) empty = true;
    // Both factors are below 2^32: the product fits, the sum is bounded after each step.
    const uint64_t reach = axis.chunk == 0 ? 0 : static_cast<uint64_t>(axis.chunk - 1) * static_cast<uint64_t>(axis.stride);
    if (reach > kCoreMemoryBytes) {
      last = kCoreMemoryBytes;
      break;
    }
    last += reach;
  }
  if (!empty && (last + 1) * element > ref.bytes) {
    reject(std::string(name) + ": its axes reach beyond the chunk, which has " + counted(ref.bytes, "byte") +
           " from offset " + std::to_string(ref.offset) + " of port in" + std::to_string(ref.port));
  }
}

void Activation::apply(float* data, size_t n) const {
  if (code != params::activation::none_) simd().unary(code, alpha, beta, data, data, n);
}

bool Activation::special() const {
  namespace act = params::activation;
  switch (code) {
    case act::sigmoid_:
    case act::tanh_:
    case act::exp_:
    case act::sqrt_:
    case act::erf_:
    case act::log_:
    case act::reciprocal_: return true;
    default: return false;
  }
}

Activation activation_at(const Setup& setup, uint32_t at) {
  Activation activation;
  activation.code = word_in(setup, at, "activation code", 0, params::activation::reciprocal_);
  activation.alpha = word_f32(setup, at + 1);
  activation.beta = word_f32(setup, at + 2);
  return activation;
}

uint64_t streaming_cycles(const Timing& timing, double words, double special) {
  return static_cast<uint64_t>(
      std::ceil(timing.call_cycles + words / timing.words_per_cycle + special * timing.special_cycles_per_element));
}

}  // namespace onedispatch::kernels
