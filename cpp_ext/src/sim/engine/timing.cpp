// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/timing.h"

#include <cmath>

namespace onedispatch::sim {
namespace {

// Device files and constants that are set keep to register_map.h's bounds.
uint32_t cycles(const DeviceDescription& device, const char* key) {
  return static_cast<uint32_t>(std::llround(device.at(key)));
}

}  // namespace

Timing::Timing(const DeviceDescription& d)
    : array_hz(d.at("clock.array_mhz") * 1e6),
      words_per_cycle(d.at("dma.words_per_cycle")),
      shim_words_per_cycle(d.at("dma.shim_words_per_cycle")),
      bd_setup(cycles(d, "dma.bd_setup_cycles")),
      bd_chain(cycles(d, "dma.bd_chain_cycles")),
      channel_start(cycles(d, "dma.channel_start_cycles")),
      shim_first{cycles(d, "dma.shim_s2mm_first_cycles"), cycles(d, "dma.shim_mm2s_first_cycles")},
      shim_next{cycles(d, "dma.shim_s2mm_bd_cycles"), cycles(d, "dma.shim_mm2s_bd_cycles")},
      hop_tile(cycles(d, "stream.hop_tile_cycles")),
      hop_link(cycles(d, "stream.hop_link_cycles")),
      control_packet(cycles(d, "stream.control_packet_cycles")),
      core_lock(cycles(d, "stream.core_lock_cycles")),
      ddr_bytes_per_cycle(d.at("ddr.gigabytes_per_second") * 1e9 / array_hz),
      ddr_read_bytes_per_cycle(ddr_bytes_per_cycle * d.at("ddr.read_share")),
      ddr_burst_shift(static_cast<unsigned>(std::ilogb(d.at("ddr.burst_bytes")))),
      ddr_segment_words(static_cast<uint64_t>(d.at("ddr.segment_words"))) {
  const double scale = array_hz / (d.at("controller.clock_mhz") * 1e6);
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
      static_cast<uint64_t>(std::llround(d.at("controller.reconfigure_us") * 1e-6 * array_hz));
}

}  // namespace onedispatch::sim
