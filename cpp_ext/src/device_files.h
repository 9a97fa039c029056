// SPDX-License-Identifier: Apache-2.0
// transactions/machine/devices/*.toml, embedded by CMake.
#pragma once
#include <cstddef>
#include <string_view>

namespace onedispatch {

struct DeviceFileText {
  std::string_view name, text;
};

size_t device_file_count();
DeviceFileText device_file(size_t index);

}  // namespace onedispatch
