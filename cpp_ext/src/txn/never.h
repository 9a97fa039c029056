// SPDX-License-Identifier: Apache-2.0
// Polls that no state of the array can ever end: said once, for validate() and for the simulator.
#pragma once
#include <cstdint>

#include "txn/tile_registers.h"

namespace onedispatch::txn {

enum class Never : uint8_t {
  kMay,
  kOutsideMask,  // wants bits that its mask leaves out
  kCannotHold,   // the register has no such bits
  kPastLocks,    // asks for more than a lock can count
};

// Bits that a register can ever show.
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

// An acquire of 64 or more: the seven bits of a request can say it, no lock can count it.
constexpr bool asks_too_much(uint32_t offset) {
  const uint32_t inside = offset % reg::LOCK_REQUEST_STRIDE;
  const uint32_t value = inside >> reg::LOCK_REQUEST_VALUE_SHIFT & reg::LOCK_REQUEST_VALUE_MASK;
  const uint32_t acquire = inside & reg::LOCK_REQUEST_ACQUIRE, sign = reg::LOCK_REQUEST_VALUE_MASK / 2 + 1;
  return acquire != 0 && value >= sign && reg::LOCK_REQUEST_VALUE_MASK + 1 - value > reg::LOCK_MAX;
}

// A poll for (register & mask) == value at `offset` of a tile.
inline Never never_true(Tile tile, uint32_t offset, uint32_t mask, uint32_t value) {
  if ((value & ~mask) != 0) return Never::kOutsideMask;
  if (value == 0 || tile == Tile::kNone) return Never::kMay;
  const Role role = roles(tile)[offset / 4];
  if ((value & ~bits_of(role)) != 0) return Never::kCannotHold;
  return role == Role::kRequest && asks_too_much(offset) ? Never::kPastLocks : Never::kMay;
}

}  // namespace onedispatch::txn
