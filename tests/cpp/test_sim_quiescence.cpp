// SPDX-License-Identifier: Apache-2.0
// What would hang on silicon does not run: tokens without a route, wires that no switch has, and
// what a run leaves behind.
#include "test_sim_support.h"

namespace onedispatch::sim::testing {
namespace {

const uint64_t kMemStatus = tile_address(0, 1, reg::mem::DMA_S2MM_STATUS.at(0));
uint64_t mem_lock(uint32_t lock) { return tile_address(0, 1, reg::mem::LOCK_VALUE.at(lock)); }

bool says(const SimulationError& error, const std::string& text) {
  return error.complaint.text().find(text) != std::string::npos;
}

// A task of memory tile S2MM0 that moves nothing and gives a token; op 1.
Builder empty_task() {
  Builder b;
  b.block(mem_bd_at(0), mem_bd(0, 0)).write(kMemIn, task(0, 1, true));
  return b;
}

TEST(Tokens, NeedARouteToTheController) {
  Rig rig(Overlays{});
  const SimulationError error = rig.error(empty_task().token(0, 1, false, 0));
  EXPECT_EQ(error.kind, "route");
  EXPECT_EQ(error.op.index, 1);
  EXPECT_EQ(error.row, 1);
  EXPECT_TRUE(says(error, "token of mem tile c0 r1 S2MM0, task pushed by op 1, controller id 0"))
      << error.complaint.text();
}

TEST(Tokens, GoWhereTheControllerIdLeads) {
  Rig rig;
  rig.run(empty_task().token(0, 1, false, 0));
  Builder b;
  b.write(tile_address(0, 1, reg::mem::DMA_S2MM_CTRL.at(0)), 14u << 8);
  b.block(mem_bd_at(0), mem_bd(0, 0)).write(kMemIn, task(0, 1, true)).token(0, 1, false, 0);
  const SimulationError error = rig.error(b);
  EXPECT_EQ(error.kind, "route");
  EXPECT_TRUE(says(error, "controller id 14") && says(error, "no slot matches")) << error.complaint.text();
}

TEST(Tokens, DoNotEndInADma) {
  Rig rig(Overlays{});
  Builder b;
  Router{b}.circuit(0, 1, {Side::kControl, 0}, {Side::kDma, 5});
  b.block(mem_bd_at(0), mem_bd(0, 0)).write(kMemIn, task(0, 1, true)).token(0, 1, false, 0);
  EXPECT_TRUE(says(rig.error(b), "South master 0 of a shim"));
}

TEST(Tokens, TakeTheirWay) {
  const auto cycles = [](uint32_t row) {
    Rig rig;
    Builder b;
    b.block(tile_address(0, row, reg::core::DMA_BD.at(0)), core_bd(0, 0));
    const uint64_t queue = tile_address(0, row, reg::core::DMA_S2MM_QUEUE.at(0));
    b.write(queue, task(0, 200, true)).token(0, row, false, 0);  // it ends while the controller waits
    return rig.run(b).cycles;
  };
  EXPECT_EQ(cycles(5) - cycles(2), 3u * (3 + 4));  // three switches and links more
}

TEST(Tokens, AloneMayLeaveForTheController) {
  Rig rig;
  Builder b;
  const Router r{b};
  r.packet_slave(0, 1, {Side::kDma, 1}, 0, 15, kTokenArbiter, 0);
  b.block(tile_address(0, 1, 0x100), {1, 2, 3, 4});
  b.block(mem_bd_at(24), mem_bd(0x100, 4, {{bd::mem::enable_packet, 1}, {bd::mem::packet_id, 15}}));
  b.write(tile_address(0, 1, reg::mem::DMA_MM2S_QUEUE.at(1)), task(24));
  b.poll(tile_address(0, 1, reg::mem::DMA_MM2S_STATUS.at(1)), 0, reg::DMA_IDLE_MASK);
  EXPECT_TRUE(says(rig.error(b), "a way to the controller for what is no token"));
}

TEST(Wires, AMemoryTilePassesLanesStraightOn) {
  Rig rig;
  Builder b;
  Router{b}.circuit(0, 1, {Side::kSouth, 1}, {Side::kNorth, 2});
  const SimulationError error = rig.error(b);
  EXPECT_EQ(error.kind, "route");
  EXPECT_EQ(error.register_name, "SWITCH_MASTER");
  EXPECT_TRUE(says(error, "given South slave 1 for North master 2")) << error.complaint.text();
  Builder good;
  Router{good}.circuit(0, 1, {Side::kSouth, 1}, {Side::kNorth, 1});
  rig.run(good);
}

TEST(Wires, PacketsNeedThemToo) {
  Rig rig;
  Builder b;
  const Router r{b};
  r.circuit(0, 0, {Side::kSouth, 3}, {Side::kNorth, 0});
  b.write(tile_address(0, 0, reg::shim::MUX.offset), 1u << 10);
  r.packet_slave(0, 1, {Side::kSouth, 0}, 0, 3, 2, 1);
  r.packet_master(0, 1, {Side::kNorth, 4}, 2, 2, false);
  rig.buffers[0]->count_up();
  b.block(tile_address(0, 0, reg::shim::DMA_BD.at(0)),
          shim_bd({{bd::shim::length, 4}, {bd::shim::enable_packet, 1}, {bd::shim::packet_id, 3}}));
  b.patch(0, 0, 0, 0).write(tile_address(0, 0, reg::shim::DMA_MM2S_QUEUE.at(0)), task(0));
  b.poll(tile_address(0, 0, reg::shim::DMA_MM2S_STATUS.at(0)), 0, reg::DMA_IDLE_MASK);
  const SimulationError error = rig.error(b);
  EXPECT_EQ(error.kind, "route");
  EXPECT_TRUE(says(error, "SWITCH_SLOT") && says(error, "North master 4")) << error.complaint.text();
}

TEST(Rest, ATaskThatWaitsOnIsNamed) {
  Rig rig;
  rig.buffers[0]->count_up();
  Builder b;
  lay_feed_and_drain(b, 0);
  b.block(tile_address(0, 0, reg::shim::DMA_BD.at(0)), shim_bd({{bd::shim::length, 30}})).patch(0, 0, 0, 0);
  b.block(mem_bd_at(0), mem_bd(0, 31)).write(kMemIn, task(0));
  b.write(tile_address(0, 0, reg::shim::DMA_MM2S_QUEUE.at(0)), task(0, 1, true)).token(0, 0, true, 0);
  const SimulationError error = rig.error(b);
  EXPECT_EQ(error.kind, "unfinished");
  EXPECT_TRUE(says(error, "mem tile c0 r1 S2MM0: waits for data, 1 word left; BD 0"))
      << error.complaint.text();
  // The next run finds a fresh array.
  rig.run(empty_task().token(0, 1, false, 0));
}

TEST(Rest, LocksComeBackToWhatTheyWereSetTo) {
  Rig rig;
  Builder b;
  const BdList takes{{bd::mem::acquire_enable, 1}, {bd::mem::acquire_lock, 64}, {bd::mem::acquire_value, -1},
                     {bd::mem::release_lock, 65},  {bd::mem::release_value, 1}};
  b.write(mem_lock(0), 2).write(mem_lock(1), 0);
  b.block(mem_bd_at(0), mem_bd(0, 0, takes)).write(kMemIn, task(0)).poll(kMemStatus, 0, reg::DMA_IDLE_MASK);
  const SimulationError error = rig.error(b);
  EXPECT_EQ(error.kind, "unfinished");
  EXPECT_TRUE(says(error, "lock 0 is 1, last set to 2") && says(error, "lock 1 is 1, last set to 0"));
  b.write(mem_lock(0), 0).write(mem_lock(1), 0);
  rig.run(b);
}

TEST(Rest, WhatIsUnderWayMayEndByItself) {
  Rig rig;
  Builder b;
  b.block(mem_bd_at(0), mem_bd(0, 0)).write(kMemIn, task(0, 256));  // without a wait for it
  const uint64_t cycles = rig.run(b).cycles;
  EXPECT_EQ(rig.run(b).cycles, cycles);
}

TEST(Rest, TasksOfTheOverlayMayWaitOn) {
  Builder overlay(false, 2);
  lay_feed_and_drain(overlay, 0);
  lay_tokens(overlay, 0);
  // A ring of one BD that runs for ever, 16 words a turn.
  overlay.block(mem_bd_at(0), mem_bd(0, 16, {{bd::mem::use_next, 1}, {bd::mem::next_bd, 0}}));
  overlay.write(kMemIn, task(0));
  Rig rig(Overlays{{0, overlay.bytes()}});
  rig.buffers[0]->count_up();
  const auto feed = [&rig](uint32_t words) {
    Builder b;
    b.block(tile_address(0, 0, reg::shim::DMA_BD.at(0)), shim_bd({{bd::shim::length, words}}));
    b.patch(0, 0, 0, 0).write(tile_address(0, 0, reg::shim::DMA_MM2S_QUEUE.at(0)), task(0, 1, true));
    return b.token(0, 0, true, 0);
  };
  rig.run(feed(32));
  rig.run(feed(16));
  EXPECT_TRUE(says(rig.error(feed(17)), "15 words left"));
}

TEST(Rest, APacketThatNothingEndsIsNamed) {
  Rig rig;
  Builder b;
  const Router r{b};
  r.packet_slave(0, 1, {Side::kDma, 0}, 0, 3, 2, 1);
  r.packet_master(0, 1, {Side::kDma, 0}, 2, 2, true);
  b.block(tile_address(0, 1, 0x100), {1, 2, 3, 4});
  b.block(mem_bd_at(0), mem_bd(0x100, 4, {{bd::mem::enable_packet, 1},
                                          {bd::mem::packet_id, 3},
                                          {bd::mem::suppress_tlast, 1}}));
  b.block(mem_bd_at(1), mem_bd(0x200, 4)).write(kMemIn, task(1));
  b.write(tile_address(0, 1, reg::mem::DMA_MM2S_QUEUE.at(0)), task(0)).poll(kMemStatus, 0, reg::DMA_IDLE_MASK);
  EXPECT_TRUE(says(rig.error(b), "MM2S0: a packet that no TLAST ended"));
}

}  // namespace
}  // namespace onedispatch::sim::testing
