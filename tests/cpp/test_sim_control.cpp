// SPDX-License-Identifier: Apache-2.0
// The controller: polls, lock requests, tokens, overlays, deadlocks, and malformed transactions.
#include <map>
#include <random>

#include "test_sim_support.h"

namespace onedispatch::sim::testing {
namespace {

uint64_t lock_request(uint32_t lock, int32_t value, bool acquire) {
  return tile_address(0, 1,
                      reg::mem::LOCK_REQUEST.at(lock) + (acquire ? 0x200u : 0u) +
                          ((static_cast<uint32_t>(value) & 0x7F) << 2));
}
const uint64_t kLock5 = tile_address(0, 1, reg::mem::LOCK_VALUE.at(5));

TEST(Controller, LockRequestsByReading) {
  Rig rig;
  Builder b;
  b.write(kLock5, 3).poll(lock_request(5, -2, true), 1, 1).poll(lock_request(5, 7, false), 1, 1);
  b.poll(kLock5, 8, ~0u).write(kLock5, 0);
  rig.run(b);
}

TEST(Controller, APollThatWaitsSucceedsExactlyOnce) {
  Rig rig;
  Builder b;
  // A BD without data gives the lock 3 later; the poll takes 1 of it, once.
  b.block(mem_bd_at(0), mem_bd(0, 0, {{bd::mem::release_lock, 69}, {bd::mem::release_value, 3}}));
  b.write(kMemIn, task(0)).poll(lock_request(5, -1, true), 1, 1).timer(9);
  b.poll(kLock5, 2, ~0u).write(kLock5, 0);
  const RunReport report = rig.run(b);
  ASSERT_EQ(report.timers.size(), 1u);
  EXPECT_EQ(report.timers[0].first, 9u);
}

TEST(Controller, EqualityAcquireWaitsForTheValue) {
  Rig rig;
  Builder b;
  b.block(mem_bd_at(0), mem_bd(0, 0, {{bd::mem::release_lock, 69}, {bd::mem::release_value, 1}}));
  b.write(kMemIn, task(0, 3)).poll(lock_request(5, 3, true), 1, 1);
  b.poll(kLock5, 3, ~0u).write(kLock5, 0);  // it takes nothing
  rig.run(b);
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
  b.block(mem_bd_at(0), mem_bd(0, 16,
                               {{bd::mem::acquire_enable, 1},
                                {bd::mem::acquire_lock, 70},
                                {bd::mem::acquire_value, -2},
                                {bd::mem::use_next, 1},
                                {bd::mem::next_bd, 0}}));
  b.write(kMemIn, task(0)).token(0, 1, false, 0);
  const SimulationError error = rig.error(b);
  EXPECT_EQ(error.kind, "deadlock");
  EXPECT_EQ(error.op.index, 2);
  const std::string text = error.what();
  for (const char* part : {"operation 2, TCT", "mem tile c0 r1 S2MM0", "waits for lock 6",
                           "value 0, wanted >= 2", "written by op 0", "queued by op 1", "loops for ever"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
}

TEST(Controller, LivelockEndsSoon) {
  Options options = Rig::inline_options();
  options.event_limit = 200'000;
  Rig rig({}, "npu2_2col", options);
  Builder b;
  b.block(mem_bd_at(0), mem_bd(0, 0, {{bd::mem::use_next, 1}, {bd::mem::next_bd, 0}}));
  b.write(kMemIn, task(0)).poll(kLock5, 1, 1);
  EXPECT_EQ(rig.error(b).kind, "livelock");
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
  for (size_t size = 0; size < good.size(); ++size)
    refused({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)});
  for (const auto& [at, value] : {std::pair<size_t, uint8_t>{0, 9},
                                  {2, 3},
                                  {4, 0},
                                  {4, 9},
                                  {8, 7},
                                  {12, 17},
                                  {16, 2},
                                  {16, 14},
                                  {16, 250},
                                  {20, 3},
                                  {28 + 20, 9}}) {
    std::vector<uint8_t> bad = good;
    bad[at] = value;
    refused(bad);
  }
  EXPECT_FALSE(rig.simulator.broken());
}

TEST(Transactions, EmptyOneRuns) { EXPECT_EQ(Rig().run(Builder()).operations, 0u); }

// Whatever the transaction says, a run ends with a result or with one of our errors.
class HostileTransactions : public ::testing::TestWithParam<int> {
 protected:
  uint32_t pick(uint32_t below) { return static_cast<uint32_t>(random_() % below); }

  template <size_t N, typename Named>
  uint32_t register_of(const Named (&blocks)[N]) {
    const Block& block = blocks[pick(N)].block;
    const uint32_t bytes = std::min(block.size, 0x40u);
    return block.at(pick(std::min(block.count, 6u))) + 4 * pick(std::max(1u, bytes / 4));
  }
  uint64_t address() {
    const uint32_t row = pick(6);
    const uint32_t offset = row == 0   ? register_of(reg::shim::kBlocks)
                            : row == 1 ? register_of(reg::mem::kBlocks)
                                       : register_of(reg::core::kBlocks);
    return tile_address(pick(2), row, offset);
  }
  uint32_t word() {
    return pick(3) == 0 ? static_cast<uint32_t>(random_())
                        : static_cast<uint32_t>(random_() & random_() & random_()) | pick(2) << 31;
  }
  // A descriptor that is mostly sound, so that runs get somewhere.
  void descriptor(Builder& b) {
    const uint32_t column = pick(2), bd = pick(4);
    const int64_t length = pick(200);
    if (pick(2) == 0) {
      b.block(tile_address(column, 0, reg::shim::DMA_BD.at(bd)),
              shim_bd({{bd::shim::length, length},
                       {bd::shim::d0_wrap, pick(5)},
                       {bd::shim::d0_step, 1 + pick(3)},
                       {bd::shim::d1_step, 1 + pick(90)},
                       {bd::shim::use_next, pick(3) == 0},
                       {bd::shim::next_bd, pick(4)},
                       {bd::shim::iteration_wrap, 1 + pick(3)},
                       {bd::shim::iteration_step, 1 + pick(9)},
                       {bd::shim::enable_packet, pick(8) == 0}}));
      b.patch(column, bd, pick(8) == 0 ? 1 : 0, pick(1000) * 4);
      b.write(tile_address(column, 0,
                           pick(3) == 0 ? reg::shim::DMA_S2MM_QUEUE.at(0) : reg::shim::DMA_MM2S_QUEUE.at(0)),
              task(bd, 1 + pick(4), true));
      return;
    }
    const bool out = pick(3) == 0;
    const uint32_t id = bd + (out ? 24 : 0);
    b.block(tile_address(column, 1, reg::mem::DMA_BD.at(id)),
            mem_bd(pick(0x2000) * 4, static_cast<uint32_t>(length),
                   {{bd::mem::d0_wrap, pick(6)},
                    {bd::mem::d0_step, 1 + pick(9)},
                    {bd::mem::d1_wrap, pick(4)},
                    {bd::mem::d0_zeros_before, pick(9) == 0},
                    {bd::mem::acquire_enable, pick(4) == 0},
                    {bd::mem::acquire_lock, 64 + pick(3)},
                    {bd::mem::acquire_value, static_cast<int64_t>(pick(3)) - 2},
                    {bd::mem::release_lock, 64 + pick(3)},
                    {bd::mem::release_value, pick(3)},
                    {bd::mem::use_next, pick(3) == 0},
                    {bd::mem::next_bd, pick(4) + (out ? 24 : 0)}}));
    b.write(tile_address(column, 1, out ? reg::mem::DMA_MM2S_QUEUE.at(5) : reg::mem::DMA_S2MM_QUEUE.at(0)),
            task(id, 1 + pick(4), true));
  }
  Builder transaction() {
    Builder b(pick(2) == 0, 2);
    for (uint32_t column = 0; column < 2; ++column) {
      lay_feed_and_drain(b, column);
      b.block(tile_address(column, 1, 0), std::vector<uint32_t>(0x2400, 5));
      for (uint32_t bd = 0; bd < 4; ++bd) {
        b.block(tile_address(column, 0, reg::shim::DMA_BD.at(bd)), shim_bd({{bd::shim::length, pick(100)}}))
            .patch(column, bd, 0, 0);
        for (const uint32_t id : {bd, bd + 24})
          b.block(tile_address(column, 1, reg::mem::DMA_BD.at(id)), mem_bd(0, pick(100)));
      }
    }
    const uint32_t wild = pick(4);
    for (uint32_t i = 1 + pick(10); i > 0; --i) {
      descriptor(b);
      if (pick(30) < wild) b.write(address(), word());
      if (pick(60) < wild) b.block(address(), {word(), word(), word()});
      if (pick(90) < wild) b.mask_write(address(), word(), word());
      if (pick(30) == 0) b.poll(address(), word(), pick(2));
      if (pick(20) == 0) b.token(pick(2), pick(2), pick(2) != 0, pick(2));
      if (pick(60) == 0) b.merge_sync(pick(4), pick(3));
    }
    return b;
  }

 private:
  std::mt19937 random_{static_cast<uint32_t>(GetParam())};
};

TEST_P(HostileTransactions, End) {
  std::map<std::string, int> kinds;
  for (int round = 0; round < sampled(60); ++round) {
    Options options = Rig::inline_options();
    options.event_limit = 2000;
    Rig rig({}, "npu2_2col", options);
    rig.buffers[0]->count_up();
    for (int attempt = 0; attempt < 2; ++attempt) {
      try {
        rig.run(transaction());
        ++kinds["completed"];
      } catch (const SimulationError& error) {
        ++kinds[error.kind];
        EXPECT_FALSE(error.complaint.where.empty());
      }
    }
  }
  EXPECT_GE(kinds.size(), 3u);  // the cases are not all of one sort
  for (const auto& [kind, count] : kinds) RecordProperty(kind, count);
}

INSTANTIATE_TEST_SUITE_P(Seeds, HostileTransactions, ::testing::Range(0, 25));

// One damaged byte in a sound transaction.
TEST(Transactions, EveryDamagedByteEndsWell) {
  Builder b;
  lay_feed_and_drain(b, 0);
  b.block(tile_address(0, 0, reg::shim::DMA_BD.at(0)), shim_bd({{bd::shim::length, 30}})).patch(0, 0, 0, 0);
  b.block(tile_address(0, 1, reg::mem::DMA_BD.at(0)), mem_bd(0, 30)).write(kMemIn, task(0, 1, true));
  b.write(tile_address(0, 0, reg::shim::DMA_MM2S_QUEUE.at(0)), task(0)).token(0, 1, false, 0);
  const std::vector<uint8_t> good = b.bytes();
  Options options = Rig::inline_options();
  options.event_limit = 2000;
  Rig rig(token_overlay(), "npu2_2col", options);
  rig.buffers[0]->count_up();
  int completed = 0;
  for (size_t at = 0; at < good.size(); ++at) {
    for (const uint8_t change : {0x01, 0x80, 0xFF}) {
      std::vector<uint8_t> bad = good;
      bad[at] = static_cast<uint8_t>(bad[at] ^ change);
      try {
        rig.simulator.run(bad.data(), bad.size(), {rig.buffers[0]->region, rig.buffers[1]->region});
        ++completed;
      } catch (const SimulationError&) {
      } catch (const TransactionError&) {
      }
    }
  }
  EXPECT_GT(completed, 0);
}

// A MASKWRITE reads and writes; so a read takes what it takes beyond a WRITE.
TEST(Controller, EveryRegisterReadTakesTime) {
  const auto cycles = [](const Builder& b) { return Rig().run(b).cycles; };
  const uint64_t written = cycles(Builder().write(kLock5, 0));
  const uint64_t masked = cycles(Builder().mask_write(kLock5, 0, 1));
  EXPECT_GT(masked, written);
  EXPECT_EQ(cycles(Builder().read_register(kLock5, 1000)) - cycles(Builder().read_register(kLock5, 1)),
            999 * (masked - written));
}

}  // namespace
}  // namespace onedispatch::sim::testing
