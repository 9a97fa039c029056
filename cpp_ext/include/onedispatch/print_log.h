// SPDX-License-Identifier: Apache-2.0
// What the kernels of a core print: a ring per operation, as large as the session says, so that the newest
// lines stay. It lies beside data memory and takes no operand. A core makes one call at a time, so that its
// log has one writer at a time; what it holds depends on no thread.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "onedispatch/kernel_codes.h"

namespace onedispatch {

constexpr size_t kPrintBytes = 32 * 1024;            // unless a session says otherwise; as Habana's harness has it
constexpr size_t kMostPrintBytes = 64 * 1024 * 1024;  // of one ring

struct PrintedLine {
  std::array<uint32_t, OD_MAX_DIMS> member{};
  std::string text;
};

// Lines of one operation on one core, the oldest first.
struct PrintRing {
  uint32_t kernel = 0;  // digest
  uint64_t cycle = 0;   // of the last beginning or end of a call
  std::deque<PrintedLine> lines;
  size_t bytes = 0;   // of all lines, each with its line feed
  uint64_t lost = 0;  // lines that newer ones took the place of
};

class PrintLog {
 public:
  // Bytes of every ring from now on; 0: nothing is kept.
  void set_capacity(size_t bytes) { capacity_ = bytes; }
  size_t capacity() const { return capacity_; }
  // An operation begins whose kernel prints.
  void begin(uint32_t kernel) {
    if (rings_.empty() || !rings_.back().lines.empty() || rings_.back().lost != 0) rings_.emplace_back();
    rings_.back().kernel = kernel;
  }
  void add(const std::array<uint32_t, OD_MAX_DIMS>& member, std::string text) {
    if (rings_.empty() || capacity_ == 0) return;
    static const std::string cut = "...";
    if (text.size() + 1 > capacity_) {
      text.resize(capacity_ - 1);
      if (text.size() >= cut.size()) text.replace(text.size() - cut.size(), cut.size(), cut);
    }
    PrintRing& ring = rings_.back();
    ring.bytes += text.size() + 1;
    ring.lines.push_back({member, std::move(text)});
    for (; ring.bytes > capacity_; ++ring.lost) {
      ring.bytes -= ring.lines.front().text.size() + 1;
      ring.lines.pop_front();
    }
  }
  // A line that there is no memory for.
  void lose() {
    if (!rings_.empty()) ++rings_.back().lost;
  }
  // A call has begun or ended.
  void note(uint64_t cycle) {
    if (!rings_.empty()) rings_.back().cycle = cycle;
  }
  std::vector<PrintRing> take() {
    std::vector<PrintRing> taken = std::move(rings_);
    rings_.clear();
    return taken;
  }

 private:
  size_t capacity_ = kPrintBytes;
  std::vector<PrintRing> rings_;
};

}  // namespace onedispatch
