// SPDX-License-Identifier: Apache-2.0
// Clocks without data. That they agree with runs is checked for every run of a Rig (test_sim_support.h): here, that
// they do nothing else, and say so where they cannot know.
#include "test_xrt_support.h"

namespace onedispatch::sim {
namespace {

using namespace testing;

constexpr uint32_t kMemory = 0x400;  // byte of the memory tile

// Words of argument 0 to the memory tile.
Builder filling(uint32_t words) {
  Builder b;
  lay_feed_and_drain(b, 0);
  b.block(shim_bd_at(0), shim_bd({{bd::shim::length, words}})).patch(0, 0, 0, 0);
  b.block(mem_bd_at(0), mem_bd(kMemory, words));
  b.write(kMemIn, task(0, 1, true)).write(kShimRead, task(0));
  return b.token(0, 1, false, 0);
}

void expect_unknown(const Rig& rig, const std::string& part) {
  const Clock& empty = *rig.clocks[1];
  ASSERT_TRUE(empty.failure().has_value());
  EXPECT_EQ(empty.failure()->kind, "clock");
  EXPECT_NE(std::string(empty.failure()->what()).find(part), std::string::npos) << empty.failure()->what();
}

TEST(Clock, LeavesBuffersAsTheyAre) {
  Rig rig;
  rig.buffers[0]->count_up();
  const std::vector<uint8_t> bytes = xrt::testing::copy_words(64);
  for (const auto& clock : rig.clocks) {
    clock->time(bytes, rig.buffers);
    EXPECT_TRUE(clock->report().has_value());
    EXPECT_FALSE(rig.buffers[1]->valid.any());
    EXPECT_EQ(rig.buffers[1]->get(0), 0u);
  }
}

TEST(Clock, KnowsPolledWordsThatWereGiven) {
  Rig rig;
  rig.buffers[0]->count_up(1000);
  rig.run(filling(4).poll(tile_address(0, 1, kMemory), 1000, ~0u));
  EXPECT_TRUE(rig.clocks[0]->report().has_value());
  expect_unknown(rig, "byte 0x400 of its data memory");
}

TEST(Clock, ForgetsWordsThatOthersCameTo) {
  Rig rig;
  rig.buffers[0]->count_up();
  Builder b;
  b.write(tile_address(0, 1, kMemory), 7);
  rig.run(b);
  rig.run(filling(4).poll(tile_address(0, 1, kMemory), 1000, ~0u));  // not 7
  expect_unknown(rig, "which a clock without data does not know");
}

TEST(Clock, KnowsPacketsThatWereGiven) {
  Rig rig;
  const std::vector<uint32_t> packet = control_packet(2, kMemory, {5});
  for (uint32_t i = 0; i < packet.size(); ++i) rig.buffers[0]->set(i, packet[i]);
  Builder b;
  lay_control(b, 0);
  b.block(shim_bd_at(0), shim_bd({{bd::shim::length, 3}})).patch(0, 0, 0, 0).write(kShimRead, task(0));
  b.poll(tile_address(0, 0, 0x1D228), 0, kIdleMask);
  rig.run(b.poll(tile_address(0, 1, kMemory), 5, ~0u));
  EXPECT_TRUE(rig.clocks[0]->report().has_value());
  expect_unknown(rig, "packets from byte 0 of kernel argument 0");
}

// What a run writes of device memory before it reads packets there is no longer what the host gave.
TEST(Clock, DoesNotKnowPacketsThatTheRunWrote) {
  Rig rig;
  const std::vector<uint32_t> packet = control_packet(2, kMemory, {5});
  for (uint32_t i = 0; i < packet.size(); ++i) {
    rig.buffers[0]->set(i, packet[i]);
    rig.buffers[1]->set(i, packet[i]);
  }
  Builder b(false, 2);
  lay_feed_and_drain(b, 0);
  lay_control(b, 1);
  b.block(shim_bd_at(0), shim_bd({{bd::shim::length, 3}})).patch(0, 0, 0, 0);
  b.block(shim_bd_at(1), shim_bd({{bd::shim::length, 3}})).patch(0, 1, 1, 0);
  b.block(mem_bd_at(0), mem_bd(0, 3)).block(mem_bd_at(24), mem_bd(0, 3));
  b.write(kMemIn, task(0, 1, true)).write(kShimRead, task(0)).token(0, 1, false, 0);
  b.write(kShimWrite, task(1, 1, true)).write(kMemOut, task(24)).token(0, 0, false, 0);
  b.block(tile_address(1, 0, reg::shim::DMA_BD.at(0)), shim_bd({{bd::shim::length, 3}})).patch(1, 0, 1, 0);
  b.write(tile_address(1, 0, 0x1D214), task(0));
  rig.run(b.poll(tile_address(1, 0, 0x1D228), 0, kIdleMask));
  for (const auto& clock : rig.clocks) {
    ASSERT_TRUE(clock->failure().has_value());
    EXPECT_EQ(clock->failure()->kind, "clock");
  }
}

TEST(ValidMap, ForgetsRanges) {
  ValidMap map(300);
  EXPECT_FALSE(map.any());
  map.mark(0, 300);
  map.forget(60, 10);
  EXPECT_TRUE(map.any());
  EXPECT_EQ(map.first_unwritten(0, 300), 60u);
  EXPECT_EQ(map.first_unwritten(61, 200), 61u);
  EXPECT_TRUE(map.all_written(70, 230));
  map.mark(60, 10);
  EXPECT_TRUE(map.all_written(0, 300));
}

}  // namespace
}  // namespace onedispatch::sim

namespace onedispatch::xrt {
namespace {

TEST(Clock, OfADeviceMovesNothing) {
  testing::Host host;
  const bo instructions = host.buffer(testing::copy_words(64));
  host.npu.set_clock(true);
  const kernel clock{hw_context(host.npu, host.binary.get_uuid()), "MLIR_AIE"};
  std::vector<uint64_t> cycles;
  for (const kernel& each : {host.super, clock}) {
    bo from = host.buffer(std::vector<uint8_t>(256, 3)), to(host.npu, 256);
    run made = testing::prepared(each, instructions, from, to);
    made.start();
    made.wait();
    cycles.push_back(made.report().cycles);
    EXPECT_EQ(to.map()[0], cycles.size() == 1 ? 3 : 0);
  }
  EXPECT_EQ(cycles[0], cycles[1]);
}

}  // namespace
}  // namespace onedispatch::xrt
