// SPDX-License-Identifier: Apache-2.0
// Emulates a foreign transaction without the overlay that it was written for. What the
// overlay would have set up is open, and everything that the transaction itself states is real.
//
// - A stream that no switch register leads on swallows what an MM2S channel sends; an S2MM channel
//   whose switch port was never enabled is fed a pattern. Both at the rate of the stream.
// - Host buffers are as large as BDs reach. They hold no bytes: reads give the pattern.
// - A core without program answers like a super kernel that waits for parameters: lock 14 starts at
//   1, and a while after lock 15 was released it takes that and releases 14.
// - Locks start at 0. Some have a partner that the transaction does not show (a BD or an initial
//   value of the overlay). It acts only when nothing else can happen any more, and then sets the
//   lock to what is waited for. Assumed of locks that no actor ever set or released; where no such
//   lock is waited for, of those that were not released since they were set. A lock that an actor
//   releases has its partner in the transaction, so waiting for it is a real deadlock.
// - Outputs may overtake inputs; replay_catch_up.cpp keeps the order that cores would have kept.
// - A BD that the transaction never wrote belongs to the overlay or to control packets that were not
//   given: it moves nothing. Given ones come with routes to the control ports, laid beforehand, and
//   go there as in any run. What holds no bytes passes these routes as if they were not there.
// - Custom opcodes without public meaning are skipped and counted.
// - A lock that is released above 63 and never acquired is emptied by its unseen partner.
#include <algorithm>
#include <cmath>

#include "sim/array/array.h"
#include "sim/array/bytes.h"
#include "onedispatch/txn_format.h"
#include "sim/transport/ports.h"

namespace onedispatch::sim {
namespace {

constexpr uint32_t kReadyLock = 14;   // of a super kernel: parameters may be written
constexpr uint32_t kParameterLock = 15;  // parameters are there

// Word `number` of the stream of an open source: which channel, and how far.
uint32_t pattern_word(uint32_t channel, uint64_t number) {
  return channel << 20 ^ static_cast<uint32_t>(number);
}

}  // namespace

void Array::prepare_answers() {
  for (const Core& core : cores_) tiles_[core.tile].locks[kReadyLock].value = 1;
}

// Padding that hardware never comes to does no harm in a file that ran on hardware: of an S2MM
// channel, and around or outside a dimension that never wraps. Ordinary runs refuse it.
void Array::drop_idle_padding(Channel& c) const {
  bool wraps = true;  // all dimensions so far
  for (Dimension& dim : c.bd.shape.dims) {
    if (!wraps || !c.mm2s) dim.before = 0;
    wraps = wraps && dim.size != 0;
    if (!wraps || !c.mm2s) dim.after = 0;
  }
}

void Array::assume_bd(Channel& c) {
  Tile& tile = tiles_[c.tile];
  if (tile.bd_writers[c.bd_id].index >= 0) return;  // written as invalid: an error
  ++tile.absent_bds[c.bd_id];
  c.bd = Bd{};
  c.bd.valid = true;
}

bool Array::is_open_source(const Channel& c) const {
  const Tile& tile = tiles_[c.tile];
  const int port = tile.kind == TileKind::kShim
                       ? static_cast<int>(reg::SHIM_S2MM_MASTERS[c.number])
                       : port_index(tile.kind, true, Port{Side::kDma, c.number});
  return !reg::switch_master::enable.get(tile.switches.masters[static_cast<size_t>(port)]);
}

// Supplies a segment of pattern words to an S2MM channel whose stream has no source.
void Array::supply(Channel& c) {
  if (c.state != ChannelState::kReady || c.words_left == 0 || paused(c)) return;
  const uint64_t words = std::min(c.words_left, timing_.ddr_segment_words);
  const double rate = c.region ? timing_.shim_words_per_cycle : timing_.words_per_cycle;
  const uint64_t start = std::max(now, c.ready_time);
  uint64_t end = start + static_cast<uint64_t>(std::ceil(static_cast<double>(words) / rate));
  if (c.region) end = std::max(end, serve_ddr(c, words));
  c.open = true;
  move_segment(c, words, start, end);
}

void Array::finish_supply(Channel& c) {
  const uint64_t words = c.segment_words;
  note_progress(c);
  if (c.region) {
    c.region->bytes_written += words * 4;
  } else {
    scratch_.resize(std::max<size_t>(scratch_.size(), static_cast<size_t>(words) * 4));
    for (uint64_t i = 0; i < words; ++i)
      store32(scratch_.data() + i * 4, pattern_word(c.index, c.open_words + i));
    settle_jobs(c);
    c.cursor.scatter(scratch_.data(), words);
    changed_memory(c);
  }
  c.open_words += words;
  c.words_left -= words;
  c.bytes += words * 4;
  c.busy += now - c.segment_start;
  c.state = ChannelState::kReady;
  changed(c.tile);
  if (c.words_left == 0) return finish_bd(c);
  supply(c);
}

// As copy_segment, with host buffers that hold nothing and streams that lead nowhere.
void Array::copy_replayed(Channel& s, const Route& route, uint64_t words) {
  const size_t bytes = static_cast<size_t>(words) * 4;
  if (s.region) s.region->bytes_read += bytes;
  note_progress(s);
  for (const Destination& d : route.destinations) note_progress(channels_[d.channel]);
  if (route.destinations.empty()) {
    s.open = true;
    return;  // the cursor may stay: the BD ends by its count of words
  }
  scratch_.resize(std::max(scratch_.size(), bytes));
  if (s.region && s.region->open) {
    for (uint64_t i = 0; i < words; ++i)
      store32(scratch_.data() + i * 4, pattern_word(s.index, s.open_words + i));
    s.open_words += words;
  } else {
    settle_jobs(s);
    s.cursor.gather(scratch_.data(), words);  // unwritten memory reads as zeros
  }
  for (const Destination& d : route.destinations) {
    Channel& c = channels_[d.channel];
    changed_memory(c);
    if (c.region) {
      c.region->bytes_written += bytes;
      continue;
    }
    settle_jobs(c);
    c.cursor.scatter(scratch_.data(), words);
  }
}

// After every change of a lock: does an absent program have parameters to take?
void Array::expect_answer(const Tile& tile) {
  if (tile.core == kNone) return;
  Core& core = cores_[tile.core];
  if (core.program || core.answer_due || tile.locks[kParameterLock].value <= 0) return;
  core.answer_due = true;
  events.push(now + options_.answer_cycles, EventKind::kAnswer, core.index, core.generation);
}

void Array::answer(Core& core) {
  core.answer_due = false;
  Tile& tile = tiles_[core.tile];
  Lock& given = tile.locks[kParameterLock];
  Lock& back = tile.locks[kReadyLock];
  if (core.program || given.value <= 0) return;  // a program was loaded, or the lock reset, meanwhile
  ++answers;
  take_lock(given, tile.index, -1);
  if (back.value < static_cast<int32_t>(reg::LOCK_MAX))
    add_to_lock(back, tile.index, kReadyLock, 1, Releaser{});
  expect_answer(tile);
}

// Sets a lock to what is waited for, if its partner may be one that the transaction does not show.
bool Array::serve_as_partner(Tile& tile, uint32_t id, int32_t wanted, bool set_ones) {
  Lock& lock = tile.locks[id];
  if (lock.released || (lock.set && !set_ones) || can_acquire(lock, wanted)) return false;
  const int32_t needed = wanted < 0 ? -wanted : wanted;
  if (needed > static_cast<int32_t>(reg::LOCK_MAX)) return false;  // impossible: -64 fits the field only
  lock.value = needed;
  ++lock.assumed;
  ++effort;
  changed(tile.index);
  wake(lock, tile.index);
  return true;
}

bool Array::serve_starved(const uint64_t* polled_address) {
  for (const bool set_ones : {false, true}) {
    bool served = false;
    for (Tile& tile : tiles_) {
      for (uint32_t id = 0; id < tile.locks.size(); ++id) {
        const Lock& lock = tile.locks[id];
        if (lock.waiters.empty()) continue;
        const Waiter& first = lock.waiters.front();
        if (first.kind != Waiter::Kind::kChannel) continue;
        served = serve_as_partner(tile, id, channels_[first.index].bd.acquire_value, set_ones) || served;
      }
    }
    uint32_t tile = 0, id = 0;
    int32_t wanted = 0;
    if (polled_address != nullptr && find_acquire(*polled_address, &tile, &id, &wanted))
      served = serve_as_partner(tiles_[tile], id, wanted, set_ones) || served;
    if (served) return true;
  }
  return false;
}

}  // namespace onedispatch::sim
