// SPDX-License-Identifier: Apache-2.0
// Polls that no state of the array satisfies: one definition for validate() and the simulator.
#pragma once
#include <cstdint>

#include "txn/tile_registers.h"

namespace onedispatch::txn {

enum class UnsatisfiablePoll : uint8_t {
  kSatisfiable,  // as far as the poll alone shows
  kOutsideMask,  // the value has bits outside the mask
  kCannotHold,   // the value has bits that the register lacks
  kPastLocks,    // acquires more than a lock can count
};

// Returns the bits that a register can hold.
constexpr uint32_t bits_of(Role role) {
  switch (role) {
    case Role::kLock: return reg::LOCK_MAX;  // 63: all of its six bits
    case Role::kRequest: return 1;
    case Role::kStatus: return reg::status::kCovered;
    case Role::kNone:
    case Role::kQueue:
    case Role::kOther: break;
  }
  return ~0u;
}

// Returns true for an acquire of 64 or more: the seven bits of a request encode it, but no lock holds it.
constexpr bool acquires_too_much(uint32_t offset) {
  const uint32_t inside = offset % reg::LOCK_REQUEST_STRIDE;
  const uint32_t value = inside >> reg::LOCK_REQUEST_VALUE_SHIFT & reg::LOCK_REQUEST_VALUE_MASK;
  const uint32_t acquire = inside & reg::LOCK_REQUEST_ACQUIRE, sign = reg::LOCK_REQUEST_VALUE_MASK / 2 + 1;
  return acquire != 0 && value >= sign && reg::LOCK_REQUEST_VALUE_MASK + 1 - value > reg::LOCK_MAX;
}

// Classifies a poll for (register & mask) == value at `offset` of a tile.
inline UnsatisfiablePoll unsatisfiable_poll(Tile tile, uint32_t offset, uint32_t mask, uint32_t value) {
  if ((value & ~mask) != 0) return UnsatisfiablePoll::kOutsideMask;
  if (value == 0 || tile == Tile::kNone) return UnsatisfiablePoll::kSatisfiable;
  const Role role = roles(tile)[offset / 4];
  if ((value & ~bits_of(role)) != 0) return UnsatisfiablePoll::kCannotHold;
  return role == Role::kRequest && acquires_too_much(offset) ? UnsatisfiablePoll::kPastLocks : UnsatisfiablePoll::kSatisfiable;
}

}  // namespace onedispatch::txn
