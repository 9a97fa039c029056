// SPDX-License-Identifier: Apache-2.0
#include "sim/replay/absent_overlay.h"

#include <algorithm>
#include <cmath>

#include "sim/array/bytes.h"
#include "sim/transport/ports.h"

namespace onedispatch::sim {
namespace {

constexpr uint32_t kReadyLock = 14;      // of a super kernel: parameters may be written
constexpr uint32_t kParameterLock = 15;  // parameters are there

}  // namespace

void AbsentOverlay::reset() {
  streams_.assign(array_.channels_.size(), {});
  due_.assign(array_.cores_.size(), 0);
  absent_bds_.clear();
  assumed_locks_.clear();
  answers_ = assumed_tokens_ = packet_tokens_ = segments_ = 0;
  for (const Core& core : array_.cores_) {
    std::vector<Lock>& locks = array_.tiles_[core.tile].locks;
    locks[kReadyLock].value = 1;
    for (Lock& lock : locks) lock.watched = true;  // parameters may lie there unseen since lock 15 was assumed
  }
}

// Padding that hardware never comes to does no harm in a file that ran on hardware: of an S2MM
// channel, and around or outside a dimension that never wraps. Ordinary runs refuse it.
void AbsentOverlay::relax_padding(Channel& c) const {
  bool wraps = true;  // all dimensions so far
  for (Dimension& dim : c.bd.shape.dims) {
    if (!wraps || !c.mm2s) dim.before = 0;
    wraps = wraps && dim.size != 0;
    if (!wraps || !c.mm2s) dim.after = 0;
  }
  c.bd_stamp = 0;  // what the BD means to this channel is not what it means to others
}

bool AbsentOverlay::provides_bd(Channel& c) {
  if (array_.tiles_[c.tile].bd_writers[c.bd_id].index >= 0) return false;  // written as invalid: an error
  ++absent_bds_[{c.tile, c.bd_id}];
  c.bd = Bd{};
  c.bd.valid = true;
  c.bd_stamp = 0;
  return true;
}

// What was not reached is open. Not so for packets that were given (no BD has this header).
bool AbsentOverlay::provides_route(const Channel& c, bool packet) const { return packet == c.header_due || c.reply; }

bool AbsentOverlay::provides_token_route() {
  ++assumed_tokens_;
  return true;
}

bool AbsentOverlay::empties(const Lock& lock, uint32_t tile) {
  if (lock.taken) return false;
  ++assumed_locks_[{tile, static_cast<uint32_t>(&lock - array_.tiles_[tile].locks.data())}];
  return true;
}

bool AbsentOverlay::is_open_source(const Channel& c) const {
  const Tile& tile = array_.tiles_[c.tile];
  const int port = tile.kind == TileKind::kShim
                       ? static_cast<int>(reg::SHIM_S2MM_MASTERS[c.number])
                       : port_index(tile.kind, true, Port{Side::kDma, c.number});
  return !reg::switch_master::enable.get(tile.switches.masters[static_cast<size_t>(port)]);
}

bool AbsentOverlay::feeds(Channel& c) {
  if (!is_open_source(c)) return false;
  if (c.state != ChannelState::kReady || c.words_left == 0 || array_.paused(c)) return true;
  const Timing& timing = array_.timing_;
  const uint64_t words = std::min(c.words_left, timing.ddr_segment_words);
  const double rate = c.region ? timing.shim_words_per_cycle : timing.words_per_cycle;
  const uint64_t start = std::max(array_.now, c.ready_time);
  uint64_t end = start + static_cast<uint64_t>(std::ceil(static_cast<double>(words) / rate));
  if (c.region) end = std::max(end, array_.serve_ddr(c, words));
  open(c);
  array_.move_segment(c, words, start, end);
  return true;
}

void AbsentOverlay::fed(Channel& c) {
  const uint64_t words = c.segment_words;
  note_segment(c);
  if (c.region) {
    c.region->bytes_written += words * 4;
    streams_[c.index].words += words;
  } else {
    scratch_.resize(std::max<size_t>(scratch_.size(), 4 * words));
    pattern(c, scratch_.data(), words);
    array_.executor_->deliver(c, scratch_.data(), words);
    array_.changed_memory(c);
  }
  c.words_left -= words;
  c.bytes += words * 4;
  c.busy += array_.now - c.segment_start;
  c.state = ChannelState::kReady;
  array_.changed(c.tile);
  if (c.words_left == 0) return array_.finish_bd(c);
  feeds(c);
}

// Which channel, and how far.
void AbsentOverlay::pattern(const Channel& c, uint8_t* to, uint64_t words) {
  uint64_t& number = streams_[c.index].words;
  for (uint64_t i = 0; i < words; ++i) store32(to + i * 4, c.index << 20 ^ static_cast<uint32_t>(number + i));
  number += words;
}

// A chain that has loaded more BDs than the tile has walks in a circle.
void AbsentOverlay::note_segment(const Channel& c) { segments_ += c.walked <= array_.tiles_[c.tile].bds.size(); }

// Does an absent program have parameters to take?
void AbsentOverlay::lock_changed(const Tile& tile) {
  if (tile.core == kNone) return;
  const Core& core = array_.cores_[tile.core];
  if (core.program || answers_soon(core) || tile.locks[kParameterLock].value <= 0) return;
  due_[core.index] = 1;
  array_.events.push(array_.now + kAnswerCycles, EventKind::kAnswer, core.index, core.generation);
}

void AbsentOverlay::answer(Core& core) {
  due_[core.index] = 0;
  Tile& tile = array_.tiles_[core.tile];
  Lock& given = tile.locks[kParameterLock];
  Lock& back = tile.locks[kReadyLock];
  if (core.program || given.value <= 0) return;  // a program was loaded, or the lock reset, meanwhile
  ++answers_;
  array_.take_lock(given, tile.index, -1);
  if (back.value < static_cast<int32_t>(reg::LOCK_MAX))
    array_.add_to_lock(back, tile.index, kReadyLock, 1, Releaser{});
  lock_changed(tile);
}

// Sets a lock to what is waited for, if its partner may be one that the transaction does not show.
bool AbsentOverlay::serve_as_partner(Tile& tile, uint32_t id, int32_t wanted, bool set_ones) {
  Lock& lock = tile.locks[id];
  if (lock.released || (lock.set && !set_ones) || Array::can_acquire(lock, wanted)) return false;
  const int32_t needed = wanted < 0 ? -wanted : wanted;
  if (needed > static_cast<int32_t>(reg::LOCK_MAX)) return false;  // impossible: -64 fits the field only
  lock.value = needed;
  ++assumed_locks_[{tile.index, id}];
  ++array_.effort;
  array_.changed(tile.index);
  array_.wake(lock, tile.index);
  return true;
}

bool AbsentOverlay::has_unseen_tasks(const Channel& c) const {
  return array_.tiles_[c.tile].kind != TileKind::kShim && !c.running && c.tasks == 0;
}

bool AbsentOverlay::give_tokens_of_packets(const std::vector<Channel*>& waited_for) {
  bool given = false;
  for (Channel* c : waited_for) {
    if (c->tokens != 0 || !has_unseen_tasks(*c)) continue;
    ++c->tokens;
    ++packet_tokens_;
    ++array_.tokens_arrived;
    ++array_.effort;
    given = true;
  }
  return given;
}

bool AbsentOverlay::serve_starved(const uint64_t* polled_address) {
  for (const bool set_ones : {false, true}) {
    bool served = false;
    for (Tile& tile : array_.tiles_) {
      for (uint32_t id = 0; id < tile.locks.size(); ++id) {
        const Lock& lock = tile.locks[id];
        if (lock.waiters.empty()) continue;
        const Waiter& first = lock.waiters.front();
        if (first.kind != Waiter::Kind::kChannel) continue;
        served = serve_as_partner(tile, id, array_.channels_[first.index].bd.acquire_value, set_ones) || served;
      }
    }
    uint32_t tile = 0, id = 0;
    int32_t wanted = 0;
    if (polled_address != nullptr && array_.find_acquire(*polled_address, &tile, &id, &wanted))
      served = serve_as_partner(array_.tiles_[tile], id, wanted, set_ones) || served;
    if (served) return true;
  }
  return false;
}

}  // namespace onedispatch::sim
