// SPDX-License-Identifier: Apache-2.0
// What a kernel's work on a core costs, and the scratch that it takes: the declaration's formulas.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "operation.h"

namespace onedispatch {

// Constants of section [kernel] of the device description. For one thread at a time: what formulas take from
// them is put together from names, so it is found once for the types and functions that an operation has.
class Constants {
 public:
  explicit Constants(const DeviceDescription& device);
  // Throws ProgramError where the device has none of that name.
  double at(std::string_view name) const;
  // The formula with numbers in place of all that constants, element types and functions settle.
  const std::vector<od_step>& settled(const od_step* steps, uint32_t count, const od_setup& setup) const;

  // Formulas are known by where a declaration lies: what was made of them goes with the declaration.
  void forget_formulas() const { settled_.clear(); }

 private:
  using Key = std::pair<const od_step*, std::vector<uint32_t>>;  // types of the operands, functions

  std::map<std::string, double, std::less<>> values_;
  mutable std::map<Key, std::vector<od_step>> settled_;
};

// All of these throw ProgramError where the device lacks a constant, and where a formula gives what is no
// number of cycles: NaN, a negative one, more than OD_MAX_CYCLES.

// Core cycles of a call of k_count members, the last step of its reduction or not, rounded up.
uint64_t call_cycles(const od_setup& setup, const Constants& constants, uint32_t k_count, bool last);
// Where the scratch of every call lies and how large it is, by the declaration's formula, rounded up to
// whole words. Throws ProgramError where the core's memory does not hold it, too.
void read_scratch(Operation& operation, const Constants& constants, uint32_t memory_bytes);
// Core cycles before the first call: the parameter block is read, and the kernel set up by it.
uint64_t op_cycles(const od_setup& setup, const Constants& constants);
// Core cycles in which a ring of so many bytes, that a kernel printed into, is handed out.
uint64_t print_cycles(const od_setup& setup, const Constants& constants, size_t bytes);
// Core cycles of reading so many words of a parameter block.
uint64_t word_cycles(const od_setup& setup, const Constants& constants, uint32_t words);

}  // namespace onedispatch
