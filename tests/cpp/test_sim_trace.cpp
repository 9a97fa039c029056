// SPDX-License-Identifier: Apache-2.0
// Spans of a trace: what DMA channels, device memory and the controller did, one after the other.
#include "test_sim_support.h"

namespace onedispatch::sim::testing {
namespace {

const TracedSpans& spans_of(const RunReport& report, Traced kind) { return report.spans[static_cast<size_t>(kind)]; }

Options traced(size_t kept, bool clock = false) {
  Options options = Rig::inline_options();
  options.trace = true;
  options.trace_calls = kept;
  options.clock = clock;
  return options;
}

// 600 words through the memory tile, whose channels hand them on by a lock; the controller waits for the token.
Builder relay() {
  Builder b;
  lay_feed_and_drain(b, 0);
  b.block(shim_bd_at(0), shim_bd({{bd::shim::length, 600}})).patch(0, 0, 0, 0);
  b.block(shim_bd_at(1), shim_bd({{bd::shim::length, 600}})).patch(0, 1, 1, 0);
  b.block(mem_bd_at(0), mem_bd(0x1000, 600, {{bd::mem::release_lock, 64}, {bd::mem::release_value, 1}}));
  b.block(mem_bd_at(24), mem_bd(0x1000, 600, {{bd::mem::acquire_enable, 1}, {bd::mem::acquire_lock, 64}, {bd::mem::acquire_value, -1}}));
  b.write(kMemOut, task(24)).write(kShimWrite, task(1, 1, true)).write(kMemIn, task(0)).write(kShimRead, task(0));
  b.token(0, 0, false, 0);
  return b;
}

TEST(Trace, SpansAddUpToTheReportOfChannels) {
  Rig rig(token_overlay(), "npu2_2col", traced(1000));
  rig.buffers[0]->count_up();
  for (int again = 0; again < 2; ++again) {  // the second run begins at another cycle
    const RunReport report = rig.run(relay());
    EXPECT_EQ(rig.buffers[1]->get(599), 1599u);
    ASSERT_EQ(report.channels.size(), 4u);
    uint64_t active = 0, locked = 0, bytes = 0;
    for (const ChannelReport& c : report.channels) {
      active += c.busy + c.stall;
      locked += c.lock;
      bytes += c.bytes;
    }
    EXPECT_EQ(spans_of(report, Traced::kTask).count, 4u);
    EXPECT_EQ(spans_of(report, Traced::kTask).cycles, active);
    EXPECT_GT(locked, 0u);
    EXPECT_EQ(spans_of(report, Traced::kLock).cycles, locked);
    uint64_t moved = 0;
    for (const TracedSpan& span : spans_of(report, Traced::kBd).kept) {
      moved += span.bytes;
      EXPECT_LE(span.start + span.cycles, report.cycles);
    }
    EXPECT_EQ(moved, bytes);
    const TracedSpans& lock = spans_of(report, Traced::kLock);
    ASSERT_EQ(lock.kept.size(), 1u);
    EXPECT_TRUE(lock.kept[0].place.mm2s && lock.kept[0].place.row == 1 && lock.kept[0].place.channel == 5);
  }
}

TEST(Trace, TheControllerWaitsForTheChannelWhoseTokenIsMissing) {
  Rig rig(token_overlay(), "npu2_2col", traced(1000));
  rig.buffers[0]->count_up();
  const RunReport report = rig.run(relay());
  const TracedSpans& waits = spans_of(report, Traced::kToken);
  ASSERT_EQ(waits.kept.size(), 1u);
  EXPECT_EQ(waits.kept[0].place.row, 0u);
  EXPECT_FALSE(waits.kept[0].place.mm2s);
  EXPECT_EQ(waits.kept[0].detail, report.operations - 1);
  EXPECT_LE(waits.kept[0].start + waits.kept[0].cycles, report.cycles);
  EXPECT_GT(waits.cycles, 600u);  // the words pass twice, one after the other
  EXPECT_EQ(spans_of(report, Traced::kPoll).count, 0u);
}

TEST(Trace, DeviceMemoryServesOneRequestAfterTheOther) {
  Rig rig(token_overlay(), "npu2_2col", traced(1000));
  rig.buffers[0]->count_up();
  const RunReport report = rig.run(relay());
  uint64_t bytes = 0, end = 0;
  for (const TracedSpan& span : spans_of(report, Traced::kRequest).kept) {
    EXPECT_GE(span.start, end);
    end = span.start + span.cycles;
    bytes += span.bytes;
  }
  EXPECT_EQ(bytes, report.ddr_burst_bytes);
}

TEST(Trace, WhatIsNotKeptIsCounted) {
  Rig all(token_overlay(), "npu2_2col", traced(1000)), few(token_overlay(), "npu2_2col", traced(1));
  for (Rig* rig : {&all, &few}) rig->buffers[0]->count_up();
  const RunReport whole = all.run(relay()), cut = few.run(relay());
  for (size_t kind = 0; kind < kTracedKinds; ++kind) {
    EXPECT_EQ(cut.spans[kind].count, whole.spans[kind].count) << kTracedNames[kind];
    EXPECT_EQ(cut.spans[kind].cycles, whole.spans[kind].cycles) << kTracedNames[kind];
    EXPECT_EQ(cut.spans[kind].kept.size(), std::min<size_t>(1, whole.spans[kind].kept.size()));
  }
}

TEST(Trace, AClockTracesTheSame) {
  Rig rig(token_overlay(), "npu2_2col", traced(1000));
  rig.buffers[0]->count_up();
  const RunReport run = rig.run(relay());
  ASSERT_TRUE(rig.clocks[0]->report());
  const RunReport& timed = *rig.clocks[0]->report();
  for (size_t kind = 0; kind < kTracedKinds; ++kind) {
    ASSERT_EQ(timed.spans[kind].kept.size(), run.spans[kind].kept.size()) << kTracedNames[kind];
    for (size_t i = 0; i < run.spans[kind].kept.size(); ++i) {
      EXPECT_EQ(timed.spans[kind].kept[i].start, run.spans[kind].kept[i].start);
      EXPECT_EQ(timed.spans[kind].kept[i].cycles, run.spans[kind].kept[i].cycles);
    }
  }
}

TEST(Trace, APollIsAWaitToo) {
  Rig rig(token_overlay(), "npu2_2col", traced(1000));
  rig.buffers[0]->count_up();
  Builder b = relay();
  b.poll(tile_address(0, 1, reg::mem::DMA_MM2S_STATUS.at(5)), 0, kIdleMask);
  Builder polled;
  lay_feed_and_drain(polled, 0);
  polled.block(shim_bd_at(0), shim_bd({{bd::shim::length, 600}})).patch(0, 0, 0, 0);
  polled.block(mem_bd_at(0), mem_bd(0x1000, 600));
  polled.write(kMemIn, task(0)).write(kShimRead, task(0));
  polled.poll(tile_address(0, 1, reg::mem::DMA_S2MM_STATUS.at(0)), 0, kIdleMask);
  EXPECT_EQ(spans_of(rig.run(b), Traced::kPoll).count, 0u);  // true at once
  const RunReport report = rig.run(polled);
  ASSERT_EQ(spans_of(report, Traced::kPoll).kept.size(), 1u);
  const TracedSpan& wait = spans_of(report, Traced::kPoll).kept[0];
  EXPECT_EQ(wait.place.row, 1u);
  EXPECT_EQ(wait.place.channel, TracedPlace::kTile);
  EXPECT_GT(wait.cycles, 500u);
}

TEST(Trace, ARunWithoutOneHasNone) {
  Rig rig;
  rig.buffers[0]->count_up();
  const RunReport report = rig.run(relay());
  EXPECT_FALSE(report.traced);
  for (const TracedSpans& spans : report.spans) EXPECT_EQ(spans.count, 0u);
}

}  // namespace
}  // namespace onedispatch::sim::testing
