// SPDX-License-Identifier: Apache-2.0
// Host memory as the shim DMAs see it: the buffers of one run, and one shared bandwidth.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "sim/array/memory.h"

namespace onedispatch::sim {

// A kernel argument: a range of a buffer object.
struct DdrRegion {
  uint64_t address = 0;  // as the host sees it, without the aperture
  uint64_t bytes = 0;
  uint64_t origin = 0;  // address of data[0]; differs from address in a sub-buffer
  uint8_t* data = nullptr;
  // Where `data` is memory of the caller's, which a run either reads or leaves its results in: a buffer of ours for it.
  uint8_t* staging = nullptr;
  bool is_written = false;
  ValidMap* valid = nullptr;
  std::shared_ptr<void> keep_alive;
  // Where the host lent the memory, which nothing may write to: returns a copy of it to write to.
  std::function<uint8_t*()> copied;
  uint64_t bytes_read = 0, bytes_written = 0;
  uint64_t burst_bytes = 0;  // of both, in whole bursts
  // Replay: there is no data; BDs touched bytes [first, end).
  bool open = false;
  uint64_t first = ~0ull, end = 0;
  Span lost;  // clock: bytes of its memory that this run would have written
};

using DdrRegions = std::vector<std::shared_ptr<DdrRegion>>;

// Before the first write to `region`: it and all others of its memory lie in a copy from then on, where that was lent.
inline void own(const DdrRegions& regions, const DdrRegion& region) {
  if (region.copied == nullptr) return;
  const uint8_t* const lent = region.data;
  uint8_t* const copy = region.copied();
  for (const auto& other : regions) {
    if (other->data != lent) continue;
    other->data = copy;
    other->copied = nullptr;
  }
}

// Requests are served in order at a fixed rate; a request ends when its last byte was served. Time
// is counted in fractions of a cycle, in whole numbers: how long a run takes does not depend on when
// it began, as sums of floating-point times would.
class DdrServer {
 public:
  explicit DdrServer(double bytes_per_cycle) : fractions_per_byte_(static_cast<uint64_t>(std::llround(kFractions / bytes_per_cycle))) {}
  uint64_t serve(uint64_t now, uint64_t bytes) {
    free_at_ = std::max(free_at_, now * kFractions) + bytes * fractions_per_byte_;
    return free_at_ / kFractions + 1;
  }
  uint64_t free_at() const { return free_at_ / kFractions; }  // the cycle up to which it serves

 private:
  static constexpr uint64_t kFractions = 1 << 20;
  uint64_t fractions_per_byte_;
  uint64_t free_at_ = 0;
};

}  // namespace onedispatch::sim
