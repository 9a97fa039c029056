// SPDX-License-Identifier: Apache-2.0
// How large the tiles of a joined operation are.
#include <algorithm>
#include <numeric>

#include "sim/record/join.h"

namespace onedispatch::sim {

namespace {

constexpr int64_t kTileElements = 32768;  // of a joined tile's result: its operands are packed once for it
constexpr int64_t kTileElementsOfNarrow = 65536;  // narrow elements are multiplied much faster than packed
constexpr uint32_t kLeastTiles = 4;       // that several threads share, where there are so many
constexpr uint32_t kLanes = 16;           // elements of the widest vectors
constexpr uint32_t kMostTogether = 192;   // members of panels that fill vectors together
constexpr uint32_t kLeastTogether = 64;   // of sums, which read what they are multiplied with once for all of them
constexpr uint32_t kNarrowTogether = 256;  // members of their panels
constexpr uint32_t kLeastSummed = 16;     // products of a sum that make a tile worth sharing

}  // namespace

// What one thread makes alone is not cut for others.
uint32_t Join::least_tiles(unsigned threads) { return threads == 0 ? kLeastTiles : std::min(threads, kLeastTiles); }

// Tiles begin at multiples of so many members of a dimension: parts of a level write no word together, and what an operand
// is aligned to stays where it was in its chunk.
uint32_t Join::whole_words(const Group& group, uint32_t dim) const {
  int64_t members = 1;
  for (const auto& [operand, layouts] : group.operands) {
    for (uint32_t axis = 0; axis < operand.n_axes; ++axis) {
      if (operand.along[axis] != dim) continue;
      const bool runs = operand.output && layouts[0].strides[axis] == operand.element;
      members = std::lcm(members, std::lcm(operand.axes[axis].align, runs ? 4 / std::min<int64_t>(operand.element, 4) : 1));
    }
  }
  return static_cast<uint32_t>(members);
}

bool Join::has_narrow_panels() const {
  const auto is_narrow = [](const OperandShape& operand) { return operand.panels && operand.element <= 2; };
  return std::any_of(shape_->operands.begin(), shape_->operands.end(), is_narrow);
}

// How many panels of `members` each: few that fill vectors best, or, of bytes, many, since what they are multiplied with
// is packed once for all of them.
uint32_t Join::panels_together(uint32_t members, uint32_t panels) const {
  if (has_narrow_panels()) return std::min(panels, std::max(1u, kNarrowTogether / members));
  const auto used = [members](uint32_t n) { return static_cast<double>(n * members) / ((n * members + kLanes - 1) / kLanes * kLanes); };
  uint32_t best = shape_->k_extent < 2 ? 1 : std::max(1u, std::min(panels, (kLeastTogether + members - 1) / members));
  for (uint32_t n = best + 1; n <= panels && n * members <= kMostTogether; ++n)
    if (used(n) > used(best)) best = n;
  return best;
}

// Elements of a tile's result.
int64_t Join::elements_of(const Origin& tile) const {
  const auto out = std::find_if(shape_->operands.begin(), shape_->operands.end(), [](const OperandShape& operand) { return operand.output; });
  int64_t elements = 1;
  for (uint32_t axis = 0; axis < out->n_axes; ++axis)
    if (out->along[axis] == OperandShape::kNothing) elements *= out->axes[axis].chunk;
  for (const uint32_t members : tile) elements *= members;
  return elements;
}

// A tile's units along d of which there are `whole`: as many as there is room for beside so many elements for each unit, at
// most `most`, in multiples of `step`. Tiles are about the same size.
uint32_t Join::units_of(uint32_t whole, uint32_t most, uint32_t step, int64_t elements) const {
  const int64_t in_all = has_narrow_panels() ? kTileElementsOfNarrow : kTileElements;
  const auto room = static_cast<uint32_t>(std::max<int64_t>(1, std::min<int64_t>(most, in_all / elements)));
  const uint32_t tiles = (whole + room - 1) / room;
  return ((whole + tiles - 1) / tiles + step - 1) / step * step;
}

// As large as threads can share: panels that fill vectors, then rows, what lies behind them first, then more panels.
Join::Origin Join::tile_of(const Group& group) const {
  const auto length = [&](uint32_t d) { return group.end[d] - group.first[d]; };
  const auto lies_whole = [&](uint32_t d) { return joined_[d] && !divided_[d]; };
  Origin tile{}, row{};  // row: of one member along each dimension that lies whole
  auto tiles = static_cast<uint32_t>(groups_.size());
  uint32_t longest = OD_MAX_DIMS, inner = OD_MAX_DIMS;  // of dimensions that lie whole; threads share the longest
  for (uint32_t d = OD_MAX_DIMS; d-- > 0;) {
    tile[d] = shape_->dims[d].tile;
    if (joined_[d] && divided_[d]) {
      const uint32_t panels = length(d) / tile[d], together = panels_together(tile[d], panels);
      tile[d] *= together;
      tiles *= (panels + together - 1) / together;
    }
    row[d] = lies_whole(d) ? 1 : tile[d];
    if (!lies_whole(d) || length(d) < 2) continue;
    if (longest == OD_MAX_DIMS || length(d) >= length(longest)) longest = d;
    if (inner == OD_MAX_DIMS) inner = d;
  }
  const uint32_t least = shape_->k_extent < kLeastSummed ? 1 : (least_tiles_ + tiles - 1) / tiles;
  for (uint32_t d = OD_MAX_DIMS; d-- > 0;) {
    if (!lies_whole(d)) continue;
    // Rows come whole before there are several, but not of long sums: what they read is wanted again soon.
    const bool is_row = d == inner && shape_->k_extent < kLeastSummed;
    const int64_t elements = is_row ? elements_of(row) : elements_of(tile) / tile[d];
    const uint32_t most = d == longest ? (length(d) + least - 1) / least : length(d);
    const uint32_t words = whole_words(group, d), step = d == inner && !is_row ? std::lcm(words, kLanes) : words;
    tile[d] = std::min(length(d), std::max(tile[d], units_of(length(d), most, step, elements)));
  }
  for (uint32_t d = OD_MAX_DIMS; d-- > 0;) {
    if (!joined_[d] || !divided_[d]) continue;
    const uint32_t whole = length(d) / tile[d];
    const auto most = static_cast<uint32_t>(whole * groups_.size() / least_tiles_);
    tile[d] *= std::min(whole, units_of(whole, std::max(1u, most), 1, elements_of(tile)));
  }
  return tile;
}

}  // namespace onedispatch::sim
