// SPDX-License-Identifier: Apache-2.0
#include "sim/control/controller.h"

#include <algorithm>
#include <utility>

#include "onedispatch/text.h"
#include "onedispatch/txn_format.h"

namespace onedispatch::sim {

using V0 = txn::V0_1;
using V1 = txn::V1_0;

Simulator::Simulator(const DeviceDescription& device, const Options& options, Overlays overlays)
    : array_(device, options), options_(options), overlays_(std::move(overlays)) {
  if (overlays_.count(0) != 0) load_overlay(0);
  fresh_ = broken_ = false;
}

// Executes the overlay's transaction on an array that was reset, at the present time.
void Simulator::load_overlay(uint32_t id) {
  const auto found = overlays_.find(id);
  if (found == overlays_.end()) {
    std::string known;
    for (const auto& overlay : overlays_)
      known += (known.empty() ? "" : ", ") + std::to_string(overlay.first);
    throw SimulationError("pdi", {"LOADPDI", "PDI " + std::to_string(id),
                                  known.empty() ? "none: the xclbin holds no PDI" : "PDI " + known,
                                  "Add the overlay to the xclbin."});
  }
  const Transaction overlay(found->second.data(), found->second.size(), array_.device());
  array_.executor().depends("an overlay that it loads");
  if (!fresh_) array_.reset();
  fresh_ = false;
  const Transaction* const outer = transaction_;
  const size_t outer_next = next_;
  transaction_ = &overlay;
  charge_ = false;
  array_.loading = true;
  try {
    for (next_ = 0; next_ < overlay.ops().size(); ++next_) {
      const Op& op = overlay.ops()[next_];
      if (op.code == txn::op::DDR_PATCH || op.code == txn::op::TCT || op.code == txn::op::MERGE_SYNC ||
          op.code == txn::op::LOADPDI)
        unsupported(op, "register writes in an overlay");
      if (outer == nullptr) array_.current_op = OpRef{static_cast<int64_t>(next_), op.offset};
      if (!execute(op)) {
        wait_ = Wait::kNone;
        unsupported(op, "polls that are true at once in an overlay");
      }
    }
  } catch (...) {
    transaction_ = outer;
    next_ = outer_next;
    charge_ = true;
    array_.loading = false;
    throw;
  }
  transaction_ = outer;
  next_ = outer_next;
  charge_ = true;
  array_.loading = false;
}

OpRef Simulator::ref() const {
  if (transaction_ == nullptr || next_ >= transaction_->ops().size()) return {};
  return OpRef{static_cast<int64_t>(next_), transaction_->ops()[next_].offset};
}

void Simulator::begin_run(const Transaction& transaction, DdrRegions arguments) {
  transaction_ = &transaction;
  next_ = 0;
  done_ = false;
  wait_ = Wait::kNone;
  report_ = RunReport{};
  start_ = array_.now;
  effort_start_ = array_.effort;
  mark_effort();
  array_.set_regions(std::move(arguments));
  for (Channel& channel : array_.channels()) channel.tokens = 0;
  for (PrintLog& log : array_.prints()) log.take();
  if (options_.trace) array_.trace().start(options_.trace_calls, start_);
  if (options_.profile)
    array_.profile().start(start_, array_.channels().size(), array_.cores().size(), array_.device().columns);
  begin_statistics();
}

RunReport Simulator::run_engine(const uint8_t* bytes, size_t size, DdrRegions arguments) {
  state_known_ = false;
  const Transaction transaction(bytes, size, array_.device());
  if (broken_) {
    array_.reset();
    fresh_ = true;
    if (overlays_.count(0) != 0) load_overlay(0);
    fresh_ = broken_ = false;
  }
  const uint64_t events_before = array_.events.scheduled();
  uint64_t end = 0;
  begin_run(transaction, std::move(arguments));
  try {
    schedule(array_.timing().launch, Part::kLaunch);
    loop();
    check_finished();
    end = array_.now;
    if (options_.profile) array_.profile().end(end);
    check_at_rest();
  } catch (SimulationError& error) {
    broken_ = true;
    collect_prints();
    if (error.op.index < 0) error.op = ref();
    transaction_ = nullptr;
    throw;
  } catch (...) {
    broken_ = true;
    transaction_ = nullptr;
    throw;
  }
  finish_report(events_before, end);
  collect_prints();
  transaction_ = nullptr;
  return std::move(report_);
}

void Simulator::loop() {
  while (!done_) {
    pace_();
    if (array_.events.empty()) {
      if (unblocks()) continue;
      throw SimulationError(
          "deadlock",
          {describe_wait(), "no event is left that could change that:" + array_.explain(awaited()),
           "transactions whose waits end", "Look for the lock, stream or token that no task serves."});
    }
    const Event event = array_.events.pop();
    if (EventQueue::Upcoming next{}; array_.events.upcoming(&next)) array_.fetch(next);
    if (event.kind == EventKind::kController) {
      array_.now = event.time;
      if (options_.profile) array_.profile().enter_controller(array_.now);
      step();
    } else {
      array_.handle(event);
      if (wait_ != Wait::kNone) retry();
    }
    if (array_.effort >= check_due_) check_effort();
  }
}

void Simulator::mark_effort() {
  effort_mark_ = array_.effort;
  check_due_ = check_due();
}

uint64_t Simulator::check_due() const {
  const uint64_t most = ~0ull - effort_mark_;
  return options_.event_limit < most ? effort_mark_ + options_.event_limit + 1 : ~0ull;
}

void Simulator::check_effort() {
  if (array_.effort - effort_mark_ <= options_.event_limit) return;
  throw SimulationError("livelock",
                        {describe_wait(),
                         counted(options_.event_limit, "event") +
                             " without progress of the controller:" + array_.explain(awaited()),
                         "transactions whose waits end",
                         "Look for a BD chain or a program that loops without being held by a lock."});
}

void Simulator::step() {
  const auto& ops = transaction_->ops();
  for (;;) {
    pace_();
    if (next_ == ops.size()) {
      done_ = true;
      return;
    }
    const Op& op = ops[next_];
    array_.current_op = ref();
    mark_effort();
    extra_cost_ = 0;
    if (postpones(op)) {
      wait_ = Wait::kPostponed;
      return;
    }
    if (!execute(op)) return;
    const uint64_t resume = array_.now + cost_of(op) + extra_cost_;
    ++next_;
    if (!array_.events.empty() && array_.events.next_time() <= resume) {
      schedule(resume - array_.now, Part::kCommand);
      return;
    }
    if (options_.profile) array_.profile().pass(Part::kCommand, resume - array_.now);
    array_.now = resume;
  }
}

// Of a BLOCKWRITE; its payload is its last part.
uint32_t Simulator::block_words(const Op& op) const {
  const uint32_t head = transaction_->is_v1() ? V1::BLOCKWRITE::payload_at : V0::BLOCKWRITE::payload_at;
  return (op.size - head) / 4;
}

uint64_t Simulator::cost_of(const Op& op) const {
  const Timing& t = array_.timing();
  switch (op.code) {
    case txn::op::WRITE: return t.write;
    case txn::op::MASKWRITE: return t.maskwrite;
    case txn::op::BLOCKWRITE: {
      return t.blockwrite + t.blockwrite_word * block_words(op);
    }
    default: return t.other;
  }
}

bool Simulator::execute(const Op& op) {
  switch (op.code) {
    case txn::op::WRITE:
      array_.write(OD_FIELD(op, WRITE, reg), static_cast<uint32_t>(OD_FIELD(op, WRITE, value)),
                   array_.current_op);
      return true;
    case txn::op::BLOCKWRITE: {
      const uint32_t words = block_words(op);
      array_.write_block(OD_FIELD(op, BLOCKWRITE, reg), transaction_->at(op) + op.size - 4 * words, words,
                         array_.current_op);
      return true;
    }
    case txn::op::MASKWRITE: execute_mask_write(op); return true;
    case txn::op::MASKPOLL:
    case txn::op::MASKPOLL_BUSY: return begin_poll(op);
    case txn::op::NOOP:
    case txn::op::PREEMPT: return true;
    case txn::op::LOADPDI:
      add_statistics();
      if (options_.trace) array_.end_spans();
      load_overlay(static_cast<uint32_t>(OD_FIELD(op, LOADPDI, pdi_id)));
      begin_statistics();
      extra_cost_ = array_.timing().reconfigure;
      return true;
    default: return execute_custom(op);
  }
}

bool Simulator::execute_custom(const Op& op) {
  switch (op.code) {
    case txn::op::TCT:
    case txn::op::MERGE_SYNC: return begin_tokens(op);
    case txn::op::DDR_PATCH: execute_patch(op); return true;
    case txn::op::READ_REGS: execute_read_registers(op); return true;
    case txn::op::RECORD_TIMER: record_timer(static_cast<uint32_t>(OD_FIELD(op, RECORD_TIMER, id))); return true;
    case txn::op::TIMER_134: return true;
    default:
      if (skips(op)) return true;
      unsupported(op, "operations with published semantics");
  }
}

void Simulator::record_timer(uint32_t id) {
  if (!charge_) return;
  report_.timers.emplace_back(id, array_.now - start_);
  if (options_.profile) array_.profile().mark(id, array_.now);
}

// The controller goes on after so many cycles.
void Simulator::schedule(uint64_t cycles, Part part) {
  if (options_.profile) array_.profile().schedule_controller({{part, cycles}});
  array_.events.push(array_.now + cycles, EventKind::kController, 0, 0);
}

void Simulator::unsupported(const Op& op, const std::string& accepted) const {
  SimulationError error(
      "unsupported", {"operation " + std::to_string(next_),
                      Transaction::name_of(op.code) + " (opcode " + std::to_string(op.code) + ")", accepted,
                      "Leave the operation out."});
  error.op = OpRef{static_cast<int64_t>(next_), op.offset};
  throw error;
}

void Simulator::execute_mask_write(const Op& op) {
  const uint64_t address = OD_FIELD(op, MASKWRITE, reg);
  const auto mask = static_cast<uint32_t>(OD_FIELD(op, MASKWRITE, mask));
  const auto value = static_cast<uint32_t>(OD_FIELD(op, MASKWRITE, value));
  array_.write(address, (array_.read(address) & ~mask) | (value & mask), array_.current_op);
}

bool Simulator::begin_poll(const Op& op) {
  poll_address_ = OD_FIELD(op, MASKPOLL, reg);
  poll_value_ = static_cast<uint32_t>(OD_FIELD(op, MASKPOLL, value));
  poll_mask_ = static_cast<uint32_t>(OD_FIELD(op, MASKPOLL, mask));
  poll_tile_ = array_.tile_of(poll_address_);
  if (array_.is_bd(poll_address_)) array_.executor().depends("a BD that it reads");
  array_.take_change(poll_tile_);
  if (poll()) return true;
  check_poll();
  if (charge_ && wait_for_timer()) return false;
  wait_ = Wait::kPoll;
  wait_since_ = array_.now;
  return false;
}

// Nothing tells that time has passed: a poll of a timer is made again when it must be true.
bool Simulator::wait_for_timer() {
  const uint64_t at = array_.timer_match(poll_address_, poll_mask_, poll_value_);
  if (at == 0) return false;
  schedule(at - array_.now, Part::kCommand);
  wait_since_ = array_.now;
  if (options_.trace) trace_wait(at);
  return true;
}

// Reads once: a lock request that is granted has been made.
bool Simulator::poll() { return (array_.read(poll_address_) & poll_mask_) == poll_value_; }

bool Simulator::begin_tokens(const Op& op) {
  tokens_seen_ = array_.tokens_arrived;
  wait_since_ = array_.now;
  if (op.code == txn::op::MERGE_SYNC) {
    merge_tokens_ = static_cast<uint32_t>(OD_FIELD(op, MERGE_SYNC, tokens));
    merge_columns_ = static_cast<uint32_t>(OD_FIELD(op, MERGE_SYNC, columns));
    if (take_merged_tokens()) return true;
    wait_ = Wait::kMerge;
    return false;
  }
  const auto word = static_cast<uint32_t>(OD_FIELD(op, TCT, word));
  const auto config = static_cast<uint32_t>(OD_FIELD(op, TCT, config));
  const auto column = static_cast<uint32_t>(reg::tct::column.get(word)),
             row = static_cast<uint32_t>(reg::tct::row.get(word));
  const auto columns = std::max<uint32_t>(1, static_cast<uint32_t>(reg::tct::columns.get(config)));
  const auto rows = std::max<uint32_t>(1, static_cast<uint32_t>(reg::tct::rows.get(config)));
  const auto number = static_cast<uint32_t>(reg::tct::channel.get(config));
  token_channels_.clear();
  for (uint32_t c = column; c < column + columns; ++c) {
    for (uint32_t r = row; r < row + rows; ++r) {
      Channel* channel = array_.find_channel(c, r, reg::tct::direction.get(word) != 0, number);
      if (channel == nullptr)
        throw SimulationError("address",
                              {"TCT",
                               tile_place(c, r) + " channel " + std::to_string(number),
                               "channels of the device", "Check column, row, their counts and the channel."});
      token_channels_.push_back(channel);
    }
  }
  if (take_tokens()) return true;
  const auto missing = std::find_if(token_channels_.begin(), token_channels_.end(), [](const Channel* c) { return c->tokens == 0; });
  awaited_ = *missing;
  wait_ = Wait::kTokens;
  return false;
}

bool Simulator::take_tokens() {
  if (std::any_of(token_channels_.begin(), token_channels_.end(),
                  [](const Channel* c) { return c->tokens == 0; }))
    return false;
  for (Channel* channel : token_channels_) --channel->tokens;
  return true;
}

bool Simulator::take_merged_tokens() {
  uint64_t found = 0;
  const auto counts = [this](const Channel& c) { return array_.tiles()[c.tile].column < merge_columns_; };
  for (const Channel& channel : array_.channels()) found += counts(channel) ? channel.tokens : 0;
  if (found < merge_tokens_) return false;
  uint32_t left = merge_tokens_;
  for (Channel& channel : array_.channels()) {
    if (!counts(channel)) continue;
    const uint32_t taken = std::min(left, channel.tokens);
    channel.tokens -= taken;
    left -= taken;
  }
  return true;
}

// Something happened: is the operation that waits served now?
void Simulator::retry() {
  if (wait_ == Wait::kPostponed) return retry_postponed();
  bool served = false;
  if (wait_ == Wait::kPoll) {
    served = array_.take_change(poll_tile_) && poll();
  } else if (tokens_seen_ != array_.tokens_arrived) {
    tokens_seen_ = array_.tokens_arrived;
    served = wait_ == Wait::kTokens ? take_tokens() : take_merged_tokens();
  }
  if (!served) return;
  if (options_.trace) trace_wait(array_.now);
  wait_ = Wait::kNone;
  schedule(cost_of(transaction_->ops()[next_]), Part::kCommand);
  ++next_;
  mark_effort();
}

void Simulator::execute_patch(const Op& op) {
  const uint64_t address = OD_FIELD(op, DDR_PATCH, reg);
  const uint64_t argument = OD_FIELD(op, DDR_PATCH, arg_index);
  const uint64_t offset = OD_FIELD(op, DDR_PATCH, arg_offset);
  const uint32_t tile = array_.tile_of(address);
  const uint32_t in_tile = static_cast<uint32_t>(address) & reg::OFFSET_MASK;
  if (array_.tiles()[tile].kind != TileKind::kShim || !reg::shim::DMA_BD.contains(in_tile) ||
      reg::shim::DMA_BD.byte(in_tile) != 4)
    throw SimulationError("address", {"DDR_PATCH", "address " + hex(address), "word 1 of a BD of a shim tile",
                                      "Patch 0x1D004 + 0x20 * BD of row 0."});
  const auto& regions = array_.regions();
  if (argument >= regions.size())
    throw SimulationError("ddr", {"DDR_PATCH", "kernel argument " + std::to_string(argument),
                                  counted(regions.size(), "argument") + " were given",
                                  "Pass the buffer to the kernel, or correct the index."});
  const DdrRegion& region = *regions[argument];
  if (offset % 4 != 0 || offset > region.bytes)
    throw SimulationError("ddr", {"DDR_PATCH of kernel argument " + std::to_string(argument),
                                  "offset " + std::to_string(offset),
                                  "a multiple of 4 within its " + counted(region.bytes, "byte"),
                                  "Check the arg map of the operator."});
  const uint64_t value = region.address + offset + txn::DDR_APERTURE;
  array_.write(address, static_cast<uint32_t>(value), array_.current_op);
  const uint32_t high = array_.read(address + 4);
  array_.write(address + 4, (high & 0xFFFF0000u) | static_cast<uint32_t>((value >> 32) & 0xFFFFu),
               array_.current_op);
}

void Simulator::execute_read_registers(const Op& op) {
  const uint64_t count = OD_FIELD(op, READ_REGS, count);
  const uint32_t room = (op.size - V0::READ_REGS::payload_at) / 8;
  if (count > room)
    throw TransactionError({"READ_REGS", counted(count, "address"),
                            "up to " + std::to_string(room) + ", as its size says", "Correct count or size."},
                           array_.current_op);
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t address = load64(transaction_->at(op) + V0::READ_REGS::payload_at + size_t{8} * i);
    if (array_.is_bd(address)) array_.executor().depends("a BD that it reads");  // arguments' addresses are in them
    report_.registers.emplace_back(address, array_.read(address));
  }
  extra_cost_ = count * array_.timing().read;
}

Array::Awaited Simulator::awaited() const {
  Array::Awaited awaited;
  if (wait_ == Wait::kPoll) awaited.polled = &poll_address_;
  if (wait_ != Wait::kTokens) return awaited;
  for (const Channel* channel : token_channels_)
    if (channel->tokens == 0) awaited.channels.push_back(channel);
  return awaited;
}

std::string Simulator::describe_poll() const {
  return "operation " + std::to_string(next_) + ", MASKPOLL, waits for " + array_.tile_name(poll_tile_) +
         " offset " + hex(poll_address_ & reg::OFFSET_MASK) + " & " + hex(poll_mask_) + " == " +
         hex(poll_value_);
}

std::string Simulator::describe_wait() const {
  const std::string op = "operation " + std::to_string(next_);
  if (wait_ == Wait::kPoll) return describe_poll();
  if (wait_ == Wait::kMerge)
    return op + ", MERGE_SYNC, waits for " + counted(merge_tokens_, "token") + " of " +
           counted(merge_columns_, "column");
  if (wait_ == Wait::kTokens) {
    std::string text = op + ", TCT, waits for a token of";
    for (const Channel* channel : token_channels_)
      if (channel->tokens == 0) text += " " + array_.channel_name(*channel) + ",";
    text.pop_back();
    return text;
  }
  return op + " of " + std::to_string(transaction_ != nullptr ? transaction_->ops().size() : 0);
}

void Simulator::check_finished() const {
  std::string open;
  for (const Channel& channel : array_.channels())
    if (!channel.mm2s && channel.running && array_.tiles()[channel.tile].kind == TileKind::kShim)
      open += (open.empty() ? "" : "; ") + array_.channel_name(channel) + " (queued by op " +
              std::to_string(channel.task.op.index) + ", " + counted(channel.words_left, "word") +
              " left)";
  if (open.empty()) return;
  throw SimulationError("data_loss", {"end of the transaction", "unfinished writes to host memory: " + open,
                                      "every shim S2MM task done before the last operation",
                                      "Wait for their tokens (TCT) or poll their status."});
}

// What is under way may end by itself, after the last operation and at no cost to the run. Then all
// is as a run must find it, or the run failed: what it left would make the next one fail.
void Simulator::check_at_rest() {
  const uint64_t start = array_.effort;
  while (!array_.events.empty() && array_.effort - start < options_.event_limit) array_.handle(array_.events.pop());
  const std::vector<std::string> left = array_.residue();
  if (left.empty()) return;
  constexpr size_t kLines = 64;  // more would hide the point
  std::string text = "left behind:";
  for (size_t i = 0; i < left.size() && i < kLines; ++i) text += "\n  " + left[i];
  if (left.size() > kLines) text += "\n  and " + std::to_string(left.size() - kLines) + " more";
  throw SimulationError(
      "unfinished", {"end of the transaction", text,
                     "a quiescent array: no task, open packet or running operator; locks as last set",
                     "Let BDs and tasks have the words and repeats that their streams carry, and give back "
                     "the locks that they take."});
}

}  // namespace onedispatch::sim
