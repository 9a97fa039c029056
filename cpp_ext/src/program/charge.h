// SPDX-License-Identifier: Apache-2.0
// What a core is charged for the calls of one operation, without running any.
#pragma once
#include <cstdint>
#include <vector>

#include "onedispatch/core_program.h"

namespace onedispatch {

// Cycles of every kernel call that the core at (column, row) makes for a parameter block of
// `bytes`, at most `most` of them, in order. Throws ProgramError as the super kernel does.
std::vector<uint64_t> charged_cycles(const uint8_t* block, size_t bytes, const DeviceDescription& device, uint32_t column,
                                     uint32_t row, size_t most);

}  // namespace onedispatch
