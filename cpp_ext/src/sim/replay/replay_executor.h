// SPDX-License-Identifier: Apache-2.0
// Moves data as in any run, with host buffers that hold nothing and streams that lead nowhere.
#pragma once
#include "sim/execute/data_executor.h"
#include "sim/replay/absent_overlay.h"

namespace onedispatch::sim {

class ReplayExecutor final : public DataExecutor {
 public:
  ReplayExecutor(Array& array, AbsentOverlay& overlay) : DataExecutor(array), overlay_(overlay) {}

  void move(Channel& source, const Route& route, uint64_t words) override;
  void deliver(Channel& destination, const uint8_t* words, uint64_t count) override;

 protected:
  void read_deciding(const Channel& source, Cursor& from, uint8_t* to, uint64_t words) override;

 private:
  AbsentOverlay& overlay_;
};

}  // namespace onedispatch::sim
