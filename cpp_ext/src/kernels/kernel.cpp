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

void require_chunk(const Setup& setup, uint32_t operand, uint32_t out) {
  const Operand& given = setup.operands[operand];
  if (!given.present) return;
  const od_operand_spec& spec = setup.spec->operands[operand];
  for (uint32_t i = 0; i < 3; ++i) {
    const Axis &axis = given.axes[i], &like = setup.operands[out].axes[i];
    const bool same = axis.chunk == like.chunk && (axis.stride == like.stride || like.chunk == 1);
    if (!same) reject(setup, spec.at + 1 + params::kAxisWords * i, spec.name, "accepted: the same chunk as out has");
  }
}

void Activation::apply(float* data, size_t n) const {
  if (code != params::activation::none_) simd().unary(code, alpha, beta, data, data, n);
}

}  // namespace onedispatch::kernels
