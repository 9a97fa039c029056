// SPDX-License-Identifier: Apache-2.0
// What our own kernels share beside the C++ form of the interface: the words of their parameter blocks
// by name, their declarations, and activations.
#pragma once
#include "onedispatch/kernel_cpp.h"
#include "onedispatch/kernel_params.h"
#include "onedispatch/kernel_specs.h"
#include "simd/simd.h"

// Makes what `factory` makes of a setup the code of our declaration `name`.
#define ONEDISPATCH_KERNEL(name, factory) OD_KERNEL(od_##name##_kernel, od_##name##_spec, factory)

namespace onedispatch::kernels {

// The element type of an operand is the one given.
void require_dtype(const Setup& setup, uint32_t operand, uint32_t dtype);

// Along their three axes an operand, where it is there, and the output have chunks of one size. Behind the first
// `apart` axes, along which the operand may lie anywhere, both lie in the same way.
void require_chunk(const Setup& setup, uint32_t operand, uint32_t out, uint32_t apart);

// The panels that an operand of a joined operation lies in along an axis: as the chunks of the tiles that were joined
// lie, side by side or apart. Member i is member i % length of panel i / length, the first of which the call begins
// with.
struct Panels {
  // Instead of an axis: the operand is there once for each panel of outputs, or of the reduction.
  static constexpr uint32_t kWhole = ~0u, kWholeSteps = kWhole - 1;

  int64_t length = 0;  // 0: none
  int64_t stride = 0;  // elements from panel to panel

  Panels() = default;
  Panels(int64_t members, int64_t apart) : length(members), stride(apart) {}
  Panels(const Setup& setup, const Operand& operand, uint32_t axis);
  explicit operator bool() const { return length != 0; }

  // Members `first` and on of panel `panel`, and as many of each of `more` panels behind it.
  struct Run {
    int64_t panel, first;
    int members, more;
    int all() const { return members * (more + 1); }
  };
  // As many of the `left` members from `at` on as lie alike.
  Run run(int64_t at, int left) const {
    if (length == 0) return {0, at, left, 0};
    const int64_t first = at % length;
    const auto members = static_cast<int>(std::min<int64_t>(left, length - first));
    return {at / length, first, members, members == length ? left / members - 1 : 0};
  }
};

// Where members begin, as Axis::local: with panels, where the chunk does.
inline int64_t local(const Axis& axis, const Panels& panels, int64_t first, int64_t count, const char* name) {
  return panels ? 0 : axis.local(first, first, count, name);
}

// Elements from there to member i.
inline int64_t member(const Axis& axis, const Panels& panels, int64_t i) {
  return panels ? i / panels.length * panels.stride + i % panels.length * axis.stride : i * axis.stride;
}

// From one of `neighbours` to the next: 0 where there is one value for all.
inline int64_t neighbour_step(const Operand& x, const Panels& along) { return x.axes[0].stride != 0 || along ? 1 : 0; }

// `count` words of the axis `along` from element `first` of the chunk on, side by side: where they lie, or copied into
// scratch.
const float* neighbours(const Operand& x, const Panels& along, const Call& call, int64_t first, int count, ScratchSlot slot = kScratchRow);

// A table has an entry for every byte; they lie side by side.
constexpr int kEntries = 256;
inline bool is_table(const Operand& x) { return x.axes[0].chunk == kEntries && x.axes[0].stride == 1; }

// The chunk of an output lies row-major, without gaps, as on a core.
void require_whole(const Setup& setup, uint32_t out);

struct Activation {
  uint32_t code = 0;
  float alpha = 0, beta = 0;

  Activation() = default;
  // From the scalar `act` and the two behind it.
  Activation(const Setup& setup, uint32_t act) : code(setup.scalars[act]), alpha(setup.f32(act + 1)), beta(setup.f32(act + 2)) {}
  void apply(float* data, size_t n) const;  // in place
};

}  // namespace onedispatch::kernels
