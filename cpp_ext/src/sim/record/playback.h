// SPDX-License-Identifier: Apache-2.0
// Makes a recorded run again, on any number of threads: level by level, its parts in any order.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "sim/array/ddr.h"
#include "sim/engine/interrupt.h"
#include "sim/record/recording.h"

namespace onedispatch::sim {

class Playback {
 public:
  // `kept` grows to what stays on the chip. Host threads, this one among them; 0: all of the machine.
  Playback(const Recording& recording, const DdrRegions& regions, std::vector<uint8_t>& kept, unsigned threads);

  // False where a kernel refused its data: then the engine says where and when. Throws what the interrupt
  // check throws. Device memory may have been written by then.
  bool run();

 private:
  // Of one thread: chunks that were put together, and those that calls leave.
  struct Workspace {
    std::array<std::vector<uint8_t>, params::kOutPort> chunks;
    std::array<uint32_t, params::kOutPort> held{kNoView, kNoView};
    std::vector<uint8_t> out, scratch;
  };
  struct Progress {  // of a level
    std::atomic<uint32_t> next{0}, done{0};
  };

  void help();
  bool work(uint32_t level, Workspace& space, InterruptPace* pace);
  void make(const Recording::Part& part, Workspace& space) const;
  const uint8_t* chunk(uint32_t view, uint32_t port, Workspace& space) const;
  void store(const Recording::Part& part, const uint8_t* chunk) const;
  uint8_t* place(Space space, uint32_t first) const;
  void stop(std::exception_ptr why);

  const Recording& recording_;
  std::vector<uint8_t*> arguments_;  // where each begins
  unsigned threads_;
  std::unique_ptr<Progress[]> progress_;
  std::atomic<uint32_t> level_{0};
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;  // of failure_
  std::exception_ptr failure_;
};

}  // namespace onedispatch::sim
