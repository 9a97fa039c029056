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
  uint32_t subject;     // channel or core index
  uint32_t generation;  // dropped when the subject was reset meanwhile
  EventKind kind;
};

class EventQueue {
 public:
  bool empty() const { return listed_ == 0 && far_.empty(); }
  uint64_t next_time() const { return takes_far() ? far_.front().time : soonest_; }
  uint64_t scheduled() const { return sequence_; }
  // What comes next, unless it lies far ahead: to fetch what it needs meanwhile.
  struct Upcoming {
    EventKind kind;
    uint32_t subject;
  };
  bool upcoming(Upcoming* next) const {
    if (takes_far()) return false;
    const Node& node = nodes_[lists_[soonest_ % kSpan].first];
    *next = {node.kind, node.subject};
    return true;
  }

  void push(uint64_t time, EventKind kind, uint32_t subject, uint32_t generation) {
    ++sequence_;
    if (time - base_ < kSpan) {
      append(time, kind, subject, generation);
    } else {
      push_far({time, sequence_, subject, generation, kind});
    }
  }

  Event pop() {
    const Event first = takes_far() ? pop_far().event() : take();
    base_ = std::max(base_, first.time);
    if (!far_.empty()) list_near();
    return first;
  }

  void clear() {
    far_.clear();
    nodes_.clear();
    free_ = kEnd;
    used_ = {};
    used_groups_ = {};
    listed_ = 0;
    soonest_ = kNever;
  }

 private:
  // More cycles than nearly all kernel calls take: what lies further ahead costs more.
  static constexpr uint64_t kGroup = 64, kGroups = 256, kSpan = kGroup * kGroups;
  static constexpr uint32_t kEnd = ~0u;
  static constexpr uint64_t kNever = ~uint64_t{0};

  // Of an event in a list, which has its time.
  struct Node {
    uint32_t subject, generation;
    uint32_t next;
    EventKind kind;
  };
  struct FarEvent {
    uint64_t time, sequence;  // order of scheduling
    uint32_t subject, generation;
    EventKind kind;
    Event event() const { return {time, subject, generation, kind}; }
  };
  struct List {
    uint32_t first, last;
  };

  static bool before(const FarEvent& a, const FarEvent& b) {
    return a.time != b.time ? a.time < b.time : a.sequence < b.sequence;
  }
  static uint64_t lowest(uint64_t bits) { return static_cast<uint64_t>(__builtin_ctzll(bits)); }

  bool takes_far() const { return listed_ == 0 || (!far_.empty() && far_.front().time < base_); }

  // Before anything else is scheduled for their cycles: the order in a list is that of scheduling.
  void list_near() {
    while (!far_.empty() && far_.front().time - base_ < kSpan) {
      const FarEvent next = pop_far();
      append(next.time, next.kind, next.subject, next.generation);
    }
  }

  // The cycle of the first event in a list, of which none lies before `from`: in its group, or in the next one, and
  // around, that has any; that may be the same one, a turn later.
  uint64_t first_listed(uint64_t from) const {
    const uint64_t bit = from % kGroup, group = from / kGroup % kGroups;
    const uint64_t here = used_[group] >> bit;
    if (here != 0) return from + lowest(here);
    const uint64_t found = used_group_from((group + 1) % kGroups);
    const uint64_t ahead = found > group ? found - group : found + kGroups - group;
    return from - bit + ahead * kGroup + lowest(used_[found]);
  }

  // The first group with an event from `group` on, and around.
  uint64_t used_group_from(uint64_t group) const {
    uint64_t word = group / kGroup;
    uint64_t bits = used_groups_[word] & ~uint64_t{0} << (group % kGroup);
    while (bits == 0) bits = used_groups_[word = (word + 1) % used_groups_.size()];
    return word * kGroup + lowest(bits);
  }

  void append(uint64_t time, EventKind kind, uint32_t subject, uint32_t generation) {
    uint32_t node = free_;
    if (node == kEnd) {
      node = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back();
    } else {
      free_ = nodes_[node].next;
    }
    nodes_[node] = {subject, generation, kEnd, kind};
    const uint64_t slot = time % kSpan, bit = uint64_t{1} << (slot % kGroup);
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
    soonest_ = std::min(soonest_, time);
    ++listed_;
  }

  Event take() {
    const uint64_t slot = soonest_ % kSpan;
    List& list = lists_[slot];
    const uint32_t index = list.first;
    Node& node = nodes_[index];
    const Event event{soonest_, node.subject, node.generation, node.kind};
    list.first = node.next;
    node.next = free_;
    free_ = index;
    --listed_;
    if (list.first != kEnd) return event;
    uint64_t& group = used_[slot / kGroup];
    group &= ~(uint64_t{1} << (slot % kGroup));
    if (group == 0) used_groups_[slot / kGroup / kGroup] &= ~(uint64_t{1} << (slot / kGroup % kGroup));
    soonest_ = listed_ != 0 ? first_listed(event.time) : kNever;
    return event;
  }

  void push_far(const FarEvent& added) {
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

  FarEvent pop_far() {
    const FarEvent first = far_.front();
    const FarEvent last = far_.back();
    far_.pop_back();
    if (!far_.empty()) sift_down(last);
    return first;
  }

  void sift_down(const FarEvent& moved) {
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
  uint64_t soonest_ = kNever;  // cycle of the first of them
  std::vector<FarEvent> far_;
  uint64_t sequence_ = 0;
};

}  // namespace onedispatch::sim
