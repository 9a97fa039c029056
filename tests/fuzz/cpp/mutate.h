// SPDX-License-Identifier: Apache-2.0
// Changes that keep a transaction readable. Random bytes nearly always end at the framing.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace onedispatch::fuzz {

using Bytes = std::vector<uint8_t>;

// xorshift: the same seed, the same change.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 2 + 0x9E3779B97F4A7C15ull) {}
  uint64_t below(uint64_t limit) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return (state_ >> 16) % limit;
  }
  bool one_in(uint64_t n) { return below(n) == 0; }
  // Mostly such as break things: few bits, all bits, edges of fields.
  uint32_t word();
  // Of a tile that exists more often than not, near a register that does something.
  uint32_t address();

 private:
  uint64_t state_;
};

// A transaction in pieces.
struct Pieces {
  Bytes header;
  std::vector<Bytes> ops;
  bool v1 = false;

  // False where the framing does not hold.
  bool split(const uint8_t* data, size_t size);
  // Counts and sizes made right; at most `limit` bytes, operations left out from the end.
  Bytes joined(size_t limit) const;
};

Bytes mutated(const Bytes& transaction, size_t limit, Random& random);
Bytes crossed(const Bytes& one, const Bytes& two, size_t limit, Random& random);

}  // namespace onedispatch::fuzz
