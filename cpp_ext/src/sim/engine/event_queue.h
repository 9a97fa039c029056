// SPDX-License-Identifier: Apache-2.0
// The discrete-event queue: a binary heap on (time, sequence), so that equal times keep the
// order in which they were scheduled and every run is the same.
#pragma once
#include <cstdint>
#include <vector>

namespace onedispatch::sim {

enum class EventKind : uint8_t { kController, kSegment, kBdDone, kCore, kAnswer };

struct Event {
  uint64_t time;        // cycles of the array clock
  uint64_t sequence;    // order of scheduling
  uint32_t subject;     // channel or core index
  uint32_t generation;  // dropped when the subject was reset meanwhile
  EventKind kind;
};

class EventQueue {
 public:
  bool empty() const { return heap_.empty(); }
  const Event& top() const { return heap_.front(); }
  uint64_t scheduled() const { return sequence_; }

  void push(uint64_t time, EventKind kind, uint32_t subject, uint32_t generation) {
    heap_.push_back(Event{time, sequence_++, subject, generation, kind});
    size_t child = heap_.size() - 1;
    const Event added = heap_[child];
    while (child > 0) {
      const size_t parent = (child - 1) / 2;
      if (!before(added, heap_[parent])) break;
      heap_[child] = heap_[parent];
      child = parent;
    }
    heap_[child] = added;
  }

  Event pop() {
    const Event first = heap_.front();
    const Event last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) sift_down(last);
    return first;
  }

  void clear() { heap_.clear(); }

 private:
  static bool before(const Event& a, const Event& b) {
    return a.time != b.time ? a.time < b.time : a.sequence < b.sequence;
  }
  void sift_down(const Event& moved) {
    size_t parent = 0;
    const size_t size = heap_.size();
    for (;;) {
      size_t child = 2 * parent + 1;
      if (child >= size) break;
      if (child + 1 < size && before(heap_[child + 1], heap_[child])) ++child;
      if (!before(heap_[child], moved)) break;
      heap_[parent] = heap_[child];
      parent = child;
    }
    heap_[parent] = moved;
  }

  std::vector<Event> heap_;
  uint64_t sequence_ = 0;
};

}  // namespace onedispatch::sim
