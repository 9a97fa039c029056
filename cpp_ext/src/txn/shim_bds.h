// SPDX-License-Identifier: Apache-2.0
// Where a transaction last wrote each shim BD, and how far a BD reaches.
#pragma once
#include <array>
#include <cstdint>

#include "txn/tile_registers.h"

namespace onedispatch::txn {

class ShimBds {
 public:
  ShimBds() { last_.fill(-1); }

  // A BLOCKWRITE of `words` words to `address`, whose payload starts at byte `payload` of the file.
  void write(uint32_t address, uint64_t words, uint64_t payload) {
    constexpr Block bds = reg::shim::DMA_BD;
    const uint64_t first = offset_of(address), end = first + 4 * words;
    if (row_of(address) != reg::SHIM_ROW || end <= bds.offset || first >= bds.end()) return;
    int64_t* const column = &last_[(address >> reg::COLUMN_SHIFT) * bds.count];
    for (uint32_t i = 0; i < bds.count; ++i)
      if (first <= bds.at(i) && bds.at(i) + bds.size <= end)
        column[i] = static_cast<int64_t>(payload + bds.at(i) - first);
  }

  // Byte of the file where the BD starts whose word 1 lies at `address`; -1 when it was not written whole.
  int64_t find(uint64_t address) const {
    constexpr Block bds = reg::shim::DMA_BD;
    const uint32_t offset = offset_of(address);
    if (address >> 32 != 0 || row_of(address) != reg::SHIM_ROW || !bds.contains(offset) || bds.byte(offset) != 4)
      return -1;
    return last_[(address >> reg::COLUMN_SHIFT) * bds.count + bds.index(offset)];
  }

 private:
  // By column and BD; every column that 32 bits of address can name.
  std::array<int64_t, (1u << (32 - reg::COLUMN_SHIFT)) * reg::shim::kBds> last_;
};

// Bytes from a shim BD's base to the end of what its first execution touches, 0 when it moves nothing.
uint64_t shim_extent(const uint8_t* words);

}  // namespace onedispatch::txn
