// SPDX-License-Identifier: Apache-2.0
// Elements of any type as the 32-bit words that kernels compute in: float, int32_t, uint32_t.
#pragma once
#include <cstdint>

#include "kernel.h"
#include "onedispatch/kernel_tables.h"
#include "simd/simd.h"

namespace onedispatch::kernels {

inline bool is_float(uint32_t dtype) {
  return dtype == params::dtype::f32 || dtype == params::dtype::bf16 || dtype == params::dtype::f16;
}
inline uint32_t element_bytes(uint32_t dtype) { return od_dtypes[dtype].bytes; }
inline bool is_word(uint32_t dtype) { return element_bytes(dtype) == 4; }

// Calls use(Word{}) with the type of words that elements of `dtype` are computed in.
template <class Use>
void with_word(uint32_t dtype, Use use) {
  if (is_float(dtype)) {
    use(float{});
  } else if (dtype == params::dtype::u32) {
    use(uint32_t{});
  } else {
    use(int32_t{});
  }
}

// `count` elements of a chunk from element `first` on: where they lie, or widened into scratch.
template <class Word>
const Word* words_in(const Operand& x, const Call& call, int64_t first, int64_t count, ScratchSlot slot) {
  const uint8_t* from = x.in(call) + first * element_bytes(x.dtype);
  if (is_word(x.dtype)) return reinterpret_cast<const Word*>(from);
  const auto n = static_cast<size_t>(count);
  auto* words = static_cast<Word*>(scratch(slot, n * sizeof(Word)));
  simd().widen(x.dtype, from, words, n);
  return words;
}

// Rows of panels, each of `elements`.
struct PanelGrid {
  int64_t rows, row_stride, columns, stride, elements;
};

// The panels of narrow elements whose first one begins at element `first` of the chunk, widened into scratch one behind
// the other.
template <class Word>
const Word* widened_panels(const Operand& x, const Call& call, int64_t first, const PanelGrid& grid, ScratchSlot slot) {
  const int64_t panels = grid.rows * grid.columns;
  auto* const made = static_cast<Word*>(scratch(slot, static_cast<size_t>(panels * grid.elements + kOverrun) * sizeof(Word)));
  for (int64_t i = 0; i < panels; ++i) {
    const int64_t at = first + i / grid.columns * grid.row_stride + i % grid.columns * grid.stride;
    simd().widen(x.dtype, x.in(call) + at * element_bytes(x.dtype), made + i * grid.elements, static_cast<size_t>(grid.elements));
  }
  return made;
}

// Where the words of a result are computed: in its chunk, or where that is narrower, beside it until `finish`: over several
// steps at the beginning of the scratch, which the declaration keeps. Rows may lie apart in the chunk, but not beside it.
template <class Word>
class Result {
 public:
  Result(uint32_t dtype, const Call& call, size_t count) : Result(dtype, call, 1, count, count) {}
  // Rows of so many elements, in the chunk `apart` elements from one to the next.
  Result(uint32_t dtype, const Call& call, size_t rows, size_t row, size_t apart)
      : pitch(is_word(dtype) ? apart : row), dtype_(dtype), out_(call.out), rows_(rows), row_(row), apart_(apart) {
    const bool waits = call.k_index != 0 || call.k_last == 0;
    void* place = is_word(dtype) ? call.out : waits ? call.scratch : nullptr;
    words = static_cast<Word*>(place != nullptr ? place : scratch(kScratchResult, rows * row * sizeof(Word)));
  }
  // Rounds or saturates what was computed beside the chunk.
  void finish() const { finish(0, rows_); }
  // The same of `count` rows from `first` on, once they are computed.
  void finish(size_t first, size_t count) const {
    if (is_word(dtype_)) return;
    const size_t together = apart_ == row_ ? count : 1;
    for (size_t end = first + count; first < end; first += together)
      simd().narrow(dtype_, words + first * row_, out_ + first * apart_ * element_bytes(dtype_), together * row_);
  }

  Word* words;
  size_t pitch;  // words from row to row

 private:
  uint32_t dtype_;
  uint8_t* out_;
  size_t rows_, row_, apart_;
};

}  // namespace onedispatch::kernels
