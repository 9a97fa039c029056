// SPDX-License-Identifier: Apache-2.0
// A box of members of a custom kernel, on memory of its own instead of a core's: what check mode runs.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "onedispatch/kernel.h"
#include "onedispatch/kernel_library.h"

namespace onedispatch {

// Memory of an operand, or of scratch. `at`: the byte that the chunk begins at.
struct MemberMemory {
  uint8_t* data = nullptr;  // null: absent
  size_t bytes = 0, at = 0;
};

// What accessors said of an operand: the box that they touched, and the first coordinate outside of what was
// declared.
struct MemberTouched {
  bool any = false, outside = false, outside_written = false;
  std::array<int64_t, OD_MAX_DIMS> low{}, high{}, where{};
};

// Where a body left memory that it may touch.
struct MemberFault {
  bool there = false, wrote = false;
  uint32_t operand = 0;  // the number of operands: scratch
  int64_t byte = 0;      // of its memory
};

struct MemberRun {
  od_setup setup{};  // operands as they lie in memory; words are filled in
  od_call call{};
  std::vector<MemberMemory> memory;  // of operands, then of scratch
  // Declared of each operand, ends included: coordinates of the tensor.
  std::vector<std::array<int64_t, OD_MAX_DIMS>> low, high;
  std::vector<MemberTouched> touched;
  MemberFault fault;
  bool left = false;  // an accessor refused a coordinate, which `touched` names, and the body with it
};

// Runs the call once. `guarded`: on copies that end (`at_end`) or begin at a page without access. Throws
// KernelError for what the kernel answers; a fault beside an operand is said in `run.fault`, a refusal of an
// accessor in `run.left`.
void run_members(const KernelPtr& kernel, MemberRun& run, bool guarded, bool at_end);

}  // namespace onedispatch
