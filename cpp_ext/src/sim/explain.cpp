// SPDX-License-Identifier: Apache-2.0
// Says who waits for what: the text of deadlock and livelock errors.
#include <algorithm>

#include "array.h"
#include "bytes.h"
#include "onedispatch/phrases.h"
#include "onedispatch/txn_format.h"

namespace onedispatch::sim {

std::string Array::explain_lock(const Lock& lock, int32_t wanted) const {
  return " (value " + std::to_string(lock.value) + ", wanted " +
         (wanted < 0 ? ">= " + std::to_string(-wanted) : "== " + std::to_string(wanted)) + ")";
}

// The BDs that a task walks, and whether they loop.
std::string Array::explain_chain(const Channel& c) const {
  const Tile& tile = tiles_[c.tile];
  std::vector<uint32_t> seen;
  std::string text = "chain BD ";
  uint32_t at = c.task.start_bd;
  for (;;) {
    if (!seen.empty()) text += " -> ";
    text += std::to_string(at);
    if (std::find(seen.begin(), seen.end(), at) != seen.end()) return text + " (loops for ever)";
    seen.push_back(at);
    if (at >= tile.bds.size()) return text + " (does not exist)";
    const Bd bd = decode_bd(tile.kind, tile.bds[at]);
    if (!bd.use_next) return seen.size() == 1 ? "" : text;
    at = bd.next;
  }
}

std::string Array::explain_channel(const Channel& c) const {
  if (!c.running) return "";
  const Tile& tile = tiles_[c.tile];
  std::string text = channel_name(c) + ": ";
  const std::string words = counted(c.words_left, "word") + " left";
  switch (c.state) {
    case ChannelState::kAcquire: {
      const bool mem = tile.kind == TileKind::kMem;
      const Tile* owner = mem ? neighbour(tile, static_cast<int>(c.bd.acquire_lock / 64) - 1, 0) : &tile;
      const uint32_t id = mem ? c.bd.acquire_lock % 64 : c.bd.acquire_lock;
      text += "waits for lock " + std::to_string(id);
      if (owner != nullptr && owner->index != tile.index) text += " of " + tile_name(owner->index);
      if (owner != nullptr) text += explain_lock(owner->locks[id], c.bd.acquire_value);
      break;
    }
    case ChannelState::kReady:
      if (!c.mm2s) {
        text += "waits for data, " + words;
      } else if (c.queued_for_arbiter) {
        text += "waits for a packet arbiter, " + words;
      } else {
        text += "waits to send, " + words + "; not ready:";
        for (const Destination& d : c.route ? c.route->destinations : std::vector<Destination>{})
          if (channels_[d.channel].state != ChannelState::kReady)
            text +=
                " " + channel_name(channels_[d.channel]) + (channels_[d.channel].running ? "" : " (no task)");
      }
      if (paused(c)) text += " (paused)";
      break;
    case ChannelState::kMoving: text += "moves data, " + words; break;
    case ChannelState::kDelay: text += "passes an empty BD"; break;
    case ChannelState::kIdle: text += "idle"; break;
  }
  if (c.reply) return text + "; answer to a control packet, task queued by op " + std::to_string(c.task.op.index);
  text += "; BD " + std::to_string(c.bd_id);
  if (c.bd_id < tile.bd_writers.size())
    text += " written by op " + std::to_string(tile.bd_writers[c.bd_id].index);
  text += ", task queued by op " + std::to_string(c.task.op.index);
  if (c.queued > 0) text += ", " + std::to_string(c.queued) + " more waiting";
  const std::string chain = explain_chain(c);
  return chain.empty() ? text : text + ", " + chain;
}

std::string Array::explain_core(const Core& core) const {
  if (core.state != Core::State::kAcquire)
    return core.state == Core::State::kCompute ? tile_name(core.tile) + ": computes" : "";
  const uint32_t id = core.action.lock % reg::core::kLocks;
  return tile_name(core.tile) + ": its program waits for lock " + std::to_string(id) +
         explain_lock(tiles_[core.tile].locks[id], -core.action.value);
}

std::string Array::explain() const {
  constexpr size_t kLines = 24;  // more would hide the point
  std::vector<std::string> lines;
  for (const Channel& c : channels_) {
    std::string line = explain_channel(c);
    if (!line.empty()) lines.push_back(std::move(line));
  }
  for (const Core& core : cores_) {
    std::string line = explain_core(core);
    if (!line.empty()) lines.push_back(std::move(line));
  }
  std::string text;
  for (size_t i = 0; i < lines.size() && i < kLines; ++i) text += "\n  " + lines[i];
  if (lines.size() > kLines) text += "\n  and " + std::to_string(lines.size() - kLines) + " more";
  return text.empty() ? "\n  no channel has a task and no core waits" : text;
}

}  // namespace onedispatch::sim
