// SPDX-License-Identifier: Apache-2.0
// Host memory as the shim DMAs see it: the buffers of one run, and one shared bandwidth.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "memory.h"

namespace onedispatch::sim {

// A kernel argument: a range of a buffer object.
struct DdrRegion {
  uint64_t address = 0;  // as the host sees it, without the aperture
  uint64_t bytes = 0;
  uint64_t origin = 0;  // address of data[0]; differs from address in a sub-buffer
  uint8_t* data = nullptr;
  ValidMap* valid = nullptr;
  std::shared_ptr<void> keep_alive;
  uint64_t bytes_read = 0, bytes_written = 0;
  uint64_t burst_bytes = 0;  // of both, in whole bursts
  // Replay: there is no data; BDs touched bytes [first, end).
  bool open = false;
  uint64_t first = ~0ull, end = 0;
};

using DdrRegions = std::vector<std::shared_ptr<DdrRegion>>;

// Requests are served in order at a fixed rate; a request ends when its last byte was served.
class DdrServer {
 public:
  explicit DdrServer(double bytes_per_cycle) : cycles_per_byte_(1.0 / bytes_per_cycle) {}
  uint64_t serve(uint64_t now, uint64_t bytes) {
    const double begin = free_at_ > static_cast<double>(now) ? free_at_ : static_cast<double>(now);
    free_at_ = begin + static_cast<double>(bytes) * cycles_per_byte_;
    return static_cast<uint64_t>(free_at_) + 1;
  }

 private:
  double cycles_per_byte_;
  double free_at_ = 0;
};

}  // namespace onedispatch::sim
