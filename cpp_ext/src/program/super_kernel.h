// SPDX-License-Identifier: Apache-2.0
// The persistent super kernel (program id 1): waits for a parameter block, runs the op that it
// describes tile by tile, hands the block back, and waits for the next.
#pragma once
#include <array>
#include <memory>
#include <vector>

#include "onedispatch/core_program.h"
#include "onedispatch/kernel_library.h"
#include "cost.h"
#include "fill.h"
#include "guard.h"
#include "image.h"
#include "operation.h"

namespace onedispatch {

constexpr uint32_t kParameterBytes = params::kMaxWords * 4;  // of the longest block, at local address 0

// A buffer of the core and its two locks, from four words of the block.
struct Port {
  uint32_t offset = 0, slot_bytes = 0, chunk_bytes = 0;
  uint32_t depth = 1, acquire = 0, release = 0, cadence = 0;
  uint32_t slot = 0;
  bool held = false;

  uint32_t address() const { return offset + slot * slot_bytes; }
};

class SuperKernel final : public CoreProgram {
 public:
  // `carried`: the kernels in program memory. A block that names another is refused.
  SuperKernel(CoreView core, const DeviceDescription& device, std::vector<Carried> carried);
  Action resume() override;

 private:
  enum class State { kWaiting, kBeginning, kRunning };

  void begin_op();
  void read_port(uint32_t index);
  void check_apart();
  void read_dims();
  void read_reduction();
  void locate_tile();
  void queue_step();
  void queue_call(bool first, bool last);
  const Carried& named_kernel() const;
  void check_linked(const Carried& carried) const;
  uint64_t cycles_of(const od_call& call);
  void queue_acquire(Port& port);
  void queue_release(Port& port);
  bool is_last_tile() const;
  void queue_print_out();
  bool next_outer();
  void finish_op();

  CoreView core_;
  uint32_t data_bytes_;    // of the core
  uint32_t memory_bytes_;  // less stack and tables
  std::vector<Carried> carried_;
  Constants constants_;  // of section [kernel] of the device
  State state_ = State::kWaiting;
  std::vector<Action> queue_;
  size_t head_ = 0;

  // The op that runs.
  std::array<uint32_t, params::kMaxWords> words_{};
  Operation operation_;
  std::shared_ptr<const Plan> plan_;
  std::shared_ptr<const Guard> guard_;  // of a kernel from outside
  std::shared_ptr<const std::vector<Fill>> fills_;
  struct Charge {
    uint32_t k_count = 0;
    bool last = false;
    uint64_t cycles = 0;  // 0: nothing known yet
  };
  std::array<Charge, 2> charges_{};  // of a full step and of the last one, as most calls are
  std::array<Port, kPorts> ports_;
  std::array<uint32_t, OD_MAX_DIMS> outer_count_{}, outer_{}, origin_{}, loop_order_{};
  uint32_t step_ = 0;
};

}  // namespace onedispatch
