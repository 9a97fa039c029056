// SPDX-License-Identifier: Apache-2.0
// What the handles of xrt.h refer to.
#pragma once
#include <functional>
#include <map>
#include <optional>

#include "monitor.h"
#include "onedispatch/xrt.h"
#include "sim/control/controller.h"

namespace onedispatch::xrt {

struct xclbin::Content {
  std::string device;
  uuid id;
  std::vector<std::string> kernels;
  sim::Overlays overlays;
};

// Under the monitor.
struct device::State {
  DeviceDescription description;
  sim::Options options;
  std::map<std::string, std::shared_ptr<const xclbin::Content>> registered;  // by uuid text
  uint64_t next_address = 0x4000000000ull;  // page aligned; any value below 2^47 would do
};

struct bo::Memory {
  // The bytes to write to: a copy, where they were lent. Under the monitor.
  uint8_t* own();
  void allocate();
  bool lent() const { return lender != nullptr && data == lender.get(); }

  std::shared_ptr<device::State> owner;
  sim::Zeros<uint8_t> block;
  uint8_t* data = nullptr;  // page aligned, inside block; or what was lent
  std::shared_ptr<const uint8_t> lender;  // of who lent it, also when there is a copy: letting go may take the GIL
  uint8_t* attached = nullptr;  // what runs use instead; this and the next under the monitor
  bool attached_written = false;
  size_t bytes = 0;
  uint64_t address = 0;
  uint32_t flags = 0;
  sim::ValidMap valid;
};

struct hw_context::State {
  std::shared_ptr<device::State> owner;
  std::shared_ptr<const xclbin::Content> binary;
  std::function<std::unique_ptr<sim::Simulator>()> make_simulator;
  std::unique_ptr<sim::Simulator> simulator;  // of who has the turn
  std::optional<Occupant> occupant;           // one run at a time; under the monitor

  // What a thread of the parent was in the midst of when it forked can be neither used nor destroyed.
  void abandon_simulator() { (void)simulator.release(); }
  ~State() {
    if (occupant && !occupant->alive()) abandon_simulator();
  }
};

}  // namespace onedispatch::xrt
