// SPDX-License-Identifier: Apache-2.0
// FNV-1a over 32-bit words, for tables in memory; what files and programs are named by is of kernel_params.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace onedispatch {

// Of the whole words among `size` bytes.
inline uint64_t hash_words(const void* data, size_t size) {
  uint64_t hash = 0xCBF29CE484222325ull;
  const auto* const bytes = static_cast<const uint8_t*>(data);
  for (size_t at = 0; at + 4 <= size; at += 4) {
    uint32_t word;
    std::memcpy(&word, bytes + at, sizeof word);
    hash = (hash ^ word) * 0x100000001B3ull;
  }
  return hash;
}

}  // namespace onedispatch
