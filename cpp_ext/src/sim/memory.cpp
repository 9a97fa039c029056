// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include <algorithm>

namespace onedispatch::sim {
namespace {

// Bits [low, low + count) of one 64-bit group; count is 1..64.
uint64_t group_mask(uint64_t low, uint64_t count) {
  const uint64_t ones = count >= 64 ? ~0ull : (1ull << count) - 1;
  return ones << low;
}

}  // namespace

void ValidMap::mark(uint64_t first, uint64_t count) {
  while (count > 0) {
    const uint64_t low = first & 63;
    const uint64_t here = std::min<uint64_t>(count, 64 - low);
    bits_[first >> 6] |= group_mask(low, here);
    first += here;
    count -= here;
  }
}

uint64_t ValidMap::first_unwritten(uint64_t first, uint64_t count) const {
  const uint64_t end = first + count;
  while (first < end) {
    const uint64_t low = first & 63;
    const uint64_t here = std::min<uint64_t>(end - first, 64 - low);
    const uint64_t mask = group_mask(low, here);
    if ((bits_[first >> 6] & mask) != mask) break;
    first += here;
  }
  while (first < end && (bits_[first >> 6] >> (first & 63) & 1)) ++first;
  return first;
}

}  // namespace onedispatch::sim
