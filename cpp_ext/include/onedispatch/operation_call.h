// SPDX-License-Identifier: Apache-2.0
// A kernel call as a value, and what the calls of an operation share: all that it takes to make a call elsewhere
// than on its core.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "onedispatch/kernel.h"
#include "onedispatch/kernel_params.h"

namespace onedispatch {

struct MemoryRange {
  uint32_t offset = 0;
  uint32_t bytes = 0;
};

// Where a call finds its chunks and its scratch; null where it has none.
struct CallMemory {
  std::array<uint8_t*, params::kPorts> chunks{};     // in0, in1, out
  std::array<uint8_t*, OD_MAX_OPERANDS> operands{};  // of a joined operation: each by itself
  uint8_t* scratch = nullptr;
};

struct KernelCall;

// What an operand's chunks are of its tensor, axis by axis. Where the chunks of joined tiles do not lie as one tensor, an
// axis is divided: into what lies in a chunk, or panel, and a further axis, from panel to panel, whose `along` is the
// axis that it divides, and whose `span` is how many members a panel has. What has no such axis is there once for each
// panel: of outputs, `along` is then the number of axes, of the reduction one more.
struct OperandShape {
  static constexpr uint32_t kReduction = OD_MAX_DIMS, kNothing = OD_MAX_DIMS + 1;
  static constexpr uint32_t kWithin = OD_MAX_DIMS + 2;  // added to what a divided axis is along

  uint32_t index = 0;  // in the declaration
  bool output = false;
  uint32_t port = 0, offset = 0;  // where it begins: bytes of the port's chunk
  uint32_t element = 4;           // bytes
  bool panels = false;            // whether axes may be divided
  bool finishes = false;          // what the last step alone reads
  bool in_place = false;          // an output whose rows may lie apart, as its tensor does
  uint32_t n_axes = 0;
  std::array<od_axis, OD_MAX_AXES> axes{};
  std::array<uint32_t, OD_MAX_AXES> along{};  // index dimension, kReduction or kNothing; more in a panel
};

// An operation whose tiles may be computed several at once: what an element becomes depends on its own inputs
// alone.
struct OperationShape {
  std::array<od_dim, OD_MAX_DIMS> dims{};
  std::array<bool, OD_MAX_DIMS> tiled{};  // dimensions that the kernel knows of
  std::array<uint32_t, OD_MAX_DIMS> least{};  // members of a tile at least: of fewer it would add up in another order
  uint32_t k_extent = 0, k_tile = 1, steps = 1;
  bool joins_steps = false;  // a sum is the same to the bit in one step as in many
  std::vector<OperandShape> operands;  // that are there
};

// The coordinate that an axis' chunk begins at, of a tile, or a step, that begins at `origin`.
inline int64_t chunk_begin(const od_axis& axis, int64_t origin) {
  int64_t wanted = axis.a * origin / axis.den + axis.b;
  const int64_t rest = wanted % axis.align;
  wanted -= rest < 0 ? rest + axis.align : rest;
  wanted = wanted < 0 ? 0 : wanted;
  return wanted < axis.extent - axis.chunk ? wanted : axis.extent - axis.chunk;
}

// What the calls of an operation share, apart from any core.
class CallableOperation {
 public:
  virtual ~CallableOperation() = default;
  // Makes the call on other memory than the core's, on any thread. Throws ProgramError.
  virtual void run(const KernelCall& call, const CallMemory& memory) const = 0;
  // Null where its tiles must be computed one by one.
  virtual std::unique_ptr<const OperationShape> shape() const = 0;
  // The same operation with the tiles, steps and operands of `shape`; null where the kernel does not take them.
  virtual std::shared_ptr<const CallableOperation> joined(const OperationShape& shape) const = 0;
  virtual uint32_t scratch_bytes() const = 0;  // of a call
};

// The operation, the tile and step of it, and the ranges of the core's memory that it uses, of 0 bytes where it
// has none.
struct KernelCall {
  std::shared_ptr<const CallableOperation> operation;
  std::array<uint32_t, OD_MAX_DIMS> origin{};  // of the tile
  uint32_t step = 0;                           // of its reduction
  bool last = true;                            // of its steps
  std::array<MemoryRange, params::kPorts> chunks{};
  MemoryRange scratch;
  bool writes_out = true;          // else the out chunk is written by a later step
  bool continues_out = false;      // the out chunk holds what the step before left there
  bool continues_scratch = false;  // and scratch does
};

}  // namespace onedispatch
