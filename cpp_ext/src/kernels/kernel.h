// SPDX-License-Identifier: Apache-2.0
// What our own kernels share beside the C++ form of the interface: the words of their parameter blocks
// by name, their declarations, and activations.
#pragma once
#include "onedispatch/kernel_cpp.h"
#include "onedispatch/kernel_params.h"
#include "onedispatch/kernel_specs.h"

// Makes what `factory` makes of a setup the code of our declaration `name`.
#define ONEDISPATCH_KERNEL(name, factory) OD_KERNEL(od_##name##_kernel, od_##name##_spec, factory)

namespace onedispatch::kernels {

// The element type of an operand is the one given.
void require_dtype(const Setup& setup, uint32_t operand, uint32_t dtype);

// Along their three axes an operand, where it is there, and the output lie in the same way.
void require_chunk(const Setup& setup, uint32_t operand, uint32_t out);

// A table has an entry for every byte; they lie side by side.
constexpr int kEntries = 256;
inline bool is_table(const Operand& x) { return x.axes[0].chunk == kEntries && x.axes[0].stride == 1; }

struct Activation {
  uint32_t code = 0;
  float alpha = 0, beta = 0;

  Activation() = default;
  // From the scalar `act` and the two behind it.
  Activation(const Setup& setup, uint32_t act) : code(setup.scalars[act]), alpha(setup.f32(act + 1)), beta(setup.f32(act + 2)) {}
  void apply(float* data, size_t n) const;  // in place
};

}  // namespace onedispatch::kernels
