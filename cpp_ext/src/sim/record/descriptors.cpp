// SPDX-License-Identifier: Apache-2.0
#include "sim/record/descriptors.h"

#include <algorithm>

namespace onedispatch::sim {

namespace {

uint8_t all_words(TileKind kind) {
  const uint32_t words = kind == TileKind::kCore ? reg::core::kBdWords : kind == TileKind::kMem ? reg::mem::kBdWords : reg::shim::kBdWords;
  return static_cast<uint8_t>((1u << words) - 1);
}

}  // namespace

bool Descriptors::are_in(const Array& array) const {
  return std::all_of(found.begin(), found.end(), [&](const HeldBd& one) { return array.tiles()[one.tile].bds[one.bd] == one.words; });
}

void Descriptors::leave_in(Array& array) const {
  for (const HeldBd& one : left) array.put_bd(one.tile, one.bd, one.words, one.writer);
}

BdFollower::BdFollower(const Array& array) : array_(array) {
  for (const Tile& tile : array.tiles()) {
    std::vector<Known>& known = tiles_.emplace_back();
    for (const BdWords& words : tile.bds) known.push_back({words});
  }
}

void BdFollower::write(const Tile& tile, uint32_t bd, uint32_t first, uint32_t words) {
  tiles_[tile.index][bd].written |= static_cast<uint8_t>(((1u << words) - 1) << first);
}

void BdFollower::read(const Tile& tile, uint32_t bd, uint32_t word) {
  Known& known = tiles_[tile.index][bd];
  known.found = known.found || (known.written >> word & 1u) == 0;
}

void BdFollower::load(const Tile& tile, uint32_t bd) {
  Known& known = tiles_[tile.index][bd];
  known.found = known.found || known.written != all_words(tile.kind);
}

Descriptors BdFollower::take() const {
  Descriptors all;
  for (const Tile& tile : array_.tiles()) {
    for (uint32_t bd = 0; bd < tile.bds.size(); ++bd) {
      const Known& known = tiles_[tile.index][bd];
      const bool in_part = known.written != 0 && known.written != all_words(tile.kind);
      if (known.found || in_part) all.found.push_back({tile.index, bd, known.words, {}});
      if (known.written != 0 || tile.bds[bd] != known.words) all.left.push_back({tile.index, bd, tile.bds[bd], tile.bd_writers[bd]});
    }
  }
  return all;
}

}  // namespace onedispatch::sim
