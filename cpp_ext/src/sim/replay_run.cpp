// SPDX-License-Identifier: Apache-2.0
// The controller's part of a replay: kernel arguments without data, and the report.
#include "controller.h"

namespace onedispatch::sim {
namespace {

constexpr uint64_t kArguments = 16;
// Arguments lie so far apart that no descriptor reaches from one into the next.
constexpr uint64_t kSpacing = uint64_t{1} << 40;
// After the last operation: events (or 256 words each) until what still moves counts as endless.
constexpr uint64_t kSettleEffort = 200'000;

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

}  // namespace

ReplayReport Simulator::replay(const uint8_t* bytes, size_t size) {
  const Transaction transaction(bytes, size, array_.device());
  array_.reset();
  broken_ = true;  // a run after this one starts with its overlay
  const uint64_t events_before = array_.events.scheduled();
  begin_run(transaction, open_regions());
  ReplayReport result;
  uint64_t end = 0;
  try {
    array_.events.push(array_.now + array_.timing().launch, EventKind::kController, 0, 0);
    loop();
    result.finished = true;
    end = array_.now;
    settle();
  } catch (const SimulationError& error) {
    if (!result.finished) end = array_.now;
    result.stop_kind = error.kind;
    result.stop = error.complaint.text();
    result.stop_op = error.op.index < 0 ? ref() : error.op;
  }
  result.executed = next_;
  result.settled_cycles = array_.now - start_;
  finish_report(events_before);
  result.run = std::move(report_);
  result.run.cycles = end - start_;
  result.run.seconds = static_cast<double>(result.run.cycles) / array_.timing().array_hz;
  finish_replay(result);
  array_.set_regions({});
  transaction_ = nullptr;
  return result;
}

// Lets what is under way end.
void Simulator::settle() {
  const uint64_t limit = array_.effort + kSettleEffort;
  while (!array_.events.empty() && array_.effort < limit) array_.handle(array_.events.pop());
}

void Simulator::finish_replay(ReplayReport& report) const {
  report.handshakes = array_.answers;
  const DdrRegions& regions = array_.regions();
  for (uint32_t i = 0; i < regions.size(); ++i) {
    const DdrRegion& region = *regions[i];
    if (region.end == 0) continue;
    report.arguments.push_back(
        ArgumentReach{i, region.first, region.end, region.bytes_read, region.bytes_written});
  }
  for (const Tile& tile : array_.tiles()) {
    for (const auto& [bd, times] : tile.absent_bds)
      report.absent_bds.push_back(AbsentBd{tile.column, tile.row, bd, times});
    for (uint32_t id = 0; id < tile.locks.size(); ++id) {
      const Lock& lock = tile.locks[id];
      if (lock.assumed > 0)
        report.assumed.push_back(AssumedLock{tile.column, tile.row, id, lock.assumed, lock.set});
    }
  }
  for (const Channel& c : array_.channels()) {
    if (!c.running) continue;
    const Tile& tile = array_.tiles()[c.tile];
    const bool moving = c.state == ChannelState::kMoving || c.state == ChannelState::kDelay;
    report.unfinished.push_back(UnfinishedTask{tile.column, tile.row, c.mm2s, c.number, c.words_left, moving,
                                               array_.explain_channel(c)});
  }
}

}  // namespace onedispatch::sim
