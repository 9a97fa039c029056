// SPDX-License-Identifier: Apache-2.0
// What the handles of xrt.h refer to.
#pragma once
#include <map>
#include <mutex>

#include "onedispatch/xrt.h"
#include "sim/controller.h"

namespace onedispatch::xrt {

struct xclbin::Content {
  std::string device;
  uuid id;
  std::vector<std::string> kernels;
  sim::Overlays overlays;
};

struct device::State {
  std::mutex mutex;
  DeviceDescription description;
  sim::Options options;
  std::map<std::string, std::shared_ptr<const xclbin::Content>> registered;  // by uuid text
  uint64_t next_address = 0x4000000000ull;  // page aligned; any value below 2^47 would do
};

struct bo::Memory {
  std::shared_ptr<device::State> owner;
  std::unique_ptr<uint8_t[], void (*)(void*)> block{nullptr, nullptr};
  uint8_t* data = nullptr;  // page aligned, inside block
  size_t bytes = 0;
  uint64_t address = 0;
  uint32_t flags = 0;
  sim::ValidMap valid;
};

struct hw_context::State {
  std::shared_ptr<device::State> owner;
  std::shared_ptr<const xclbin::Content> binary;
  std::mutex mutex;  // one run at a time
  std::unique_ptr<sim::Simulator> simulator;
};

}  // namespace onedispatch::xrt
