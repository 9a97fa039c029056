// SPDX-License-Identifier: Apache-2.0
// Caches decoded parameter blocks: the cores of an array, and its runs, meet the same blocks again and again.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "cost.h"
#include "fill.h"
#include "onedispatch/kernel_library.h"
#include "operation.h"

namespace onedispatch {

// A buffer of the core and its two locks, from four words of the block.
struct Port {
  uint32_t offset = 0, slot_bytes = 0, chunk_bytes = 0;
  uint32_t depth = 1, acquire = 0, release = 0, cadence = 0;
  uint32_t slot = 0;
  bool held = false;

  uint32_t address() const { return offset + slot * slot_bytes; }
};

// A decoded parameter block, the same for every core.
struct ReadOperation final : CallableOperation {
  void run(const KernelCall& call, const CallMemory& memory) const override;
  std::unique_ptr<const OperationShape> shape() const override;
  std::shared_ptr<const CallableOperation> joined(const OperationShape& shape) const override;
  uint32_t scratch_bytes() const override { return operation.setup.scratch_bytes; }
  // The call as its kernel takes it.
  od_call bound(const KernelCall& call, const CallMemory& memory) const;

  Operation operation;
  std::shared_ptr<const Plan> plan;  // null: calls are not made
  std::shared_ptr<const std::vector<Fill>> fills;
  std::array<Port, kPorts> ports;
  std::array<uint32_t, OD_MAX_DIMS> outer_count{}, loop_order{};
  uint64_t setup_cycles = 0;
  bool sums_in_slot = false;  // scratch begins with the one out slot
  struct Charge {
    uint32_t k_count = 0;
    uint64_t cycles = 0;  // 0: nothing known yet
  };
  std::array<Charge, 2> charges{};  // of a full step and of the last one, as most calls are
  std::array<uint32_t, params::kMaxWords> words{};  // of the block; what the kernel does not read may be anything
};

// A cache for one device, used by one thread at a time.
class OperationCache {
 public:
  explicit OperationCache(const DeviceDescription& device) : constants(device) {}
  // Returns the operation whose block begins with the words that `spec` reads; null if it is not cached.
  const std::shared_ptr<ReadOperation>& find(const od_kernel_spec& spec, const uint32_t* words);
  // Of built-in kernels only: the plan of a custom kernel must be prepared once per core.
  void add(std::shared_ptr<ReadOperation> read);

  const Constants constants;  // of section [kernel] of the device

 private:
  std::unordered_multimap<uint64_t, std::shared_ptr<ReadOperation>> read_;
  std::shared_ptr<ReadOperation> latest_;  // of them: nearly always the next core asks for the same one
};

}  // namespace onedispatch
