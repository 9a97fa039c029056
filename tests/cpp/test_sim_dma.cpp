// SPDX-License-Identifier: Apache-2.0
// Tasks, chains, locks, iteration and the errors of DMA channels, through whole transactions.
#include "test_sim_support.h"

namespace onedispatch::sim::testing {
namespace {

// Routes, and a shim BD that reads `words` words of argument 0.
Builder feed(uint32_t words, bool v1 = false, BdList more = {}) {
  Builder b(v1);
  lay_feed_and_drain(b, 0);
  more.emplace_back(bd::shim::length, words);
  b.block(shim_bd_at(0), shim_bd(more)).patch(0, 0, 0, 0);
  return b;
}

// Argument 0 -> memory tile -> argument 1, words 0..words.
Builder round_trip(uint32_t words, bool v1 = false) {
  Builder b = feed(words, v1);
  const BdList take = {
      {bd::mem::acquire_enable, 1}, {bd::mem::acquire_lock, 65}, {bd::mem::acquire_value, -1}};
  b.block(mem_bd_at(0), mem_bd(0x100, words, {{bd::mem::release_lock, 65}, {bd::mem::release_value, 1}}));
  b.block(mem_bd_at(24), mem_bd(0x100, words, take));
  b.block(shim_bd_at(1), shim_bd({{bd::shim::length, words}})).patch(0, 1, 1, 0);
  b.write(kMemOut, task(24))
      .write(kMemIn, task(0))
      .write(kShimWrite, task(1, 1, true))
      .write(kShimRead, task(0));
  return b.token(0, 0, false, 0);
}

TEST(Dma, RoundTripInBothVersions) {
  for (const bool v1 : {false, true}) {
    Rig rig;
    rig.buffers[0]->count_up();
    const RunReport report = rig.run(round_trip(5000, v1));
    for (uint32_t i = 0; i < 5000; ++i) ASSERT_EQ(rig.buffers[1]->get(i), 1000 + i);
    EXPECT_EQ(report.ddr_read, (std::vector<uint64_t>{20000, 0}));
    EXPECT_EQ(report.ddr_written, (std::vector<uint64_t>{0, 20000}));
    EXPECT_GT(report.cycles, 10000u);
    EXPECT_EQ(report.channels.size(), 4u);
  }
}

TEST(Dma, SameCyclesEachTime) {
  Rig a, b;
  a.buffers[0]->count_up();
  b.buffers[0]->count_up();
  EXPECT_EQ(a.run(round_trip(5000)).cycles, b.run(round_trip(5000)).cycles);
}

TEST(Dma, OneLongBdFillsAChainOfShortOnes) {
  Rig rig;
  rig.buffers[0]->count_up();
  Builder b = feed(96);
  b.block(mem_bd_at(0), mem_bd(0x000, 32, {{bd::mem::use_next, 1}, {bd::mem::next_bd, 1}}));
  b.block(mem_bd_at(1), mem_bd(0x800, 16));
  b.write(kMemIn, task(0, 2, true)).write(kShimRead, task(0)).token(0, 1, false, 0);
  rig.run(b);
  EXPECT_EQ(rig.peek(0, 1, 0), 1048u);  // the second round overwrote the first
  EXPECT_EQ(rig.peek(0, 1, 0x800), 1080u);
  EXPECT_EQ(rig.peek(0, 1, 0x83C), 1095u);
}

TEST(Dma, IterationMovesTheBaseAndStaysInTheRegister) {
  Rig rig;
  rig.buffers[0]->count_up();
  Builder b = feed(8, false, {{bd::shim::iteration_step, 100}, {bd::shim::iteration_wrap, 3}});
  b.block(mem_bd_at(0), mem_bd(0, 8, {{bd::mem::iteration_step, 8}, {bd::mem::iteration_wrap, 64}}));
  b.write(kMemIn, task(0, 4, true)).write(kShimRead, task(0, 4)).token(0, 1, false, 0);
  rig.run(b);
  for (const auto& [slot, first] : {std::pair<uint32_t, uint32_t>{0, 1000}, {1, 1100}, {2, 1200}, {3, 1000}})
    EXPECT_EQ(rig.peek(0, 1, slot * 32), first);
  const uint32_t word = rig.peek(0, 1, reg::mem::DMA_BD.at(0) + 4 * bd::mem::iteration_current.word);
  EXPECT_EQ(bd::mem::iteration_current.get(word), 4);
}

TEST(Dma, ABdIsReadWhenItIsLoadedAndAnewWhenItWasWritten) {
  const BdList gives = {{bd::mem::release_lock, 65}, {bd::mem::release_value, 1}};
  const auto takes = [](uint32_t byte) {
    return mem_bd(byte, 8, {{bd::mem::acquire_enable, 1}, {bd::mem::acquire_lock, 65}, {bd::mem::acquire_value, -1}});
  };
  Builder b = feed(8);
  b.block(mem_bd_at(0), mem_bd(0x100, 8, gives)).block(mem_bd_at(24), takes(0x100));
  b.block(shim_bd_at(1), shim_bd({{bd::shim::length, 8}})).patch(0, 1, 1, 0);
  for (uint32_t i = 0; i < 3; ++i) {
    b.patch(0, 1, 1, 32 * i).write(kShimWrite, task(1, 1, true));
    b.write(kMemOut, task(24));  // loads BD 24, and waits for its lock
    b.block(mem_bd_at(24), takes(0x100 + 0x100 * (i + 1)));
    b.block(mem_bd_at(0), mem_bd(0x100 + 0x100 * i, 8, gives)).write(kMemIn, task(0));
    b.patch(0, 0, 0, 32 * i).write(kShimRead, task(0)).token(0, 0, false, 0);
  }
  Rig rig;
  rig.buffers[0]->count_up();
  rig.run(b);
  for (uint32_t i = 0; i < 24; ++i) EXPECT_EQ(rig.buffers[1]->get(i), 1000 + i) << i;
}

TEST(Dma, PaddingAndItsValue) {
  Rig rig;
  rig.buffers[0]->count_up();
  Builder b = feed(6);
  b.write(tile_address(0, 1, reg::mem::DMA_MM2S_PAD_VALUE.at(5)), 77);
  b.block(mem_bd_at(0), mem_bd(0, 6, {{bd::mem::release_lock, 64}, {bd::mem::release_value, 1}}));
  b.block(mem_bd_at(24), mem_bd(0, 15,
                                {{bd::mem::d0_wrap, 3},
                                 {bd::mem::d1_wrap, 2},
                                 {bd::mem::d1_step, 3},
                                 {bd::mem::d0_zeros_before, 1},
                                 {bd::mem::d0_zeros_after, 1},
                                 {bd::mem::d1_zeros_after, 1},
                                 {bd::mem::acquire_enable, 1},
                                 {bd::mem::acquire_lock, 64},
                                 {bd::mem::acquire_value, -1}}));
  b.block(shim_bd_at(1), shim_bd({{bd::shim::length, 15}})).patch(0, 1, 1, 0);
  b.write(kMemOut, task(24))
      .write(kMemIn, task(0))
      .write(kShimWrite, task(1, 1, true))
      .write(kShimRead, task(0))
      .token(0, 0, false, 0);
  rig.run(b);
  const std::vector<uint32_t> expected = {77,   1000, 1001, 1002, 77, 77, 1003, 1004,
                                          1005, 77,   77,   77,   77, 77, 77};
  for (uint32_t i = 0; i < expected.size(); ++i) EXPECT_EQ(rig.buffers[1]->get(i), expected[i]) << i;
}

TEST(Dma, ABdWithoutDataTakesAndGivesLocks) {
  Rig rig;
  Builder b;
  b.write(tile_address(0, 1, reg::mem::LOCK_VALUE.at(3)), 5);
  b.block(mem_bd_at(0), mem_bd(0, 0,
                               {{bd::mem::acquire_enable, 1},
                                {bd::mem::acquire_lock, 67},
                                {bd::mem::acquire_value, -2},
                                {bd::mem::release_lock, 68},
                                {bd::mem::release_value, 7}}));
  b.write(kMemIn, task(0, 2, true)).token(0, 1, false, 0);
  for (const auto& [lock, value] : {std::pair{3u, 1u}, std::pair{4u, 14u}})
    b.poll(tile_address(0, 1, reg::mem::LOCK_VALUE.at(lock)), value, ~0u)
        .write(tile_address(0, 1, reg::mem::LOCK_VALUE.at(lock)), 0);
  rig.run(b);
}

TEST(Dma, IdleMaskTellsWhenAChannelIsDone) {
  Rig rig;
  rig.buffers[0]->count_up();
  Builder b = feed(512);
  b.block(mem_bd_at(0), mem_bd(0, 512)).write(kMemIn, task(0)).write(kShimRead, task(0));
  b.poll(tile_address(0, 1, reg::mem::DMA_S2MM_STATUS.at(0)), 0, reg::DMA_IDLE_MASK);
  rig.run(b);
  EXPECT_EQ(rig.peek(0, 1, 511 * 4), 1511u);
}

TEST(Dma, NeighbouringMemoryTile) {
  Rig rig;
  rig.buffers[0]->count_up();
  Builder b = feed(4);
  // East neighbour: bytes from 0x100000 on in the BD's view, lock 128 + 2.
  b.block(mem_bd_at(0),
          mem_bd(0x80000 + 0x40, 4, {{bd::mem::release_lock, 130}, {bd::mem::release_value, 1}}));
  b.write(kMemIn, task(0, 1, true)).write(kShimRead, task(0)).token(0, 1, false, 0);
  const uint64_t lock = tile_address(1, 1, reg::mem::LOCK_VALUE.at(2));
  b.poll(lock, 1, ~0u).write(lock, 0);
  rig.run(b);
  EXPECT_EQ(rig.peek(1, 1, 0x40), 1000u);
}

// The words of a pattern with holes, three iterations and padding, across the border and back.
TEST(Dma, OneBdAcrossTheBorderOfTwoMemoryTiles) {
  Rig rig;
  rig.buffers[0]->count_up();
  const BdList walk = {{bd::mem::d0_wrap, 2},        {bd::mem::d0_step, 1},         {bd::mem::d1_wrap, 3},
                       {bd::mem::d1_step, 8},        {bd::mem::iteration_step, 32}, {bd::mem::iteration_wrap, 3}};
  BdList padded = walk;
  padded.insert(padded.end(), {{bd::mem::d1_wrap, 3}, {bd::mem::d0_zeros_before, 1}});
  Builder b = feed(18);
  b.block(mem_bd_at(0), mem_bd(0x7FF60, 6, walk)).block(mem_bd_at(24), mem_bd(0x7FF60, 9, padded));
  b.write(kMemIn, task(0, 3, true)).write(kShimRead, task(0)).token(0, 1, false, 0);
  b.block(shim_bd_at(1), shim_bd({{bd::shim::length, 27}})).patch(0, 1, 1, 0);
  b.write(kShimWrite, task(1, 1, true)).write(kMemOut, task(24, 3)).token(0, 0, false, 0);
  rig.run(b);
  for (uint32_t row = 0; row < 9; ++row) {
    EXPECT_EQ(rig.buffers[1]->get(3 * row), 0u);
    for (uint32_t i = 0; i < 2; ++i) {
      EXPECT_EQ(rig.buffers[1]->get(3 * row + 1 + i), 1000 + 2 * row + i);
      const uint32_t at = 0x7FF60 + 4 * (row / 3 * 32 + row % 3 * 8 + i);
      EXPECT_EQ(rig.peek(at >> 19, 1, at & 0x7FFFF), 1000 + 2 * row + i) << row;
    }
  }
}

TEST(DmaErrors, FifthWaitingTask) {
  Rig rig;
  Builder b;
  b.block(mem_bd_at(0), mem_bd(0, 4));
  for (int i = 0; i < 6; ++i) b.write(kMemIn, task(0));
  const SimulationError error = rig.error(b);
  EXPECT_EQ(error.kind, "queue");
  EXPECT_EQ(error.op.index, 6);
  EXPECT_EQ(error.row, 1);
}

TEST(DmaErrors, BeyondTheBuffer) {
  Rig rig;
  rig.buffers[0]->count_up();
  Builder b = feed((1 << 16) + 1);
  b.block(mem_bd_at(0), mem_bd(0, 4)).write(kMemIn, task(0)).write(kShimRead, task(0)).token(0, 0, true, 0);
  const SimulationError error = rig.error(b);
  EXPECT_EQ(error.kind, "ddr");
  EXPECT_NE(std::string(error.what()).find("262,144 bytes"), std::string::npos) << error.what();
  EXPECT_GE(error.op.index, 0);
}

TEST(DmaErrors, BeyondTheMemoryTiles) {
  const auto run = [](uint32_t first_byte, uint32_t words) {
    Rig rig({}, "npu2_1col");
    rig.buffers[0]->count_up();
    Builder b = feed(words);
    b.block(mem_bd_at(0), mem_bd(first_byte, words)).write(kMemIn, task(0)).write(kShimRead, task(0));
    b.token(0, 1, false, 0);
    return rig.error(b);
  };
  const SimulationError east = run(0x7FFF0, 5), west = run(0u - 4, 2);
  EXPECT_EQ(east.kind, "memory");
  EXPECT_NE(std::string(east.what()).find("bytes 0xFFFF0 to 0x100003"), std::string::npos) << east.what();
  EXPECT_NE(std::string(east.what()).find("no memory tile lies to the east"), std::string::npos);
  EXPECT_EQ(west.kind, "memory");
  EXPECT_EQ(run(0x7FFF0, 4).kind, "deadlock");  // up to the border all is well, but no token was asked for
}

TEST(DmaErrors, AcrossTheBorderNobodyWroteTheLastWord) {
  Rig rig;
  rig.buffers[0]->count_up();
  Builder b = feed(6);
  b.block(mem_bd_at(0), mem_bd(0x7FFF0, 6)).block(mem_bd_at(24), mem_bd(0x7FFF0, 7));
  b.write(kMemIn, task(0, 1, true)).write(kShimRead, task(0)).token(0, 1, false, 0);
  b.block(shim_bd_at(1), shim_bd({{bd::shim::length, 7}})).patch(0, 1, 1, 0).write(kShimWrite, task(1));
  const SimulationError error = rig.error(b.write(kMemOut, task(24, 1, true)).token(0, 1, true, 5));
  EXPECT_EQ(error.kind, "memory");
  EXPECT_NE(std::string(error.what()).find("byte 0x8 of mem tile c1 r1"), std::string::npos)
      << error.what();
}

TEST(DmaErrors, MemoryThatNobodyWrote) {
  Rig rig;
  rig.buffers[0]->count_up();
  rig.buffers[0]->valid.forget();
  Builder b = feed(8);
  b.block(mem_bd_at(0), mem_bd(0, 8)).write(kMemIn, task(0)).write(kShimRead, task(0)).token(0, 0, true, 0);
  EXPECT_EQ(rig.error(b).kind, "memory");
}

TEST(DmaErrors, NoRoute) {
  Rig rig;
  Builder b;
  b.block(mem_bd_at(0), mem_bd(0, 8))
      .write(tile_address(0, 1, reg::mem::DMA_MM2S_QUEUE.at(0)), task(0))
      .token(0, 1, true, 0);
  const SimulationError error = rig.error(b);
  EXPECT_EQ(error.kind, "route");
  EXPECT_NE(std::string(error.what()).find("DMA slave 0"), std::string::npos) << error.what();
}

TEST(DmaErrors, InvalidBdWrongHalfAndMisplacedPadding) {
  const auto kind = [](Builder b) { return Rig().error(b.token(0, 1, false, 0)).kind; };
  EXPECT_EQ(kind(Builder().write(kMemIn, task(3))), "bd");
  EXPECT_EQ(kind(Builder().block(mem_bd_at(30), mem_bd(0, 4)).write(kMemIn, task(30))), "bd");
  EXPECT_EQ(kind(Builder()
                     .block(mem_bd_at(24), mem_bd(0, 5, {{bd::mem::d0_zeros_after, 1}}))
                     .write(kMemOut, task(24))),
            "bd");
  EXPECT_EQ(kind(Builder()
                     .block(mem_bd_at(0), mem_bd(0, 5, {{bd::mem::d0_zeros_before, 1}}))
                     .write(kMemIn, task(0))),
            "bd");
}

TEST(DmaErrors, LockOverflow) {
  Rig rig;
  Builder b;
  b.block(mem_bd_at(0), mem_bd(0, 0, {{bd::mem::release_lock, 64}, {bd::mem::release_value, 40}}));
  const SimulationError error = rig.error(b.write(kMemIn, task(0, 2)).token(0, 1, false, 0));
  EXPECT_EQ(error.kind, "lock");
}

TEST(DmaErrors, HostMemoryNotFinishedAtTheEnd) {
  Rig rig;
  Builder b = feed(8);
  b.block(shim_bd_at(1), shim_bd({{bd::shim::length, 8}})).patch(0, 1, 1, 0).write(kShimWrite, task(1));
  EXPECT_EQ(rig.error(b).kind, "data_loss");
}

TEST(DmaErrors, TheNextRunStartsClean) {
  Rig rig;
  rig.buffers[0]->count_up();
  Builder bad;
  bad.write(kMemIn, task(3));
  EXPECT_EQ(rig.error(bad.token(0, 1, false, 0)).kind, "bd");
  EXPECT_TRUE(rig.simulator.broken());
  rig.run(round_trip(100));
  EXPECT_EQ(rig.buffers[1]->get(99), 1099u);
}

TEST(Dma, ResetDropsWhatAChannelHad) {
  Rig rig;
  rig.buffers[0]->count_up();
  const uint64_t control = tile_address(0, 1, reg::mem::DMA_S2MM_CTRL.at(0));
  Builder b = feed(64);
  b.block(mem_bd_at(0), mem_bd(0, 4000)).block(mem_bd_at(1), mem_bd(0x1000, 64));
  b.write(kMemIn, task(0)).write(kMemIn, task(0)).write(kShimRead, task(0, 1, true)).token(0, 0, true, 0);
  b.mask_write(control, 2, 2).mask_write(control, 0, 2);
  b.poll(tile_address(0, 1, reg::mem::DMA_S2MM_STATUS.at(0)), 0, reg::DMA_IDLE_MASK);
  b.write(kMemIn, task(1, 1, true)).write(kShimRead, task(0)).token(0, 1, false, 0);
  rig.run(b);
  EXPECT_EQ(rig.peek(0, 1, 0x1000), 1000u);
}

}  // namespace
}  // namespace onedispatch::sim::testing
