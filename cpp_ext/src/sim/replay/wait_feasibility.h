// SPDX-License-Identifier: Apache-2.0
// Decides whether the wait of a replay's controller can still be satisfied.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "sim/replay/absent_overlay.h"

namespace onedispatch::sim {

// The channels that may still act in the present state of the array, a conservative approximation: a
// channel that waits for a lock may act if an active channel, or a partner outside the transaction, can
// release the lock. While the controller waits, no task is pushed, no register written and no BD
// reloaded, except by control packets; a replay with control packets is never judged.
class WaitFeasibility {
 public:
  WaitFeasibility(const Array& array, const AbsentOverlay& overlay);

  // Returns why (register & mask) == value can never become true; "" if it may.
  std::string why_poll_cannot_succeed(uint64_t address, uint32_t mask, uint32_t value) const;
  // Returns why one of the channels can never issue a token; "" if all may.
  std::string why_tokens_cannot_come(const std::vector<Channel*>& channels) const;
  // Returns why the first `columns` columns can never issue so many tokens; "" if they may.
  std::string why_tokens_cannot_come(uint32_t tokens, uint32_t columns) const;
  // Returns true if endless BD chains are all that still moves.
  bool only_endless() const;

 private:
  bool may_act(const Channel& c) const { return active_[c.index] != 0; }
  bool endless(const Channel& c) const;
  bool may_be_released(const Tile& tile, uint32_t lock) const;
  bool has_users(const Tile& tile, uint32_t lock) const;
  bool may_be_used(const Tile& tile, uint32_t lock) const {
    return may_be_released(tile, lock) || has_users(tile, lock);
  }
  // Returns true if an acquire of `wanted` may still be granted.
  bool may_be_served(const Tile& tile, uint32_t lock, int32_t wanted) const {
    return wanted < 0 ? may_be_released(tile, lock) : may_be_used(tile, lock);
  }
  uint64_t tokens_to_come(const Channel& c) const;
  std::string why_request_cannot_succeed(uint64_t address, uint32_t value) const;
  std::string why_status_cannot_change(const Channel& c, uint32_t mask, uint32_t value) const;
  std::string why_no_token(const Channel& c) const;
  bool may_write(const Channel& c, const Tile& tile, uint32_t offset) const;
  std::string why_memory_cannot_change(const Tile& tile, uint32_t offset) const;
  std::string why_bd_cannot_change(const Tile& tile, uint32_t bd) const;
  template <typename Uses>
  bool any_user(const Tile& tile, uint32_t lock, Uses uses) const;

  const Array& array_;
  const AbsentOverlay& overlay_;
  std::vector<uint8_t> active_;
};

}  // namespace onedispatch::sim
