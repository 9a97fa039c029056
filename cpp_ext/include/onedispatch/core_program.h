// SPDX-License-Identifier: Apache-2.0
// What runs on a core: a behavioural program, bound to the image in program memory.
//
// A program never blocks. It is a state machine that says what it does next; the simulator
// performs that, lets simulated time pass, and resumes it. It sees its own data memory only.
#pragma once
#include <array>
#include <cstdint>
#include <memory>

#include "onedispatch/device_description.h"
#include "onedispatch/operation_call.h"
#include "onedispatch/kernel_codes.h"
#include "onedispatch/print_log.h"
#include "onedispatch/register_map.h"
#include "onedispatch/txn_format.h"

namespace onedispatch {

constexpr uint32_t kCoreMemoryBytes = reg::CORE_VIEW_END - reg::CORE_VIEW_MEMORY;  // that any device may have at most

constexpr uint64_t kMaxCycles = OD_MAX_CYCLES;  // of an action, and of the clock

class OperationCache;  // parameter blocks that the programs of an array's cores have decoded (program/operation_cache.h)
std::shared_ptr<OperationCache> make_operation_cache(const DeviceDescription& device);

// The only things of the array that a program may touch.
struct CoreView {
  uint8_t* memory = nullptr;  // this core's data memory, as large as the device says
  uint32_t column = 0;        // partition column
  uint32_t row = 0;           // core row, 0 = tile row 2
  uint32_t limit_ms = host::KERNEL_MILLISECONDS;  // of the host, for a call of a custom kernel
  PrintLog* prints = nullptr;  // of this core; null: prints are dropped
  std::shared_ptr<OperationCache> operation_cache = nullptr;  // of the array, for one thread at a time; null: the program has its own
  bool clock = false;  // calls take their time and are not made: no function of a kernel is called
};

// A few ranges, in place: there are some with every call.
class MemoryRanges {
 public:
  void push_back(MemoryRange range) { ranges_.at(count_++) = range; }
  const MemoryRange* begin() const { return ranges_.data(); }
  const MemoryRange* end() const { return ranges_.data() + count_; }
  const MemoryRange& operator[](size_t index) const { return ranges_.at(index); }
  size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }

 private:
  std::array<MemoryRange, 4> ranges_{};
  uint32_t count_ = 0;
};

// Ranges that the caller owns.
class RangesView {
 public:
  RangesView() = default;
  RangesView(const MemoryRanges& of) : begin_(of.begin()), end_(of.end()) {}  // NOLINT(google-explicit-constructor): the same thing
  const MemoryRange* begin() const { return begin_; }
  const MemoryRange* end() const { return end_; }
  const MemoryRange& operator[](size_t index) const { return begin_[index]; }
  size_t size() const { return static_cast<size_t>(end_ - begin_); }
  bool empty() const { return begin_ == end_; }

 private:
  const MemoryRange* begin_ = nullptr;
  const MemoryRange* end_ = nullptr;
};

// A kernel call, on local memory only. The program keeps it, and all that it needs, until it is resumed.
class Work {
 public:
  virtual void run() = 0;
  // The same as a value; null where the call can be made here alone: it prints, or a plug-in brought its kernel.
  virtual const KernelCall* call() const = 0;

 protected:
  ~Work() = default;
};

// The next thing that a program does.
struct Action {
  enum class Kind { kAcquire, kRelease, kCompute, kHalt };
  Kind kind = Kind::kHalt;
  uint32_t lock = 0;   // core view (48 + own lock id)
  int32_t value = 1;   // acquire: wait until lock >= value, then subtract; release: add
  uint64_t cycles = 0; // kCompute: core cycles that pass, known before the job runs
  // kCompute: the work, where there is any. The simulator runs it once, perhaps on another thread, at any
  // moment before the cycles have passed.
  Work* job = nullptr;
  uint32_t kernel = 0;  // kCompute: digest of the kernel that it is a call of; 0: of none
  RangesView reads, writes;  // what the job touches, for overlap checks; the program keeps them as it does the job
};

class CoreProgram {
 public:
  virtual ~CoreProgram() = default;
  // Called once at the start and again each time the last action is complete, until when it stands.
  // Throws ProgramError (core_program.h) when local memory holds nonsense.
  virtual const Action& resume() = 0;
};

// Ctrl-C ended a kernel call that went on for too long: the simulator then asks its interrupt check.
struct CallInterrupted {
  std::string what;
};

struct ProgramError {
  std::string what;
  int32_t status = 0;  // what a kernel answered; 0 where none did
  std::shared_ptr<void> cause = nullptr;  // what was thrown in the kernel
};

// Starts the program that `image` (the first words of program memory) names.
// Throws ProgramError when there is no such program: empty memory, unknown id, wrong version or hash.
std::unique_ptr<CoreProgram> start_program(const uint32_t* image, uint32_t image_words, CoreView core,
                                           const DeviceDescription& device);

}  // namespace onedispatch
