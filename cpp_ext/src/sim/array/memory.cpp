// SPDX-License-Identifier: Apache-2.0
#include "sim/array/memory.h"

#include <algorithm>

namespace onedispatch::sim {
namespace {

// Bits [low, low + count) of one 64-bit group; count is 1..64.
uint64_t group_mask(uint64_t low, uint64_t count) {
  const uint64_t ones = count >= 64 ? ~0ull : (1ull << count) - 1;
  return ones << low;
}

// Threads may write to disjoint parts of one buffer whose words share a group. On x86 these are the
// plain instructions, but for the rare group that changes.
uint64_t load(const uint64_t& group) { return __atomic_load_n(&group, __ATOMIC_RELAXED); }
void add(uint64_t& group, uint64_t mask) {
  if ((load(group) & mask) != mask) __atomic_fetch_or(&group, mask, __ATOMIC_RELAXED);
}

}  // namespace

void ValidMap::mark(uint64_t first, uint64_t count) {
  uint64_t* group = bits_.data() + (first >> 6);
  const uint64_t low = first & 63;
  if (low + count <= 64) {
    if (count > 0) add(*group, group_mask(low, count));
    return;
  }
  add(*group++, group_mask(low, 64 - low));
  count -= 64 - low;
  for (uint64_t i = 0; i < count / 64; ++i) __atomic_store_n(group + i, ~0ull, __ATOMIC_RELAXED);
  if (count % 64 != 0) add(group[count / 64], group_mask(0, count % 64));
}

bool ValidMap::all_written(uint64_t first, uint64_t count) const {
  const uint64_t* group = bits_.data() + (first >> 6);
  const uint64_t low = first & 63;
  const auto holds = [](const uint64_t& of, uint64_t mask) { return (load(of) & mask) == mask; };
  if (low + count <= 64) return count == 0 || holds(*group, group_mask(low, count));
  if (!holds(*group++, group_mask(low, 64 - low))) return false;
  count -= 64 - low;
  uint64_t missing = 0;  // no early exit: data is nearly always there
  for (uint64_t i = 0; i < count / 64; ++i) missing |= ~load(group[i]);
  return missing == 0 && (count % 64 == 0 || holds(group[count / 64], group_mask(0, count % 64)));
}

uint64_t ValidMap::first_unwritten(uint64_t first, uint64_t count) const {
  const uint64_t end = first + count;
  if (all_written(first, count)) return end;
  while (first < end && (load(bits_[first >> 6]) >> (first & 63) & 1)) ++first;
  return first;
}

}  // namespace onedispatch::sim
