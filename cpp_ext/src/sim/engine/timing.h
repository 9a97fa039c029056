// SPDX-License-Identifier: Apache-2.0
// Timing constants of a device, read once from its description and turned into array cycles.
// Meaning and source of each stand in transactions/machine/devices/*.toml.
#pragma once
#include <cstdint>

#include "onedispatch/device_description.h"

namespace onedispatch::sim {

struct Timing {
  explicit Timing(const DeviceDescription& device);

  double array_hz;
  double words_per_cycle;       // of a stream port
  double shim_words_per_cycle;  // of a shim DMA channel
  uint32_t bd_setup, bd_chain, channel_start;
  uint32_t shim_first[2], shim_next[2];  // latency of a shim BD; index 0 S2MM, 1 MM2S
  uint32_t hop_tile, hop_link;
  uint32_t control_packet;  // of a control port, for each
  uint32_t core_lock;
  double ddr_bytes_per_cycle;       // reads and writes
  double ddr_read_bytes_per_cycle;  // reads alone
  unsigned ddr_burst_shift;  // a burst has 2^this bytes
  uint64_t ddr_segment_words;
  // Controller, already in array cycles.
  uint64_t write, blockwrite, blockwrite_word, maskwrite, other, launch, reconfigure;
  uint64_t read;  // of a register: what a MASKWRITE takes beyond a WRITE
};

}  // namespace onedispatch::sim
