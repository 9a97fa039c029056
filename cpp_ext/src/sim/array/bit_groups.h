// SPDX-License-Identifier: Apache-2.0
// Ranges of bit maps that are kept in groups of 64.
#pragma once
#include <cstdint>

namespace onedispatch::sim {

// Bits [low, low + count) of one 64-bit group; count is 1..64.
inline uint64_t group_mask(uint64_t low, uint64_t count) {
  const uint64_t ones = count >= 64 ? ~0ull : (1ull << count) - 1;
  return ones << low;
}

// The bits [first, first + count) of a bit map: calls use(group, mask) for each of its groups, until it is false.
template <typename Use>
bool for_groups(uint64_t first, uint64_t count, Use use) {
  const uint64_t low = first & 63;
  uint64_t group = first >> 6;
  if (low + count <= 64) return count == 0 || use(group, group_mask(low, count));
  if (!use(group++, group_mask(low, 64 - low))) return false;
  for (count -= 64 - low; count >= 64; count -= 64)
    if (!use(group++, ~uint64_t{0})) return false;
  return count == 0 || use(group, group_mask(0, count));
}

}  // namespace onedispatch::sim
