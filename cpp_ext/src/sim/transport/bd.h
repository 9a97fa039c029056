// SPDX-License-Identifier: Apache-2.0
// A buffer descriptor, decoded from its raw register words.
#pragma once
#include <array>
#include <cstdint>

#include "onedispatch/errors.h"
#include "sim/transport/pattern.h"

namespace onedispatch::sim {

constexpr uint32_t kNone = ~0u;  // no channel, tile, core, lock

enum class TileKind : uint8_t { kShim, kMem, kCore };

using BdWords = std::array<uint32_t, 8>;

// All of a BD but its pattern.
struct BdControl {
  uint64_t byte_address = 0;    // shim only: where the pattern starts, iteration applied
  uint64_t iteration_step = 0;  // words
  uint32_t iteration = 0, iterations = 1;  // the counter and where it wraps
  bool valid = false;
  bool acquire = false;
  bool use_next = false;
  bool packet = false;
  bool suppress_tlast = false;
  bool compression = false;
  uint32_t acquire_lock = 0;  // in the BD's lock view
  int32_t acquire_value = 0;
  uint32_t release_lock = 0;
  int32_t release_value = 0;
  uint32_t next = 0;
  uint32_t packet_id = 0, packet_type = 0;
};

struct Bd : BdControl {
  Shape shape;  // base in words of the BD's own address view, iteration applied
};

Bd decode_bd(TileKind kind, const BdWords& words);
// Counts one execution: the iteration counter lives in the BD's own register.
void step_iteration(TileKind kind, BdWords& words);
// The same of what was decoded from it.
void step_iteration(TileKind kind, Bd& bd);
inline bool counts_iterations(const Bd& bd) { return bd.iterations > 1 || bd.iteration != 0; }

}  // namespace onedispatch::sim
