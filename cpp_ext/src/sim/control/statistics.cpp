// SPDX-License-Identifier: Apache-2.0
// The report of a run: differences of counters, across reloads of the overlay.
#include "sim/control/controller.h"

#include <algorithm>

namespace onedispatch::sim {

uint64_t Simulator::locked(const Channel& c) const {
  return c.locked + (c.state == ChannelState::kAcquire ? array_.now - c.locked_since : 0);
}

void Simulator::begin_statistics() {
  const auto& channels = array_.channels();
  const auto& cores = array_.cores();
  channel_base_.assign(channels.size(), {});
  core_base_.assign(cores.size(), {});
  channel_sum_.resize(channels.size());
  core_sum_.resize(cores.size());
  if (next_ == 0) {
    channel_sum_.assign(channels.size(), {});
    core_sum_.assign(cores.size(), {});
  }
  for (size_t i = 0; i < channels.size(); ++i) {
    const Channel& c = channels[i];
    channel_base_[i] = {c.bytes, c.busy, c.active + (c.running ? array_.now - c.active_since : 0), 0, locked(c)};
  }
  for (size_t i = 0; i < cores.size(); ++i) core_base_[i] = {0, cores[i].busy, 0, cores[i].calls, cores[i].locked};
}

void Simulator::add_statistics() {
  const auto& channels = array_.channels();
  const auto& cores = array_.cores();
  if (channel_base_.size() != channels.size()) return;  // an overlay outside a run
  for (size_t i = 0; i < channels.size(); ++i) {
    const Channel& c = channels[i];
    Counters& sum = channel_sum_[i];
    sum.bytes += c.bytes - channel_base_[i].bytes;
    sum.busy += c.busy - channel_base_[i].busy;
    sum.locked += locked(c) - channel_base_[i].locked;
    sum.active += c.active + (c.running ? array_.now - c.active_since : 0) - channel_base_[i].active;
  }
  for (size_t i = 0; i < cores.size(); ++i) {
    core_sum_[i].busy += cores[i].busy - core_base_[i].busy;
    core_sum_[i].calls += cores[i].calls - core_base_[i].calls;
    core_sum_[i].locked += cores[i].locked - core_base_[i].locked;
  }
}

void Simulator::finish_report(uint64_t events_before, uint64_t end) {
  add_statistics();
  report_.cycles = end - start_;
  report_.seconds = static_cast<double>(report_.cycles) / array_.timing().array_hz;
  report_.operations = transaction_->ops().size();
  report_.events = array_.events.scheduled() - events_before;
  for (const auto& region : array_.regions()) {
    report_.ddr_burst_bytes += region->burst_bytes;
    report_.ddr_read.push_back(region->bytes_read);
    report_.ddr_written.push_back(region->bytes_written);
  }
  for (size_t i = 0; i < channel_sum_.size(); ++i) {
    const Counters& sum = channel_sum_[i];
    const Channel& c = array_.channels()[i];
    if (c.reply || (sum.bytes == 0 && sum.active == 0)) continue;
    const Tile& tile = array_.tiles()[c.tile];
    const uint64_t stall = sum.active > sum.busy ? sum.active - sum.busy : 0;
    report_.channels.push_back(
        ChannelReport{tile.column, tile.row, c.mm2s, c.number, sum.bytes, sum.busy, stall, std::min(stall, sum.locked), array_.overlay().is_open(c)});
  }
  for (size_t i = 0; i < core_sum_.size(); ++i) {
    const Counters& sum = core_sum_[i];
    report_.kernel_calls += sum.calls;
    if (sum.calls == 0) continue;
    const Tile& tile = array_.tiles()[array_.cores()[i].tile];
    report_.cores.push_back(CoreReport{tile.column, tile.row, sum.busy, sum.calls, sum.locked});
  }
  report_.calls_made = report_.kernel_calls;
  if (options_.trace) finish_trace();
  report_.profiled = options_.profile;
  report_.profile = array_.profile().take();
}

void Simulator::finish_trace() {
  array_.trace().finish();
  array_.end_spans();
  report_.traced = true;
  report_.calls = array_.trace().take_calls();
  for (TracedCall& call : report_.calls) call.start -= std::min(call.start, start_);
  report_.kernels = array_.trace().take_totals();
  report_.spans = array_.trace().take_spans();
}

// The controller has waited for what its operation says, until `end`.
void Simulator::trace_wait(uint64_t end) {
  const bool tokens = wait_ == Wait::kTokens || wait_ == Wait::kMerge;
  TracedPlace place;
  if (wait_ == Wait::kTokens) {
    const Tile& tile = array_.tiles()[awaited_->tile];
    place = {tile.column, tile.row, awaited_->mm2s, awaited_->number};
  } else if (!tokens) {
    place = {array_.tiles()[poll_tile_].column, array_.tiles()[poll_tile_].row};
  }
  array_.trace().add(tokens ? Traced::kToken : Traced::kPoll, place, wait_since_, end, 0, static_cast<uint32_t>(next_));
}

// Also of a run that fails: what its calls printed so far says why.
void Simulator::collect_prints() {
  array_.executor().settle();
  prints_.clear();
  for (size_t i = 0; i < array_.prints().size(); ++i) {
    const Tile& tile = array_.tiles()[array_.cores()[i].tile];
    for (PrintRing& ring : array_.prints()[i].take()) {
      if (ring.lines.empty() && ring.lost == 0) continue;
      int64_t since = -1;
      for (const auto& [id, cycle] : report_.timers)
        if (cycle < ring.cycle - std::min(ring.cycle, start_)) since = id;
      prints_.push_back(PrintReport{tile.column, tile.row, since, std::move(ring)});
    }
  }
}

}  // namespace onedispatch::sim
