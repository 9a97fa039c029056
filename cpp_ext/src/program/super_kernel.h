// SPDX-License-Identifier: Apache-2.0
// The persistent super kernel (program id 1): waits for a parameter block, runs the op that it
// describes tile by tile, hands the block back, and waits for the next.
#pragma once
#include <array>
#include <memory>
#include <vector>

#include "onedispatch/core_program.h"
#include "onedispatch/kernel_library.h"
#include "shadow_memory.h"
#include "image.h"
#include "print_host.h"
#include "operation_cache.h"

namespace onedispatch {

constexpr uint32_t kParameterBytes = params::kMaxWords * 4;  // of the longest block, at local address 0

class SuperKernel final : public CoreProgram {
 public:
  // `carried`: the kernels in program memory. A block that names another is refused.
  SuperKernel(CoreView core, const DeviceDescription& device, std::vector<Carried> carried);
  ~SuperKernel() override;
  const Action& resume() override;

 private:
  enum class State { kWaiting, kBeginning, kRunning };

  // The call that the core makes; there is one at a time.
  class Call final : public Work {
   public:
    explicit Call(const SuperKernel& of) : of_(of) {}
    void run() override;
    const KernelCall* call() const override;

    KernelCall value;
    od_call given{};
    PrintLog* log = nullptr;
    MemoryRanges reads, writes;

   private:
    void run_over_sums();

    const SuperKernel& of_;
    std::vector<uint8_t> results_;
  };

  void begin_op();
  std::shared_ptr<ReadOperation> read_block(const Carried& carried) const;
  void read_port(ReadOperation& read, uint32_t index) const;
  void check_apart(ReadOperation& read) const;
  void read_dims(ReadOperation& read) const;
  void read_reduction(ReadOperation& read) const;
  void locate_tile();
  void queue_reading(uint32_t words, uint64_t cycles);
  void queue_step();
  void queue_call(bool first, bool last);
  void queue_timed_call(bool last);
  void queue_lock(Action::Kind kind, uint32_t lock);
  Action& queue_compute(uint64_t cycles);
  const Carried& named_kernel() const;
  void check_linked(const ReadOperation& read, const Carried& carried) const;
  const od_setup& setup() const { return op_->operation.setup; }
  uint64_t cycles_of(uint32_t k_count, bool last);
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
  State state_ = State::kWaiting;
  // What comes next: of a step at most three acquires, a call, a ring that is printed, three releases and, at the
  // end of the operation, as many again and the parameter block. Short, since every core goes through its own.
  struct Queued {
    Action::Kind kind = Action::Kind::kHalt;
    uint32_t which = 0;  // lock, or number of the compute
  };
  std::array<Queued, 16> queue_;
  uint32_t head_ = 0, queued_ = 0, computes_ = 0;
  std::array<Action, 2> compute_;
  Action lock_action_;

  MemoryRanges block_;  // what was read of the block that came last

  // The op that runs.
  std::shared_ptr<ReadOperation> op_;
  std::shared_ptr<const ShadowMemory> shadow_memory_;  // of a custom kernel
  Call call_{*this};
  std::array<Port, kPorts> ports_;
  std::array<uint32_t, OD_MAX_DIMS> outer_{}, origin_{};
  uint32_t step_ = 0;

  std::array<uint32_t, params::kMaxWords> words_{};  // of the block that came last
};

}  // namespace onedispatch
