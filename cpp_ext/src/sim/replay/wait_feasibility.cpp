// SPDX-License-Identifier: Apache-2.0
#include "sim/replay/wait_feasibility.h"

#include <algorithm>
#include <utility>

#include "sim/array/bytes.h"
#include "sim/transport/chains.h"
#include "sim/array/register_table.h"

namespace onedispatch::sim {

WaitFeasibility::WaitFeasibility(const Array& array, const AbsentOverlay& overlay) : array_(array), overlay_(overlay), active_(array.channels_.size()) {
  for (const Channel& c : array_.channels_) active_[c.index] = c.running && c.state != ChannelState::kAcquire;
  for (bool grown = true; grown;) {
    grown = false;
    for (const Channel& c : array_.channels_) {
      if (!c.running || may_act(c)) continue;
      const Tile& tile = array_.tiles_[c.tile];
      const auto [owner, id] = array_.lock_seen(tile, c.bd.acquire_lock);
      if (owner != nullptr && !may_be_served(*owner, id, c.bd.acquire_value)) continue;
      active_[c.index] = 1;
      grown = true;
    }
  }
}

bool WaitFeasibility::endless(const Channel& c) const {
  const Tile& tile = array_.tiles_[c.tile];
  if (!c.running || c.reply) return false;
  return (c.bd.use_next && loops(tile, c.bd.next)) || (c.repeats_left > 1 && loops(tile, c.task.start_bd));
}

bool WaitFeasibility::only_endless() const {
  const bool channels = std::all_of(array_.channels_.begin(), array_.channels_.end(), [&](const Channel& c) {
    return !c.running || c.state == ChannelState::kAcquire || c.state == ChannelState::kReady || endless(c);
  });
  return channels && std::none_of(array_.cores_.begin(), array_.cores_.end(), [&](const Core& core) {
    return overlay_.answers_soon(core) || core.state == Core::State::kCompute || core.state == Core::State::kRunning;
  });
}

// Returns true if an active channel uses the lock in its present or a later BD.
template <typename Uses>
bool WaitFeasibility::any_user(const Tile& tile, uint32_t lock, Uses uses) const {
  const int reach = tile.kind == TileKind::kMem ? 1 : 0;
  for (int side = -reach; side <= reach; ++side) {
    const Tile* user = side == 0 ? &tile : array_.neighbour(tile, side, 0);
    if (user == nullptr) continue;
    // In the view of a memory tile's BDs the locks of its west neighbour come first, then its own.
    const uint32_t seen = reach == 0 ? lock : lock + kLocksOfMemTile * static_cast<uint32_t>(1 - side);
    const auto hit = [&](uint32_t, const Bd& bd) { return uses(bd, seen); };
    for (uint32_t i = 0; i < 2 * user->channels; ++i) {
      const Channel& c = array_.channels_[user->first_s2mm + i];
      if (c.running && may_act(c) && (hit(0, c.bd) || any_to_come(*user, c, hit))) return true;
    }
  }
  return false;
}

bool WaitFeasibility::may_be_released(const Tile& tile, uint32_t lock) const {
  if (lock >= tile.locks.size() || tile.kind == TileKind::kCore) return true;  // the lock operations of a core program are not visible
  if (!tile.locks[lock].released) return true;                                 // a partner outside the transaction may
  return any_user(tile, lock, [](const Bd& bd, uint32_t seen) {
    return bd.release_value > 0 && bd.release_lock == seen;
  });
}

bool WaitFeasibility::has_users(const Tile& tile, uint32_t lock) const {
  return any_user(tile, lock, [](const Bd& bd, uint32_t seen) {
    return (bd.release_value != 0 && bd.release_lock == seen) || (bd.acquire && bd.acquire_lock == seen);
  });
}

uint64_t WaitFeasibility::tokens_to_come(const Channel& c) const {
  uint64_t tokens = c.tokens;
  if (!c.running || !may_act(c) || endless(c)) return tokens;
  tokens += c.task.token;
  const Tile& tile = array_.tiles_[c.tile];
  for (uint32_t i = 0; i < c.queued && !loops(tile, c.queue[i].start_bd); ++i) tokens += c.queue[i].token;
  return tokens;
}

std::string WaitFeasibility::why_no_token(const Channel& c) const {
  const std::string name = array_.channel_name(c);
  if (!c.running) return name + " has no task";
  if (!may_act(c)) return "no active channel releases the lock it waits for: " + array_.explain_channel(c);
  if (endless(c)) return "its task never ends: " + array_.explain_channel(c);
  return "none of the tasks of " + name + " gives a token";
}

std::string WaitFeasibility::why_tokens_cannot_come(const std::vector<Channel*>& channels) const {
  for (const Channel* c : channels)
    if (tokens_to_come(*c) == 0 && !overlay_.has_unseen_tasks(*c)) return why_no_token(*c);
  return "";
}

std::string WaitFeasibility::why_tokens_cannot_come(uint32_t tokens, uint32_t columns) const {
  uint64_t most = 0;
  for (const Channel& c : array_.channels_)
    if (array_.tiles_[c.tile].column < columns) most += tokens_to_come(c);
  return most >= tokens ? "" : "the tasks that can still end give " + std::to_string(most);
}

std::string WaitFeasibility::why_request_cannot_succeed(uint64_t address, uint32_t value) const {
  uint32_t tile = 0, id = 0;
  int32_t wanted = 0;
  if ((value & 1) == 0 || !array_.find_acquire(address, &tile, &id, &wanted)) return "";
  const Tile& owner = array_.tiles_[tile];
  if (may_be_served(owner, id, wanted)) return "";
  return "lock " + std::to_string(id) + " holds " + std::to_string(owner.locks[id].value) +
         ", and no active channel changes it";
}

std::string WaitFeasibility::why_status_cannot_change(const Channel& c, uint32_t mask, uint32_t value) const {
  const std::string holds = array_.channel_name(c) + " holds " + hex(array_.status_of(c));
  if (!c.running) return holds + ": it has no task, and none is pushed while this waits";
  if (!may_act(c)) return holds + ": " + array_.explain_channel(c) + ", which no active channel releases";
  const bool wants_end = reg::status::running.get(mask) != 0 && reg::status::running.get(value) == 0;
  const bool wants_empty = reg::status::queue_size.get(mask) != 0 && reg::status::queue_size.get(value) < c.queued;
  if (endless(c) && (wants_end || wants_empty))
    return holds + ": its task never ends: " + array_.explain_channel(c);
  return "";
}

// Returns true if the channel may still write the byte at `offset` of the tile's memory.
bool WaitFeasibility::may_write(const Channel& c, const Tile& tile, uint32_t offset) const {
  if (!c.running || !may_act(c)) return false;
  const Tile& own = array_.tiles_[c.tile];
  const auto another = [&](uint32_t id, const Bd&) { return id != c.bd_id; };
  if (c.bd_id >= own.bds.size() || counts_iterations(own, c.bd_id) || any_to_come(own, c, another)) return true;
  const uint64_t byte = tile.memory.first_byte + offset;
  return c.memory == tile.memory.whole && c.first_byte <= byte && byte < c.first_byte + c.span_bytes;
}

// Data memory is written by S2MM channels of the tile and its neighbours, and by core programs.
std::string WaitFeasibility::why_memory_cannot_change(const Tile& tile, uint32_t offset) const {
  const auto writes = [&](const Tile* user) {
    if (user == nullptr) return false;
    if (user->core != kNone && array_.cores_[user->core].program) return true;
    const auto* const first = array_.channels_.data() + user->first_s2mm;
    return std::any_of(first, first + user->channels,
                       [&](const Channel& c) { return may_write(c, tile, offset); });
  };
  if (writes(&tile)) return "";
  for (const auto& [columns, rows] : {std::pair{-1, 0}, {1, 0}, {0, -1}, {0, 1}})
    if (writes(array_.neighbour(tile, columns, rows))) return "";
  return "no active channel or core writes that word of memory";
}

// A BD changes by itself only if it counts its iterations.
std::string WaitFeasibility::why_bd_cannot_change(const Tile& tile, uint32_t bd) const {
  const auto counted_by = [&](uint32_t id, const Bd&) { return id == bd && counts_iterations(tile, id); };
  const auto* const first = array_.channels_.data() + tile.first_s2mm;
  const bool changes = std::any_of(first, first + 2 * tile.channels, [&](const Channel& c) {
    return c.running && may_act(c) && (counted_by(c.bd_id, c.bd) || any_to_come(tile, c, counted_by));
  });
  return changes ? "" : "no active channel counts runs in BD " + std::to_string(bd);
}

std::string WaitFeasibility::why_poll_cannot_succeed(uint64_t address, uint32_t mask, uint32_t value) const {
  const Tile& tile = array_.tiles_[array_.tile_of(address)];
  const uint32_t offset = static_cast<uint32_t>(address) & reg::OFFSET_MASK;
  const RegisterInfo* info = find_register(tile.kind, offset);
  if (info == nullptr) return "";
  const uint32_t index = info->block.index(offset);
  switch (info->what) {
    case Treatment::kTimerLow:
    case Treatment::kTimerHigh: return "";  // time always advances
    case Treatment::kStatus: {
      const uint32_t first = info->mm2s ? tile.first_mm2s : tile.first_s2mm;
      return why_status_cannot_change(array_.channels_[first + index], mask, value);
    }
    case Treatment::kLockRequest: return why_request_cannot_succeed(address, value);
    case Treatment::kLockValue:
      if (tile.kind == TileKind::kCore || !tile.locks[index].waiters.empty() || has_users(tile, index)) return "";
      return "it holds " + std::to_string(tile.locks[index].value) + ", and no active channel uses it";
    case Treatment::kMemory: return why_memory_cannot_change(tile, offset);
    case Treatment::kBd: return why_bd_cannot_change(tile, index);
    case Treatment::kCoreStatus:
      return array_.cores_[tile.core].program ? "" : array_.tile_name(tile.index) + " has no program that runs";
    default:
      return std::string(info->name) + " of " + array_.tile_name(tile.index) +
             " changes only when it is written, and nothing is written while this waits";
  }
}

}  // namespace onedispatch::sim
