// SPDX-License-Identifier: Apache-2.0
#include "kernel.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "onedispatch/kernel_specs.h"
#include "simd/simd.h"
#include "onedispatch/phrases.h"

namespace onedispatch::kernels {

namespace {

constexpr KernelEntry kKernels[] = {
    {&specs::k_eltwise, prepare_eltwise}, {&specs::k_gemm, prepare_gemm},
    {&specs::k_conv, prepare_conv},       {&specs::k_dwconv, prepare_dwconv},
    {&specs::k_pool, prepare_pool},       {&specs::k_reduce, prepare_reduce},
    {&specs::k_softmax, prepare_softmax}, {&specs::k_lrn, prepare_lrn},
};
static_assert(std::size(kKernels) == std::size(specs::kKernels), "a declared kernel has no code, or code no declaration");

}  // namespace

const KernelEntry* find_kernel(uint32_t digest) {
  for (const KernelEntry& entry : kKernels) {
    if (entry.spec->digest == digest) return &entry;
  }
  return nullptr;
}

std::string known_kernels() {
  std::string text;
  for (const KernelEntry& entry : kKernels) {
    text += (text.empty() ? "" : ", ") + std::string(entry.spec->name) + " (" + std::to_string(entry.spec->digest) + ")";
  }
  return text;
}

void reject(const std::string& text) { throw ProgramError{"super kernel: " + text}; }

void reject(const Setup& setup, uint32_t at, const std::string& what, const std::string& accepted) {
  const std::string kernel = setup.spec == nullptr ? "" : std::string(setup.spec->name) + ": ";
  reject(kernel + what + ": word " + std::to_string(at) + " of the parameter block is " + std::to_string(setup.words[at]) +
         "; " + accepted);
}

uint32_t word_in(const Setup& setup, uint32_t at, const char* name, uint32_t low, uint32_t high) {
  const uint32_t value = setup.words[at];
  if (value < low || value > high) {
    reject(setup, at, name, "accepted: " + span(low, high));
  }
  return value;
}

float Setup::f32(uint32_t scalar) const {
  float value;
  std::memcpy(&value, scalars.data() + scalar, sizeof value);
  return value;
}

int64_t Axis::origin(int64_t tile_origin) const {
  int64_t wanted = first(tile_origin);
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

void require_dtype(const Setup& setup, uint32_t operand, uint32_t dtype) {
  if (setup.operands[operand].dtype != dtype) {
    const OperandSpec& spec = setup.spec->operands[operand];
    reject(setup, spec.at, std::string(spec.name) + " element type (bits 16..23)",
           std::string("with the other operands as they are, accepted: ") + specs::kDtypes[dtype].name);
  }
}

void Activation::apply(float* data, size_t n) const {
  if (code != params::activation::none_) simd().unary(code, alpha, beta, data, data, n);
}

}  // namespace onedispatch::kernels
