// SPDX-License-Identifier: Apache-2.0
// In which order the parts of a recorded run must come: whoever reads a word of device memory after its last
// writer and before its next.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "sim/array/ddr.h"
#include "sim/record/recording.h"
#include "sim/record/dataflow.h"

namespace onedispatch::sim {

class Order {
 public:
  Order(const Dataflow& flow, const DdrRegions& regions);

  // The occurrence reads the slice, or the access to device memory.
  void reads(uint32_t occurrence, const Slice& slice);
  void reads_access(uint32_t occurrence, uint32_t access);
  // The access writes words that the part computed.
  void writes(uint32_t access, uint32_t part, uint32_t first, uint32_t words);

  // The level of each occurrence: it depends on lower ones alone. Throws NotRecordable where there is no such order.
  std::vector<uint32_t> levels(const std::vector<Recording::Part>& parts, uint32_t occurrences);
  // Known after that: words of an access that another part of the same occurrence writes later.
  struct Cut {
    uint32_t access, part, first, words;
  };
  const std::vector<Cut>& cuts() const { return cuts_; }
  // Known after that: words that are there before the run, those of them that decide what it does, and what it writes.
  std::vector<WordRange> read_from_outside() const { return ranges(outside_); }
  std::vector<WordRange> deciding() const { return ranges(deciding_); }
  std::vector<WordRange> written() const { return ranges(written_); }

 private:
  using Bits = std::vector<std::vector<bool>>;  // by argument and word

  void follow();
  void follow_read(uint32_t index);
  void follow_write(uint32_t index);
  void mark_deciding();
  uint32_t occurrence_of(uint32_t part) const { return (*parts_)[part].occurrence; }
  void precede(uint32_t first, uint32_t second);
  uint32_t with(uint32_t set, const std::vector<uint32_t>& members);
  std::vector<WordRange> ranges(const Bits& bits) const;

  struct Written {
    uint32_t part, first, words;
  };
  struct Word {
    uint32_t writer = 0;   // part + 1
    uint32_t access = 0;   // by which it wrote
    uint32_t readers = 0;  // a set, since the last write
  };

  const Dataflow& flow_;
  const std::vector<Recording::Part>* parts_ = nullptr;
  std::vector<Cut> cuts_;
  std::vector<std::vector<uint32_t>> consumers_;  // occurrences, by access
  std::vector<std::vector<Written>> writes_;      // by access
  std::vector<uint8_t> decides_;                  // by access
  std::vector<std::vector<Word>> words_;          // by argument, of those that the run writes
  Bits outside_, deciding_, written_;
  std::vector<std::vector<uint32_t>> sets_{{}};
  std::unordered_map<uint64_t, uint32_t> grown_;  // set and member: the set with it
  std::unordered_set<uint64_t> edges_;
};

}  // namespace onedispatch::sim
