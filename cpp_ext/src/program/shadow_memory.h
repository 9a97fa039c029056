// SPDX-License-Identifier: Apache-2.0
// Runs calls of custom kernels on a shadow copy of the core's memory: the ranges that a call may read are copied
// in, all other bytes hold a pattern, and inaccessible pages surround the copy. A change outside of outputs and
// scratch is an error that names the place; only outputs and scratch are copied back.
#pragma once
#include <memory>
#include <vector>

#include "signal_guard.h"
#include "onedispatch/core_program.h"
#include "onedispatch/kernel.h"
#include "onedispatch/kernel_library.h"

namespace onedispatch {

// The shadow memory of one operation, shared by its calls, which may run on any threads.
class ShadowMemory {
 public:
  // `memory_bytes`: of the core's data memory.
  ShadowMemory(std::shared_ptr<const Plan> plan, const od_setup& setup, CoreView core, uint32_t memory_bytes);
  // Runs the call. The chunks lie in the core's memory; `reads` and `writes` are what it may touch of it. Throws
  // KernelError (OD_ACCESS, OD_TIMEOUT, OD_CRASH, OD_RUNTIME_FAILURE, or what the kernel answers) and CallInterrupted.
  void run(const od_call& call, const MemoryRanges& reads, const MemoryRanges& writes) const;

 private:
  struct OperandRange {
    std::string name;
    int64_t first, end;  // bytes of the core's memory
  };
  class Copy;

  std::vector<OperandRange> operand_ranges(const od_call& call, const uint8_t* base) const;
  std::string near(const od_call& call, const uint8_t* base, int64_t byte) const;
  void execute(const od_call& call, const uint8_t* base) const;
  [[noreturn]] void refuse_access(const od_call& call, const uint8_t* base, const std::string& what, int64_t byte) const;

  std::shared_ptr<const Plan> plan_;
  od_setup setup_;
  CoreView core_;
  uint32_t memory_bytes_;
};

}  // namespace onedispatch
