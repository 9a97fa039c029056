// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/timing.h"

#include <cmath>
#include <stdexcept>

namespace onedispatch::sim {
namespace {

double positive(const DeviceDescription& device, const char* key) {
  const double value = device.at(key);
  if (!(value > 0) || value > 1e12)
    throw std::invalid_argument("device " + device.name + ": constant " + key + " is " +
                                std::to_string(value) + "; accepted: above 0 and below 1e12");
  return value;
}

unsigned power_of_two(const DeviceDescription& device, const char* key) {
  const double value = positive(device, key);
  for (unsigned shift = 2; shift < 13; ++shift)
    if (value == static_cast<double>(1u << shift)) return shift;
  throw std::invalid_argument("device " + device.name + ": constant " + key + " is " +
                              std::to_string(value) + "; accepted: powers of two, 4 to 4096");
}

uint32_t cycles(const DeviceDescription& device, const char* key) {
  const double value = device.at(key);
  if (!(value >= 0) || value > 1e9)
    throw std::invalid_argument("device " + device.name + ": constant " + key + " is " +
                                std::to_string(value) + "; accepted: 0 to 1e9 cycles");
  return static_cast<uint32_t>(std::llround(value));
}

}  // namespace

Timing::Timing(const DeviceDescription& d)
    : array_hz(positive(d, "clock.array_mhz") * 1e6),
      words_per_cycle(positive(d, "dma.words_per_cycle")),
      shim_words_per_cycle(positive(d, "dma.shim_words_per_cycle")),
      bd_setup(cycles(d, "dma.bd_setup_cycles")),
      bd_chain(cycles(d, "dma.bd_chain_cycles")),
      channel_start(cycles(d, "dma.channel_start_cycles")),
      shim_first{cycles(d, "dma.shim_s2mm_first_cycles"), cycles(d, "dma.shim_mm2s_first_cycles")},
      shim_next{cycles(d, "dma.shim_s2mm_bd_cycles"), cycles(d, "dma.shim_mm2s_bd_cycles")},
      hop_tile(cycles(d, "stream.hop_tile_cycles")),
      hop_link(cycles(d, "stream.hop_link_cycles")),
      core_lock(cycles(d, "stream.core_lock_cycles")),
      ddr_bytes_per_cycle(positive(d, "ddr.gigabytes_per_second") * 1e9 / array_hz),
      ddr_burst_shift(power_of_two(d, "ddr.burst_bytes")),
      ddr_segment_words(static_cast<uint64_t>(positive(d, "ddr.segment_words"))) {
  if (ddr_segment_words == 0) ddr_segment_words = 1;
  const double scale = array_hz / (positive(d, "controller.clock_mhz") * 1e6);
  const auto scaled = [&](const char* key) {
    return static_cast<uint64_t>(std::llround(cycles(d, key) * scale));
  };
  write = scaled("controller.write_cycles");
  blockwrite = scaled("controller.blockwrite_cycles");
  blockwrite_word = scaled("controller.blockwrite_word_cycles");
  maskwrite = scaled("controller.maskwrite_cycles");
  read = maskwrite > write ? maskwrite - write : 0;
  other = scaled("controller.other_cycles");
  launch = scaled("controller.launch_cycles");
  reconfigure =
      static_cast<uint64_t>(std::llround(positive(d, "controller.reconfigure_us") * 1e-6 * array_hz));
}

}  // namespace onedispatch::sim
