// SPDX-License-Identifier: Apache-2.0
// What kernels share whose data decides addresses: indices of 32 or 64 bits that count along an axis, from its
// end on where they are negative.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>

#include "kernel.h"
#include "simd/simd.h"
#include "words.h"

namespace onedispatch::kernels {

// Chunks begin with words, also those of 64-bit indices.
template <class Index>
int64_t index_at(const uint8_t* chunk, int64_t element) {
  Index value;
  std::memcpy(&value, chunk + element * static_cast<int64_t>(sizeof value), sizeof value);
  return value;
}

// Calls use(Index{}) with the type of the indices that `operand` holds.
template <class Use>
void with_index(const Operand& operand, Use use) {
  if (element_bytes(operand.dtype) == 8) {
    use(int64_t{});
  } else {
    use(int32_t{});
  }
}

// An index of 4 or 8 bytes.
inline int64_t index_at(uint32_t bytes, const uint8_t* chunk, int64_t element) {
  return bytes == 8 ? index_at<int64_t>(chunk, element) : index_at<int32_t>(chunk, element);
}

// Those of some indices that count to members of interest, until this thread looks for others.
struct FoundIndices {
  const int32_t* which;  // null: every index; those whose places are below zero count to none
  const int32_t* place;  // behind the first member of interest
  int64_t count;
  bool outside;  // one is outside of the axis

  template <class Use>
  void for_each(Use use) const {  // use(which, place)
    for (int64_t i = 0; which != nullptr && i < count; ++i) use(which[i], place[i]);
    for (int64_t i = 0; which == nullptr && i < count; ++i)
      if (!outside || place[i] >= 0) use(i, place[i]);
  }
};

// Which of `n` indices of so many bytes count to one of the `size` members from `first` on.
inline FoundIndices find_indices(uint32_t bytes, const uint8_t* indices, int64_t n, int64_t extent, int64_t first, int64_t size) {
  const auto count = static_cast<size_t>(n);
  auto* const place = static_cast<int32_t*>(scratch(kScratchPlan, count * sizeof(int32_t)));
  if (first == 0 && size == extent) {
    const uint32_t seen = simd().places(bytes, indices, extent, first, size, place, count);
    return {nullptr, place, n, (seen & kSomeOutside) != 0};
  }
  auto* const which = static_cast<int32_t*>(scratch(kScratchColumns, count * sizeof(int32_t)));
  size_t found = 0;
  const uint32_t seen = simd().found_places(bytes, indices, extent, first, size, which, place, count, &found);
  return {which, place, static_cast<int64_t>(found), (seen & kSomeOutside) != 0};
}

// Ends the run: `given` is no coordinate along an axis of `extent`.
[[noreturn]] inline void outside(int64_t given, int64_t extent, const std::string& where) {
  reject("index " + std::to_string(given) + where + " along an axis of " + std::to_string(extent) +
             (extent > 0 ? "; accepted: " + extent_of(-extent, extent - 1) : "; accepted: none"),
         OD_INDEX);
}

}  // namespace onedispatch::kernels
