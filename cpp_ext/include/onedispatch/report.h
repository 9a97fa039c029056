// SPDX-License-Identifier: Apache-2.0
// What a run tells about itself.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

namespace onedispatch {

struct ChannelReport {
  uint32_t column, row;  // tile row: 0 shim, 1 mem, 2.. core
  bool mm2s;
  uint32_t channel;
  uint64_t bytes;
  uint64_t busy;   // cycles in which data moved
  uint64_t stall;  // cycles with a task, waiting for a lock or for the other side
};

struct CoreReport {
  uint32_t column, row;
  uint64_t busy;   // cycles of compute
  uint64_t calls;  // of kernels
};

struct RunReport {
  uint64_t cycles = 0;  // of the array clock, from launch to the last operation
  double seconds = 0;   // the same at the device's array clock
  uint64_t operations = 0;
  uint64_t events = 0;  // of the simulator
  uint64_t kernel_calls = 0;
  std::vector<std::pair<uint32_t, uint64_t>> timers;     // RECORD_TIMER: id, cycle since launch
  std::vector<uint64_t> ddr_read, ddr_written;           // bytes per kernel argument
  std::vector<ChannelReport> channels;                   // those that moved data or had a task
  std::vector<CoreReport> cores;                         // those that computed
  std::vector<std::pair<uint64_t, uint32_t>> registers;  // READ_REGS: address, value
};

}  // namespace onedispatch
