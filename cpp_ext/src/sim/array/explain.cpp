// SPDX-License-Identifier: Apache-2.0
// Says who waits for what, and because of whom: the text of deadlock and livelock errors.
#include <algorithm>

#include "sim/array/array.h"
#include "sim/array/bytes.h"
#include "sim/transport/chains.h"
#include "onedispatch/text.h"
#include "onedispatch/txn_format.h"
#include "sim/array/register_table.h"

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
      const auto [owner, id] = lock_seen(tile, c.bd.acquire_lock);
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
  if (c.reply) {
    text += c.token_of == kNone ? "; answer to a control packet" : "; token of " + channel_name(channels_[c.token_of]);
    return text + ", task queued by op " + std::to_string(c.task.op.index);
  }
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
  const uint32_t id = core.action->lock % reg::core::kLocks;
  return tile_name(core.tile) + ": its program waits for lock " + std::to_string(id) +
         explain_lock(tiles_[core.tile].locks[id], -core.action->value);
}

// --- Who waits because of whom ---------------------------------------------------------------------

// Whether the stream of a BD of `s` reaches a channel, as the switches are set.
bool Array::sends_to(const Channel& s, const Bd& bd, uint32_t channel) const {
  const std::vector<Destination> reached = destinations_of(s, bd.packet, bd.packet_id);
  return std::any_of(reached.begin(), reached.end(), [&](const Destination& d) { return d.channel == channel; });
}

// What could end the wait for a lock: BDs of tasks that run, and the program of its core.
void Array::find_lock_servers(const Tile& owner, uint32_t id, int32_t wanted, uint32_t waits, Waiting& one) const {
  const bool rise = wanted < 0 || owner.locks[id].value < wanted;
  bool own = false;
  std::string idle;
  const int reach = owner.kind == TileKind::kMem ? 1 : 0;
  for (int side = -reach; side <= reach; ++side) {
    const Tile* const user = side == 0 ? &owner : neighbour(owner, side, 0);
    if (user == nullptr) continue;
    const uint32_t seen = id + (reach == 0 ? 0 : reg::mem::kLocks * static_cast<uint32_t>(1 - side));
    const auto helps = [&](uint32_t, const Bd& bd) {
      const bool released = bd.release_lock == seen && (rise ? bd.release_value > 0 : bd.release_value < 0);
      return released || (!rise && bd.acquire && bd.acquire_value < 0 && bd.acquire_lock == seen);
    };
    for (uint32_t i = 0; i < 2 * user->channels; ++i) {
      const Channel& c = channels_[user->first_s2mm + i];
      if (!c.running || !(helps(0, c.bd) || any_to_come(*user, c, helps))) continue;
      if (c.index == waits) own = true;
      else one.serve.push_back(c.index);
    }
    for (uint32_t bd = 0; bd < user->bds.size() && idle.empty(); ++bd) {
      const Bd found = decode_bd(user->kind, user->bds[bd]);
      if (found.valid && helps(bd, found)) idle = "BD " + std::to_string(bd) + " of " + tile_name(user->index);
    }
  }
  const uint32_t core = owner.core == kNone ? kNone : core_node(owner.core);
  if (core != kNone && core != waits && cores_[owner.core].program && cores_[owner.core].state != Core::State::kHalted)
    one.serve.push_back(core);
  if (!one.serve.empty()) return;
  const std::string verb = rise ? "releases" : "lowers";
  one.why_unserved = own ? "only what comes after it would " + std::string(rise ? "release" : "lower") + " this lock"
                   : "nothing that runs " + verb + " this lock";
  if (!own && !idle.empty()) one.why_unserved += " (" + idle + " would, but no task comes to it)";
}

void Array::find_senders(const Channel& c, Waiting& one) const {
  for (const Channel& s : channels_) {
    if (!s.mm2s || !s.running) continue;
    const auto sends = [&](uint32_t, const Bd& bd) { return sends_to(s, bd, c.index); };
    if (sends(0, s.bd) || (!s.reply && any_to_come(tiles_[s.tile], s, sends))) one.serve.push_back(s.index);
  }
  if (one.serve.empty()) one.why_unserved = "no task that runs sends to it";
}

void Array::find_receivers(const Channel& s, Waiting& one) const {
  if (s.queued_for_arbiter && s.route != nullptr)
    for (const Route::Arbiter& arbiter : s.route->arbiters)
      if (arbiter_owner_[arbiter.key] != kNone && arbiter_owner_[arbiter.key] != s.index)
        one.serve.push_back(arbiter_owner_[arbiter.key]);
  if (s.route == nullptr) return;
  for (const Destination& d : s.route->destinations) {
    const Channel& c = channels_[d.channel];
    if (!c.running) one.why_unserved = "no task takes data at " + channel_name(c);
    else if (paused(c)) one.why_unserved = channel_name(c) + " is paused";
    else if (c.state != ChannelState::kReady) one.serve.push_back(c.index);
  }
}

Waiting Array::waiting_of(const Channel& c) const {
  Waiting one;
  one.text = explain_channel(c);
  if (!c.running) return one;
  one.quiescent = quiescent(c);
  if (c.state == ChannelState::kAcquire) {
    const Tile& tile = tiles_[c.tile];
    const bool mem = tile.kind == TileKind::kMem;
    const Tile* owner = mem ? neighbour(tile, static_cast<int>(c.bd.acquire_lock / reg::mem::kLocks) - 1, 0) : &tile;
    one.stands = owner != nullptr;
    const uint32_t id = mem ? c.bd.acquire_lock % reg::mem::kLocks : c.bd.acquire_lock;
    if (owner != nullptr) find_lock_servers(*owner, id, c.bd.acquire_value, c.index, one);
  } else if (c.state == ChannelState::kReady) {
    one.stands = true;
    if (paused(c)) one.why_unserved = "its pause bit is set";
    else if (c.mm2s) find_receivers(c, one);
    else find_senders(c, one);
  }
  return one;
}

Waiting Array::waiting_of(const Core& core) const {
  Waiting one;
  one.text = explain_core(core);
  one.stands = core.state == Core::State::kAcquire;
  one.quiescent = residue_of(core).empty();
  if (one.stands)
    find_lock_servers(tiles_[core.tile], core.action->lock % reg::core::kLocks, -core.action->value,
                      core_node(core.index), one);
  return one;
}

// Returns every channel, then every core. Appends to `lines` the waits of the controller that no actor will end.
std::vector<Waiting> Array::all_waiting(const Awaited& awaited, std::vector<std::string>& lines) const {
  std::vector<Waiting> all;
  for (const Channel& c : channels_) all.push_back(waiting_of(c));
  for (const Core& core : cores_) all.push_back(waiting_of(core));
  for (const Channel* c : awaited.channels) {
    const auto gives = [](const Task& task) { return task.token; };
    if (!c->running || !(c->task.token || std::any_of(c->queue.begin(), c->queue.begin() + c->queued, gives)))
      lines.push_back("cause: " + channel_name(*c) + (c->running ? " has only tasks that give no token" : " has no task"));
    all[c->index].awaited = true;
  }
  uint32_t tile = 0, id = 0;
  int32_t wanted = 0;
  if (awaited.polled != nullptr && find_acquire(*awaited.polled, &tile, &id, &wanted)) {
    Waiting poll;
    find_lock_servers(tiles_[tile], id, wanted, kNone, poll);
    for (const uint32_t served : poll.serve) all[served].awaited = true;
    if (!poll.why_unserved.empty())
      lines.push_back("cause: the controller waits for lock " + std::to_string(id) + " of " + tile_name(tile) +
                      explain_lock(tiles_[tile].locks[id], wanted) + "; " + poll.why_unserved);
  }
  if (awaited.polled != nullptr) {
    const Tile& owner = tiles_[tile_of(*awaited.polled)];
    const uint32_t offset = static_cast<uint32_t>(*awaited.polled) & reg::OFFSET_MASK;
    const RegisterInfo* const info = find_register(owner.kind, offset);
    if (info != nullptr && info->what == Treatment::kStatus)
      all[(info->mm2s ? owner.first_mm2s : owner.first_s2mm) + info->block.index(offset)].awaited = true;
  }
  find_causes(all);
  return all;
}

std::string Array::name_of_node(uint32_t node) const {
  return node < channels_.size() ? channel_name(channels_[node]) : tile_name(cores_[node - channels_.size()].tile);
}

std::string Array::waiting_text(const Waiting& one) const {
  switch (one.rank) {
    case Rank::kCause: return "cause: " + one.text + "; " + one.why_unserved;
    case Rank::kCircle: return "circle: " + one.text + "; waits because of " + name_of_node(one.because);
    case Rank::kVictim: return one.text + "; waits because of " + name_of_node(one.because);
    case Rank::kOther: break;
  }
  return one.text;
}

std::string Array::explain(const Awaited& awaited) const {
  constexpr size_t kLines = 24;  // more would hide the point
  std::vector<std::string> lines;
  const std::vector<Waiting> all = all_waiting(awaited, lines);
  const std::vector<bool> reported = worth_reporting(all);
  for (const uint32_t i : causes_first(all))
    if (reported[i] && !all[i].text.empty()) lines.push_back(waiting_text(all[i]));
  std::string text;
  for (size_t i = 0; i < lines.size() && i < kLines; ++i) text += "\n  " + lines[i];
  if (lines.size() > kLines) text += "\n  and " + std::to_string(lines.size() - kLines) + " more";
  return text.empty() ? "\n  no channel has a task that began, and no core is inside an operator" : text;
}

std::vector<std::pair<const Channel*, std::string>> Array::explain_tasks() const {
  std::vector<std::string> lines;
  const std::vector<Waiting> all = all_waiting({}, lines);
  std::vector<std::pair<const Channel*, std::string>> tasks;
  for (const uint32_t i : causes_first(all))
    if (i < channels_.size() && channels_[i].running) tasks.emplace_back(&channels_[i], waiting_text(all[i]));
  return tasks;
}

}  // namespace onedispatch::sim
