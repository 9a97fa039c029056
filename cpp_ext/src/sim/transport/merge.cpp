// SPDX-License-Identifier: Apache-2.0
// Deterministic merge: an arbiter whose packets come from several ports in an order that is set.
#include "sim/array/array.h"

namespace onedispatch::sim {
namespace {

namespace turns = reg::switch_merge;

struct Turn {
  uint32_t slave, packets;
};

Turn turn_of(const Merge& merge, uint32_t number) {
  static constexpr Field kSlaves[] = {turns::slave0, turns::slave1, turns::slave2, turns::slave3};
  static constexpr Field kPackets[] = {turns::packets0, turns::packets1, turns::packets2, turns::packets3};
  const uint32_t word = merge.words[kSlaves[number].word];
  return {kSlaves[number].raw(word), kPackets[number].raw(word)};
}

bool enabled(const Merge& merge) { return turns::enable.get(merge.words[turns::enable.word]) != 0; }

// From `merge.turn` on to one that takes packets; after a whole round there is none.
void find_turn(Merge& merge) {
  for (uint32_t tried = 0; tried < reg::MERGE_TURNS && turn_of(merge, merge.turn).packets == 0; ++tried)
    merge.turn = (merge.turn + 1) % reg::MERGE_TURNS;
}

}  // namespace

// The merge of an arbiter; null when it serves packets as they arrive.
Merge* Array::merge_at(uint32_t key) {
  auto& merges = tiles_[key / reg::ARBITERS].switches.merges;
  const uint32_t arbiter = key % reg::ARBITERS;
  return arbiter < merges.size() && enabled(merges[arbiter]) ? &merges[arbiter] : nullptr;
}

bool Array::in_turn(const Route::Arbiter& arbiter) {
  const Merge* const merge = merge_at(arbiter.key);
  if (merge == nullptr) return true;
  const Turn turn = turn_of(*merge, merge->turn);
  return turn.packets != 0 && turn.slave == arbiter.slave;
}

// A packet has passed.
void Array::pass_turn(uint32_t key) {
  Merge* const merge = merge_at(key);
  if (merge == nullptr || ++merge->passed < turn_of(*merge, merge->turn).packets) return;
  merge->passed = 0;
  merge->turn = (merge->turn + 1) % reg::MERGE_TURNS;
  find_turn(*merge);
}

void Array::write_merge(Tile& tile, uint32_t index, uint32_t byte, uint32_t value) {
  Merge& merge = tile.switches.merges[index];
  merge.words[byte / 4] = value;
  merge.turn = merge.passed = 0;
  find_turn(merge);
  serve_arbiter_queue();
}

}  // namespace onedispatch::sim
