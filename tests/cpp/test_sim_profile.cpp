// SPDX-License-Identifier: Apache-2.0
// Chains of causes: what they add up to between timer marks, and amounts over bins of time.
#include <gtest/gtest.h>

#include <numeric>

#include "sim/engine/profile.h"

namespace onedispatch::sim {
namespace {

uint64_t sum(const std::array<uint64_t, kParts>& parts) { return std::accumulate(parts.begin(), parts.end(), uint64_t{0}); }
uint64_t part(const ProfileWindow& window, Part which) { return window.parts[static_cast<size_t>(which)]; }

TEST(Profile, AChainHasWhatEachOfItsEventsTook) {
  Profile profile;
  profile.start(100, 2, 1, 1);
  profile.schedule_controller({{Part::kLaunch, 50}});
  profile.enter_controller(150);
  profile.prepare(0, {{Part::kTask, 4}, {Part::kLatency, 20}});
  profile.schedule_core(0, {{Part::kLock, 1}, {Part::kCompute, 400}});  // not what the end waits for
  Link link = profile.prepared(0);
  link.add({Part::kDdr, 10});
  profile.schedule_channel(0, link);
  profile.enter_channel(0, 184);
  profile.schedule_controller({{Part::kCommand, 6}});
  profile.enter_controller(190);
  profile.mark(7, 190);
  const ProfileReport report = profile.take();
  ASSERT_EQ(report.windows.size(), 1u);
  const ProfileWindow& window = report.windows[0];
  EXPECT_EQ(window.timer, 7u);
  EXPECT_EQ(window.cycles, 90u);
  EXPECT_EQ(sum(window.parts), 90u);
  EXPECT_EQ(part(window, Part::kLaunch), 50u);
  EXPECT_EQ(part(window, Part::kTask), 4u);
  EXPECT_EQ(part(window, Part::kLatency), 20u);
  EXPECT_EQ(part(window, Part::kDdr), 10u);
  EXPECT_EQ(part(window, Part::kCommand), 6u);
  EXPECT_EQ(part(window, Part::kCompute), 0u);
}

TEST(Profile, WhatBeganBeforeAMarkCountsFromThere) {
  Profile profile;
  profile.start(0, 1, 1, 1);
  profile.enter_controller(0);
  profile.schedule_core(0, {{Part::kLock, 10}, {Part::kCompute, 100}});
  profile.pass(Part::kCommand, 30);
  profile.mark(0, 30);
  profile.mark(1, 30);  // nothing in between
  profile.enter_core(0, 110);
  profile.schedule_controller({{Part::kCommand, 5}});
  profile.enter_controller(115);
  profile.end(115);
  const ProfileReport report = profile.take();
  ASSERT_EQ(report.windows.size(), 3u);
  EXPECT_EQ(report.windows[1].cycles, 0u);
  EXPECT_EQ(report.windows[2].timer, ProfileWindow::kEnd);
  EXPECT_EQ(part(report.windows[2], Part::kCompute), 80u);
  EXPECT_EQ(part(report.windows[2], Part::kLock), 0u);
  EXPECT_EQ(part(report.windows[2], Part::kCommand), 5u);
}

TEST(Profile, BinsKeepSumsHoweverLongARunIs) {
  Profile profile;
  profile.start(1000, 1, 1, 2);
  uint64_t busy = 0, bytes = 0;
  for (uint64_t at = 1000; at < 400'000; at += 997) {
    profile.compute(1, at, 333);
    profile.transfer(0, true, at, at + 5000, 4099);
    busy += 333;
    bytes += 4099;
  }
  profile.end(400'000);
  const ProfileReport report = profile.take();
  const auto total = [&](size_t column, size_t what) {
    const auto& bins = report.bins[column][what];
    return std::accumulate(bins.begin(), bins.end(), uint64_t{0});
  };
  EXPECT_EQ(total(1, 0), busy);
  EXPECT_EQ(total(0, 2), bytes);
  EXPECT_EQ(total(0, 0) + total(0, 1) + total(1, 1) + total(1, 2), 0u);
  EXPECT_EQ(report.windows.back().busy, busy);
  EXPECT_EQ(report.windows.back().written, bytes);
  EXPECT_GE(report.bin_cycles * report.bins[0][0].size(), 399'000u + 5000u);
  EXPECT_EQ(report.bin_cycles & (report.bin_cycles - 1), 0u);
}

}  // namespace
}  // namespace onedispatch::sim
