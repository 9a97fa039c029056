// SPDX-License-Identifier: Apache-2.0
// Counts and times the kernel calls of a run if a trace is requested.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "onedispatch/report.h"

namespace onedispatch::sim {

class Trace {
 public:
  // Starts anew; at most so many calls are kept one by one, all are counted.
  void start(size_t most) {
    most_ = most;
    calls_.clear();
    totals_.clear();
    cores_.clear();
  }
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
  std::vector<TracedCall> calls_;
  std::map<uint32_t, TracedKernel> totals_;
  std::map<uint32_t, Busy> cores_;
};

}  // namespace onedispatch::sim
