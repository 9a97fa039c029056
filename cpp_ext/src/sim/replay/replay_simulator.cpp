// SPDX-License-Identifier: Apache-2.0
#include "sim/replay/replay_simulator.h"

#include <algorithm>
#include <array>

#include "onedispatch/text.h"
#include "onedispatch/txn_format.h"
#include "sim/array/bytes.h"
#include "sim/replay/replay_executor.h"
#include "sim/replay/wait_feasibility.h"
#include "txn/unsatisfiable_poll.h"

namespace onedispatch::sim {
namespace {

constexpr const char* kAccepted = "waits that can end";

constexpr uint64_t kArguments = 16;
constexpr uint64_t kAddressMask = (uint64_t{1} << 48) - 1;
// Arguments lie so far apart that no descriptor reaches from one into the next.
constexpr uint64_t kSpacing = uint64_t{1} << 40;
// After the last operation: events (or 256 words each) without progress of any task that ends, until
// what still moves counts as endless.
constexpr uint64_t kSettleEffort = 200'000;
// Events (or 256 words each) without progress of any task that ends, until a write waits no longer.
constexpr uint64_t kEffortOfCatchUp = 200'000;
// A foreign transaction is bounded in all: times the event limit.
constexpr uint64_t kMostEffort = 10;
constexpr uint64_t kLargestLimit = ~0ull / 100;
// Effort of a wait until it is first asked whether it can end at all.
constexpr uint64_t kFeasibilityCheckInterval = 10'000;

DdrRegions open_regions() {
  DdrRegions regions;
  for (uint64_t i = 0; i < kArguments; ++i) {
    auto region = std::make_shared<DdrRegion>();
    region->address = region->origin = (i + 1) * kSpacing;
    region->bytes = kSpacing / 2;
    region->open = true;
    regions.push_back(std::move(region));
  }
  return regions;
}

// The packets are real memory within their argument, with the addresses of the others patched in.
void add_packets(DdrRegions& regions, const ControlPackets& packets) {
  struct Content {
    std::vector<uint8_t> bytes;
    ValidMap valid;
  };
  if (packets.bytes.empty()) return;
  if (packets.argument >= regions.size() || packets.base % 4 != 0 || packets.base >= kSpacing / 4)
    throw DeviceError({"control packets",
                       "kernel argument " + std::to_string(packets.argument) + " from byte " +
                           std::to_string(packets.base) + " on",
                       "arguments " + span(0, regions.size() - 1) + ", multiples of 4",
                       "Name the argument that they are, and where they start."});
  auto content = std::make_shared<Content>();
  content->bytes = packets.bytes;
  content->bytes.resize((packets.bytes.size() + 3) / 4 * 4);
  content->valid = ValidMap(content->bytes.size() / 4);
  content->valid.mark(0, content->bytes.size() / 4);
  for (const PacketPatch& patch : packets.patches) {
    if (patch.argument >= regions.size() || content->bytes.size() < 8 || patch.offset % 4 != 0 ||
        patch.offset > content->bytes.size() - 8)
      throw DeviceError({"control packets",
                         "a patch at byte " + std::to_string(patch.offset) + " with argument " +
                             std::to_string(patch.argument),
                         "word-aligned patches within the packets, arguments " +
                             span(0, regions.size() - 1),
                         "Check the description that comes with the packets."});
    uint8_t* at = content->bytes.data() + patch.offset;
    const uint64_t there = load64(at);
    const uint64_t value = regions[patch.argument]->address + patch.plus + txn::DDR_APERTURE +
                           (patch.add ? there & kAddressMask : 0);
    store32(at, static_cast<uint32_t>(value));
    store32(at + 4, static_cast<uint32_t>((there & ~kAddressMask) >> 32) |
                        static_cast<uint32_t>((value & kAddressMask) >> 32));
  }
  auto region = std::make_shared<DdrRegion>();
  region->address = region->origin = regions[packets.argument]->address + packets.base;
  region->bytes = content->bytes.size();
  region->data = content->bytes.data();
  region->valid = &content->valid;
  region->keep_alive = content;
  regions.push_back(std::move(region));
}

// What was done to the arguments; the region of packets counts as a part of theirs.
std::vector<ArgumentReach> reach_of(const DdrRegions& regions) {
  std::array<ArgumentReach, kArguments> all{};
  for (const auto& region : regions) {
    if (region->end == 0) continue;
    const uint64_t argument = region->address / kSpacing - 1, base = region->address % kSpacing;
    ArgumentReach& reach = all[argument];
    const uint64_t first = base + region->first;
    reach.first = reach.end == 0 ? first : std::min(reach.first, first);
    reach.end = std::max(reach.end, base + region->end);
    reach.read += region->bytes_read;
    reach.written += region->bytes_written;
  }
  std::vector<ArgumentReach> touched;
  for (uint32_t i = 0; i < kArguments; ++i) {
    all[i].argument = i;
    if (all[i].end != 0) touched.push_back(all[i]);
  }
  return touched;
}

}  // namespace

ReplaySimulator::ReplaySimulator(const DeviceDescription& device, const Options& options) : Simulator(device, options, {}) {
  auto overlay = std::make_unique<AbsentOverlay>(array_);
  overlay_ = overlay.get();
  array_.replace(std::move(overlay), std::make_unique<ReplayExecutor>(array_, *overlay_));
}

ReplayReport ReplaySimulator::replay(const uint8_t* bytes, size_t size, const ControlPackets& packets) {
  const Transaction transaction(bytes, size, array_.device(), Transaction::Unnamed::kKeep);
  broken_ = true;  // a run after this one starts with its overlay
  if (packets.overlay.empty()) {
    array_.reset();
  } else {
    overlays_[0] = packets.overlay;
    load_overlay(0);
  }
  caught_up_ = false;
  skipped_.clear();
  const uint64_t events_before = array_.events.scheduled();
  DdrRegions regions = open_regions();
  add_packets(regions, packets);
  packets_given_ = !packets.bytes.empty();
  begin_run(transaction, std::move(regions));
  ReplayReport result;
  uint64_t end = 0;
  try {
    array_.events.push(array_.now + array_.timing().launch, EventKind::kController, 0, 0);
    loop();
    result.finished = true;
    end = array_.now;
    settle();
  } catch (const SimulationError& error) {
    if (!result.finished) {
      end = array_.now;
      result.finished = next_ == transaction.ops().size();  // something else went wrong during the last one
    }
    result.stop_kind = error.kind;
    result.stop = error.complaint.text();
    result.stop_op = error.op.index < 0 ? ref() : error.op;
  }
  result.executed = next_;
  result.settled_cycles = array_.now - start_;
  finish_report(events_before, end);
  result.run = std::move(report_);
  finish_replay(result);
  array_.set_regions({});
  transaction_ = nullptr;
  return result;
}

// Lets what is under way end.
void ReplaySimulator::settle() {
  uint64_t mark = array_.effort, seen = overlay_->progress();
  const uint64_t end = effort_start_ + most_effort();
  while (!array_.events.empty() && array_.effort - mark < kSettleEffort && array_.effort < end) {
    pace_();
    array_.handle(array_.events.pop());
    if (seen == overlay_->progress()) continue;
    seen = overlay_->progress();
    mark = array_.effort;
  }
}

void ReplaySimulator::finish_replay(ReplayReport& report) const {
  report.packets = array_.packets;
  report.handshakes = overlay_->answers();
  report.assumed_tokens = overlay_->assumed_tokens();
  report.packet_tokens = overlay_->packet_tokens();
  report.skipped.assign(skipped_.begin(), skipped_.end());
  report.arguments = reach_of(array_.regions());
  for (const auto& [place, times] : overlay_->absent_bds()) {
    const Tile& tile = array_.tiles()[place.first];
    report.absent_bds.push_back(AbsentBd{tile.column, tile.row, place.second, times});
  }
  for (const auto& [place, times] : overlay_->assumed_locks()) {
    const Tile& tile = array_.tiles()[place.first];
    report.assumed.push_back(AssumedLock{tile.column, tile.row, place.second, times, tile.locks[place.second].set});
  }
  for (const auto& [c, why] : array_.explain_tasks()) {
    const Tile& tile = array_.tiles()[c->tile];
    const bool moving = c->state == ChannelState::kMoving || c->state == ChannelState::kDelay;
    report.unfinished.push_back(
        UnfinishedTask{tile.column, tile.row, c->mm2s, c->number, c->words_left, moving, why});
  }
}

// --- What differs from a run -----------------------------------------------------------------------------------

// Custom opcodes without public meaning.
bool ReplaySimulator::skips(const Op& op) {
  if (op.code < txn::op::CUSTOM_BEGIN) return false;
  ++skipped_[op.code];
  return true;
}

bool ReplaySimulator::takes_away(const Op& op) const {
  if (op.code == txn::op::WRITE)
    return overlay_->takes_away(OD_FIELD(op, WRITE, reg), 1, static_cast<uint32_t>(OD_FIELD(op, WRITE, value)));
  if (op.code != txn::op::BLOCKWRITE) return false;
  return overlay_->takes_away(OD_FIELD(op, BLOCKWRITE, reg), block_words(op), 0);
}

// Writes wait for the tasks that they take something away from (catch_up.cpp).
bool ReplaySimulator::postpones(const Op& op) {
  const bool has_waited = std::exchange(caught_up_, false);  // of this operation alone
  if (has_waited || array_.events.empty() || !takes_away(op)) return false;
  progress_seen_ = overlay_->progress();
  return true;
}

void ReplaySimulator::retry_postponed() {
  if (progress_seen_ != overlay_->progress()) {
    progress_seen_ = overlay_->progress();
    mark_effort();
  }
  if (array_.effort - effort_mark_ > kEffortOfCatchUp) overlay_->give_up();
  if (!takes_away(transaction_->ops()[next_])) end_catch_up();
}

void ReplaySimulator::end_catch_up() {
  wait_ = Wait::kNone;
  caught_up_ = true;
  array_.events.push(array_.now, EventKind::kController, 0, 0);
}

bool ReplaySimulator::serve_starved() {
  if (overlay_->serve_starved(wait_ == Wait::kPoll ? &poll_address_ : nullptr)) return true;
  return wait_ == Wait::kTokens && !packets_given_ && overlay_->give_tokens_of_packets(token_channels_);
}

bool ReplaySimulator::unblocks() {
  if (wait_ == Wait::kPostponed) {
    end_catch_up();
    return true;
  }
  if (!serve_starved()) return false;
  if (wait_ != Wait::kNone) retry();
  check_effort();
  return true;
}

uint64_t ReplaySimulator::most_effort() const { return kMostEffort * std::min(options_.event_limit, kLargestLimit); }

void ReplaySimulator::mark_effort() {
  feasibility_due_ = kFeasibilityCheckInterval;
  Simulator::mark_effort();
}

// Any event may be the one after which a wait can end no more.
uint64_t ReplaySimulator::check_due() const {
  const uint64_t feasibility = packets_given_ ? ~0ull : effort_mark_ + feasibility_due_;
  return std::min({Simulator::check_due(), effort_start_ + most_effort() + 1, feasibility});
}

void ReplaySimulator::check_effort() {
  if (wait_ != Wait::kNone && wait_ != Wait::kPostponed) refuse_infeasible_wait();
  if (array_.effort - effort_start_ > most_effort())
    throw SimulationError("livelock", {describe_wait(), "more than " + counted(most_effort(), "event") + " in all",
                                       "transactions of a size that can be replayed",
                                       "Raise the event limit if it is meant to move so much."});
  Simulator::check_effort();
  check_due_ = check_due();
}

// Refuses polls that no state of the array satisfies, as validate() does.
void ReplaySimulator::check_poll() const {
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

void ReplaySimulator::refuse_infeasible_wait() {
  if (packets_given_ || array_.effort - effort_mark_ < feasibility_due_) return;
  feasibility_due_ *= 2;
  const WaitFeasibility feasibility(array_, *overlay_);
  std::string why;
  switch (wait_) {
    case Wait::kPoll: why = feasibility.why_poll_cannot_succeed(poll_address_, poll_mask_, poll_value_); break;
    case Wait::kTokens: why = feasibility.why_tokens_cannot_come(token_channels_); break;
    case Wait::kMerge: why = feasibility.why_tokens_cannot_come(merge_tokens_, merge_columns_); break;
    case Wait::kNone:
    case Wait::kPostponed: return;
  }
  if (!why.empty())
    throw SimulationError("endless_wait", {describe_wait(), why, kAccepted,
                                           "Look for the task, lock or write that should end it."});
  if (feasibility.only_endless() && serve_starved()) retry();
}

}  // namespace onedispatch::sim
