// SPDX-License-Identifier: Apache-2.0
// Emulates foreign transactions without the overlay that they were written for (absent_overlay.h).
//
// Without endless tasks the event queue runs empty where a wait cannot end, which is a deadlock. With them a wait could last
// for ever; therefore its feasibility is checked after kFeasibilityCheckInterval events and then after doubling intervals. A
// partner outside the transaction acts once nothing but endless chains moves.
#pragma once
#include <map>

#include "sim/control/controller.h"
#include "sim/replay/absent_overlay.h"

namespace onedispatch::sim {

class ReplaySimulator final : public Simulator {
 public:
  ReplaySimulator(const DeviceDescription& device, const Options& options);

  // The array starts afresh. What stops the transaction is part of the report. Throws TransactionError.
  ReplayReport replay(const uint8_t* bytes, size_t size, const ControlPackets& packets = {});

 private:
  bool postpones(const Op& op) override;
  void retry_postponed() override;
  bool skips(const Op& op) override;
  void check_poll() const override;  // refuses those that no state of the array satisfies, as validate() does
  bool unblocks() override;
  uint64_t check_due() const override;
  void mark_effort() override;
  void check_effort() override;

  void settle();
  bool takes_away(const Op& op) const;
  void end_catch_up();
  bool serve_starved();
  void refuse_infeasible_wait();
  uint64_t most_effort() const;
  void finish_replay(ReplayReport& report) const;

  AbsentOverlay* overlay_ = nullptr;  // the array's
  uint64_t feasibility_due_ = 0;      // effort of a wait at which its feasibility is checked
  bool packets_given_ = false;        // control packets may change anything at any time
  bool caught_up_ = false;            // the next operation has waited for the tasks before it
  uint64_t progress_seen_ = 0;        // of tasks, while a write waits
  std::map<uint8_t, uint32_t> skipped_;  // custom opcodes without known meaning, how often
};

}  // namespace onedispatch::sim
