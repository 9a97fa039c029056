// SPDX-License-Identifier: Apache-2.0
// 16-bit integers as bytes: 256 * upper + lower, the upper one with their sign. So sums of their products are those of
// products of bytes, which are exact in int32 for as many as a core's memory holds, and come together in 64 bits.
#pragma once
#include <array>

#include "kernel.h"
#include "onedispatch/kernel_params.h"
#include "simd/simd.h"
#include "words.h"

namespace onedispatch::kernels {

struct BytePart {
  const uint8_t* data;
  bool is_signed;
  int shift;      // of its value in the integer's, in bits
  bool is_whole;  // the integers are bytes

  // What the part has for `zero` of the integers.
  int32_t zero(int32_t zero) const { return shift != 0 ? zero >> shift : is_whole ? zero : zero & 0xFF; }
};

struct ByteParts {
  std::array<BytePart, 2> parts;
  int count;
  const BytePart* begin() const { return parts.data(); }
  const BytePart* end() const { return parts.data() + count; }
};

// The parts of `count` elements of a chunk from element `first` on: bytes where they lie, others in scratch.
inline ByteParts byte_parts(const Operand& x, const Call& call, int64_t first, int64_t count, ScratchSlot slot) {
  namespace t = params::dtype;
  const bool is_signed = x.dtype == t::i8 || x.dtype == t::i16;
  const uint8_t* from = x.in(call) + first * element_bytes(x.dtype);
  if (element_bytes(x.dtype) == 1) return {{BytePart{from, is_signed, 0, true}}, 1};
  const auto n = static_cast<size_t>(count), room = n + kOverrun;
  auto* low = static_cast<uint8_t*>(scratch(slot, 2 * room));
  simd().split_bytes(from, low, low + room, n);
  return {{BytePart{low, false, 0, false}, BytePart{low + room, is_signed, 8, false}}, 2};
}

}  // namespace onedispatch::kernels
