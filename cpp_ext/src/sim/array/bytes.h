// SPDX-License-Identifier: Apache-2.0
// Little-endian loads and stores, and bit fields of register words.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>

#include "txn/load.h"

namespace onedispatch::sim {

using txn::load32;
using txn::load64;
inline void store32(uint8_t* at, uint32_t value) { std::memcpy(at, &value, sizeof value); }

// `width` bits of `word` from bit `low` up.
constexpr uint32_t bits(uint32_t word, unsigned low, unsigned width) {
  return (word >> low) & (width >= 32 ? ~0u : (1u << width) - 1u);
}
// The same as a signed number.
constexpr int32_t signed_bits(uint32_t word, unsigned low, unsigned width) {
  const uint32_t field = bits(word, low, width);
  const uint32_t sign = 1u << (width - 1);
  return static_cast<int32_t>((field ^ sign)) - static_cast<int32_t>(sign);
}

std::string hex(uint64_t value);

}  // namespace onedispatch::sim
