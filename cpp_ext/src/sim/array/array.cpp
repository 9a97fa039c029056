// SPDX-License-Identifier: Apache-2.0
#include "sim/array/array.h"

#include <algorithm>
#include <cstdio>

#include "sim/array/bytes.h"
#include "sim/execute/clock_executor.h"
#include "sim/execute/data_executor.h"
#include "onedispatch/text.h"
#include "onedispatch/txn_format.h"
#include "sim/transport/ports.h"

namespace onedispatch::sim {

std::string hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llX", static_cast<unsigned long long>(value));
  return text;
}

Array::Array(const DeviceDescription& device, const Options& options)
    : device_(device),
      timing_(device),
      options_(options),
      rows_(reg::FIRST_CORE_ROW + device.core_rows),
      operation_cache_(make_operation_cache(device)),
      ddr_(timing_.ddr_bytes_per_cycle),
      ddr_reads_(timing_.ddr_read_bytes_per_cycle) {
  build();
  overlay_ = std::make_unique<OverlayPolicy>();
  if (options.clock) {
    own_executor_ = std::make_unique<ClockExecutor>(*this);
  } else {
    own_executor_ = std::make_unique<DataExecutor>(*this);
  }
  execute_by(nullptr);
}

Array::~Array() { own_executor_->settle(); }  // calls point into our memories

namespace {

struct TileSizes {
  uint32_t memory, program, locks, bds, channels;
};

TileSizes sizes_of(TileKind kind, const Geometry& g) {
  switch (kind) {
    case TileKind::kShim: return {0, 0, g.shim_locks, g.shim_bds, g.shim_channels};
    case TileKind::kMem: return {g.mem_memory, 0, g.mem_locks, g.mem_bds, reg::mem::kChannels};
    case TileKind::kCore: break;
  }
  return {g.core_memory, g.core_program / 4, g.core_locks, g.core_bds, reg::core::kChannels};
}

TileKind kind_of_row(uint32_t row) {
  if (row == reg::SHIM_ROW) return TileKind::kShim;
  return row == reg::MEM_ROW ? TileKind::kMem : TileKind::kCore;
}

}  // namespace

// A smaller memory fills its window of the BDs' addresses in part.
uint64_t Array::mem_pitch() const { return std::max(reg::mem::kOwnMemoryView, device_.geometry.mem_memory); }

// The memory tiles of all columns share one memory, the first, side by side as BDs see them; every core has
// one of its own.
MemoryPart Array::place_memory(const Tile& tile, uint64_t bytes) {
  if (tile.kind == TileKind::kMem) return {&memories_[0], tile.column * mem_pitch(), bytes};
  if (bytes == 0) return {};
  memories_.emplace_back(bytes);
  return {&memories_.back(), 0, bytes};
}

Channel& Array::add_channel(const Tile& tile, uint32_t number, bool mm2s) {
  Channel& channel = channels_.emplace_back();
  channel.index = static_cast<uint32_t>(channels_.size()) - 1;
  channel.tile = tile.index;
  channel.kind = tile.kind;
  channel.number = number;
  channel.mm2s = mm2s;
  return channel;
}

void Array::build() {
  memories_.clear();
  memories_.reserve(1 + size_t{device_.columns} * rows_);  // tiles point into it
  memories_.emplace_back(device_.columns * mem_pitch());
  tiles_.clear();
  channels_.clear();
  cores_.clear();
  tiles_.resize(static_cast<size_t>(device_.columns) * rows_);
  channels_.reserve(tiles_.size() * (2 * reg::mem::kChannels + 1));
  for (uint32_t index = 0; index < tiles_.size(); ++index) {
    Tile& tile = tiles_[index];
    tile.index = index;
    tile.column = index / rows_;
    tile.row = index % rows_;
    tile.kind = kind_of_row(tile.row);
    const TileSizes size = sizes_of(tile.kind, device_.geometry);
    tile.memory = place_memory(tile, size.memory);
    tile.program.assign(size.program, 0);
    tile.locks.resize(size.locks);
    tile.bds.assign(size.bds, BdWords{});
    tile.known_bds.assign(size.bds, KnownBd{});
    tile.bd_writers.resize(size.bds);
    tile.channels = size.channels;
    tile.switches.masters.assign(port_count(tile.kind, true), 0);
    tile.switches.slaves.assign(port_count(tile.kind, false), 0);
    tile.switches.slots.assign(port_count(tile.kind, false) * reg::SLOTS_PER_SLAVE, 0);
    for (const bool mm2s : {false, true}) {
      (mm2s ? tile.first_mm2s : tile.first_s2mm) = static_cast<uint32_t>(channels_.size());
      for (uint32_t number = 0; number < size.channels; ++number) add_channel(tile, number, mm2s);
    }
    if (tile.kind == TileKind::kCore) {
      tile.core = static_cast<uint32_t>(cores_.size());
      cores_.emplace_back();
      cores_.back().index = tile.core;
      cores_.back().tile = index;
    }
  }
  for (Tile& tile : tiles_) {
    tile.answers = static_cast<uint32_t>(channels_.size());
    add_channel(tile, tile.channels, true).reply = true;
  }
  if (prints_.size() != cores_.size()) prints_.resize(cores_.size());
  for (PrintLog& log : prints_) log.set_capacity(options_.print_bytes);
  answer_ports_.clear();
  answer_ports_.resize(tiles_.size());
  changed_.assign(tiles_.size(), 0);
  routes_.clear();
  routes_.resize(channels_.size() * 33);
  old_routes_.clear();
  routes_known_ = false;
  arbiter_owner_.assign(tiles_.size() * reg::ARBITERS, kNone);
  arbiter_queue_.clear();
  ddr_ = DdrServer(timing_.ddr_bytes_per_cycle);  // a run that was cut off had requests of later times
  ddr_reads_ = DdrServer(timing_.ddr_read_bytes_per_cycle);
  packets = 0;
  if (options_.trace) trace_.forget(channels_.size());
  if (options_.profile) profile_.forget(channels_.size(), cores_.size());
}

void Array::replace(std::unique_ptr<OverlayPolicy> overlay, std::unique_ptr<Executor> executor) {
  overlay_ = std::move(overlay);
  own_executor_ = std::move(executor);
  execute_by(nullptr);
}

void Array::reset() {
  executor_->settle();  // also after an error
  events.clear();
  build();
  overlay_->reset();
  executor_->reset();
}

bool Array::take_change(uint32_t tile) {
  const bool change = changed_[tile] != 0;
  changed_[tile] = 0;
  return change;
}

Channel& Array::channel(uint32_t tile, bool mm2s, uint32_t number) {
  return channels_[(mm2s ? tiles_[tile].first_mm2s : tiles_[tile].first_s2mm) + number];
}

Channel* Array::find_channel(uint32_t column, uint32_t row, bool mm2s, uint32_t number) {
  if (column >= device_.columns || row >= rows_) return nullptr;
  const uint32_t tile = tile_index(column, row);
  if (number >= tiles_[tile].channels) return nullptr;
  return &channel(tile, mm2s, number);
}

const Tile* Array::neighbour(const Tile& tile, int columns, int rows) const {
  const int64_t column = static_cast<int64_t>(tile.column) + columns;
  const int64_t row = static_cast<int64_t>(tile.row) + rows;
  if (column < 0 || column >= device_.columns || row < 0 || row >= rows_) return nullptr;
  return &tiles_[tile_index(static_cast<uint32_t>(column), static_cast<uint32_t>(row))];
}

// A BD of a memory tile may touch its neighbours too.
void Array::changed_memory(const Channel& c) {
  if (c.memory_tile == kNone) return changed(c.tile);
  for (uint32_t tile = c.memory_tile; tile <= c.last_memory_tile; tile += rows_) changed(tile);
}

std::string Array::tile_name(uint32_t tile) const {
  static const char* const kinds[] = {"shim", "mem", "core"};
  const Tile& t = tiles_[tile];
  return std::string(kinds[static_cast<int>(t.kind)]) + " tile " + tile_place(t.column, t.row);
}

std::string Array::channel_name(const Channel& c) const {
  if (c.reply) return tile_name(c.tile) + " control port";
  return tile_name(c.tile) + (c.mm2s ? " MM2S" : " S2MM") + std::to_string(c.number);
}

void Array::fetch(const EventQueue::Upcoming& event) const {
  constexpr size_t kLine = 64;
  const auto lines = [](const void* from, size_t bytes) {
    for (size_t at = 0; at < bytes; at += kLine) __builtin_prefetch(static_cast<const char*>(from) + at, 1);
  };
  if (event.kind == EventKind::kCore) lines(&cores_[event.subject], sizeof(Core));
  if (event.kind == EventKind::kSegment || event.kind == EventKind::kBdDone) lines(&channels_[event.subject], sizeof(BdFootprint) + 4 * kLine);
}

void Array::handle(const Event& event) {
  now = event.time;
  ++effort;
  switch (event.kind) {
    case EventKind::kSegment: {
      Channel& c = channels_[event.subject];
      if (c.generation != event.generation) break;
      if (options_.profile) profile_.enter_channel(c.index, now);
      finish_segment(c);
      break;
    }
    case EventKind::kBdDone: {
      Channel& c = channels_[event.subject];
      if (c.generation != event.generation) break;
      if (options_.profile) profile_.enter_channel(c.index, now);
      finish_bd(c);
      break;
    }
    case EventKind::kCore: {
      Core& core = cores_[event.subject];
      if (core.generation != event.generation) break;
      if (options_.profile) profile_.enter_core(core.index, now);
      resume_core(core);
      break;
    }
    case EventKind::kAnswer: {
      Core& core = cores_[event.subject];
      if (core.generation == event.generation) overlay_->answer(core);
      break;
    }
    case EventKind::kController: break;  // the controller takes its own
  }
}

}  // namespace onedispatch::sim
