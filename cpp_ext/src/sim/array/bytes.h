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

// Short runs are copied word by word: a call to memcpy would cost more than the words.
constexpr uint64_t kShortRun = 8;

inline void copy_words(uint8_t* to, const uint8_t* from, uint64_t words) {
  if (words <= kShortRun) {
    for (uint64_t i = 0; i < words; ++i) store32(to + 4 * i, load32(from + 4 * i));
  } else {
    std::memcpy(to, from, words * 4);
  }
}

}  // namespace onedispatch::sim
