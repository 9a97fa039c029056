// SPDX-License-Identifier: Apache-2.0
// Which register lies at an offset of a tile, and how the simulator treats it.
#pragma once
#include <cstdint>

#include "sim/transport/bd.h"
#include "onedispatch/txn_format.h"

namespace onedispatch::sim {

enum class Treatment : uint8_t {
  kMemory,
  kProgram,
  kBd,
  kControl,
  kQueue,
  kStatus,
  kPad,
  kLockValue,
  kLockRequest,
  kLockFlags,
  kMaster,
  kSlave,
  kSlot,
  kMux,
  kDemux,
  kTimerLow,
  kTimerHigh,
  kMemoryControl,
  kCoreControl,
  kCoreStatus,
  kReadZero,  // read-only, not modelled
  kMerge,     // deterministic merge of an arbiter
  kInert,     // legal, kept, without effect: clocks, resets, timer control, debug
};

struct RegisterInfo {
  Treatment what;
  bool mm2s;  // of DMA channel registers
  Block block;
  const char* name;
};

// Null when no register lies there. `offset` is in bytes within the tile.
const RegisterInfo* find_register(TileKind kind, uint32_t offset);

}  // namespace onedispatch::sim
