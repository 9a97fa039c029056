// SPDX-License-Identifier: Apache-2.0
#include "kernel.h"

#include "onedispatch/kernel_tables.h"
#include "simd/simd.h"

namespace onedispatch::kernels {

void require_dtype(const Setup& setup, uint32_t operand, uint32_t dtype) {
  if (setup.operands[operand].dtype != dtype) {
    const od_operand_spec& spec = setup.spec->operands[operand];
    reject(setup, spec.at, std::string(spec.name) + " element type (bits 16..23)",
           std::string("with the other operands as they are, accepted: ") + od_dtypes[dtype].name, OD_DTYPE);
  }
}

void require_chunk(const Setup& setup, uint32_t operand, uint32_t out, uint32_t apart) {
  const Operand& given = setup.operands[operand];
  if (!given.present) return;
  const od_operand_spec& spec = setup.spec->operands[operand];
  for (uint32_t i = 0; i < 3; ++i) {
    const Axis &axis = given.axes[i], &like = setup.operands[out].axes[i];
    const bool same = axis.chunk == like.chunk && (i < apart || axis.stride == like.stride || like.chunk == 1);
    if (!same) reject(setup, spec.at + 1 + params::kAxisWords * i, spec.name, "accepted: the same chunk as out has");
  }
}

void require_whole(const Setup& setup, uint32_t out) {
  const od_operand_spec& spec = setup.spec->operands[out];
  int64_t elements = 1;
  for (uint32_t i = spec.n_axes; i-- > 0;) {
    const Axis& axis = setup.operands[out].axes[i];
    if (axis.chunk > 1 && axis.stride != elements) reject(std::string(spec.name) + " along " + spec.axes[i].name + ": stride " + std::to_string(axis.stride) + "; accepted: " + std::to_string(elements));
    elements *= axis.chunk;
  }
}

Panels::Panels(const Setup& setup, const Operand& operand, uint32_t axis) {
  const uint32_t own = setup.spec->operands[operand.index].n_axes;
  for (uint32_t i = own; i < kAxes; ++i) {
    const Axis& panels = operand.axes[i];
    if (panels.span == 0 || panels.along != (axis == kWhole ? own : axis == kWholeSteps ? own + 1 : axis)) continue;
    length = panels.span;
    stride = panels.stride;
  }
}

const float* neighbours(const Operand& x, const Panels& along, const Call& call, int64_t first, int count, ScratchSlot slot) {
  const int64_t stride = x.axes[0].stride;
  const auto* from = reinterpret_cast<const float*>(x.in(call)) + first;
  if (stride <= 1 && !along) return from;
  auto* gathered = static_cast<float*>(scratch(slot, static_cast<size_t>(count) * 4));
  const int length = along ? static_cast<int>(along.length) : count;
  for (int done = 0; done < count; done += length, from += along.stride) simd().copy_strided(from, stride, gathered + done, std::min(length, count - done));
  return gathered;
}

void Activation::apply(float* data, size_t n) const {
  if (code != params::activation::none_) simd().unary(code, alpha, beta, data, data, n);
}

}  // namespace onedispatch::kernels
