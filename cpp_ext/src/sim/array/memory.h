// SPDX-License-Identifier: Apache-2.0
// Memory that knows which of its words were ever written.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>

namespace onedispatch::sim {

void* map_zeros(size_t bytes);  // throws std::bad_alloc
void unmap_zeros(void* block, size_t bytes);

// Numbers that are zero at first. Many of them take memory once they are touched: the kernel's zero pages. (`calloc`
// may hand out memory that was used before, and clears all of it.)
template <typename T>
class Zeros {
 public:
  explicit Zeros(size_t size = 0) : data_(static_cast<T*>(map_zeros(size * sizeof(T))), Unmap{size * sizeof(T)}), size_(size) {}

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  size_t size() const { return size_; }
  T& operator[](size_t index) { return data_[index]; }
  const T& operator[](size_t index) const { return data_[index]; }
  void clear() { std::fill_n(data(), size_, T{}); }

 private:
  struct Unmap {
    size_t bytes;
    void operator()(T* block) const { unmap_zeros(block, bytes); }
  };
  std::unique_ptr<T[], Unmap> data_;
  size_t size_;
};

// From the first of some bytes to the end of the last.
struct Span {
  uint64_t first = ~0ull, end = 0;

  void add(uint64_t from, uint64_t bytes) {
    first = std::min(first, from);
    end = std::max(end, from + bytes);
  }
  bool touches(uint64_t from, uint64_t bytes) const { return from < end && first < from + bytes; }
};

// One bit per 32-bit word, in groups of 64, and one per group that is complete. Ranges are word indices
// [first, first + count).
class ValidMap {
 public:
  explicit ValidMap(uint64_t words = 0) : bits_((words + 63) / 64), full_((bits_.size() + 63) / 64), words_(words) {}

  void mark(uint64_t first, uint64_t count);
  void forget(uint64_t first, uint64_t count);
  void forget() {
    bits_.clear();
    full_.clear();
    any_ = false;
  }
  // Returns the first unwritten word of the range, or first + count if all are written.
  uint64_t first_unwritten(uint64_t first, uint64_t count) const;
  bool all_written(uint64_t first, uint64_t count) const;
  uint64_t count_unwritten(uint64_t first, uint64_t count) const;
  uint64_t words() const { return words_; }
  // Whether any word was ever written.
  bool any() const { return __atomic_load_n(&any_, __ATOMIC_RELAXED); }

 private:
  void add(uint64_t group, uint64_t mask);

  Zeros<uint64_t> bits_, full_;
  uint64_t words_;
  bool any_ = false;
};

// Bytes plus their map. The bytes start as zero but count as unwritten.
struct Memory {
  Zeros<uint8_t> bytes;
  ValidMap valid;

  explicit Memory(uint64_t size = 0) : bytes(size), valid(size / 4) {}
};

// What a tile has of a memory. Memory tiles have parts of one, side by side, so that what a BD
// sees of its neighbours is one range.
struct MemoryPart {
  Memory* whole = nullptr;
  uint64_t first_byte = 0;  // a multiple of 4
  uint64_t bytes = 0;

  uint8_t* data() const { return whole->bytes.data() + first_byte; }
  uint64_t first_word() const { return first_byte / 4; }
  // As of ValidMap, with words counted from the tile's first.
  void mark(uint64_t first, uint64_t count) const { whole->valid.mark(first_word() + first, count); }
  uint64_t first_unwritten(uint64_t first, uint64_t count) const {
    return whole->valid.first_unwritten(first_word() + first, count) - first_word();
  }
  static constexpr uint64_t kAllWritten = ~0ull;
  // The first byte of a range, or of the word that the range begins in, that was never written.
  uint64_t unwritten_byte(uint32_t offset, uint64_t range_bytes) const {
    const uint64_t first = offset / 4, count = range_bytes == 0 ? 0 : (offset % 4 + range_bytes + 3) / 4;
    const uint64_t bad = first_unwritten(first, count);
    return bad == first + count ? kAllWritten : 4 * bad;
  }
  // Writes whole words; null: zeros.
  void set(uint32_t offset, const uint8_t* from, uint64_t count) const {
    if (from != nullptr) {
      std::copy_n(from, count, data() + offset);
    } else {
      std::fill_n(data() + offset, count, uint8_t{0});
    }
    mark(offset / 4, count / 4);
  }
};

}  // namespace onedispatch::sim
