// SPDX-License-Identifier: Apache-2.0
// Moves the words and makes the kernel calls, on this thread or, where they are long, on others.
#pragma once
#include <exception>
#include <memory>
#include <vector>

#include "sim/array/array.h"
#include "sim/engine/workers.h"
#include "sim/execute/executor.h"

namespace onedispatch::sim {

class DataExecutor : public Executor {
 public:
  explicit DataExecutor(Array& array) : array_(array) {}
  ~DataExecutor() override { DataExecutor::settle(); }  // calls point into the array's memories
  DataExecutor(const DataExecutor&) = delete;
  DataExecutor& operator=(const DataExecutor&) = delete;

  void move(Channel& source, const Route& route, uint64_t words) override;
  void deliver(Channel& destination, const uint8_t* words, uint64_t count) override;
  void place(Channel& channel) override;
  Words ahead(Channel& source, uint64_t most) override;
  uint32_t peek(Channel& source) override;
  void take(Channel& source, uint32_t* to, uint64_t words) override;
  void write(Tile& tile, uint32_t offset, const uint8_t* data, uint64_t bytes) override;
  uint32_t read(const Tile& tile, uint32_t offset) override;
  void begin(Core& core) override;
  uint64_t end(Core& core) override;
  void stop(const Core& core) override { join(core); }
  void settle() override;

 protected:
  // Waits for kernel calls that touch what the channel's BD touches.
  void settle(const Channel& channel);
  uint8_t* scratch(uint64_t words);
  // Words of the source that are read from `from` on: what they say decides what happens.
  virtual void read_deciding(const Channel& source, Cursor& from, uint8_t* to, uint64_t words);

  Array& array_;

 private:
  struct Call {
    std::shared_ptr<Job> job;  // under way on another thread
    uint64_t nanoseconds = 0;  // that it took
  };

  void check_reads(const Core& core) const;
  void call(Core& core);
  bool is_under_way(uint32_t core) const { return core < calls_.size() && calls_[core].job != nullptr; }
  void join(const Core& core);
  void join_overlapping(const Tile& tile, uint64_t first_byte, uint64_t bytes, bool writing);
  [[noreturn, gnu::cold]] void fail_call(const Core& core, const std::exception_ptr& thrown) const;
  [[noreturn, gnu::cold]] void fail_unwritten(const Channel& source, uint64_t word) const;

  std::vector<Call> calls_;  // by core: the last one of each
  size_t under_way_ = 0;
  uint64_t nanoseconds_ = 0;      // moving average of host time per call
  std::vector<uint8_t> scratch_;  // of words under way
};

}  // namespace onedispatch::sim
