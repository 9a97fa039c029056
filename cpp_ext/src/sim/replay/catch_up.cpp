// SPDX-License-Identifier: Apache-2.0
// Keeps the order that cores would have kept.
//
// On hardware a task that feeds cores has ended before the output that depends on it, and
// transactions count on that: when the output has arrived, they write locks and BDs anew. In a replay
// the streams to and from absent programs are open, so outputs may overtake inputs. Therefore a write
// that takes away what a running task still needs waits until that task has had time to end: a lock
// that its BDs use, a BD that it will load, a place in a full task queue. It waits as long as tasks whose
// chains end make progress, however much they have to move, and for those that never end for a while.
// So what really is wrong in a transaction stays so.
#include <algorithm>

#include "sim/array/bytes.h"
#include "sim/transport/chains.h"
#include "onedispatch/txn_format.h"
#include "sim/array/register_table.h"
#include "sim/replay/absent_overlay.h"

namespace onedispatch::sim {

void AbsentOverlay::give_up() {
  for (const Channel& c : array_.channels_)
    if (c.running) streams_[c.index].given_up = c.tasks;
}

bool AbsentOverlay::takes_away(uint64_t address, uint32_t words, uint32_t value) const {
  const uint64_t column = address >> reg::COLUMN_SHIFT;
  const uint32_t row = static_cast<uint32_t>(address >> reg::ROW_SHIFT) & reg::ROW_MASK;
  if (column >= array_.device_.columns || row >= array_.rows_ || words == 0) return false;
  const Tile& tile = array_.tiles_[array_.tile_index(static_cast<uint32_t>(column), row)];
  const uint32_t offset = static_cast<uint32_t>(address) & reg::OFFSET_MASK;
  const RegisterInfo* info = offset % 4 == 0 ? find_register(tile.kind, offset) : nullptr;
  if (info == nullptr) return false;
  const uint32_t first = info->block.index(offset);
  switch (info->what) {
    case Treatment::kQueue: {
      const Channel& c = array_.channels_[(info->mm2s ? tile.first_mm2s : tile.first_s2mm) + first];
      return c.queued == array_.device_.geometry.queue_depth && is_waited_for(c);
    }
    case Treatment::kBd: return takes_bds(tile, first, info->block.index(offset + 4 * std::min(words, 0x4000u) - 4));
    case Treatment::kLockValue: return takes_lock(tile, first, static_cast<int32_t>(value));
    default: return false;
  }
}

bool AbsentOverlay::takes_bds(const Tile& tile, uint32_t first, uint32_t last) const {
  const auto hit = [&](uint32_t id, const Bd&) { return first <= id && id <= last; };
  const Channel* const channels = array_.channels_.data() + tile.first_s2mm;
  return std::any_of(channels, channels + 2 * tile.channels, [&](const Channel& c) {
    if (!is_waited_for(c) || c.bd_id >= tile.bds.size()) return false;
    // The BD that it works on has been read, but for the counter in it.
    return (hit(c.bd_id, c.bd) && counts_iterations(tile, c.bd_id)) || any_to_come(tile, c, hit);
  });
}

bool AbsentOverlay::takes_lock(const Tile& tile, uint32_t id, int32_t value) const {
  if (tile.kind == TileKind::kCore) return false;
  const Lock& lock = tile.locks[id];
  Lock written;
  written.value = value;
  // A lock that no core or DMA releases is the transaction's own way to start the task that waits.
  const bool starts = !lock.waiters.empty() && lock.waiters.front().kind == Waiter::Kind::kChannel &&
                      Array::can_acquire(written, array_.channels_[lock.waiters.front().index].bd.acquire_value);
  const bool alike = starts || lock.value == value;
  const int reach = tile.kind == TileKind::kMem ? 1 : 0;
  for (int side = -reach; side <= reach; ++side) {
    const Tile* user = side == 0 ? &tile : array_.neighbour(tile, side, 0);
    if (user == nullptr) continue;
    const uint32_t seen = reach == 0 ? id : id + kLocksOfMemTile * static_cast<uint32_t>(1 - side);
    const auto releases = [&](const Bd& bd) { return bd.release_value != 0 && bd.release_lock == seen; };
    const auto acquires = [&](const Bd& bd) { return !alike && bd.acquire && bd.acquire_lock == seen; };
    const auto uses = [&](uint32_t, const Bd& bd) { return releases(bd) || acquires(bd); };
    for (uint32_t i = 0; i < 2 * user->channels; ++i) {
      const Channel& c = array_.channels_[user->first_s2mm + i];
      if (!is_waited_for(c)) continue;
      if (releases(c.bd) || (c.state == ChannelState::kAcquire && acquires(c.bd))) return true;
      if (any_to_come(*user, c, uses)) return true;
    }
  }
  return false;
}

}  // namespace onedispatch::sim
