// SPDX-License-Identifier: Apache-2.0
#include "sim/array/register_table.h"

#include <iterator>

namespace onedispatch::sim {
namespace {

using T = Treatment;

#define OD_REG(ns, block, what) {T::what, false, reg::ns::block, #block}
#define OD_MM2S(ns, block, what) {T::what, true, reg::ns::block, #block}

// What all three kinds of tile have, most used first: the search is linear.
#define OD_SHARED(ns)                                                                                       \
  OD_REG(ns, DMA_BD, kBd), OD_REG(ns, DMA_S2MM_QUEUE, kQueue), OD_MM2S(ns, DMA_MM2S_QUEUE, kQueue),         \
      OD_REG(ns, DMA_S2MM_STATUS, kStatus), OD_MM2S(ns, DMA_MM2S_STATUS, kStatus),                          \
      OD_REG(ns, LOCK_REQUEST, kLockRequest), OD_REG(ns, LOCK_VALUE, kLockValue),                           \
      OD_REG(ns, DMA_S2MM_CTRL, kControl), OD_MM2S(ns, DMA_MM2S_CTRL, kControl),                            \
      OD_REG(ns, SWITCH_MASTER, kMaster), OD_REG(ns, SWITCH_SLAVE, kSlave), OD_REG(ns, SWITCH_SLOT, kSlot), \
      OD_REG(ns, SWITCH_MERGE, kMerge), OD_REG(ns, LOCK_OVERFLOW, kLockFlags),                              \
      OD_REG(ns, LOCK_UNDERFLOW, kLockFlags), OD_REG(ns, TIMER_CONTROL, kInert),                            \
      OD_REG(ns, TIMER_LOW, kTimerLow), OD_REG(ns, TIMER_HIGH, kTimerHigh),                                 \
      OD_REG(ns, DMA_S2MM_WRITE_COUNT, kReadZero), OD_REG(ns, DMA_S2MM_FOT_COUNT, kReadZero),               \
      OD_REG(ns, MODULE_CLOCK, kInert), OD_REG(ns, MODULE_RESET, kInert)

constexpr RegisterInfo kShim[] = {
    OD_SHARED(shim),
    OD_REG(shim, MUX, kMux),
    OD_REG(shim, DEMUX, kDemux),
    OD_REG(shim, COLUMN_CLOCK, kInert),
    OD_REG(shim, COLUMN_RESET, kInert),
};

constexpr RegisterInfo kMem[] = {
    OD_REG(mem, MEMORY, kMemory),
    OD_SHARED(mem),
    OD_REG(mem, DMA_MM2S_PAD_VALUE, kPad),
    OD_REG(mem, MEMORY_CONTROL, kMemoryControl),
};

constexpr RegisterInfo kCore[] = {
    OD_REG(core, MEMORY, kMemory),
    OD_SHARED(core),
    OD_REG(core, PROGRAM_MEMORY, kProgram),
    OD_REG(core, CORE_CONTROL, kCoreControl),
    OD_REG(core, CORE_STATUS, kCoreStatus),
    OD_REG(core, MEMORY_CONTROL, kMemoryControl),
    OD_REG(core, CORE_MEMORY_ZEROISE, kInert),
    OD_REG(core, MEMORY_TIMER_CONTROL, kInert),
    OD_REG(core, MEMORY_TIMER_LOW, kTimerLow),
    OD_REG(core, MEMORY_TIMER_HIGH, kTimerHigh),
    OD_REG(core, REGISTER_WINDOW, kInert),
    OD_REG(core, CORE_PC, kInert),
    OD_REG(core, CORE_SP, kInert),
    OD_REG(core, CORE_LR, kInert),
    OD_REG(core, CORE_ENABLE_EVENTS, kInert),
    OD_REG(core, TILE_CONTROL, kInert),
    OD_REG(core, CASCADE_CONTROL, kInert),
};

// Items of a block are found by shifts.
template <size_t N>
constexpr bool apart_by_powers_of_two(const RegisterInfo (&table)[N]) {
  for (const RegisterInfo& info : table)
    if (info.block.count != 1 && (info.block.stride & (info.block.stride - 1)) != 0) return false;
  return true;
}
static_assert(apart_by_powers_of_two(kShim) && apart_by_powers_of_two(kMem) && apart_by_powers_of_two(kCore));

#undef OD_REG
#undef OD_MM2S
#undef OD_SHARED

template <size_t N>
const RegisterInfo* search(const RegisterInfo (&table)[N], uint32_t offset) {
  for (const RegisterInfo& info : table)
    if (info.block.contains(offset)) return &info;
  return nullptr;
}

}  // namespace

const RegisterInfo* find_register(TileKind kind, uint32_t offset) {
  switch (kind) {
    case TileKind::kShim: return search(kShim, offset);
    case TileKind::kMem: return search(kMem, offset);
    case TileKind::kCore: break;
  }
  return search(kCore, offset);
}

}  // namespace onedispatch::sim
