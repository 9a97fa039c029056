// SPDX-License-Identifier: Apache-2.0
// Ends a replay whose controller waits for a condition that can never hold while endless tasks run.
//
// Without endless tasks the event queue runs empty, which is a deadlock. With them a wait could last for
// ever; therefore its feasibility is checked after kFeasibilityCheckInterval events and then after
// doubling intervals. A partner outside the transaction acts once nothing but endless chains moves.
#include "sim/array/bytes.h"
#include "sim/control/controller.h"
#include "sim/replay/wait_feasibility.h"
#include "txn/unsatisfiable_poll.h"

namespace onedispatch::sim {
namespace {

constexpr const char* kAccepted = "waits that can end";

}  // namespace

// Refuses polls that no state of the array satisfies, as validate() does.
void Simulator::refuse_impossible_poll() const {
  const auto tile = txn::tile_of_row(array_.tiles()[poll_tile_].row);
  const uint32_t offset = txn::offset_of(poll_address_);
  std::string why;
  switch (txn::unsatisfiable_poll(tile, offset, poll_mask_, poll_value_)) {
    case txn::UnsatisfiablePoll::kSatisfiable: return;
    case txn::UnsatisfiablePoll::kOutsideMask: why = "the value has bits outside its mask"; break;
    case txn::UnsatisfiablePoll::kCannotHold:
      why = "the register has no bits but " + hex(txn::bits_of(txn::roles(tile)[offset / 4]));
      break;
    case txn::UnsatisfiablePoll::kPastLocks: why = "it acquires more than a lock can count"; break;
  }
  throw SimulationError("endless_wait",
                        {describe_poll(), why, kAccepted, "Correct the mask, the value or the address."});
}

void Simulator::refuse_infeasible_wait() {
  if (wait_ == Wait::kCatchUp || packets_given_ || array_.effort - effort_mark_ < feasibility_check_due_) return;
  feasibility_check_due_ *= 2;
  const WaitFeasibility feasibility(array_);
  std::string why;
  switch (wait_) {
    case Wait::kPoll: why = feasibility.why_poll_cannot_succeed(poll_address_, poll_mask_, poll_value_); break;
    case Wait::kTokens: why = feasibility.why_tokens_cannot_come(token_channels_); break;
    case Wait::kMerge: why = feasibility.why_tokens_cannot_come(merge_tokens_, merge_columns_); break;
    case Wait::kNone:
    case Wait::kCatchUp: return;
  }
  if (!why.empty())
    throw SimulationError("endless_wait", {describe_wait(), why, kAccepted,
                                           "Look for the task, lock or write that should end it."});
  if (feasibility.only_endless() && array_.serve_starved(wait_ == Wait::kPoll ? &poll_address_ : nullptr)) retry();
}

}  // namespace onedispatch::sim
