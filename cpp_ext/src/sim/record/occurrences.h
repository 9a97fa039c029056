// SPDX-License-Identifier: Apache-2.0
// Numbers the occurrences of operations: what each core computes of one between two parameter blocks.
#pragma once
#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "onedispatch/operation_call.h"

namespace onedispatch::sim {

class Occurrences {
 public:
  // When a parameter block came to its core: the segment of its first word, and where in that.
  using Delivery = std::pair<uint32_t, uint32_t>;

  // The one that the core begins now, as numbered by their first cores. Blocks of different operations may be equal, and a
  // core without a tile leaves an occurrence out: of those of the operation that are later than the core's last one, it is
  // the last whose blocks began to come before the core's own; else the first of them, or a new one where there is none.
  uint32_t begin(uint32_t core, const CallableOperation* operation, Delivery delivered) {
    std::vector<Begun>& all = begun_[operation];
    uint32_t& next = next_[core];
    auto found = std::lower_bound(all.begin(), all.end(), next, [](const Begun& one, uint32_t number) { return one.number < number; });
    if (found == all.end()) found = all.insert(found, {count_++, delivered});
    for (auto later = found + 1; later < all.end(); ++later)
      if (later->delivered <= delivered) found = later;
    found->delivered = std::min(found->delivered, delivered);
    next = found->number + 1;
    return found->number;
  }
  uint32_t count() const { return count_; }

 private:
  struct Begun {
    uint32_t number;
    Delivery delivered;  // the first of its blocks
  };
  uint32_t count_ = 0;
  std::unordered_map<const CallableOperation*, std::vector<Begun>> begun_;  // by ascending numbers
  std::unordered_map<uint32_t, uint32_t> next_;                             // by core: the first that it may begin
};

}  // namespace onedispatch::sim
