// SPDX-License-Identifier: Apache-2.0
// Ends a replay whose controller waits for what can never be, while tasks without an end go on.
//
// Without such tasks events run out, and that is a deadlock. With them a wait could last for ever;
// therefore, after some effort and then ever more rarely, it is asked whether it can still end. A
// partner that the transaction does not show acts when nothing else can: chains that never end are
// nothing else.
#include "sim/array/bytes.h"
#include "sim/control/controller.h"
#include "sim/replay/hope.h"
#include "txn/never.h"

namespace onedispatch::sim {
namespace {

constexpr const char* kAccepted = "waits that something can end";

}  // namespace

// By what is polled alone: the same knowledge as that of validate().
void Simulator::refuse_impossible_poll() const {
  const auto tile = txn::tile_of_row(array_.tiles()[poll_tile_].row);
  const uint32_t offset = txn::offset_of(poll_address_);
  std::string why;
  switch (txn::never_true(tile, offset, poll_mask_, poll_value_)) {
    case txn::Never::kMay: return;
    case txn::Never::kOutsideMask: why = "it wants bits outside its mask"; break;
    case txn::Never::kCannotHold:
      why = "the register has no bits but " + hex(txn::bits_of(txn::roles(tile)[offset / 4]));
      break;
    case txn::Never::kPastLocks: why = "it asks for more than a lock can count"; break;
  }
  throw SimulationError("endless_wait",
                        {describe_poll(), why, kAccepted, "Correct the mask, the value or the address."});
}

void Simulator::refuse_hopeless() {
  if (wait_ == Wait::kCatchUp || packets_given_ || array_.effort - effort_mark_ < hope_due_) return;
  hope_due_ *= 2;
  const Hope hope(array_);
  std::string why;
  switch (wait_) {
    case Wait::kPoll: why = hope.against_poll(poll_address_, poll_mask_, poll_value_); break;
    case Wait::kTokens: why = hope.against_tokens(token_channels_); break;
    case Wait::kMerge: why = hope.against_tokens(merge_tokens_, merge_columns_); break;
    case Wait::kNone:
    case Wait::kCatchUp: return;
  }
  if (!why.empty())
    throw SimulationError("endless_wait", {describe_wait(), why, kAccepted,
                                           "Look for the task, lock or write that should end it."});
  if (hope.only_endless() && array_.serve_starved(wait_ == Wait::kPoll ? &poll_address_ : nullptr)) retry();
}

}  // namespace onedispatch::sim
