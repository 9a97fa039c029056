// SPDX-License-Identifier: Apache-2.0
// The discrete-event queue, by time; equal times keep the order in which they were scheduled, so that every
// run is the same. The cycles that come next have a list each: nearly all events go there and come from there
// without a comparison. What lies further ahead waits in a binary heap until its cycle is among them.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
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
  bool empty() const { return listed_ == 0 && far_.empty(); }
  uint64_t next_time() const { return takes_far() ? far_.front().time : soonest_; }
  uint64_t scheduled() const { return sequence_; }
  // The event that comes next, unless it lies far ahead: to fetch what it needs meanwhile.
  const Event* upcoming() const { return takes_far() ? nullptr : &nodes_[lists_[soonest_ % kSpan].first].event; }

  void push(uint64_t time, EventKind kind, uint32_t subject, uint32_t generation) {
    const Event event{time, sequence_++, subject, generation, kind};
    if (time - base_ < kSpan) {
      append(event);
    } else {
      push_far(event);
    }
  }

  Event pop() {
    const Event first = takes_far() ? pop_far() : take();
    base_ = std::max(base_, first.time);
    // Before anything else is scheduled for their cycles: the order in a list is that of scheduling.
    while (!far_.empty() && far_.front().time - base_ < kSpan) append(pop_far());
    return first;
  }

  void clear() {
    far_.clear();
    nodes_.clear();
    free_ = kEnd;
    listed_ = 0;
    used_ = {};
    used_groups_ = {};
  }

 private:
  // More cycles than nearly all kernel calls take: what lies further ahead costs more.
  static constexpr uint64_t kGroup = 64, kGroups = 256, kSpan = kGroup * kGroups;
  static constexpr uint32_t kEnd = ~0u;

  struct Node {
    Event event;
    uint32_t next;
  };
  struct List {
    uint32_t first, last;
  };

  static bool before(const Event& a, const Event& b) {
    return a.time != b.time ? a.time < b.time : a.sequence < b.sequence;
  }
  static uint64_t lowest(uint64_t bits) { return static_cast<uint64_t>(__builtin_ctzll(bits)); }

  bool takes_far() const { return listed_ == 0 || (!far_.empty() && far_.front().time < base_); }

  // The cycle of the first event in a list, of which none lies before `from`: from there on, and around.
  uint64_t first_listed(uint64_t from) const {
    const uint64_t at = from % kSpan, group = at / kGroup;
    const uint64_t here = used_[group] >> (at % kGroup);
    if (here != 0) return from + lowest(here);
    const uint64_t found = used_group_behind(group);
    return from + (found * kGroup + lowest(used_[found]) - at) % kSpan;
  }

  // The next group, and around, with an event; perhaps the same one, a turn later.
  uint64_t used_group_behind(uint64_t group) const {
    uint64_t word = group / kGroup;
    uint64_t bits = used_groups_[word] & (~uint64_t{1} << (group % kGroup));
    while (bits == 0) bits = used_groups_[word = (word + 1) % used_groups_.size()];
    return word * kGroup + lowest(bits);
  }

  void append(const Event& event) {
    uint32_t node = free_;
    if (node == kEnd) {
      node = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back();
    } else {
      free_ = nodes_[node].next;
    }
    nodes_[node] = {event, kEnd};
    const uint64_t slot = event.time % kSpan, bit = uint64_t{1} << (slot % kGroup);
    uint64_t& group = used_[slot / kGroup];
    List& list = lists_[slot];
    if ((group & bit) != 0) {
      nodes_[list.last].next = node;
    } else {
      group |= bit;
      used_groups_[slot / kGroup / kGroup] |= uint64_t{1} << (slot / kGroup % kGroup);
      list.first = node;
    }
    list.last = node;
    soonest_ = listed_++ == 0 ? event.time : std::min(soonest_, event.time);
  }

  Event take() {
    const uint64_t slot = soonest_ % kSpan;
    List& list = lists_[slot];
    const uint32_t node = list.first;
    const Event event = nodes_[node].event;
    list.first = nodes_[node].next;
    nodes_[node].next = free_;
    free_ = node;
    --listed_;
    if (list.first != kEnd) return event;
    uint64_t& group = used_[slot / kGroup];
    group &= ~(uint64_t{1} << (slot % kGroup));
    if (group == 0) used_groups_[slot / kGroup / kGroup] &= ~(uint64_t{1} << (slot / kGroup % kGroup));
    if (listed_ != 0) soonest_ = first_listed(event.time);
    return event;
  }

  void push_far(const Event& added) {
    far_.push_back(added);
    size_t child = far_.size() - 1;
    while (child > 0) {
      const size_t parent = (child - 1) / 2;
      if (!before(added, far_[parent])) break;
      far_[child] = far_[parent];
      child = parent;
    }
    far_[child] = added;
  }

  Event pop_far() {
    const Event first = far_.front();
    const Event last = far_.back();
    far_.pop_back();
    if (!far_.empty()) sift_down(last);
    return first;
  }

  void sift_down(const Event& moved) {
    size_t parent = 0;
    const size_t size = far_.size();
    for (;;) {
      size_t child = 2 * parent + 1;
      if (child >= size) break;
      if (child + 1 < size && before(far_[child + 1], far_[child])) ++child;
      if (!before(far_[child], moved)) break;
      far_[parent] = far_[child];
      parent = child;
    }
    far_[parent] = moved;
  }

  uint64_t base_ = 0;  // the time of the event that was taken last
  std::array<List, kSpan> lists_{};          // of cycle t at t % kSpan, where its bit below is set
  std::array<uint64_t, kGroups> used_{};      // a bit for each list
  std::array<uint64_t, kGroups / kGroup> used_groups_{};  // a bit for each word of them
  std::vector<Node> nodes_;
  uint32_t free_ = kEnd;
  size_t listed_ = 0;
  uint64_t soonest_ = 0;  // cycle of the first of them, where there are any
  std::vector<Event> far_;
  uint64_t sequence_ = 0;
};

}  // namespace onedispatch::sim
