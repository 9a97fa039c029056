// SPDX-License-Identifier: Apache-2.0
// Little-endian loads from bytes of any alignment.
#pragma once
#include <cstdint>
#include <cstring>

#include "onedispatch/txn_format.h"

namespace onedispatch::txn {

inline uint32_t load32(const uint8_t* at) {
  uint32_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
inline uint64_t load64(const uint8_t* at) {
  uint64_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// A field of the op (or header) that starts at `op`. Fields are constants, so this becomes one load.
inline uint64_t read(const uint8_t* op, ByteField field) {
  if (field.width == 8) return load64(op + field.offset);
  if (field.width == 4) return load32(op + field.offset);
  uint64_t value = 0;
  for (uint32_t i = 0; i < field.width; ++i) value |= uint64_t{op[field.offset + i]} << (8 * i);
  return value;
}

}  // namespace onedispatch::txn
