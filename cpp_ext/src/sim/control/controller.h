// SPDX-License-Identifier: Apache-2.0
// The command processor of a partition: executes transactions, one operation after the other.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/array/array.h"
#include "sim/engine/interrupt.h"
#include "onedispatch/report.h"
#include "sim/record/recordings.h"
#include "sim/control/transaction.h"

namespace onedispatch::sim {

// Overlays by PDI id: transactions that configure the array.
using Overlays = std::map<uint32_t, std::vector<uint8_t>>;

class Simulator {
 public:
  // Loads overlay 0 when there is one. Throws TransactionError or SimulationError.
  Simulator(const DeviceDescription& device, const Options& options, Overlays overlays);
  virtual ~Simulator() = default;
  Simulator(const Simulator&) = delete;
  Simulator& operator=(const Simulator&) = delete;

  // Runs a transaction on these kernel arguments. After an error the next run starts with a
  // freshly loaded overlay 0.
  RunReport run(const uint8_t* bytes, size_t size, DdrRegions arguments);

  Array& array() { return array_; }
  // What cores printed in the last run, as far as it came.
  std::vector<PrintReport> take_prints() { return std::move(prints_); }
  bool broken() const { return broken_; }

 protected:
  enum class Wait : uint8_t { kNone, kPoll, kTokens, kMerge, kPostponed };

  // --- What a transaction without its overlay changes (replay/replay_simulator.h) ---
  // Whether the operation must wait for what is under way, before it is executed.
  virtual bool postpones(const Op&) { return false; }
  virtual void retry_postponed() {}
  virtual bool skips(const Op&) { return false; }  // an operation without published semantics
  virtual void check_poll() const {}               // one that is not true at once
  // No event is left: whether there is one now.
  virtual bool unblocks() { return false; }
  // The effort at which check_effort() is next called.
  virtual uint64_t check_due() const;
  virtual void check_effort();

  void begin_run(const Transaction& transaction, DdrRegions arguments);
  void load_overlay(uint32_t id);
  void loop();
  void retry();
  virtual void mark_effort();  // the controller made progress
  uint32_t block_words(const Op& op) const;
  OpRef ref() const;
  Array::Awaited awaited() const;
  std::string describe_poll() const;
  std::string describe_wait() const;
  void finish_report(uint64_t events_before, uint64_t end);

  Array array_;
  Options options_;
  Overlays overlays_;
  bool broken_ = true;  // until an overlay is loaded
  InterruptPace pace_;

  // Of the current run.
  const Transaction* transaction_ = nullptr;
  size_t next_ = 0;
  Wait wait_ = Wait::kNone;
  uint64_t poll_address_ = 0;
  uint32_t poll_tile_ = 0, poll_value_ = 0, poll_mask_ = 0;
  std::vector<Channel*> token_channels_;
  uint32_t merge_tokens_ = 0, merge_columns_ = 0;
  uint64_t effort_mark_ = 0, effort_start_ = 0, check_due_ = 0;
  uint64_t start_ = 0;
  RunReport report_;

 private:
  RunReport run_engine(const uint8_t* bytes, size_t size, DdrRegions arguments);
  std::string why_never_recorded() const;
  ArrayState state();
  std::shared_ptr<const Recording> holding(const uint8_t* bytes, size_t size, const DdrRegions& arguments);
  RunReport run_on_engine(const uint8_t* bytes, size_t size, DdrRegions arguments, std::string why);
  RunReport played(const Recording& recording, const DdrRegions& arguments);
  RunReport recording_run(const uint8_t* bytes, size_t size, const DdrRegions& arguments, std::shared_ptr<const Recording>& made);
  bool play(const Recording& recording, const DdrRegions& arguments);
  RunReport verified_run(const Recording* found, const uint8_t* bytes, size_t size, const DdrRegions& arguments);
  void step();
  bool execute(const Op& op);  // false: blocked
  bool execute_custom(const Op& op);
  void record_timer(uint32_t id);
  void schedule(uint64_t cycles, Part part);
  void execute_patch(const Op& op);
  void execute_read_registers(const Op& op);
  void execute_mask_write(const Op& op);
  bool begin_poll(const Op& op);
  bool begin_tokens(const Op& op);
  bool poll();
  bool wait_for_timer();
  bool take_tokens();
  bool take_merged_tokens();
  uint64_t cost_of(const Op& op) const;
  void check_finished() const;
  void check_at_rest();
  [[noreturn, gnu::cold]] void unsupported(const Op& op, const std::string& accepted) const;

  uint64_t locked(const Channel& channel) const;
  void begin_statistics();
  void add_statistics();
  void finish_trace();
  void trace_wait(uint64_t end);
  void collect_prints();

  bool fresh_ = true;  // the array is as it was made, or reset, and an overlay may be loaded at once

  // Of the current run.
  bool done_ = false;
  bool charge_ = true;  // false while an overlay is loaded: that costs a constant
  uint64_t tokens_seen_ = 0;
  uint64_t wait_since_ = 0;            // of the operation that waits
  const Channel* awaited_ = nullptr;  // kTokens: the first whose token was missing
  uint64_t extra_cost_ = 0;
  std::vector<PrintReport> prints_;
  Recordings recordings_;
  std::vector<uint8_t> kept_;  // what stays on the chip, of a run that is played
  ArrayState state_;           // at rest
  bool state_known_ = false;   // no run of the engine since
  struct Counters {
    uint64_t bytes = 0, busy = 0, active = 0, calls = 0, locked = 0;
  };
  std::vector<Counters> channel_base_, channel_sum_, core_base_, core_sum_;
};

}  // namespace onedispatch::sim
