// SPDX-License-Identifier: Apache-2.0
// Address patterns of BDs. A pattern is collapsed to runs of consecutive words once, when its BD
// starts; moving data then costs one memcpy per run.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>

#include "sim/array/memory.h"

namespace onedispatch::sim {

// One address dimension as the BD states it. Innermost first.
struct Dimension {
  uint64_t size = 0;    // 0: no wrap at this level, so this is the outermost one
  uint64_t step = 1;    // words
  uint32_t before = 0;  // padding, in words (D0), D0-rows (D1), D1-planes (D2)
  uint32_t after = 0;
};

constexpr unsigned kMaxDimensions = 4;

struct Shape {
  uint64_t base = 0;    // word index of the first word
  uint64_t length = 0;  // of a BD: words on the stream; of a resolved shape: data words
  unsigned count = 0;   // dimensions given; the last one has no wrap
  std::array<Dimension, kMaxDimensions> dims{};
};

// Shape with all sizes known: the first dimension without wrap takes what remains of the length.
Shape resolve(Shape shape);
// The same with padding, which the length counts too. The length of the result is of data words:
// those among the first `length` words of the stream.
Shape resolve_padded(Shape shape);
// Word offset, relative to base, of the furthest word that a resolved shape touches.
uint64_t furthest_word(const Shape& resolved);
bool has_padding(const Shape& shape);

// Where a cursor stands, apart from its outer dimensions.
struct CursorState {
  uint8_t* memory_ = nullptr;
  ValidMap* valid_ = nullptr;
  uint64_t origin_ = 0;    // base word
  uint64_t run_ = 1;       // words per run
  uint64_t position_ = 0;  // within the run
  uint64_t offset_ = 0;    // of the run, relative to origin
  uint64_t burst_end_ = 0;  // address behind the last byte that bursts() counted
  uint64_t padded_position_ = 0;  // words of the padded stream already produced
  unsigned outer_count_ = 0;
  bool padded_ = false;  // then outer_ has all dimensions, as the shape states them
  uint32_t pad_value_ = 0;
};

// Walks a resolved shape. `memory` is the first byte of the memory that `base` counts in.
class Cursor : private CursorState {
 public:
  Cursor() = default;
  Cursor(const Cursor& from) { *this = from; }
  // Most patterns are one run: what they do not have is not copied.
  Cursor& operator=(const Cursor& from) {
    static_cast<CursorState&>(*this) = from;
    std::copy_n(from.outer_.begin(), outer_count_, outer_.begin());
    std::copy_n(from.index_.begin(), outer_count_, index_.begin());
    return *this;
  }
  Cursor(const Shape& resolved, uint8_t* memory, ValidMap* valid, uint32_t pad_value);

  // Copies the next `words` words from memory to `out`. Returns the word index of a word that
  // was never written, or kAllWritten.
  static constexpr uint64_t kAllWritten = ~0ull;
  uint64_t gather(uint8_t* out, uint64_t words);
  // Copies `words` words from `in` to memory and marks them as written.
  void scatter(const uint8_t* in, uint64_t words);
  // The next `words` words when they lie in one run, else null; does not advance.
  uint8_t* contiguous(uint64_t words) const;
  uint64_t next_word() const { return address(); }
  uint64_t left_of_run() const { return padded_ ? 0 : run_ - position_; }  // words
  // As contiguous, where all of them were written.
  const uint8_t* readable(uint64_t words) const {
    const uint8_t* const at = contiguous(words);
    return at != nullptr && valid_->all_written(address(), words) ? at : nullptr;
  }
  // Advances over words that the caller copied itself (within a run); checks or marks validity.
  uint64_t skip_read(uint64_t words);
  void skip_written(uint64_t words);
  // Advances over any number of words, of which memory is not looked at.
  void skip(uint64_t words);

  // Bursts of 2^`shift` bytes that the next `words` words touch, word 0 of the memory lying at byte
  // address `first`. A run that goes on where the one before it ended shares its last burst. Advances.
  uint64_t bursts(uint64_t words, uint64_t first, unsigned shift) {
    if (words == 0 || words > run_ - position_) return bursts_of_runs(words, first, shift);
    const uint64_t begin = first + 4 * address(), end = begin + 4 * words, inside = (uint64_t{1} << shift) - 1;
    const bool shared = begin == burst_end_ && (begin & inside) != 0;
    burst_end_ = end;
    position_ += words;
    if (position_ == run_) next_run();
    return ((end - 1) >> shift) - (begin >> shift) + (shared ? 0 : 1);
  }
  bool padded() const { return padded_; }
  uint32_t pad_value() const { return pad_value_; }
  // Calls data(word, words) for each run of the next `words` words, in order, and padding(words) between. Does not advance.
  template <typename Data, typename Padding>
  void for_runs(uint64_t words, Data data, Padding padding) const;
  void pad_with(uint32_t value) { pad_value_ = value; }
  // The same pattern elsewhere, before anything was moved: so many words on, or from word `base` of another memory.
  void shift(uint64_t words) { origin_ += words; }
  void move_to(uint64_t base, uint8_t* memory, ValidMap* valid) {
    origin_ = base;
    memory_ = memory;
    valid_ = valid;
  }
  // The same words, which lie elsewhere by now.
  void follow(uint8_t* memory) { memory_ = memory; }

 private:
  // Byte is uint8_t to gather into, const uint8_t to scatter from.
  template <typename Byte>
  uint64_t walk(Byte* data, uint64_t words);
  uint64_t gather_padded(uint8_t* out, uint64_t words);
  template <typename Data, typename Padding>
  void walk_padded(uint64_t words, Data data, Padding padding);
  template <typename Byte>
  uint64_t strided(Byte* data, uint64_t words, uint64_t step, uint64_t* done);
  uint64_t address() const { return origin_ + offset_ + position_; }
  uint64_t bursts_of_runs(uint64_t words, uint64_t first, unsigned shift);
  uint64_t whole_runs(uint64_t words) const;
  void skip_runs(uint64_t runs);
  uint64_t gather_runs(uint8_t* data, uint64_t words);
  void next_run();

  std::array<Dimension, kMaxDimensions> outer_{};  // size and step of runs, innermost first
  std::array<uint64_t, kMaxDimensions> index_{};
};

inline void Cursor::next_run() {
  position_ = 0;
  for (unsigned d = 0; d < outer_count_; ++d) {
    if (++index_[d] < outer_[d].size) {
      offset_ += outer_[d].step;
      return;
    }
    offset_ -= (outer_[d].size - 1) * outer_[d].step;
    index_[d] = 0;
  }
}

// Padded rows are produced one at a time, from the position in the padded stream. Advances.
template <typename Data, typename Padding>
void Cursor::walk_padded(uint64_t words, Data data, Padding padding) {
  const Dimension& d0 = outer_[0];
  const uint64_t row_words = d0.before + d0.size + d0.after;
  while (words > 0) {
    uint64_t rest = padded_position_ / row_words;
    const uint64_t in_row = padded_position_ % row_words;
    uint64_t row = origin_;
    bool inside = true;
    for (unsigned d = 1; d < outer_count_; ++d) {
      const Dimension& dim = outer_[d];
      const uint64_t extent = dim.before + dim.size + dim.after;
      const uint64_t i = rest % extent;
      rest /= extent;
      inside = inside && i >= dim.before && i < dim.before + dim.size;
      if (inside) row += (i - dim.before) * dim.step;
    }
    const uint64_t here = std::min(words, row_words - in_row);
    for (uint64_t k = 0; k < here;) {
      const uint64_t i = in_row + k;
      uint64_t count = 1;
      if (inside && i >= d0.before && i < d0.before + d0.size) {
        if (d0.step == 1) count = std::min(here - k, d0.before + d0.size - i);
        data(row + (i - d0.before) * d0.step, count);
      } else {
        padding(count);
      }
      k += count;
    }
    words -= here;
    padded_position_ += here;
  }
}

template <typename Data, typename Padding>
void Cursor::for_runs(uint64_t words, Data data, Padding padding) const {
  Cursor at = *this;
  if (padded_) return at.walk_padded(words, data, padding);
  while (words > 0) {
    const uint64_t here = std::min(words, at.run_ - at.position_);
    data(at.address(), here);
    words -= here;
    at.position_ += here;
    if (at.position_ == at.run_) at.next_run();
  }
}

}  // namespace onedispatch::sim
