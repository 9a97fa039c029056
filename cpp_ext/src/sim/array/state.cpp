// SPDX-License-Identifier: Apache-2.0
// The state of an array at rest, as bytes: everything that decides what a run does, beside its instructions and
// device memory. Data memory is not part of it: a run that reads what it has not written says so. Nor are BDs, most of
// which a run writes before it uses them: recordings say which ones they found (descriptors.h).
#include <algorithm>
#include <cstring>

#include "sim/array/array.h"

namespace onedispatch::sim {
namespace {

// Appends values, one after the other.
class Writer {
 public:
  explicit Writer(std::vector<uint8_t>& to) : to_(to) {}

  template <typename... Values>
  void operator()(Values... values) {
    (put(static_cast<uint64_t>(values)), ...);
  }
  void words(const uint32_t* words, size_t count) {
    put(count);
    const auto* const bytes = reinterpret_cast<const uint8_t*>(words);
    to_.insert(to_.end(), bytes, bytes + 4 * count);
  }

 private:
  void put(uint64_t value) {
    uint8_t bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    to_.insert(to_.end(), bytes, bytes + sizeof value);
  }

  std::vector<uint8_t>& to_;
};

void put(Writer& to, const Bd& bd) {
  to(bd.byte_address, bd.iteration_step, bd.iteration, bd.iterations, bd.valid, bd.acquire, bd.use_next, bd.packet, bd.suppress_tlast,
     bd.compression, bd.acquire_lock, bd.acquire_value, bd.release_lock, bd.release_value, bd.next, bd.packet_id, bd.packet_type);
  to(bd.shape.base, bd.shape.length, bd.shape.count);
  for (const Dimension& dim : bd.shape.dims) to(dim.size, dim.step, dim.before, dim.after);
}

void put(Writer& to, const Task& task) { to(task.start_bd, task.repeat, task.token, task.resident); }

void put(Writer& to, const Tile& tile) {
  for (const Lock& lock : tile.locks) {
    to(lock.value, lock.last_set, lock.waiters.size());
    for (const Waiter& waiter : lock.waiters) to(waiter.kind, waiter.index);
  }
  to.words(tile.program.data(), tile.program.size());
  to.words(tile.pad_values.data(), tile.pad_values.size());
  for (const auto* ports : {&tile.switches.masters, &tile.switches.slaves, &tile.switches.slots}) to.words(ports->data(), ports->size());
  for (const Merge& merge : tile.switches.merges) {
    to.words(merge.words.data(), merge.words.size());
    to(merge.turn, merge.passed);
  }
  to(tile.mux, tile.demux, tile.inert.size());
  for (const auto& [offset, value] : tile.inert) to(offset, value);
}

// Times count from now on; what lies so far back that the next run can't notice is one time.
void put(Writer& to, const Channel& c, uint64_t now, uint64_t memory) {
  const auto ago = [&](uint64_t time) { return std::min(now - std::min(time, now), memory); };
  to(c.control, c.running, c.queued, ago(c.last_end), c.packet_open, c.waiting_sources.size());
  for (const uint32_t source : c.waiting_sources) to(source);
  if (!c.running) return;
  to(c.state, c.bd_id, c.repeats_left, c.walked, c.words_left, c.header_due, c.header_word, ago(c.ready_time));
  put(to, c.bd);
  put(to, c.task);
  for (uint32_t i = 0; i < c.queued; ++i) put(to, c.queue[i]);
}

}  // namespace

std::vector<uint8_t> Array::state() const {
  std::vector<uint8_t> bytes;
  Writer to(bytes);
  for (const Tile& tile : tiles_) put(to, tile);
  const uint64_t memory = timing_.bd_setup + timing_.channel_start + timing_.bd_chain + 1;
  for (const Channel& channel : channels_) put(to, channel, now, memory);
  for (const Core& core : cores_) {
    to(core.control, core.state, core.program != nullptr, core.image, core.home_lock, core.woken_while_disabled);
    if (core.state == Core::State::kAcquire) to(core.owed_cycles - std::min(core.owed_cycles, now - core.blocked_at));
  }
  return bytes;
}

void Array::forget_data() {
  for (Memory& memory : memories_) memory.valid.forget();
}

}  // namespace onedispatch::sim
