// SPDX-License-Identifier: Apache-2.0
// What channels will still do: the BDs of their tasks, as the registers hold them now.
#pragma once
#include <algorithm>

#include "sim/array/array.h"

namespace onedispatch::sim {

// Calls use(bd id, bd) for every BD that the chain from `first` on loads, until it is true.
template <typename Use>
bool any_of_chain(const Tile& tile, uint32_t first, Use use) {
  uint32_t id = first;
  for (size_t steps = 0; steps < tile.bds.size() && id < tile.bds.size(); ++steps) {
    const Bd bd = decode_bd(tile.kind, tile.bds[id]);
    if (use(id, bd)) return true;
    if (!bd.use_next) return false;
    id = bd.next;
  }
  return false;
}

// The same for all that a running channel will load from now on.
template <typename Use>
bool any_to_come(const Tile& tile, const Channel& c, Use use) {
  if (c.bd.use_next && any_of_chain(tile, c.bd.next, use)) return true;
  if (c.repeats_left > 1 && any_of_chain(tile, c.task.start_bd, use)) return true;
  return std::any_of(c.queue.begin(), c.queue.begin() + c.queued,
                     [&](const Task& task) { return any_of_chain(tile, task.start_bd, use); });
}

// Whether the chain from `first` on comes back to a BD that it had.
inline bool loops(const Tile& tile, uint32_t first) {
  bool ends = first >= tile.bds.size();
  any_of_chain(tile, first, [&](uint32_t, const Bd& bd) {
    ends = !bd.use_next || bd.next >= tile.bds.size();
    return ends;
  });
  return !ends;
}

// Whether a run of the BD changes the counter in it.
inline bool counts_iterations(const Tile& tile, uint32_t bd) {
  BdWords after = tile.bds[bd];
  step_iteration(tile.kind, after);
  return after != tile.bds[bd];
}

}  // namespace onedispatch::sim
