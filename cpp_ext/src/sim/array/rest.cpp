// SPDX-License-Identifier: Apache-2.0
// An array at rest: as a run must leave it, so that the next one finds what the overlay laid.
//
// - No channel has a task, and no control port has something to send. A task that the overlay pushed
//   may wait for the lock, or for the first word, of a BD.
// - No packet is open: it would hold its arbiters for ever.
// - A core is stopped, or its program has halted, or waits for the lock that it acquired first: what
//   a persistent program waits for between operators.
// - A lock has the value that its value register was last written with, by the overlay or by the run;
//   0 when it never was. Acquires and releases since then cancel out.
#include "sim/array/array.h"

namespace onedispatch::sim {

bool Array::at_rest(const Channel& c) const {
  if (!c.running) return !c.packet_open;
  if (!c.task.resident || c.packet_open || c.reply) return false;
  for (uint32_t i = 0; i < c.queued; ++i)
    if (!c.queue[i].resident) return false;
  return c.state == ChannelState::kAcquire ||
         (c.state == ChannelState::kReady && c.words_left == c.bd.shape.length);
}

std::string Array::left_in(const Core& core) const {
  if (core.state == Core::State::kStopped || core.state == Core::State::kHalted) return "";
  if (core.state == Core::State::kAcquire) {
    if (core.action->lock == core.home_lock) return "";
    return explain_core(core) + ", inside an operator";
  }
  return tile_name(core.tile) + ": its program was stopped inside an operator, or never ends";
}

std::vector<std::string> Array::left_over() const {
  std::vector<std::string> lines;
  for (const Channel& c : channels_) {
    if (at_rest(c)) continue;
    lines.push_back(c.running ? explain_channel(c)
                              : channel_name(c) + ": a packet that no TLAST ended holds its arbiters");
  }
  for (const Core& core : cores_) {
    std::string line = left_in(core);
    if (!line.empty()) lines.push_back(std::move(line));
  }
  for (const Tile& tile : tiles_) {
    for (size_t id = 0; id < tile.locks.size(); ++id) {
      const Lock& lock = tile.locks[id];
      if (lock.value == lock.rest) continue;
      lines.push_back(tile_name(tile.index) + ": lock " + std::to_string(id) + " is " +
                      std::to_string(lock.value) + ", last set to " + std::to_string(lock.rest));
    }
  }
  return lines;
}

}  // namespace onedispatch::sim
