// SPDX-License-Identifier: Apache-2.0
// In which order the parts of a recorded run must come: a reader of a word of device memory after its last
// writer and before its next.
#pragma once
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "sim/array/ddr.h"
#include "sim/record/dataflow.h"
#include "sim/record/recording.h"
#include "sim/record/word_set.h"

namespace onedispatch::sim {

// Occurrences that depend on each other in a circle, or on themselves.
struct Circle : NotRecordable {
  explicit Circle(std::vector<uint32_t> members) : NotRecordable{"operations depend on each other in a circle"}, occurrences(std::move(members)) {}
  std::vector<uint32_t> occurrences;  // in order
};

class Order {
 public:
  Order(const Dataflow& flow, const DdrRegions& regions);

  // The occurrence reads the slice, or the access to device memory.
  void reads(uint32_t occurrence, const Slice& slice);
  void reads_access(uint32_t occurrence, uint32_t access);

  // The level of each occurrence: it depends on lower ones alone. What accesses store is in the order in which it
  // happened, and ends for each where `ends` says. Throws Circle where there is no such order.
  std::vector<uint32_t> levels(const std::vector<Recording::Part>& parts, const std::vector<Stored>& stored, const std::vector<uint32_t>& ends, uint32_t occurrences);
  // Occurrence `to` reads what `from` left on the chip.
  struct Handed {
    uint32_t from, to;
  };
  std::vector<Handed> on_chip() const;
  // Known after levels(): whether the occurrence writes a word more than once.
  bool rewrites(uint32_t occurrence) const { return rewrites_[occurrence] != 0; }
  // Known after that: words that are there before the run, those of them that decide what it does, and what it writes.
  std::vector<WordRange> read_from_outside() const { return ranges(&Argument::outside); }
  std::vector<WordRange> deciding() const { return ranges(&Argument::deciding); }
  std::vector<WordRange> written() const { return ranges(&Argument::written); }

 private:
  // Words of a line that one occurrence wrote last and the same ones have read since. Lines have few shares: one or two
  // where a tensor lies, and more at its ends.
  struct Share {
    uint64_t words;  // bits; none: it waits for others
    uint32_t writer;
    uint32_t readers;  // a set
    uint32_t next;     // of the line; 0: none
  };
  struct Argument {
    uint64_t words = 0;
    WordSet outside, deciding, written;
    Zeros<Share> lines;  // the first share of each, where the run writes to it
  };
  // An access that is followed, and what it met last.
  struct Reader {
    uint32_t access;
    uint32_t writer = ~0u;
    uint32_t before = ~0u, after = 0;  // sets of readers
  };

  void follow_read(uint32_t access);
  void read_line(Reader& reader, Argument& argument, uint32_t line, uint64_t words);
  void meet(Reader& reader, const Share& share);
  void follow_write(const Stored& stored, uint32_t occurrence);
  void overwrite(const Share& share, uint32_t occurrence);
  Share* after(const Share& share) { return share.next == 0 ? nullptr : &shares_[share.next]; }
  void put(Share& first, const Share& added);
  void mark_deciding();
  void precede(uint32_t first, uint32_t second);
  uint32_t with(uint32_t set, uint32_t member);
  std::vector<uint32_t> sorted(uint32_t occurrences) const;
  std::vector<WordRange> ranges(WordSet Argument::*set) const;

  const Dataflow& flow_;
  std::vector<uint32_t> consumers_;               // sets of occurrences, by access
  std::vector<uint8_t> decides_;                  // by access
  std::vector<uint8_t> rewrites_;                 // by occurrence
  std::vector<Argument> arguments_;
  std::vector<Share> shares_{{}};  // behind the first of their lines, and behind one that stands for none
  std::vector<Share> moved_;       // by the read that is followed
  Share overwritten_{};            // last, by the occurrence `writes_`
  uint32_t writes_ = ~0u;
  std::deque<std::vector<uint32_t>> sets_{{}};    // of occurrences; the first is empty; they stay where they are
  std::unordered_map<uint64_t, uint32_t> grown_;  // set and member: the set with it
  std::unordered_set<uint64_t> edges_, on_chip_;
};

}  // namespace onedispatch::sim
