// SPDX-License-Identifier: Apache-2.0
// What a kernel declares, as tables: the C++ form of operators/declarations/kernel.py. The tables of our own
// kernels are in the generated kernel_specs.h.
#pragma once
#include <cstdint>

namespace onedispatch::kernels {

// Instructions of cost formulas, in the order of Op in operators/declarations/expressions.py.
enum class CostOp : uint8_t {
  kNumber, kAdd, kSub, kMul, kDiv, kMax, kMin, kCeil,
  kTile,           // tile of the kernel's dimension a
  kElements,       // product of all tiles
  kK,              // members of the reduction in this call
  kLast,           // 1 in the last step of a reduction, else 0
  kScalar,         // scalar a
  kWeight,         // slow evaluations of the function that scalar a names
  kCount,          // chunk extent of operand a along its axis b
  kStride,         // elements from one to the next of the same
  kPresent,        // 1 where operand a is there, else 0
  kDevice,         // device constant a of the kernel
  kDeviceByDtype,  // the same for the element type of operand b
};

struct CostStep {
  CostOp op;
  uint8_t a, b;
  double value;  // kNumber
};

struct DtypeSpec {
  const char* name;
  const char* rates;  // whose device constants hold for it
  uint32_t bytes;
};

struct FunctionSpec {
  const char* name;
  double slow;  // slow evaluations per element
};

// How a kernel finds what member i of an index dimension touches, [a*i/den + b, ...]: coordinate i
// alone, a*i + b alone, or any interval.
enum class Walk : uint8_t { kUnit, kAffine, kInterval };

constexpr uint8_t kAlongReduction = 254, kAlongNothing = 255;

struct AxisSpec {
  const char* name;
  uint8_t dim;  // of the kernel's (with no named ones: index dimension), or kAlong...
};

struct OperandSpec {
  const char* name;
  uint32_t at;      // its first word in the block
  uint32_t dtypes;  // bit per code
  bool is_output, optional;
  Walk walk;
  const AxisSpec* axes;
  uint32_t n_axes;
};

enum class ScalarType : uint8_t { kU32, kI32, kF32, kFunction };

struct ScalarSpec {
  const char* name;
  uint32_t at;
  ScalarType type;
  double low, high;               // ends included
  const FunctionSpec* functions;  // kFunction
};

struct KernelSpec {
  const char* name;  // namespace::name@version
  uint32_t digest;   // what parameter blocks name it by
  const char* const* dims;
  uint32_t n_dims;
  bool reduces;
  const OperandSpec* operands;  // inputs, then outputs
  uint32_t n_operands;
  const ScalarSpec* scalars;
  uint32_t n_scalars;
  const CostStep* cost;
  uint32_t n_cost;
  const char* const* constants;  // of section [kernel] of the device description
  uint32_t n_constants;
  uint32_t words;       // of the parameter block that are read
  uint32_t code_bytes;  // of program memory
};

}  // namespace onedispatch::kernels
