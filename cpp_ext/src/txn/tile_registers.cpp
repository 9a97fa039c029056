// SPDX-License-Identifier: Apache-2.0
#include "txn/tile_registers.h"

#include <algorithm>
#include <memory>
#include <string_view>

namespace onedispatch::txn {
namespace {

Role role_of(std::string_view name) {
  const auto ends_with = [name](std::string_view end) {
    return name.size() > end.size() && name.substr(name.size() - end.size()) == end;
  };
  if (name == "LOCK_VALUE") return Role::kLock;
  if (name == "LOCK_REQUEST") return Role::kRequest;
  if (ends_with("MM_STATUS") || ends_with("2S_STATUS")) return Role::kStatus;  // of DMA channels
  return ends_with("_QUEUE") ? Role::kQueue : Role::kOther;
}

// A byte per word: 256 KB per kind of tile, of which files touch a few lines.
struct Map {
  Role words[3][kTileWords] = {};

  template <size_t N>
  void fill(Tile tile, const NamedBlock (&blocks)[N]) {
    Role* const to = words[static_cast<int>(tile)];
    for (const NamedBlock& named : blocks)
      for (uint32_t i = 0; i < named.block.count; ++i)
        std::fill_n(to + named.block.at(i) / 4, named.block.size / 4, role_of(named.name));
  }
  Map() {
    fill(Tile::kShim, reg::shim::kBlocks);
    fill(Tile::kMem, reg::mem::kBlocks);
    fill(Tile::kCore, reg::core::kBlocks);
  }
};

}  // namespace

const Role* roles(Tile tile) {
  static const std::unique_ptr<const Map> map = std::make_unique<Map>();
  return map->words[static_cast<int>(tile)];
}

}  // namespace onedispatch::txn
