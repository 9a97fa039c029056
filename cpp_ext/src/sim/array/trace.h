// SPDX-License-Identifier: Apache-2.0
// Counts and times the kernel calls of a run if a trace is requested, and what DMA channels, device memory and the
// controller do one after the other.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "onedispatch/report.h"

namespace onedispatch::sim {

class Trace {
 public:
  // Starts anew at cycle `now`; at most so many calls, and spans of each kind, are kept one by one; all are counted.
  void start(size_t most, uint64_t now) {
    most_ = most;
    start_ = now;
    calls_.clear();
    totals_.clear();
    cores_.clear();
    spans_ = {};
  }
  // Of an array that was made anew.
  void forget(size_t channels) { flows_.assign(channels, {}); }

  void add(Traced kind, const TracedPlace& place, uint64_t start, uint64_t end, uint64_t bytes = 0, uint32_t detail = 0, bool packets = false);

  // What a DMA channel is at.
  struct Flow {
    uint64_t task = 0, bd = 0;  // since when
    uint64_t ready = 0;         // since when data may move
    bool packets = false;       // of the descriptor
  };
  Flow& flow(uint32_t channel) { return flows_[channel]; }
  void begin(uint32_t core, uint32_t column, uint32_t row, uint32_t kernel) {
    Busy& busy = cores_[core];
    if (kernel == 0) close(busy);  // a new operation
    busy.call = TracedCall{column, row, kernel, 0, 0, 0};
  }
  void end(uint32_t core, uint64_t now, uint64_t cycles, uint64_t nanoseconds) {
    Busy& busy = cores_[core];
    TracedCall call = busy.call;
    call.start = now - std::min(now, cycles);  // what it owed of lock operations came before
    call.cycles = cycles;
    call.nanoseconds = call.kernel == 0 ? 0 : nanoseconds;
    TracedKernel& total = totals_[call.kernel];
    ++total.calls;
    total.cycles += call.cycles;
    total.nanoseconds += call.nanoseconds;
    if (call.kernel == 0) {
      total.span += call.cycles;
    } else {
      if (busy.kernel == 0) busy.first = call.start;
      busy.kernel = call.kernel;
      busy.last = now;
    }
    if (calls_.size() < most_) calls_.push_back(call);
  }
  // Ends all spans.
  void finish() {
    for (auto& [core, busy] : cores_) close(busy);
  }
  std::array<TracedSpans, kTracedKinds> take_spans() { return std::exchange(spans_, {}); }
  std::vector<TracedCall> take_calls() { return std::exchange(calls_, {}); }
  std::map<uint32_t, TracedKernel> take_totals() { return std::exchange(totals_, {}); }

 private:
  struct Busy {
    TracedCall call;
    uint32_t kernel = 0;  // of the operation that runs
    uint64_t first = 0, last = 0;
  };

  void close(Busy& busy) {
    if (busy.kernel != 0) totals_[busy.kernel].span += busy.last - busy.first;
    busy.kernel = 0;
  }

  size_t most_ = 0;
  uint64_t start_ = 0;
  std::vector<Flow> flows_;
  std::array<TracedSpans, kTracedKinds> spans_;
  std::vector<TracedCall> calls_;
  std::map<uint32_t, TracedKernel> totals_;
  std::map<uint32_t, Busy> cores_;
};

// What began before the run counts from its start on.
inline void Trace::add(Traced kind, const TracedPlace& place, uint64_t start, uint64_t end, uint64_t bytes, uint32_t detail, bool packets) {
  const uint64_t from = std::max(start, start_);
  if (end < from || (end == from && start < start_)) return;
  TracedSpans& spans = spans_[static_cast<size_t>(kind)];
  ++spans.count;
  spans.cycles += end - from;
  if (spans.kept.size() < most_) spans.kept.push_back(TracedSpan{place, from - start_, end - from, bytes, detail, packets});
}

}  // namespace onedispatch::sim
