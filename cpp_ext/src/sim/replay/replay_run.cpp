// SPDX-License-Identifier: Apache-2.0
// The controller's part of a replay: kernel arguments without data, and the report.
#include <algorithm>
#include <array>

#include "sim/array/bytes.h"
#include "sim/control/controller.h"
#include "onedispatch/text.h"
#include "onedispatch/txn_format.h"

namespace onedispatch::sim {
namespace {

constexpr uint64_t kArguments = 16;
constexpr uint64_t kAddressMask = (uint64_t{1} << 48) - 1;
// Arguments lie so far apart that no descriptor reaches from one into the next.
constexpr uint64_t kSpacing = uint64_t{1} << 40;
// After the last operation: events (or 256 words each) without progress of any task that ends, until
// what still moves counts as endless.
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

ReplayReport Simulator::replay(const uint8_t* bytes, size_t size, const ControlPackets& packets) {
  const Transaction transaction(bytes, size, array_.device(), Transaction::Unnamed::kKeep);
  broken_ = true;  // a run after this one starts with its overlay
  if (packets.overlay.empty()) {
    array_.reset();
  } else {
    overlays_[0] = packets.overlay;
    load_overlay(0);
  }
  const uint64_t events_before = array_.events.scheduled();
  DdrRegions regions = open_regions();
  add_packets(regions, packets);
  begin_run(transaction, std::move(regions));
  packets_given_ = !packets.bytes.empty();
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
void Simulator::settle() {
  uint64_t mark = array_.effort, seen = array_.progress;
  const uint64_t end = effort_start_ + effort_of_replay();
  while (!array_.events.empty() && array_.effort - mark < kSettleEffort && array_.effort < end) {
    pace_();
    array_.handle(array_.events.pop());
    if (seen == array_.progress) continue;
    seen = array_.progress;
    mark = array_.effort;
  }
}

void Simulator::finish_replay(ReplayReport& report) const {
  report.packets = array_.packets;
  report.handshakes = array_.answers;
  report.assumed_tokens = array_.assumed_tokens;
  report.skipped.assign(skipped_.begin(), skipped_.end());
  report.arguments = reach_of(array_.regions());
  for (const Tile& tile : array_.tiles()) {
    for (const auto& [bd, times] : tile.absent_bds)
      report.absent_bds.push_back(AbsentBd{tile.column, tile.row, bd, times});
    for (uint32_t id = 0; id < tile.locks.size(); ++id) {
      const Lock& lock = tile.locks[id];
      if (lock.assumed > 0)
        report.assumed.push_back(AssumedLock{tile.column, tile.row, id, lock.assumed, lock.set});
    }
  }
  for (const auto& [c, why] : array_.explain_tasks()) {
    const Tile& tile = array_.tiles()[c->tile];
    const bool moving = c->state == ChannelState::kMoving || c->state == ChannelState::kDelay;
    report.unfinished.push_back(
        UnfinishedTask{tile.column, tile.row, c->mm2s, c->number, c->words_left, moving, why});
  }
}

}  // namespace onedispatch::sim
