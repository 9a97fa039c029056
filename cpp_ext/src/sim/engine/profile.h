// SPDX-License-Identifier: Apache-2.0
// What the time of a run goes into.
//
// An event is scheduled while another one is handled: that one is its cause, and the last thing that it waited for. So
// the chain of causes that ends in an event is its critical path, and the spans between cause and event, each for what
// its actor did meanwhile, add up to all the time since the path began. Paths begin at the timer mark before: a mark
// takes the chain of the controller's operation that makes it, in sums by part, and all chains begin anew.
// Beside that, per column and bin of time: cycles of compute, and bytes from and to device memory.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "onedispatch/report.h"

namespace onedispatch::sim {

// Of a chain: cycles by what they went into.
struct Chain {
  uint64_t mark = 0;  // the number of the timer mark that it begins at
  std::array<uint64_t, kParts> parts{};
};

// Something that takes time, one part after the other.
struct Spent {
  Part part;
  uint64_t cycles;
};

// A chain, and what follows it from a cycle on.
class Link {
 public:
  Link() = default;
  Link(const Chain& cause, std::initializer_list<Spent> spans) : cause_(cause), count_(std::min(spans.size(), kMost)) {
    std::copy_n(spans.begin(), count_, spans_.begin());
  }
  void add(Spent spent) {
    if (count_ < kMost) spans_[count_++] = spent;
  }

  // The chain at `now`, by when all of it has passed: since mark number `mark`, which was at cycle `since`.
  Chain at(uint64_t now, uint64_t mark, uint64_t since) const {
    Chain chain = cause_;
    uint64_t left = now - since;  // of what is not in the chain yet
    if (cause_.mark == mark) {
      for (const uint64_t cycles : cause_.parts) left -= std::min(left, cycles);
    } else {
      chain = {mark, {}};
    }
    for (size_t i = count_; i-- > 0;) {
      const uint64_t cycles = std::min(left, spans_[i].cycles);
      chain.parts[static_cast<size_t>(spans_[i].part)] += cycles;
      left -= cycles;
    }
    // A cycle that must pass between an event and what it causes belongs to what passes.
    if (count_ != 0) chain.parts[static_cast<size_t>(spans_[count_ - 1].part)] += left;
    return chain;
  }

 private:
  static constexpr size_t kMost = 4;
  Chain cause_;
  std::array<Spent, kMost> spans_{};
  size_t count_ = 0;
};

class Profile {
 public:
  // Begins at `now`; the chain that is handled at the time is the controller's.
  void start(uint64_t now, size_t channels, size_t cores, uint32_t columns);
  // After a reset of the array all chains but the current one are forgotten.
  void forget(size_t channels, size_t cores);

  const Chain& current() const { return current_; }
  // What is scheduled while the current chain is handled.
  void schedule_core(uint32_t core, std::initializer_list<Spent> spans) { cores_[core] = Link(current_, spans); }
  void schedule_controller(std::initializer_list<Spent> spans) { controller_ = Link(current_, spans); }
  void schedule_channel(uint32_t channel, const Link& link) { channels_[channel] = link; }
  // What a channel does before data may flow, and the link that this makes.
  void prepare(uint32_t channel, std::initializer_list<Spent> spans) { ready_[channel] = Link(current_, spans); }
  const Link& prepared(uint32_t channel) const { return ready_[channel]; }

  void enter_core(uint32_t core, uint64_t now) { enter(cores_[core], now); }
  void enter_channel(uint32_t channel, uint64_t now) { enter(channels_[channel], now); }
  void enter_controller(uint64_t now) { enter(controller_, now); }
  // The controller goes on at once.
  void pass(Part part, uint64_t cycles) { current_.parts[static_cast<size_t>(part)] += cycles; }

  void compute(uint32_t column, uint64_t start, uint64_t cycles) { busy_ += cycles; spread(column, 0, start, cycles, cycles); }
  void transfer(uint32_t column, bool write, uint64_t start, uint64_t end, uint64_t bytes);
  void serve(uint64_t bytes) { bursts_ += bytes; }

  void mark(uint32_t id, uint64_t now);
  // The time since the last mark has id kEnd.
  void end(uint64_t now) {
    if (now != since_) mark(ProfileWindow::kEnd, now);
  }
  ProfileReport take() { return std::exchange(report_, {}); }

 private:
  void enter(const Link& link, uint64_t now) { current_ = link.at(now, mark_, since_); }
  void spread(uint32_t column, size_t what, uint64_t start, uint64_t cycles, uint64_t amount);
  void widen();

  static constexpr size_t kBins = 256;
  uint64_t mark_ = 0, since_ = 0, start_ = 0, busy_ = 0, bursts_ = 0;
  std::array<uint64_t, 2> bytes_{};
  Chain current_;
  Link controller_;
  std::vector<Link> channels_, ready_, cores_;
  uint32_t columns_ = 0;
  ProfileReport report_;
};

}  // namespace onedispatch::sim
