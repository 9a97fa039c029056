// SPDX-License-Identifier: Apache-2.0
// A device: geometry and named constants, read from transactions/machine/devices/*.toml (embedded at build).
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace onedispatch {

struct DeviceDescription {
  std::string name;         // "npu2", "npu1_2col", ...
  std::string xrt_name;     // "RyzenAI-npu4"
  uint32_t device_generation = 0;  // DevGen of the transaction header
  uint32_t columns = 0;     // of the partition
  uint32_t core_rows = 4;   // tile rows 2..5
  std::map<std::string, double> constants;  // "section.key" -> value, e.g. "dma.words_per_cycle"

  // The constant called `key`; throws std::out_of_range naming the key and the device.
  double at(const std::string& key) const;
};

// Device by name or alias ("phoenix", "strix"). Throws std::invalid_argument that lists the known names.
DeviceDescription find_device(std::string_view name);
std::vector<std::string> device_names();

}  // namespace onedispatch
