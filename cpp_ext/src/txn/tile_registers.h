// SPDX-License-Identifier: Apache-2.0
// Which offsets of a tile are registers, and which of these take only some values.
#pragma once
#include <cstdint>

#include "onedispatch/register_map.h"

namespace onedispatch::txn {

enum class Role : uint8_t { kNone, kOther, kLock, kQueue, kRequest, kStatus };
enum class Tile : uint8_t { kShim, kMem, kCore, kNone };

constexpr uint32_t kTileWords = (reg::OFFSET_MASK + 1) / 4;

// Row of an address -> kind of tile.
inline Tile tile_of_row(uint64_t row) {
  if (row == reg::SHIM_ROW) return Tile::kShim;
  if (row == reg::MEM_ROW) return Tile::kMem;
  return row < reg::FIRST_CORE_ROW + reg::MAX_CORE_ROWS ? Tile::kCore : Tile::kNone;
}

inline uint32_t row_of(uint64_t address) {
  return static_cast<uint32_t>(address >> reg::ROW_SHIFT) & reg::ROW_MASK;
}
inline uint32_t offset_of(uint64_t address) { return static_cast<uint32_t>(address) & reg::OFFSET_MASK; }

// kTileWords roles, one per word of the tile. Not for Tile::kNone.
const Role* roles(Tile tile);

}  // namespace onedispatch::txn
