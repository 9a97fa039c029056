// SPDX-License-Identifier: Apache-2.0
// The address decoder: every access to the array goes through here.
#include <algorithm>
#include <cstring>

#include "sim/array/array.h"
#include "sim/array/bytes.h"
#include "onedispatch/text.h"
#include "onedispatch/txn_format.h"
#include "sim/transport/ports.h"
#include "sim/array/register_table.h"

namespace onedispatch::sim {

uint64_t Array::address_of(const Tile& tile, uint32_t offset) {
  return uint64_t{tile.column} << reg::COLUMN_SHIFT | uint64_t{tile.row} << reg::ROW_SHIFT | offset;
}

uint32_t Array::tile_of(uint64_t address) const {
  const uint64_t column = address >> reg::COLUMN_SHIFT;
  const uint32_t row = static_cast<uint32_t>(address >> reg::ROW_SHIFT) & reg::ROW_MASK;
  if (column >= device_.columns || row >= rows_) {
    throw SimulationError("address", {"address " + hex(address),
                                      tile_place(static_cast<int64_t>(column), row),
                                      "columns " + span(0, device_.columns - 1) + ", rows " +
                                          span(0, rows_ - 1) + " of " + device_.name,
                                      "Compile for this device, or run on one that has the tile."});
  }
  return tile_index(static_cast<uint32_t>(column), row);
}

Array::Access Array::decode(uint64_t address) const {
  return decode(tiles_[tile_of(address)], static_cast<uint32_t>(address) & reg::OFFSET_MASK);
}

// What was found is looked at first where something lies near it: nearly always it is the same block again.
Array::Access Array::decode(const Tile& tile, uint32_t offset) const {
  RecentRegisters& recent = recent_[static_cast<size_t>(tile.kind)][offset >> kNearRegisters & (kRecentRegisters - 1)];
  Access access;
  access.tile = tile.index;
  access.offset = offset;
  if (!recent.find(offset, &access.index, &access.byte)) {
    recent = registers_at(tile, offset);
    if (!recent.find(offset, &access.index, &access.byte)) refuse_offset(tile, offset);
  }
  access.info = recent.info;
  return access;
}

void Array::refuse_offset(const Tile& tile, uint32_t offset) const {
  throw SimulationError(
      "register",
      {tile_name(tile.index), "offset " + hex(offset) + " (address " + hex(address_of(tile, offset)) + ")",
       "the word-aligned registers and memories that this kind of tile has on " + device_.name,
       "Check the register offset and the tile's row."},
      static_cast<int>(tile.column), static_cast<int>(tile.row));
}

// The block that has the offset, as far as it exists: the register map has room for more than a device may have. All
// tiles of a kind have the same.
Array::RecentRegisters Array::registers_at(const Tile& tile, uint32_t offset) const {
  RecentRegisters found;
  found.info = find_register(tile.kind, offset);
  if (found.info == nullptr) return found;
  const Block& block = found.info->block;
  found.first = block.offset;
  found.shift = block.count == 1 ? 31 : static_cast<uint32_t>(__builtin_ctz(block.stride));  // see register_table.cpp
  found.items = block.count;
  found.bytes = block.size;
  switch (found.info->what) {
    case Treatment::kMemory: found.bytes = static_cast<uint32_t>(tile.memory.bytes); break;
    case Treatment::kProgram: found.bytes = static_cast<uint32_t>(tile.program.size() * 4); break;
    case Treatment::kBd: found.items = static_cast<uint32_t>(tile.bds.size()); break;
    case Treatment::kLockValue:
    case Treatment::kLockRequest: found.items = static_cast<uint32_t>(tile.locks.size()); break;
    case Treatment::kQueue:
    case Treatment::kControl:
    case Treatment::kStatus: found.items = tile.channels; break;
    default: break;
  }
  return found;
}

void Array::write(uint64_t address, uint32_t value, OpRef op) { write_register(decode(address), value, op); }

void Array::write_block(uint64_t address, const uint8_t* words, uint32_t count, OpRef op) {
  if (count != 0) write_block(decode(address), words, count, op);
}

void Array::write_block(const Access& access, const uint8_t* words, uint32_t count, OpRef op) {
  const uint64_t address = address_of(tiles_[access.tile], access.offset);
  if (access.info->what == Treatment::kBd) {  // decoded once for all of its words
    const Block& block = access.info->block;
    const uint32_t inside = std::min(count, (block.size - access.byte) / 4);
    write_bd(access, words, inside, op);
    return write_block(address + uint64_t{4} * inside, words + size_t{4} * inside, count - inside, op);
  }
  if (access.info->what == Treatment::kMemory) {
    Tile& tile = tiles_[access.tile];
    if (static_cast<uint64_t>(access.offset) + uint64_t{4} * count <= tile.memory.bytes) {
      write_memory(tile, access.offset, words, count * 4);
      return;
    }
  }
  if (access.info->what == Treatment::kProgram) {
    std::vector<uint32_t>& program = tiles_[access.tile].program;
    const uint64_t first = access.byte / 4;
    if (first + count <= program.size()) {
      check_stopped(access);
      for (uint32_t i = 0; i < count; ++i) program[first + i] = load32(words + size_t{4} * i);
      return;
    }
  }
  for (uint32_t i = 0; i < count; ++i) write(address + uint64_t{4} * i, load32(words + size_t{4} * i), op);
}

// Words of one BD.
void Array::write_bd(const Access& access, const uint8_t* words, uint32_t count, OpRef op) {
  Tile& tile = tiles_[access.tile];
  uint32_t* const to = tile.bds[access.index].data() + access.byte / 4;
  tile.bd_writers[access.index] = op;
  executor_->write_bd(tile, access.index, access.byte / 4, count);
  if (std::memcmp(to, words, size_t{4} * count) == 0) return;
  std::memcpy(to, words, size_t{4} * count);  // both little-endian
  tile.known_bds[access.index].stamp = 0;
}

bool Array::is_bd(uint64_t address) const { return decode(address).info->what == Treatment::kBd; }

void Array::put_bd(uint32_t tile, uint32_t bd, const BdWords& words, OpRef writer) {
  Tile& own = tiles_[tile];
  own.bd_writers[bd] = writer;
  if (own.bds[bd] == words) return;
  own.bds[bd] = words;
  own.known_bds[bd].stamp = 0;
}

// Null: zeros.
void Array::write_memory(Tile& tile, uint32_t offset, const uint8_t* data, uint64_t bytes) {
  executor_->write(tile, offset, data, bytes);
  changed(tile.index);
}

void Array::refuse_write(const Access& access, const char* kind, const std::string& given,
                         const std::string& accepted) const {
  const Tile& tile = tiles_[access.tile];
  SimulationError error(
      kind,
      {"write to " + tile_name(tile.index) + " register " + access.info->name + " (offset " +
           hex(access.offset) + ")",
       given, accepted, "Correct the value or the address."},
      static_cast<int>(tile.column), static_cast<int>(tile.row));
  error.register_name = access.info->name;
  throw error;
}

// What runs is what program memory held when the core was started: it must not say otherwise meanwhile.
void Array::check_stopped(const Access& access) const {
  if (cores_[tiles_[access.tile].core].program)
    refuse_write(access, "core", "a write while the core runs a program", "a core that was reset before (CORE_CONTROL)");
}

void Array::write_register(const Access& access, uint32_t value, OpRef op) {
  Tile& tile = tiles_[access.tile];
  const RegisterInfo& info = *access.info;
  const uint32_t index = access.index;
  switch (info.what) {
    case Treatment::kMemory: {
      uint8_t word[4];
      store32(word, value);
      return write_memory(tile, access.offset, word, 4);
    }
    case Treatment::kProgram:
      check_stopped(access);
      tile.program[access.byte / 4] = value;
      return;
    case Treatment::kBd: {
      uint8_t word[4];
      store32(word, value);
      write_bd(access, word, 1, op);
      return;
    }
    case Treatment::kQueue: return push_task(channel(tile.index, info.mm2s, index), value, op);
    case Treatment::kControl: return write_control(channel(tile.index, info.mm2s, index), value, op);
    case Treatment::kPad:
      if (value != 0 && device_.device_generation == 3)
        refuse_write(access, "unsupported", hex(value), "0 on " + device_.name + ": XDNA pads with zeros only");
      tile.pad_values[index] = value;
      return;
    case Treatment::kLockValue:
      if (value > reg::LOCK_MAX) refuse_write(access, "lock", "value " + std::to_string(value), "0 to 63");
      tile.locks[index].value = tile.locks[index].last_set = static_cast<int32_t>(value);
      tile.locks[index].set = true;
      tile.locks[index].released = false;  // what was done to it before does not tell who serves it now
      changed(tile.index);
      wake(tile.locks[index], tile.index);
      overlay_->lock_changed(tile);
      return;
    case Treatment::kMaster:
      check_circuit(access, index, value);
      tile.switches.masters[index] = value;
      break;
    case Treatment::kSlave: tile.switches.slaves[index] = value; break;
    case Treatment::kSlot: tile.switches.slots[index] = value; break;
    case Treatment::kMerge: return write_merge(tile, index, access.byte, value);
    case Treatment::kMux: tile.mux = value; break;
    case Treatment::kDemux: tile.demux = value; break;
    case Treatment::kMemoryControl:
      if (value & 1) write_memory(tile, 0, nullptr, tile.memory.bytes);
      return;
    case Treatment::kCoreControl: return write_core_control(cores_[tile.core], value);
    case Treatment::kLockFlags: return;  // write-to-clear; overflows are errors here, so they are never set
    case Treatment::kInert: tile.inert[access.offset] = value; return;
    case Treatment::kLockRequest:
    case Treatment::kStatus:
    case Treatment::kTimerLow:
    case Treatment::kTimerHigh:
    case Treatment::kCoreStatus:
    case Treatment::kReadZero:
      refuse_write(access, "register", "a write", "reads only");
  }
  // Only switch registers come here.
  forget_routes();
}

// A circuit-switched master names its slave: there must be a wire. Packets: follow_slave.
void Array::check_circuit(const Access& access, uint32_t master, uint32_t value) const {
  namespace field = reg::switch_master;
  if (!field::enable.get(value) || field::packet.get(value)) return;
  const TileKind kind = tiles_[access.tile].kind;
  const auto slave = static_cast<uint32_t>(field::slave.get(value));
  if (connects(kind, slave, master)) return;
  const std::string given =
      slave < port_count(kind, false) ? port_name(kind, false, slave) : "slave port " + std::to_string(slave);
  refuse_write(access, "route", given + " for " + port_name(kind, true, master),
               "ports that this kind of tile has a wire from: " + slaves_of(kind, master));
}

void Array::write_control(Channel& c, uint32_t value, OpRef op) {
  const bool was_paused = paused(c);
  c.control = value;
  if (reg::channel::out_of_order.get(value) || reg::channel::compression.get(value) ||
      reg::channel::finish_on_tlast.get(value))
    fail(c, "unsupported",
         {channel_name(c) + " control (op " + std::to_string(op.index) + ")", hex(value),
          "no out-of-order mode, no compression, no finish-on-TLAST", "Use plain BDs."});
  if (tiles_[c.tile].kind != TileKind::kShim) {
    if (reg::channel::reset.get(value)) reset_channel(c);
  } else if (was_paused && !paused(c)) {
    ready(c);
  }
}

uint32_t Array::status_of(const Channel& c) const {
  uint32_t word = 0;
  if (!c.running) return word;
  word = reg::status::state.set(word, 1);
  word = reg::status::running.set(word, 1);
  word = reg::status::queue_size.set(word, c.queued);
  word = reg::status::current_bd.set(word, c.bd_id);
  if (c.state == ChannelState::kAcquire) word = reg::status::stalled_acquire.set(word, 1);
  if (c.state == ChannelState::kReady) word = reg::status::stalled_stream.set(word, 1);
  return word;
}

uint32_t Array::request_lock(Tile& tile, uint32_t offset) {
  const uint32_t id = offset / reg::LOCK_REQUEST_STRIDE;
  const uint32_t inside = offset % reg::LOCK_REQUEST_STRIDE;
  const bool acquire = (inside & reg::LOCK_REQUEST_ACQUIRE) != 0;
  const int32_t value = signed_bits(inside >> reg::LOCK_REQUEST_VALUE_SHIFT, 0, 7);
  Lock& lock = tile.locks[id];
  if (!acquire) {
    add_to_lock(lock, tile.index, id, value, Releaser{});
    return 1;
  }
  if (!can_acquire(lock, value)) return 0;
  take_lock(lock, tile.index, value);
  return 1;
}

// The lock and value of a read that is an acquire request.
bool Array::find_acquire(uint64_t address, uint32_t* tile, uint32_t* lock, int32_t* value) const {
  const Access access = decode(address);
  if (access.info->what != Treatment::kLockRequest) return false;
  const uint32_t offset = access.offset - access.info->block.offset;
  const uint32_t inside = offset % reg::LOCK_REQUEST_STRIDE;
  *tile = access.tile;
  *lock = offset / reg::LOCK_REQUEST_STRIDE;
  *value = signed_bits(inside >> reg::LOCK_REQUEST_VALUE_SHIFT, 0, 7);
  return (inside & reg::LOCK_REQUEST_ACQUIRE) != 0;
}

uint64_t Array::timer_match(uint64_t address, uint32_t mask, uint32_t value) const {
  const Access access = decode(address);
  const Treatment what = access.info->what;
  if (what != Treatment::kTimerLow && what != Treatment::kTimerHigh) return 0;
  const uint32_t shift = what == Treatment::kTimerHigh ? 32 : 0;
  const uint64_t wanted = uint64_t{value} << shift, fixed = uint64_t{mask} << shift;
  if ((value & ~mask) != 0) return 0;
  // The smallest later time differs first in some bit that goes from 0 to 1; below, only what is wanted.
  for (uint32_t bit = 0; bit < 64; ++bit) {
    const uint64_t one = uint64_t{1} << bit, below = one - 1, above = ~(below | one);
    const bool may_rise = (now & one) == 0 && ((fixed & one) == 0 || (wanted & one) != 0);
    if (may_rise && ((now ^ wanted) & fixed & above) == 0) return (now & above) | one | (wanted & below);
  }
  return 0;
}

uint32_t Array::read(uint64_t address) {
  const Access access = decode(address);
  Tile& tile = tiles_[access.tile];
  const RegisterInfo& info = *access.info;
  const uint32_t index = access.index;
  switch (info.what) {
    case Treatment::kMemory: return executor_->read(tile, access.offset);
    case Treatment::kProgram: return tile.program[access.byte / 4];
    case Treatment::kBd:
      executor_->read_bd(tile, index, access.byte / 4);
      return tile.bds[index][access.byte / 4];
    case Treatment::kControl: return channel(tile.index, info.mm2s, index).control;
    case Treatment::kStatus: return status_of(channel(tile.index, info.mm2s, index));
    case Treatment::kPad: return tile.pad_values[index];
    case Treatment::kLockValue: return static_cast<uint32_t>(tile.locks[index].value);
    case Treatment::kLockRequest: return request_lock(tile, access.offset - info.block.offset);
    case Treatment::kMaster: return tile.switches.masters[index];
    case Treatment::kSlave: return tile.switches.slaves[index];
    case Treatment::kSlot: return tile.switches.slots[index];
    case Treatment::kMerge: return tile.switches.merges[index].words[access.byte / 4];
    case Treatment::kMux: return tile.mux;
    case Treatment::kDemux: return tile.demux;
    case Treatment::kTimerLow:
    case Treatment::kTimerHigh:
      executor_->depends("a timer");
      return static_cast<uint32_t>(info.what == Treatment::kTimerLow ? now : now >> 32);
    case Treatment::kCoreControl: return cores_[tile.core].control;
    case Treatment::kCoreStatus: return core_status(cores_[tile.core]);
    case Treatment::kMemoryControl:
    case Treatment::kLockFlags:
    case Treatment::kQueue:
    case Treatment::kReadZero: return 0;
    case Treatment::kInert: break;
  }
  const auto found = tile.inert.find(access.offset);
  return found == tile.inert.end() ? 0 : found->second;
}

}  // namespace onedispatch::sim
