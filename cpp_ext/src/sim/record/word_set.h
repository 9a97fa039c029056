// SPDX-License-Identifier: Apache-2.0
// Sets of words of an argument, a bit for each.
#pragma once
#include <cstdint>

#include "sim/array/bit_groups.h"
#include "sim/array/memory.h"

namespace onedispatch::sim {

constexpr uint32_t kLine = 64;  // words whose bits lie together

// The words [first, first + count), line by line: calls use(line, bits).
template <typename Use>
void for_lines(uint32_t first, uint32_t count, Use use) {
  for_groups(first, count, [&use](uint64_t line, uint64_t bits) {
    use(static_cast<uint32_t>(line), bits);
    return true;
  });
}

class WordSet {
 public:
  explicit WordSet(uint64_t words = 0) : lines_((words + kLine - 1) / kLine) {}

  bool empty() const { return lines_.size() == 0; }
  uint64_t& line(uint32_t index) { return lines_[index]; }
  void add(uint32_t first, uint32_t count) {
    for_lines(first, count, [this](uint32_t line, uint64_t bits) { lines_[line] |= bits; });
  }
  // The same; calls use(first, count) for each run of words that were not there.
  template <typename Use>
  void add_new(uint32_t first, uint32_t count, Use use) {
    Runs<Use> runs(use);
    for_lines(first, count, [&](uint32_t line, uint64_t bits) {
      runs.add(line, bits & ~lines_[line]);
      lines_[line] |= bits;
    });
    runs.end();
  }
  // Takes the words out; calls use(first, count) for each run of those that were there.
  template <typename Use>
  void take(uint32_t first, uint32_t count, Use use) {
    Runs<Use> runs(use);
    for_lines(first, count, [&](uint32_t line, uint64_t bits) {
      runs.add(line, bits & lines_[line]);
      lines_[line] &= ~bits;
    });
    runs.end();
  }
  // Calls use(first, count) for each run of words.
  template <typename Use>
  void for_runs(Use use) const {
    Runs<Use> runs(use);
    for (size_t line = 0; line < lines_.size(); ++line) runs.add(static_cast<uint32_t>(line), lines_[line]);
    runs.end();
  }

 private:
  // Puts runs of bits together, in the order of their lines.
  template <typename Use>
  class Runs {
   public:
    explicit Runs(Use& use) : use_(use) {}

    void add(uint32_t line, uint64_t bits) {
      while (bits != 0) {
        const auto low = static_cast<uint32_t>(__builtin_ctzll(bits));
        const uint64_t after = ~(bits >> low);
        const uint32_t count = after == 0 ? kLine : static_cast<uint32_t>(__builtin_ctzll(after));
        const uint32_t first = line * kLine + low;
        if (first != first_ + count_) {
          end();
          first_ = first;
        }
        count_ += count;
        bits &= ~group_mask(low, count);
      }
    }

    void end() {
      if (count_ != 0) use_(first_, count_);
      count_ = 0;
    }

   private:
    Use& use_;
    uint32_t first_ = 0, count_ = 0;
  };

  Zeros<uint64_t> lines_;
};

}  // namespace onedispatch::sim
