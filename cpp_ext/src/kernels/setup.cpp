// SPDX-License-Identifier: Apache-2.0
// A parameter block read and checked by the kernel's declaration.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernel.h"
#include "onedispatch/kernel_specs.h"
#include "onedispatch/phrases.h"

namespace onedispatch::kernels {

namespace {

std::string number(double value) {
  if (std::isinf(value)) return value < 0 ? "-infinity" : "infinity";
  return value == std::floor(value) && std::abs(value) < 1e15 ? std::to_string(static_cast<int64_t>(value)) : std::to_string(value);
}

// Ascending, so that an out chunk's order is plain; every other dimension has tile 1.
void read_roles(Setup& setup) {
  const KernelSpec& spec = *setup.spec;
  if (spec.n_dims == 0) return;
  std::array<bool, kDims> used{};
  for (uint32_t i = 0; i < spec.n_dims; ++i) {
    const uint32_t low = i == 0 ? 0 : setup.roles[i - 1] + 1;
    const std::string name = std::string("dimension ") + spec.dims[i];
    setup.roles[i] = word_in(setup, params::kArgsAt + i, name.c_str(), low, kDims - 1);
    used[setup.roles[i]] = true;
  }
  for (uint32_t d = 0; d < kDims; ++d) {
    if (!used[d] && setup.dims[d].tile != 1) {
      reject(setup, params::header::dims + 4 * d + 1, "tile of another dimension", "this kernel accepts 1");
    }
  }
}

void read_reference(const Setup& setup, const OperandSpec& spec, Operand& operand) {
  const uint32_t value = setup.words[spec.at];
  operand.port = value >> params::kPortShift;
  operand.offset = value & ((1u << params::kDtypeShift) - 1);
  const uint32_t lowest = spec.is_output ? kOutPort : 0, highest = spec.is_output ? kOutPort : 1;
  if (operand.port < lowest || operand.port > highest) {
    reject(setup, spec.at, spec.name, spec.is_output ? "accepted port: 2 (out)" : "accepted ports: 0 (in0), 1 (in1)");
  }
  const uint32_t chunk = setup.chunk_bytes[operand.port], element = specs::kDtypes[operand.dtype].bytes;
  if (operand.offset > chunk || operand.offset % element != 0) {
    reject(setup, spec.at, spec.name,
           "the offset must be a multiple of " + std::to_string(element) + " inside the chunk of " + counted(chunk, "byte"));
  }
  operand.bytes = chunk - operand.offset;
}

void check_walk(const Setup& setup, uint32_t at, const std::string& name, Walk walk, const Axis& axis) {
  const bool unit = axis.a == 1 && axis.den == 1 && axis.b == 0;
  if (walk == Walk::kUnit && !unit) reject(setup, at + 3, name + ": access", "this kernel walks coordinate i alone (a 1, b 0)");
  if (walk == Walk::kAffine && axis.den != 1) reject(setup, at + 3, name + ": denominator (bits 16..23)", "accepted: 1");
}

Axis read_axis(const Setup& setup, uint32_t at, const std::string& name) {
  Axis axis;
  axis.extent = setup.words[at];
  axis.chunk = setup.words[at + 1];
  axis.stride = setup.words[at + 2];
  axis.a = setup.words[at + 3] & 0xFFFF;
  axis.den = setup.words[at + 3] >> 16 & 0xFF;
  axis.align = setup.words[at + 3] >> 24;
  axis.b = static_cast<int32_t>(setup.words[at + 4]);
  if (axis.chunk > axis.extent) {
    reject(setup, at + 1, name + ": chunk extent", "accepted: at most the full extent " + std::to_string(axis.extent));
  }
  if (axis.align == 0) reject(setup, at + 3, name + ": align (bits 24..31)", "accepted: 1 or more");
  if (axis.den == 0) reject(setup, at + 3, name + ": denominator (bits 16..23)", "accepted: 1 or more");
  return axis;
}

// An output's chunk is the tile, row-major over its axes; a whole extent is that of the first input's
// axis of the same name.
void lay_out(const Setup& setup, const OperandSpec& spec, Operand& out) {
  const KernelSpec& kernel = *setup.spec;
  int64_t stride = 1;
  for (uint32_t i = spec.n_axes; i-- > 0;) {
    Axis& axis = out.axes[i];
    const uint8_t dim = spec.axes[i].dim;
    if (dim != kAlongNothing) {
      const Dim& along = setup.dims[kernel.n_dims == 0 ? dim : setup.roles[dim]];
      axis.extent = along.extent;
      axis.chunk = along.tile;
      axis.a = 1;
    }
    for (uint32_t j = 0; dim == kAlongNothing && j < kernel.operands[0].n_axes; ++j) {
      if (std::strcmp(kernel.operands[0].axes[j].name, spec.axes[i].name) == 0) axis.extent = axis.chunk = setup.operands[0].axes[j].chunk;
    }
    axis.stride = stride;
    // Beyond a core's memory the span is refused: the product stays small until then.
    stride = std::min<int64_t>(stride * std::max<int64_t>(axis.chunk, 1), int64_t{1} << 40);
  }
}

// All chunk coordinates of the axes lie inside what the reference has.
void check_span(const Setup& setup, const OperandSpec& spec, const Operand& operand) {
  uint64_t last = 0;
  for (uint32_t i = 0; i < spec.n_axes; ++i) {
    const Axis& axis = operand.axes[i];
    if (axis.chunk == 0) return;
    // Both factors are below 2^32: the product fits, the sum is bounded after each step.
    last += static_cast<uint64_t>(axis.chunk - 1) * static_cast<uint64_t>(axis.stride);
    if (last > kCoreMemoryBytes) break;
  }
  const uint64_t end = (last + 1) * specs::kDtypes[operand.dtype].bytes;
  if (end > operand.bytes) {
    reject(setup, spec.at, std::string(spec.name) + ": its axes reach beyond the chunk",
           "it has " + counted(operand.bytes, "byte") + " from its offset on, they need " + std::to_string(end));
  }
}

void read_operand(Setup& setup, const OperandSpec& spec, Operand& operand) {
  if (setup.words[spec.at] == params::kAbsent) {
    bool along_k = false;  // an empty sum reads nothing along the reduction
    for (uint32_t i = 0; i < spec.n_axes; ++i) along_k = along_k || spec.axes[i].dim == kAlongReduction;
    if (!spec.optional && !(along_k && setup.k_extent == 0)) reject(setup, spec.at, spec.name, "it must be present");
    return;
  }
  operand.present = true;
  operand.dtype = setup.words[spec.at] >> params::kDtypeShift & 0xFF;
  if (operand.dtype >= std::size(specs::kDtypes) || (spec.dtypes >> operand.dtype & 1) == 0) {
    std::string accepted;
    for (uint32_t d = 0; d < std::size(specs::kDtypes); ++d) {
      if (spec.dtypes >> d & 1) accepted += (accepted.empty() ? "" : ", ") + std::to_string(d) + " (" + specs::kDtypes[d].name + ")";
    }
    reject(setup, spec.at, std::string(spec.name) + " element type (bits 16..23)", "accepted: " + accepted);
  }
  read_reference(setup, spec, operand);
  if (spec.is_output) lay_out(setup, spec, operand);
  for (uint32_t i = 0; i < spec.n_axes && !spec.is_output; ++i) {
    const uint32_t at = spec.at + 1 + 5 * i;
    const std::string name = std::string(spec.name) + " along " + spec.axes[i].name;
    operand.axes[i] = read_axis(setup, at, name);
    if (spec.axes[i].dim != kAlongNothing && operand.axes[i].stride != 0) check_walk(setup, at, name, spec.walk, operand.axes[i]);
  }
  check_span(setup, spec, operand);
}

void read_scalar(Setup& setup, const ScalarSpec& spec, uint32_t& word) {
  word = setup.words[spec.at];
  double value = word;
  if (spec.type == ScalarType::kI32) value = static_cast<int32_t>(word);
  if (spec.type == ScalarType::kF32) {
    float single;
    std::memcpy(&single, &word, sizeof single);
    value = single;
  }
  if (value < spec.low || value > spec.high) {  // a NaN passes: floats may be anything unless bounded
    reject(setup, spec.at, spec.name, "accepted: " + number(spec.low) + " to " + number(spec.high));
  }
}

double scalar_value(const Setup& setup, uint32_t index) {
  const ScalarType type = setup.spec->scalars[index].type;
  if (type == ScalarType::kF32) return setup.f32(index);
  return type == ScalarType::kI32 ? static_cast<double>(static_cast<int32_t>(setup.scalars[index])) : setup.scalars[index];
}

double constant(const Constants& constants, const std::string& name) {
  const auto found = constants.find(name);
  if (found == constants.end()) reject("the device description has no constant kernel." + name + ", which the kernel's cost names");
  return found->second;
}

double elements(const Setup& setup) {
  double product = 1;
  for (const Dim& dim : setup.dims) product *= dim.tile;
  return product;
}

}  // namespace

void read_setup(Setup& setup) {
  const KernelSpec& spec = *setup.spec;
  if (!spec.reduces && setup.inner_steps != 1) {
    reject(setup, params::header::inner_steps, "inner steps", "this kernel has no reduction and accepts 1");
  }
  read_roles(setup);
  for (uint32_t i = 0; i < spec.n_operands; ++i) read_operand(setup, spec.operands[i], setup.operands[i]);
  for (uint32_t i = 0; i < spec.n_scalars; ++i) read_scalar(setup, spec.scalars[i], setup.scalars[i]);
}

uint64_t call_cycles(const Setup& setup, const Constants& constants, uint32_t k_count, bool last) {
  const KernelSpec& spec = *setup.spec;
  double stack[32];
  int top = 0;
  for (uint32_t i = 0; i < spec.n_cost; ++i) {
    const CostStep& step = spec.cost[i];
    const auto push = [&](double value) { stack[top++] = value; };
    const auto fold = [&](auto function) {
      --top;
      stack[top - 1] = function(stack[top - 1], stack[top]);
    };
    switch (step.op) {
      case CostOp::kNumber: push(step.value); break;
      case CostOp::kAdd: fold([](double x, double y) { return x + y; }); break;
      case CostOp::kSub: fold([](double x, double y) { return x - y; }); break;
      case CostOp::kMul: fold([](double x, double y) { return x * y; }); break;
      case CostOp::kDiv: fold([](double x, double y) { return x / y; }); break;
      case CostOp::kMax: fold([](double x, double y) { return x > y ? x : y; }); break;
      case CostOp::kMin: fold([](double x, double y) { return x < y ? x : y; }); break;
      case CostOp::kCeil: stack[top - 1] = std::ceil(stack[top - 1]); break;
      case CostOp::kTile: push(setup.tile(step.a)); break;
      case CostOp::kElements: push(elements(setup)); break;
      case CostOp::kK: push(k_count); break;
      case CostOp::kLast: push(last ? 1 : 0); break;
      case CostOp::kScalar: push(scalar_value(setup, step.a)); break;
      case CostOp::kWeight: push(spec.scalars[step.a].functions[setup.scalars[step.a]].slow); break;
      case CostOp::kCount: push(static_cast<double>(setup.operands[step.a].axes[step.b].chunk)); break;
      case CostOp::kStride: push(static_cast<double>(setup.operands[step.a].axes[step.b].stride)); break;
      case CostOp::kPresent: push(setup.operands[step.a].present ? 1 : 0); break;
      case CostOp::kDevice: push(constant(constants, spec.constants[step.a])); break;
      case CostOp::kDeviceByDtype: {
        const char* rates = specs::kDtypes[setup.operands[step.b].dtype].rates;
        push(constant(constants, std::string(rates) + "_" + spec.constants[step.a]));
        break;
      }
    }
  }
  return static_cast<uint64_t>(std::ceil(stack[0]));
}

}  // namespace onedispatch::kernels
