// SPDX-License-Identifier: Apache-2.0
// What a kernel's work on a core costs, and the scratch that it takes: the declaration's formulas.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "operation.h"

namespace onedispatch {

// Constants of section [kernel] of the device description, by name.
using Constants = std::map<std::string, double>;

// All of these throw ProgramError where the device lacks a constant.

// Core cycles of a call of k_count members, the last step of its reduction or not, rounded up.
uint64_t call_cycles(const od_setup& setup, const Constants& constants, uint32_t k_count, bool last);
// Where the scratch of every call lies and how large it is, by the declaration's formula, rounded up to
// whole words. Throws ProgramError where the core's memory does not hold it, too.
void read_scratch(Operation& operation, const Constants& constants);
// Core cycles before the first call: the parameter block is read, and the kernel set up by it.
uint64_t op_cycles(const od_setup& setup, const Constants& constants);
// Core cycles of reading so many words of a parameter block.
uint64_t word_cycles(const Constants& constants, uint32_t words);

}  // namespace onedispatch
