// SPDX-License-Identifier: Apache-2.0
// Whether what the controller of a replay waits for can still come about.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "sim/array/array.h"

namespace onedispatch::sim {

// Who may still act in the present state of the array, on the side of caution: a channel that waits
// for a lock may, if one that may act can release it, or a partner that the transaction does not
// show. While the controller waits nobody pushes tasks, writes registers or loads BDs anew; where
// control packets could, nothing is said.
class Hope {
 public:
  explicit Hope(const Array& array);

  // Why (register & mask) == value can never become true; "" when it may.
  std::string against_poll(uint64_t address, uint32_t mask, uint32_t value) const;
  // Why one of the channels can never give a token; "" when all may.
  std::string against_tokens(const std::vector<Channel*>& channels) const;
  // Why the first `columns` columns can never give so many; "" when they may.
  std::string against_tokens(uint32_t tokens, uint32_t columns) const;
  // Nothing moves but chains that never end.
  bool only_endless() const;

 private:
  bool lives(const Channel& c) const { return live_[c.index] != 0; }
  bool endless(const Channel& c) const;
  bool may_be_released(const Tile& tile, uint32_t lock) const;
  bool has_users(const Tile& tile, uint32_t lock) const;
  bool may_be_used(const Tile& tile, uint32_t lock) const {
    return may_be_released(tile, lock) || has_users(tile, lock);
  }
  // So that an acquire of `wanted` is granted.
  bool may_be_served(const Tile& tile, uint32_t lock, int32_t wanted) const {
    return wanted < 0 ? may_be_released(tile, lock) : may_be_used(tile, lock);
  }
  uint64_t tokens_to_come(const Channel& c) const;
  std::string against_request(uint64_t address, uint32_t value) const;
  std::string against_status(const Channel& c, uint32_t mask, uint32_t value) const;
  std::string why_no_token(const Channel& c) const;
  bool may_write(const Channel& c, const Tile& tile, uint32_t offset) const;
  std::string against_memory(const Tile& tile, uint32_t offset) const;
  std::string against_bd(const Tile& tile, uint32_t bd) const;
  template <typename Uses>
  bool any_user(const Tile& tile, uint32_t lock, Uses uses) const;

  const Array& array_;
  std::vector<uint8_t> live_;
};

}  // namespace onedispatch::sim
