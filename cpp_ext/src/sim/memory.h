// SPDX-License-Identifier: Apache-2.0
// Memory that knows which of its words were ever written.
#pragma once
#include <cstdint>
#include <vector>

namespace onedispatch::sim {

// One bit per 32-bit word. Ranges are word indices [first, first + count).
class ValidMap {
 public:
  explicit ValidMap(uint64_t words = 0) : bits_((words + 63) / 64), words_(words) {}

  void mark(uint64_t first, uint64_t count);
  void forget() { bits_.assign(bits_.size(), 0); }
  // The first word of the range that nobody wrote, or first + count when all were.
  uint64_t first_unwritten(uint64_t first, uint64_t count) const;
  bool all_written(uint64_t first, uint64_t count) const;
  uint64_t words() const { return words_; }

 private:
  std::vector<uint64_t> bits_;
  uint64_t words_;
};

// Bytes plus their map. Owned by a tile; the bytes start as zero but count as unwritten.
struct Memory {
  std::vector<uint8_t> bytes;
  ValidMap valid;

  explicit Memory(uint32_t size = 0) : bytes(size), valid(size / 4) {}
};

}  // namespace onedispatch::sim
