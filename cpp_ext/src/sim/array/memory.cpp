// SPDX-License-Identifier: Apache-2.0
#include "sim/array/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "sim/array/bit_groups.h"

namespace onedispatch::sim {
namespace {

// Threads may write to disjoint parts of one buffer whose words share a group. On x86 these are the
// plain instructions, but for the rare group that changes.
uint64_t load(const uint64_t& group) { return __atomic_load_n(&group, __ATOMIC_RELAXED); }
bool holds(const uint64_t& group, uint64_t mask) { return (load(group) & mask) == mask; }

// The same of a bit map with another over it: edge(group, mask) for the groups at both ends, and
// inside(group, mask) for the map of the groups between them.
template <typename Edge, typename Inside>
bool for_parts(uint64_t first, uint64_t count, Edge edge, Inside inside) {
  const uint64_t low = first & 63, end = first + count;
  if (low + count <= 128) return for_groups(first, count, edge);
  const uint64_t after = (first >> 6) + 1;
  return edge(after - 1, group_mask(low, 64 - low)) && for_groups(after, (end >> 6) - after, inside) &&
         ((end & 63) == 0 || edge(end >> 6, group_mask(0, end & 63)));
}

constexpr size_t kManyZeros = size_t{1} << 17;  // bytes; below, a mapping costs more than clearing

}  // namespace

void* map_zeros(size_t bytes) {
  void* block;
  if (bytes < kManyZeros) {
    block = std::calloc(bytes, 1);
  } else {
    block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) block = nullptr;
  }
  if (block == nullptr && bytes != 0) throw std::bad_alloc();
  return block;
}

void unmap_zeros(void* block, size_t bytes) {
  if (bytes < kManyZeros) {
    std::free(block);
  } else {
    munmap(block, bytes);
  }
}

void ValidMap::add(uint64_t group, uint64_t mask) {
  if (holds(bits_[group], mask)) return;
  const uint64_t before = __atomic_fetch_or(&bits_[group], mask, __ATOMIC_RELAXED);
  if ((before | mask) == ~uint64_t{0}) __atomic_fetch_or(&full_[group >> 6], uint64_t{1} << (group & 63), __ATOMIC_RELAXED);
}

void ValidMap::mark(uint64_t first, uint64_t count) {
  if (!any()) __atomic_store_n(&any_, true, __ATOMIC_RELAXED);
  const auto edge = [this](uint64_t group, uint64_t mask) { return add(group, mask), true; };
  const auto inside = [&](uint64_t group, uint64_t mask) {
    const uint64_t missing = mask & ~load(full_[group]);  // groups whose words are all of this range
    for (uint64_t left = missing; left != 0; left &= left - 1)
      __atomic_store_n(&bits_[group * 64 + static_cast<uint64_t>(__builtin_ctzll(left))], ~uint64_t{0}, __ATOMIC_RELAXED);
    if (missing != 0) __atomic_fetch_or(&full_[group], missing, __ATOMIC_RELAXED);
    return true;
  };
  for_parts(first, count, edge, inside);
}

void ValidMap::forget(uint64_t first, uint64_t count) {
  for_groups(first, count, [this](uint64_t group, uint64_t mask) {
    bits_[group] &= ~mask;
    full_[group >> 6] &= ~(uint64_t{1} << (group & 63));
    return true;
  });
}

bool ValidMap::all_written(uint64_t first, uint64_t count) const {
  const auto edge = [this](uint64_t group, uint64_t mask) { return holds(bits_[group], mask); };
  const auto inside = [this](uint64_t group, uint64_t mask) { return holds(full_[group], mask); };
  return for_parts(first, count, edge, inside);
}

uint64_t ValidMap::count_unwritten(uint64_t first, uint64_t count) const {
  uint64_t unwritten = 0;
  if (all_written(first, count)) return unwritten;
  for_groups(first, count, [&](uint64_t group, uint64_t mask) {
    unwritten += static_cast<uint64_t>(__builtin_popcountll(mask & ~load(bits_[group])));
    return true;
  });
  return unwritten;
}

uint64_t ValidMap::first_unwritten(uint64_t first, uint64_t count) const {
  const uint64_t end = first + count;
  if (all_written(first, count)) return end;
  while (first < end && (load(bits_[first >> 6]) >> (first & 63) & 1)) ++first;
  return first;
}

}  // namespace onedispatch::sim
