// SPDX-License-Identifier: Apache-2.0
// DMA channels: tasks, BDs and the locks around them.
#include <algorithm>

#include "sim/array/array.h"
#include "sim/array/bytes.h"
#include "onedispatch/text.h"
#include "onedispatch/txn_format.h"

namespace onedispatch::sim {

void Array::fail(const Channel& c, const char* kind, Complaint complaint) const {
  const Tile& tile = tiles_[c.tile];
  SimulationError error(kind, std::move(complaint), static_cast<int>(tile.column),
                        static_cast<int>(tile.row));
  error.op = c.running ? c.task.op : current_op;
  throw error;
}

void Array::push_task(Channel& c, uint32_t value, OpRef op) {
  Task task;
  const bool mem = tiles_[c.tile].kind == TileKind::kMem;
  task.start_bd = static_cast<uint32_t>((mem ? reg::mem_queue::start_bd : reg::queue::start_bd).get(value));
  task.repeat = static_cast<uint32_t>(reg::queue::repeat.get(value));
  task.token = reg::queue::token.get(value) != 0;
  task.resident = loading;
  task.op = op;
  if (c.kind != TileKind::kShim && reg::channel::reset.get(c.control))
    fail(c, "queue",
         {channel_name(c), "a task pushed while the channel is held in reset",
          "tasks after the reset bit is cleared", "Write 0 to the reset bit first."});
  if (!c.running) return start_task(c, task, true);
  if (c.queued == device_.geometry.queue_depth) {
    SimulationError error(
        "queue",
        {channel_name(c) + " task queue",
         "a waiting task too many (BD " + std::to_string(task.start_bd) + "); running: BD " +
             std::to_string(c.bd_id) + ", first pushed by op " + std::to_string(c.task.op.index),
         counted(device_.geometry.queue_depth, "waiting task"), "Poll the channel's status, or wait for a token, before pushing more."},
        static_cast<int>(tiles_[c.tile].column), static_cast<int>(tiles_[c.tile].row));
    error.op = op;
    throw error;
  }
  c.queue[c.queued++] = task;
  changed(c.tile);
}

void Array::start_task(Channel& c, const Task& task, bool cold) {
  if (!c.running) c.active_since = now;
  c.running = true;
  c.task = task;
  c.repeats_left = task.repeat;
  c.walked = 0;
  ++c.tasks;
  if (options_.trace) trace_.flow(c.index).task = now;
  changed(c.tile);
  uint64_t delay = timing_.bd_setup + timing_.channel_start;
  if (c.kind == TileKind::kShim)
    delay += cold ? timing_.shim_first[c.mm2s] : timing_.shim_next[c.mm2s];
  begin_bd(c, task.start_bd, delay);
}

KnownBd& Array::know_bd(Tile& tile, uint32_t bd_id) {
  KnownBd& known = tile.known_bds[bd_id];
  if (known.stamp != 0) return known;
  known.stamp = ++bd_stamps_;
  known.bd = decode_bd(tile.kind, tile.bds[bd_id]);
  known.has_footprint = false;
  known.acquire = known.release = {};
  return known;
}

KnownBd* Array::known_to(const Channel& c) {
  KnownBd& known = tiles_[c.tile].known_bds[c.bd_id];
  return c.bd_stamp != 0 && known.stamp == c.bd_stamp ? &known : nullptr;
}

// Takes what the BD says now; it may be written anew while the channel waits.
void Array::load_bd(Channel& c, const KnownBd& known) {
  c.bd_stamp = known.stamp;
  c.has_footprint = known.has_footprint && (c.mm2s || !known.footprint.cursor.padded());
  if (!c.has_footprint) {
    c.bd = known.bd;
    return;
  }
  static_cast<BdControl&>(c.bd) = known.bd;
  c.bd.shape.length = known.bd.shape.length;
  static_cast<BdFootprint&>(c) = known.footprint;
  const uint64_t further = known.bd.shape.base - known.footprint_base;
  c.cursor.shift(further);
  c.first_byte += 4 * further;
}

// Apart from the functions that ask for them, so that these save no registers for what they do once at most.
void Array::refuse_number(const Channel& c) const {
  const auto bds = static_cast<uint32_t>(tiles_[c.tile].bds.size()), half = bds / 2;
  const std::string given = "BD " + std::to_string(c.bd_id);
  if (c.bd_id >= bds) fail(c, "bd", {channel_name(c), given, "BD " + span(0, bds - 1), "Name a BD that the tile has."});
  fail(c, "bd",
       {channel_name(c), given,
        (c.number & 1) ? "BD " + span(half, bds - 1) + " on odd channels" : "BD " + span(0, half - 1) + " on even channels",
        "Move the BD into the channel's half."});
}

void Array::refuse_bd(const Channel& c) const {
  const std::string where = channel_name(c) + " BD " + std::to_string(c.bd_id);
  if (!c.bd.valid)
    fail(c, "bd", {where, "its valid bit is 0", "a BD that was written and is valid", "Write the BD before it is queued or chained."});
  fail(c, "unsupported", {where, "compression", "uncompressed BDs", "Clear the bit."});
}

void Array::begin_bd(Channel& c, uint32_t bd_id, uint64_t delay) {
  Tile& tile = tiles_[c.tile];
  c.bd_id = bd_id;
  const bool wrong_half = tile.kind == TileKind::kMem && (bd_id >= tile.bds.size() / 2) != ((c.number & 1) != 0);
  if (bd_id >= tile.bds.size() || wrong_half) refuse_number(c);
  KnownBd& known = know_bd(tile, bd_id);
  executor_->load_bd(tile, bd_id);
  load_bd(c, known);
  c.lag = 0;
  if ((!c.bd.valid && !overlay_->provides_bd(c)) || c.bd.compression) refuse_bd(c);
  c.ready_time = now + delay;
  if (options_.trace) trace_.flow(c.index).bd = now;
  if (options_.profile) {
    const uint64_t task = std::min<uint64_t>(delay, timing_.bd_setup + timing_.channel_start);
    profile_.prepare(c.index, {{Part::kTask, task}, {Part::kLatency, delay - task}});
  }
  if (c.bd.acquire) {
    const auto [lock, lock_tile] = lock_side(c, c.bd.acquire_lock, &known.acquire);
    if (!lock->waiters.empty() || !can_acquire(*lock, c.bd.acquire_value)) {
      c.state = ChannelState::kAcquire;
      c.locked_since = now;
      lock->waiters.push_back(Waiter{Waiter::Kind::kChannel, c.index, c.bd.acquire_value});
      changed(c.tile);
      if (lock->waiters.size() > 1) wake(*lock, lock_tile);
      return;
    }
    take_lock(*lock, lock_tile, c.bd.acquire_value);
  }
  activate(c);
}

// The BD has its lock: find its memory, then wait for the other side of the stream.
void Array::activate(Channel& c) {
  changed(c.tile);
  c.ready_time = std::max(c.ready_time, now);
  if (c.has_footprint) {
    place_loaded(c);
  } else {
    place_bd(c);
    if (c.words_left == 0) {
      // A BD without data only takes and gives locks.
      c.state = ChannelState::kDelay;
      if (options_.profile)
        profile_.schedule_channel(c.index, c.ready_time > now ? profile_.prepared(c.index) : Link(profile_.current(), {{Part::kTask, 1}}));
      events.push(std::max(now + 1, c.ready_time), EventKind::kBdDone, c.index, c.generation);
      return;
    }
    if (KnownBd* const known = known_to(c)) keep_footprint(*known, c);
  }
  if (c.mm2s && !c.packet_open) {
    c.route = nullptr;  // found again when the data starts: the switches may have changed
    c.header_due = c.bd.packet;
    if (c.header_due) c.header_word = make_packet_header(c.bd.packet_id, c.bd.packet_type, tiles_[c.tile]);
  }
  c.state = ChannelState::kReady;
  if (options_.trace) trace_.flow(c.index).ready = c.ready_time;
  ready(c);
}

// `count`: dimensions up to the first without wrap.
void Array::check_padding(const Channel& c, unsigned count) const {
  if (!c.mm2s)
    fail(c, "bd",
         {channel_name(c) + " BD " + std::to_string(c.bd_id), "padding", "padding on MM2S only",
          "Clear the padding fields."});
  for (unsigned d = 0; d < kMaxDimensions; ++d) {
    const Dimension& given = c.bd.shape.dims[d];
    const bool unwrapped_below = d >= count;
    if ((unwrapped_below && (given.before || given.after)) || (given.size == 0 && given.after))
      fail(c, "bd",
           {channel_name(c) + " BD " + std::to_string(c.bd_id),
            "padding at or above dimension " + std::to_string(d) + ", which has no wrap",
            "padding only up to the first dimension without wrap, and none after that one",
            "Give the dimension a wrap."});
  }
}

// Finds how much data the channel's BD moves, and where it lies.
void Array::place_bd(Channel& c) {
  bool padded = has_padding(c.bd.shape);
  if (padded) {
    overlay_->relax_padding(c);
    padded = has_padding(c.bd.shape);
  }
  Shape shape = padded ? resolve_padded(c.bd.shape) : resolve(c.bd.shape);
  if (padded) check_padding(c, shape.count);
  if (shape.length == 0) shape.base = reg::mem::kOwnMemoryView / 4;  // no memory at all: wherever it points
  c.words_left = c.bd.shape.length;
  if (c.words_left == 0) return;
  if (c.kind == TileKind::kShim) {
    c.cursor = Cursor(shape, nullptr, nullptr, 0);
    c.span_bytes = furthest_word(shape) * 4 + 4;
    bind_ddr(c);
  } else {
    bind_memory(c, shape);
  }
}

// The same of a BD whose place was found in an earlier run.
void Array::place_loaded(Channel& c) {
  c.words_left = c.bd.shape.length;
  if (c.kind == TileKind::kShim) return bind_ddr(c);
  if (c.kind == TileKind::kMem) c.cursor.pad_with(tiles_[c.tile].pad_values[c.number]);
}

// Where the place holds for all counts of the BD: its words lie in the tile's own memory whatever it counts.
void Array::keep_footprint(KnownBd& known, const Channel& c) const {
  const Bd& bd = c.bd;
  if (c.kind != TileKind::kShim && counts_iterations(bd)) {
    const MemoryWindow window = memory_window_of(tiles_[c.tile]);
    const uint64_t first = bd.shape.base - bd.iteration * bd.iteration_step;
    const uint64_t last = first + std::max(bd.iteration, bd.iterations - 1) * bd.iteration_step + (c.span_bytes - 4) / 4;
    if (first < window.own || last >= window.own + window.part) return;
  }
  known.footprint = c;
  known.footprint_base = bd.shape.base;
  known.has_footprint = true;
}

// The words that BDs of a tile may name: of a core its own, of a memory tile those of its west
// neighbour, its own and those of its east neighbour, as one range, in which the own ones begin at the
// same place on every device, and which ends where the base field does.
Array::MemoryWindow Array::memory_window_of(const Tile& tile) const {
  const uint64_t words = tile.memory.bytes / 4;
  if (tile.kind != TileKind::kMem) return {0, words, 0, words, words};
  const uint64_t own = reg::mem::kOwnMemoryView / 4, pitch = mem_pitch() / 4, named = own + reg::mem::kBdReach / 4;
  const uint64_t tiles = tile.column + 1 == device_.columns ? 1 : 2;  // from the own one to the east
  return {tile.column == 0 ? own : 0, std::min(own + tiles * pitch, named), own, pitch, words};
}

std::string Array::describe_view(const Tile& tile) const {
  const MemoryWindow window = memory_window_of(tile);
  std::string text = "bytes " + hex(window.first * 4) + " to " + hex(window.end * 4 - 1);
  if (tile.kind != TileKind::kMem) return text;
  text += ", own from " + hex(reg::mem::kOwnMemoryView);
  if (window.part < window.pitch) text += ", " + counted(window.part * 4, "byte") + " of each tile and not across";
  if (tile.column == 0) text += "; no memory tile lies to the west";
  if (tile.column + 1 == device_.columns) text += "; no memory tile lies to the east";
  return text;
}

void Array::bind_memory(Channel& c, Shape& shape) {
  const Tile& own = tiles_[c.tile];
  const MemoryWindow window = memory_window_of(own);
  const uint64_t furthest = furthest_word(shape), last = shape.base + furthest;
  if (!window.covers(shape.base, last))
    fail(c, "memory",
         {channel_name(c) + " BD " + std::to_string(c.bd_id) + " (written by op " +
              std::to_string(own.bd_writers[c.bd_id].index) + ")",
          "bytes " + hex(shape.base * 4) + " to " + hex(last * 4 + 3), describe_view(own),
          "Check base, length, steps and iteration of the BD."});
  const auto tile_at = [&](uint64_t word) { return own.index + window.side(word) * rows_ - rows_; };
  c.memory = own.memory.whole;
  c.memory_tile = tile_at(shape.base);
  c.last_memory_tile = tile_at(last);
  shape.base += own.memory.first_word() - window.own;
  c.first_byte = shape.base * 4;
  c.span_bytes = furthest * 4 + 4;
  const uint32_t pad = own.kind == TileKind::kMem ? own.pad_values[c.number] : 0;
  c.cursor = Cursor(shape, own.memory.whole->bytes.data(), &own.memory.whole->valid, pad);
}

// The cursor has the pattern, and span_bytes how far it reaches: finds where in which buffer it begins.
void Array::bind_ddr(Channel& c) {
  const Tile& own = tiles_[c.tile];
  const uint64_t bytes = c.span_bytes;
  const uint64_t seen = c.bd.byte_address;
  std::string buffers;
  if (seen >= txn::DDR_APERTURE) {
    const uint64_t address = seen - txn::DDR_APERTURE;
    // From the back: there are the parts of arguments that a replay knows more about.
    for (auto at = regions_.rbegin(); at != regions_.rend(); ++at) {
      const auto& region = *at;
      if (address < region->address || address - region->address >= region->bytes) continue;
      if (bytes > region->bytes - (address - region->address)) {
        buffers = "the buffer " + hex(region->address) + " of " + counted(region->bytes, "byte") +
                  " that it starts in, at offset " + std::to_string(address - region->address);
        break;
      }
      region->first = std::min(region->first, address - region->address);
      region->end = std::max(region->end, address - region->address + bytes);
      c.region = region.get();
      c.cursor.move_to((address - region->origin) / 4, region->data, region->valid);
      c.bursts = c.cursor;
      c.first_byte = address - region->origin;
      executor_->place(c);
      return;
    }
  }
  if (buffers.empty()) {
    buffers = "a range inside one kernel argument:";
    for (size_t i = 0; i < regions_.size(); ++i)
      buffers += " arg " + std::to_string(i) + " " + hex(regions_[i]->address) + " +" +
                 std::to_string(regions_[i]->bytes) + ",";
    buffers += " each seen by the shim at +" + hex(txn::DDR_APERTURE);
  }
  fail(c, "ddr",
       {channel_name(c) + " BD " + std::to_string(c.bd_id) + " (written by op " +
            std::to_string(own.bd_writers[c.bd_id].index) + ")",
        counted(bytes, "byte") + " from address " + hex(seen), buffers,
        "Check the DDR_PATCH of this BD, its length and steps, and the size of the buffer."});
}

namespace {

void forget_memory(Channel& c) {
  c.memory = nullptr;
  c.memory_tile = c.last_memory_tile = kNone;
}

}  // namespace

void Array::finish_bd(Channel& c) {
  if (c.reply) return finish_answer(c);
  if (options_.trace) trace_bd(c);
  Tile& tile = tiles_[c.tile];
  KnownBd* const known = known_to(c);
  KnownBd& present = tile.known_bds[c.bd_id];
  if (present.stamp == 0) {
    step_iteration(tile.kind, tile.bds[c.bd_id]);
  } else if (counts_iterations(present.bd)) {
    step_iteration(tile.kind, tile.bds[c.bd_id]);
    step_iteration(tile.kind, present.bd);
  }
  c.region = nullptr;
  forget_memory(c);
  if (c.mm2s && c.packet_open && !c.bd.suppress_tlast && c.words_left == 0 && c.route) release_arbiters(c);
  c.state = ChannelState::kDelay;
  progress += c.walked++ <= tile.bds.size();
  if (c.bd.release_value != 0) {
    const auto [lock, lock_tile] = lock_side(c, c.bd.release_lock, known != nullptr ? &known->release : nullptr);
    add_to_lock(*lock, lock_tile, c.bd.release_lock, c.bd.release_value, Releaser{&c, nullptr});
  }
  if (c.bd.use_next) {
    const uint64_t latency = tile.kind == TileKind::kShim ? timing_.shim_next[c.mm2s] : 0;
    return begin_bd(c, c.bd.next, timing_.bd_chain + latency);
  }
  if (--c.repeats_left > 0) {
    const uint64_t latency = tile.kind == TileKind::kShim ? timing_.shim_next[c.mm2s] : 0;
    c.walked = 0;
    return begin_bd(c, c.task.start_bd, timing_.bd_setup + latency);
  }
  next_task(c);
}

void Array::next_task(Channel& c) {
  if (options_.trace) trace_task(c);
  if (c.task.token) issue_token(c);
  changed(c.tile);
  if (c.queued == 0) {
    c.running = false;
    c.state = ChannelState::kIdle;
    c.active += now - c.active_since;
    return;
  }
  const Task task = c.queue[0];
  std::move(c.queue.begin() + 1, c.queue.begin() + c.queued, c.queue.begin());
  --c.queued;
  start_task(c, task, false);
}

void Array::reset_channel(Channel& c) {
  for (Tile& tile : tiles_) {
    for (Lock& lock : tile.locks) {
      lock.waiters.erase(std::remove_if(lock.waiters.begin(), lock.waiters.end(),
                                        [&c](const Waiter& w) {
                                          return w.kind == Waiter::Kind::kChannel && w.index == c.index;
                                        }),
                         lock.waiters.end());
    }
  }
  if (c.mm2s) {
    // The other sides of a cut segment go back to waiting; nothing of it was copied.
    if (c.state == ChannelState::kMoving && c.route) {
      for (const Destination& d : c.route->destinations) {
        Channel& s2mm = channels_[d.channel];
        if (s2mm.state == ChannelState::kMoving) s2mm.state = ChannelState::kReady;
      }
    }
    release_arbiters(c);
  } else {
    // Sources that were sending to this channel start over with what is left.
    for (Channel& source : channels_) {
      if (source.state != ChannelState::kMoving || !source.mm2s || !source.route) continue;
      const auto& list = source.route->destinations;
      if (std::none_of(list.begin(), list.end(), [&c](const Destination& d) { return d.channel == c.index; }))
        continue;
      for (const Destination& d : list)
        if (channels_[d.channel].state == ChannelState::kMoving)
          channels_[d.channel].state = ChannelState::kReady;
      ++source.generation;
      source.state = ChannelState::kReady;
      c.waiting_sources.push_back(source.index);
    }
  }
  if (options_.trace) end_spans(c);
  if (c.running) c.active += now - c.active_since;
  if (c.state == ChannelState::kAcquire) c.locked += now - c.locked_since;
  ++c.generation;
  c.running = false;
  c.queued = 0;
  c.state = ChannelState::kIdle;
  c.words_left = 0;
  c.region = nullptr;
  forget_memory(c);
  changed(c.tile);
}

SeenLock Array::lock_seen(const Tile& own, uint32_t id) const {
  if (own.kind != TileKind::kMem) return {&own, id};
  if (id / kLocksOfMemTile == 1) return {&own, id % kLocksOfMemTile};
  const int column = static_cast<int>(id / kLocksOfMemTile) - 1;
  return {column <= 1 ? neighbour(own, column, 0) : nullptr, id % kLocksOfMemTile};
}

Lock* Array::lock_of_bd(const Channel& c, uint32_t id, uint32_t* tile) {
  const Tile& own = tiles_[c.tile];
  const auto [target, local] = lock_seen(own, id);
  if (target == nullptr || local >= target->locks.size())
    fail(c, "lock",
         {channel_name(c) + " BD " + std::to_string(c.bd_id), "lock " + std::to_string(id),
          own.kind == TileKind::kMem ? "own 64 to 127, west 0 to 63 and east 128 to 191 where there is a neighbour"
                                     : "0 to 15",
          "Own locks of a memory tile count from 64 in its BDs."});
  *tile = target->index;
  return &tiles_[target->index].locks[local];
}

// The same, looked for once where the BD is known.
KnownBd::Side Array::lock_side(const Channel& c, uint32_t id, KnownBd::Side* known) {
  if (known != nullptr && known->lock != nullptr) return *known;
  KnownBd::Side side;
  side.lock = lock_of_bd(c, id, &side.tile);
  if (known != nullptr) *known = side;
  return side;
}

bool Array::can_acquire(const Lock& lock, int32_t value) {
  return value < 0 ? lock.value >= -value : lock.value == value;
}

// An acquire of "equal" takes nothing off the lock (tests/array_model/README.md, Readings).
void Array::take_lock(Lock& lock, uint32_t tile, int32_t value) {
  if (value < 0) lock.value += value;
  lock.taken = true;
  changed(tile);
  if (!lock.waiters.empty()) wake(lock, tile);
}

void Array::refuse_release(const Lock& lock, uint32_t tile, uint32_t id, int32_t value, const Releaser& who) const {
  std::string name = "the controller";
  if (who.channel != nullptr)
    name = channel_name(*who.channel) + " BD " + std::to_string(who.channel->bd_id);
  if (who.core != nullptr) name = "the program of " + tile_name(who.core->tile);
  SimulationError error(
      "lock",
      {name + " releases lock " + std::to_string(id) + " of " + tile_name(tile),
       std::to_string(lock.value) + " " + (value < 0 ? "- " : "+ ") +
           std::to_string(value < 0 ? -value : value),
       "a result of 0 to 63", "Balance releases with acquires, or set the lock's value first."},
      static_cast<int>(tiles_[tile].column), static_cast<int>(tiles_[tile].row));
  error.op = who.channel != nullptr ? who.channel->task.op : current_op;
  throw error;
}

void Array::add_to_lock(Lock& lock, uint32_t tile, uint32_t id, int32_t value, const Releaser& who) {
  constexpr auto kMost = static_cast<int32_t>(reg::LOCK_MAX);
  if (lock.value + value > kMost && overlay_->empties(lock, tile)) lock.value = 0;
  const int32_t sum = lock.value + value;
  if (sum < 0 || sum > kMost) refuse_release(lock, tile, id, value, who);
  lock.value = sum;
  lock.released = true;
  changed(tile);
  if (!lock.waiters.empty()) wake(lock, tile);
  if (lock.watched) overlay_->lock_changed(tiles_[tile]);
}

// Serves waiters in order of arrival; one that cannot be served yet does not block those behind.
void Array::wake(Lock& lock, uint32_t tile) {
  for (size_t i = 0; i < lock.waiters.size();) {
    const Waiter waiter = lock.waiters[i];
    if (!can_acquire(lock, waiter.wanted)) {
      ++i;
      continue;
    }
    lock.waiters.erase(lock.waiters.begin() + static_cast<std::ptrdiff_t>(i));
    if (waiter.wanted < 0) lock.value += waiter.wanted;
    lock.taken = true;
    changed(tile);
    if (waiter.kind == Waiter::Kind::kChannel) {
      Channel& c = channels_[waiter.index];
      c.locked += now - c.locked_since;
      if (options_.trace) trace_.add(Traced::kLock, place(c), c.locked_since, now);
      activate(c);
    } else {
      end_acquire(cores_[waiter.index]);
    }
    i = 0;  // an equality waiter may be served by the new value
  }
}

}  // namespace onedispatch::sim
