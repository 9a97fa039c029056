// SPDX-License-Identifier: Apache-2.0
// Where each op of a transaction starts. Both versions; layouts come from the generated
// txn_format.h. Nothing here throws or keeps anything: what is wrong is a Frame with a fault.
#pragma once
#include <cstddef>
#include <cstdint>

#include "txn/load.h"

namespace onedispatch::txn {

enum class Fault : uint8_t {
  kNone,
  kNoHeader,   // fewer bytes than a header has
  kVersion,    // neither 0.1 nor 1.0
  kByteSize,   // not as many bytes as the header says
  kAlignment,  // not a multiple of 4 bytes
  kOpcode,     // an opcode without layout
  kOpSize,     // an op of a size that it cannot have, or that reaches past the end
  kOpCount,    // not as many ops as the header says
};

struct Frame {
  Fault fault = Fault::kNone;
  uint64_t ops = 0;      // ops before the fault; without one, all
  uint64_t at = 0;       // byte of the op that has the fault; without one, the end
  uint64_t op_size = 0;  // kOpSize: what the op says of its size
};

// How to step over one opcode.
struct Step {
  uint32_t least = 1, most = 0;  // legal sizes; none when there is no such opcode
  uint32_t size_at = 0;          // byte of the u32 that holds the size, 0 when the opcode implies it
};

// 256 rows, one per opcode.
const Step* steps(bool v1);

inline OpShape shape(uint8_t opcode, bool v1) { return v1 ? shape_v1_0(opcode) : shape_v0_1(opcode); }

// Size of the op at `at` of a transaction that ends at `end`, 0 when it cannot be. Both are
// multiples of 4, and at < end.
inline uint64_t op_size(const Step* table, const uint8_t* bytes, uint64_t at, uint64_t end) {
  const Step& step = table[bytes[at]];
  const uint64_t left = end - at;
  uint64_t size = step.least;
  if (step.size_at != 0) {
    if (step.size_at + 4 > left) return 0;
    size = load32(bytes + at + step.size_at);
  }
  return size >= step.least && size <= step.most && size % 4 == 0 && size <= left ? size : 0;
}

// Whether it is 0.1 or 1.0, and whether it is 1.0. Both need a whole header.
bool known_version(const uint8_t* bytes);
inline bool is_v1(const uint8_t* bytes) { return read(bytes, Header::version_major) == 1; }

// Walks the ops from the end of the header to byte `end` (a multiple of 4, not below the header's
// size) and stores where they start, at most `room` of them. `starts` may be null if room is 0.
Frame walk(const uint8_t* bytes, uint64_t end, bool v1, int64_t* starts, uint64_t room);

// The same for a whole file: header, size and number of ops are checked too.
Frame decode(const uint8_t* bytes, uint64_t size, int64_t* starts, uint64_t room);

// An upper bound of what decode() stores, without looking at the ops.
uint64_t op_limit(const uint8_t* bytes, uint64_t size);

}  // namespace onedispatch::txn
