// SPDX-License-Identifier: Apache-2.0
// Quiescence of the array: the state in which a run must leave it for the next run. A quiescent array:
//
// - No channel has a task, and no control port has words to send. A task that the overlay pushed may
//   wait for the lock, or for the first word, of a BD.
// - No packet is open: an open packet would hold its arbiters for ever.
// - Every core is stopped or halted, or waits for the lock that its program acquired first, as a
//   persistent program does between operators.
// - Every lock holds the value last written to its value register, or 0 without such a write: acquires
//   and releases since then cancel out.
#include "sim/array/array.h"

namespace onedispatch::sim {

bool Array::quiescent(const Channel& c) const {
  if (!c.running) return !c.packet_open;
  if (!c.task.resident || c.packet_open || c.reply) return false;
  for (uint32_t i = 0; i < c.queued; ++i)
    if (!c.queue[i].resident) return false;
  return c.state == ChannelState::kAcquire ||
         (c.state == ChannelState::kReady && c.words_left == c.bd.shape.length);
}

std::string Array::residue_of(const Core& core) const {
  if (core.state == Core::State::kStopped || core.state == Core::State::kHalted) return "";
  if (core.state == Core::State::kAcquire) {
    if (core.action->lock == core.home_lock) return "";
    return explain_core(core) + ", inside an operator";
  }
  return tile_name(core.tile) + ": its program was stopped inside an operator, or never ends";
}

std::vector<std::string> Array::residue() const {
  std::vector<std::string> lines;
  for (const Channel& c : channels_) {
    if (quiescent(c)) continue;
    lines.push_back(c.running ? explain_channel(c)
                              : channel_name(c) + ": a packet that no TLAST ended holds its arbiters");
  }
  for (const Core& core : cores_) {
    std::string line = residue_of(core);
    if (!line.empty()) lines.push_back(std::move(line));
  }
  for (const Tile& tile : tiles_) {
    for (size_t id = 0; id < tile.locks.size(); ++id) {
      const Lock& lock = tile.locks[id];
      if (lock.value == lock.last_set) continue;
      lines.push_back(tile_name(tile.index) + ": lock " + std::to_string(id) + " is " +
                      std::to_string(lock.value) + ", last set to " + std::to_string(lock.last_set));
    }
  }
  return lines;
}

}  // namespace onedispatch::sim
