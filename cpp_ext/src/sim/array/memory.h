// SPDX-License-Identifier: Apache-2.0
// Memory that knows which of its words were ever written.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>
#include <vector>

namespace onedispatch::sim {

// Zeros that take memory once they are touched, where there are many: the kernel's zero pages.
template <typename T>
struct ZeroPages {
  using value_type = T;

  ZeroPages() = default;
  template <typename U>
  ZeroPages(const ZeroPages<U>&) {}  // NOLINT(google-explicit-constructor): as allocators are
  T* allocate(size_t count) {
    void* const block = std::calloc(count, sizeof(T));
    if (block == nullptr) throw std::bad_alloc();
    return static_cast<T*>(block);
  }
  void deallocate(T* block, size_t) { std::free(block); }
  template <typename U>
  void construct(U*) {}  // they are there
  template <typename U, typename V>
  void construct(U* at, V&& value) {
    new (at) U(std::forward<V>(value));
  }
  bool operator==(const ZeroPages&) const { return true; }
  bool operator!=(const ZeroPages&) const { return false; }
};
template <typename T>
using Zeros = std::vector<T, ZeroPages<T>>;

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
    bits_.assign(bits_.size(), 0);
    full_.assign(full_.size(), 0);
    any_ = false;
  }
  // Returns the first unwritten word of the range, or first + count if all are written.
  uint64_t first_unwritten(uint64_t first, uint64_t count) const;
  bool all_written(uint64_t first, uint64_t count) const;
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
};

}  // namespace onedispatch::sim
