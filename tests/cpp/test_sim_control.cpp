// SPDX-License-Identifier: Apache-2.0
// The controller: polls, lock requests, tokens, overlays, deadlocks, and malformed transactions.
#include <chrono>
#include <random>
#include <thread>

#include "test_sim_support.h"

namespace onedispatch::sim::testing {
namespace {

uint64_t lock_request(uint32_t lock, int32_t value, bool acquire) {
  return tile_address(0, 1, reg::mem::LOCK_REQUEST.at(lock) + (acquire ? 0x200u : 0u) + ((static_cast<uint32_t>(value) & 0x7F) << 2));
}
const uint64_t kLock5 = tile_address(0, 1, reg::mem::LOCK_VALUE.at(5));
const uint64_t kMemIn = tile_address(0, 1, reg::mem::DMA_S2MM_QUEUE.at(0));
uint64_t mem_bd_at(uint32_t bd) { return tile_address(0, 1, reg::mem::DMA_BD.at(bd)); }

TEST(Controller, LockRequestsByReading) {
  Rig rig;
  Builder b;
  b.write(kLock5, 3).poll(lock_request(5, -2, true), 1, 1).poll(lock_request(5, 7, false), 1, 1);
  rig.run(b);
  EXPECT_EQ(rig.simulator.array().read(kLock5), 8u);
}

TEST(Controller, APollThatWaitsSucceedsExactlyOnce) {
  Rig rig;
  Builder b;
  // A BD without data gives the lock 3 later; the poll takes 1 of it, once.
  b.block(mem_bd_at(0), mem_bd(0, 0, {{bd::mem::release_lock, 69}, {bd::mem::release_value, 3}}));
  b.write(kMemIn, task(0)).poll(lock_request(5, -1, true), 1, 1).timer(9);
  const RunReport report = rig.run(b);
  EXPECT_EQ(rig.simulator.array().read(kLock5), 2u);
  ASSERT_EQ(report.timers.size(), 1u);
  EXPECT_EQ(report.timers[0].first, 9u);
}

TEST(Controller, EqualityAcquireWaitsForTheValue) {
  Rig rig;
  Builder b;
  b.block(mem_bd_at(0), mem_bd(0, 0, {{bd::mem::release_lock, 69}, {bd::mem::release_value, 1}}));
  b.write(kMemIn, task(0, 3)).poll(lock_request(5, 3, true), 1, 1);
  rig.run(b);
  EXPECT_EQ(rig.simulator.array().read(kLock5), 0u);
}

TEST(Controller, MergeSyncCountsTokens) {
  Rig rig;
  Builder b;
  b.block(mem_bd_at(0), mem_bd(0, 0));
  for (int i = 0; i < 3; ++i) b.write(kMemIn, task(0, 1, true));
  rig.run(b.merge_sync(3, 1));
  Builder more;
  more.block(mem_bd_at(0), mem_bd(0, 0)).write(kMemIn, task(0, 1, true)).merge_sync(2, 1);
  EXPECT_EQ(rig.error(more).kind, "deadlock");
}

TEST(Controller, DeadlockSaysWhoWaitsForWhat) {
  Rig rig;
  Builder b;
  b.block(mem_bd_at(0), mem_bd(0, 16, {{bd::mem::acquire_enable, 1}, {bd::mem::acquire_lock, 70}, {bd::mem::acquire_value, -2},
                                       {bd::mem::use_next, 1}, {bd::mem::next_bd, 0}}));
  b.write(kMemIn, task(0)).token(0, 1, false, 0);
  const SimulationError error = rig.error(b);
  EXPECT_EQ(error.kind, "deadlock");
  EXPECT_EQ(error.op.index, 2);
  const std::string text = error.what();
  for (const char* part : {"operation 2, TCT", "mem tile column 0 row 1 S2MM0", "waits for lock 6", "value 0, wanted >= 2",
                           "written by op 0", "queued by op 1", "loops for ever"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
}

TEST(Controller, LivelockEndsSoon) {
  Options options = Rig::inline_options();
  options.event_limit = 20'000'000;
  Rig rig({}, "npu2_2col", options);
  Builder b;
  b.block(mem_bd_at(0), mem_bd(0, 0, {{bd::mem::use_next, 1}, {bd::mem::next_bd, 0}}));
  b.write(kMemIn, task(0)).poll(kLock5, 1, 1);
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(rig.error(b).kind, "livelock");
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(30));
}

TEST(Controller, OverlaysAreLoadedAndReloaded) {
  Overlays overlays;
  overlays[0] = Builder().write(kLock5, 7).bytes();
  overlays[2] = Builder().write(kLock5, 9).bytes();
  Rig rig(overlays);
  EXPECT_EQ(rig.simulator.array().read(kLock5), 7u);
  Builder b;
  b.timer(0).load_pdi(2).timer(1);
  const RunReport report = rig.run(b);
  EXPECT_EQ(rig.simulator.array().read(kLock5), 9u);
  EXPECT_GT(report.timers[1].second - report.timers[0].second, 8'000'000u);  // 4.9 ms at 1.8 GHz
  Builder missing;
  EXPECT_EQ(rig.error(missing.load_pdi(1)).kind, "pdi");
  rig.run(Builder().timer(0));
  EXPECT_EQ(rig.simulator.array().read(kLock5), 7u);  // broken before, so overlay 0 again
}

TEST(Controller, ACoreWithoutProgramIsAnError) {
  Rig rig;
  Builder b;
  b.write(tile_address(0, 2, reg::core::CORE_CONTROL.offset), 1);
  EXPECT_EQ(rig.error(b).kind, "core");
}

TEST(Controller, AddressesOutsideAndUnknownRegisters) {
  const auto kind = [](uint64_t address) { return Rig().error(Builder().write(address, 0)).kind; };
  EXPECT_EQ(kind(tile_address(2, 1, 0)), "address");
  EXPECT_EQ(kind(tile_address(0, 6, 0)), "address");
  EXPECT_EQ(kind(tile_address(0, 0, 0x0)), "register");
  EXPECT_EQ(kind(tile_address(0, 2, 0x1D019)), "register");
  EXPECT_EQ(kind(tile_address(0, 2, 0x1D018)), "register");  // a core BD has 6 words
  EXPECT_EQ(kind(tile_address(0, 1, reg::mem::DMA_S2MM_STATUS.at(0))), "register");
}

TEST(Controller, PatchesAreChecked) {
  const auto kind = [](Builder b) { return Rig().error(b).kind; };
  EXPECT_EQ(kind(Builder().patch(0, 0, 7, 0)), "ddr");
  EXPECT_EQ(kind(Builder().patch(0, 0, 0, 2)), "ddr");
  EXPECT_EQ(kind(Builder().patch(0, 0, 0, uint64_t{1} << 40)), "ddr");
  EXPECT_EQ(kind(Builder().words({129, 48, 0, 0, 0, 0, 0x1D008, 0, 0, 0, 0, 0})), "address");
}

TEST(Transactions, MalformedOnesAreRefused) {
  Rig rig;
  const auto refused = [&](std::vector<uint8_t> bytes) {
    EXPECT_THROW(rig.simulator.run(bytes.data(), bytes.size(), {}), TransactionError);
  };
  const std::vector<uint8_t> good = Builder().timer(1).write(kLock5, 1).bytes();
  for (size_t size = 0; size < good.size(); ++size) refused({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)});
  for (const auto& [at, value] : {std::pair<size_t, uint8_t>{0, 9}, {2, 3}, {4, 0}, {4, 9}, {8, 7}, {12, 17}, {16, 2}, {16, 14}, {16, 250}, {20, 3}, {28 + 20, 9}}) {
    std::vector<uint8_t> bad = good;
    bad[at] = value;
    refused(bad);
  }
  EXPECT_FALSE(rig.simulator.broken());
}

TEST(Transactions, EmptyOneRuns) { EXPECT_EQ(Rig().run(Builder()).operations, 0u); }

// Whatever the bytes are, a run ends with a result or with one of our errors.
class Hostile : public ::testing::TestWithParam<int> {};

TEST_P(Hostile, RandomRegisterWritesEnd) {
  std::mt19937 random(static_cast<uint32_t>(GetParam()));
  const std::vector<uint32_t> places = {0x1D000, 0x1D004, 0x1D01C, 0x1D200, 0x1D204, 0x1D20C, 0x1D214, 0x14000, 0x40200, 0x1F000, 0x3F000,
                                        0x3F100, 0x3F200, 0xA0000, 0xA0300, 0xA0600, 0xA0604, 0xA0634, 0xA06E0, 0xB0000, 0xB0100, 0xB0200,
                                        0xC0000, 0xD0000, 0x1DE00, 0x1DE04, 0x1DE14, 0x32000, 0x20000, 0x0, 0x200, 0x16010};
  for (int round = 0; round < 40; ++round) {
    Options options = Rig::inline_options();
    options.event_limit = 2000;
    Rig rig({}, "npu2_2col", options);
    rig.buffers[0]->count_up();
    Builder b(false, 2);
    for (uint32_t column = 0; column < 2; ++column) lay_feed_and_drain(b, column);
    for (int i = 0; i < 60; ++i) {
      const uint64_t address = tile_address(random() % 2, random() % 6, (places[random() % places.size()] + 4 * (random() % 64)) & 0xFFFFC);
      std::vector<uint32_t> data(1 + random() % 9);
      for (uint32_t& word : data) word = random() % 3 == 0 ? random() : (random() & random() & random()) | (random() % 2 << 31);
      if (random() % 4 == 0) {
        b.write(address, data[0]);
      } else if (random() % 12 == 0) {
        b.mask_write(address, data[0], random());
      } else {
        b.block(address, data);
      }
      if (random() % 20 == 0) b.patch(random() % 2, random() % 16, random() % 3, random() % 1000 * 4);
    }
    for (int attempt = 0; attempt < 2; ++attempt) {
      try {
        rig.run(b);
      } catch (const SimulationError&) {
      } catch (const TransactionError&) {
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, Hostile, ::testing::Range(0, 25));

TEST(Contexts, TwoThreadsDoNotDisturbEachOther) {
  const auto work = [](uint32_t first, uint64_t* cycles) {
    Rig rig;
    rig.buffers[0]->count_up(first);
    for (int i = 0; i < 20; ++i) {
      Builder b;
      lay_feed_and_drain(b, 0);
      b.block(tile_address(0, 0, reg::shim::DMA_BD.at(0)), shim_bd({{bd::shim::length, 3000}})).patch(0, 0, 0, 0);
      b.block(tile_address(0, 1, reg::mem::DMA_BD.at(0)), mem_bd(0, 3000)).write(kMemIn, task(0, 1, true));
      b.write(tile_address(0, 0, reg::shim::DMA_MM2S_QUEUE.at(0)), task(0)).token(0, 1, false, 0);
      *cycles = rig.run(b).cycles;
      ASSERT_EQ(rig.peek(0, 1, 2999 * 4), first + 2999);
    }
  };
  uint64_t a = 0, b = 1;
  std::thread one(work, 10, &a), two(work, 20, &b);
  one.join();
  two.join();
  EXPECT_EQ(a, b);
}

}  // namespace
}  // namespace onedispatch::sim::testing
