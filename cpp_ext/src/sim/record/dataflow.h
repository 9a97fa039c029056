// SPDX-License-Identifier: Apache-2.0
// What a run moved and computed, by where every word came from.
#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sim/record/segments.h"
#include "onedispatch/core_program.h"

namespace onedispatch::sim {

constexpr uint32_t kNoView = ~0u;

// Thrown where a run cannot be made again without the engine.
struct NotRecordable {
  std::string why;
};

// A read of device memory, or a write to it, in the order in which they happened.
struct DdrAccess {
  bool write = false;
  uint32_t argument = 0;
  uint32_t segment = 0;  // its words
  Slice source;          // of a write
};

// Words of a part's out chunk that go to device memory; a part is a unit, or words that no kernel sees.
struct Stored {
  uint32_t part, order, argument, first, local, words;  // order: among all, as they happened
};

// What the part stores, of all that is sorted by parts.
inline auto stored_of(const std::vector<Stored>& sorted, uint32_t part) {
  const auto before = [](const Stored& one, uint32_t number) { return one.part < number; };
  const auto first = std::lower_bound(sorted.begin(), sorted.end(), part, before);
  return std::pair(first, std::lower_bound(first, sorted.end(), part + 1, before));
}

// A kernel call: its operation is its unit's.
struct FlowCall {
  uint32_t unit = 0;
  std::array<uint32_t, OD_MAX_DIMS> origin{};
  uint32_t step = 0;
  std::array<uint32_t, params::kOutPort> views{kNoView, kNoView};  // of in0 and in1
};

// Calls of one core that leave one out chunk: the steps of a tile.
struct Unit {
  std::shared_ptr<const CallableOperation> operation;
  uint32_t occurrence = 0;
  uint32_t core = 0;
  uint32_t calls = 0;
  uint32_t out_bytes = 0, scratch_bytes = 0;
  uint32_t out_segment = ~0u, scratch_segment = ~0u;
  bool left = false;  // its out chunk was moved on
};

// An occurrence of an operation: all tiles of it, on whichever cores.
struct Dataflow {
  Segments segments;
  std::vector<DdrAccess> accesses;
  std::vector<Slice> deciding;  // words that packets and parameter blocks were made of
  std::vector<uint32_t> literals;
  std::vector<Slice> views;
  std::vector<Unit> units;
  std::vector<FlowCall> calls;
  uint32_t occurrences = 0;
  std::string refusal;  // why it cannot be repeated without the engine; empty: it can
};

}  // namespace onedispatch::sim
