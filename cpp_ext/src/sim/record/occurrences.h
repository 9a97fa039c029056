// SPDX-License-Identifier: Apache-2.0
// Numbers the occurrences of operations: what each core computes of one between two parameter blocks.
#pragma once
#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "onedispatch/operation_call.h"

namespace onedispatch::sim {

class Occurrences {
 public:
  // The one that the core begins now, as numbered by their first cores. Blocks of different operations may be equal, and a
  // core without a tile leaves an occurrence out: it is the first of this operation that is later than the core's last one,
  // or a new one where no core has begun such a one.
  uint32_t begin(uint32_t core, const CallableOperation* operation) {
    std::vector<uint32_t>& begun = begun_[operation];
    uint32_t& next = next_[core];
    const auto later = std::lower_bound(begun.begin(), begun.end(), next);
    const uint32_t occurrence = later != begun.end() ? *later : begun.emplace_back(count_++);
    next = occurrence + 1;
    return occurrence;
  }
  uint32_t count() const { return count_; }

 private:
  uint32_t count_ = 0;
  std::unordered_map<const CallableOperation*, std::vector<uint32_t>> begun_;  // ascending
  std::unordered_map<uint32_t, uint32_t> next_;                                // by core: the first that it may begin
};

}  // namespace onedispatch::sim
