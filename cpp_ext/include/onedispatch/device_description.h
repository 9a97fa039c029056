// SPDX-License-Identifier: Apache-2.0
// A device: geometry and named constants, read from device files. Those of transactions/machine/devices are
// embedded at build; others are given as a path or as text.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace onedispatch {

// Sizes and counts, as register_map.h bounds them.
struct Geometry {
  uint32_t core_memory = 0, core_program = 0, core_stack = 0;  // bytes
  uint32_t core_bds = 0, core_locks = 0;
  uint32_t mem_memory = 0, mem_bds = 0, mem_locks = 0;
  uint32_t shim_bds = 0, shim_locks = 0, shim_channels = 0;
  uint32_t queue_depth = 0;
};

struct DeviceDescription {
  std::string name;         // "npu2", "npu1_2col", ...
  std::string xrt_name;     // "RyzenAI-npu4"
  uint32_t device_generation = 0;  // DevGen of the transaction header
  uint32_t columns = 0;     // of the partition
  uint32_t core_rows = 0;   // tile rows 2 and up
  Geometry geometry;
  std::map<std::string, double> constants;  // "section.key" -> value, e.g. "dma.words_per_cycle"

  // The constant called `key`; throws std::out_of_range naming the key and the device.
  double at(const std::string& key) const;
  // So many columns of this device, named "<name>_<columns>col". Throws std::invalid_argument.
  DeviceDescription partition(uint32_t columns) const;
};

// Device by name, alias ("phoenix", "strix") or path of its file ("my_npu.toml"), each with "_4col" for
// four columns of it. Throws std::invalid_argument that lists the known names or says what is wrong.
DeviceDescription find_device(std::string_view name);
// The device that the text of a device file describes. Throws std::invalid_argument.
DeviceDescription read_device(std::string_view text, const std::string& name = "");
// Device `name` where it means `own` or columns of it, else find_device(name).
DeviceDescription find_device_beside(const DeviceDescription& own, std::string_view name);
// Throws std::invalid_argument for a value of a constant that no device file may say.
void check_constant(const std::string& key, double value);
// Whether it is a size or a count that the array is built by.
bool is_geometry(std::string_view key);
std::vector<std::string> device_names();

}  // namespace onedispatch
