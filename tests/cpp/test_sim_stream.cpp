// SPDX-License-Identifier: Apache-2.0
// Routes: circuits, packets, broadcasts, headers, and arbitration between packets.
#include "test_sim_support.h"

namespace onedispatch::sim::testing {
namespace {

constexpr Port kSouth0{Side::kSouth, 0}, kNorth0{Side::kNorth, 0}, kEast0{Side::kEast, 0},
    kWest0{Side::kWest, 0};
constexpr Port kDma0{Side::kDma, 0}, kDma1{Side::kDma, 1};

uint64_t core_queue(uint32_t column, uint32_t row) {
  return tile_address(column, row, reg::core::DMA_S2MM_QUEUE.at(0));
}

// Writes `words` counting words into the memory tile and a BD that sends them on MM2S0.
void source(Builder& b, uint32_t column, uint32_t words, uint32_t first, BdList more = {}) {
  std::vector<uint32_t> data(words);
  std::iota(data.begin(), data.end(), first);
  b.block(tile_address(column, 1, 0x1000), data);
  b.block(tile_address(column, 1, reg::mem::DMA_BD.at(0)), mem_bd(0x1000, words, std::move(more)));
}
void send(Builder& b, uint32_t column) {
  b.write(tile_address(column, 1, reg::mem::DMA_MM2S_QUEUE.at(0)), task(0));
}

void receive(Builder& b, uint32_t column, uint32_t row, uint32_t words, uint32_t byte = 0x200) {
  b.block(tile_address(column, row, reg::core::DMA_BD.at(0)), core_bd(byte, words));
  b.write(core_queue(column, row), task(0, 1, true));
}

TEST(Stream, CircuitBroadcastToAColumn) {
  Rig rig;
  Builder b;
  const Router r{b};
  r.circuit(0, 1, kDma0, kNorth0);
  for (uint32_t row = 2; row < 6; ++row) {
    r.circuit(0, row, kSouth0, kDma0);
    if (row < 5) r.circuit(0, row, kSouth0, kNorth0);
  }
  source(b, 0, 100, 500);
  for (uint32_t row = 2; row < 6; ++row) receive(b, 0, row, 100);
  send(b, 0);
  for (uint32_t row = 2; row < 6; ++row) b.token(0, row, false, 0);
  rig.run(b);
  for (uint32_t row = 2; row < 6; ++row) EXPECT_EQ(rig.peek(0, row, 0x200 + 396), 599u);
}

TEST(Stream, ABroadcastGoesAtThePaceOfTheSlowest) {
  Rig rig;
  Builder b;
  const Router r{b};
  r.circuit(0, 1, kDma0, kNorth0);
  r.circuit(0, 2, kSouth0, kDma0);
  r.circuit(0, 2, kSouth0, kNorth0);
  r.circuit(0, 3, kSouth0, kDma0);
  source(b, 0, 100, 500);
  receive(b, 0, 2, 100);
  b.block(
      tile_address(0, 3, reg::core::DMA_BD.at(0)),
      core_bd(0x200, 100,
              {{bd::core::acquire_enable, 1}, {bd::core::acquire_lock, 3}, {bd::core::acquire_value, -1}}));
  b.write(core_queue(0, 3), task(0, 1, true));
  send(b, 0);
  for (int i = 0; i < 100; ++i) b.timer(1);
  b.poll(tile_address(0, 2, reg::core::DMA_S2MM_STATUS.at(0)), 1u << 19, 1u << 19);  // still running
  b.write(tile_address(0, 3, reg::core::LOCK_VALUE.at(3)), 1);
  b.token(0, 2, false, 0).token(0, 3, false, 0);
  b.write(tile_address(0, 3, reg::core::LOCK_VALUE.at(3)), 0);
  rig.run(b);
  EXPECT_EQ(rig.peek(0, 3, 0x200), 500u);
}

// Packets of id 1 spread over row 2 of both columns; id 0 stays in its column.
void lay_packets(Builder& b, bool drop) {
  const Router r{b};
  r.circuit(0, 1, kDma0, kNorth0);
  r.packet_slave(0, 2, kSouth0, 0, 0, 3, 0);
  r.packet_slave(0, 2, kSouth0, 1, 1, 3, 1);
  r.packet_master(0, 2, kDma0, 3, 0b0011, drop);
  r.packet_master(0, 2, kEast0, 3, 0b0010, false);
  r.packet_slave(1, 2, kWest0, 0, 1, 5, 2);
  r.packet_master(1, 2, kDma0, 5, 0b0100, true);
}

BdList packet(uint32_t id) {
  return {{bd::mem::enable_packet, 1}, {bd::mem::packet_id, id}, {bd::mem::packet_type, 2}};
}

TEST(Stream, PacketsFindTheirTiles) {
  Rig rig;
  Builder b(false, 2);
  lay_packets(b, true);
  source(b, 0, 10, 70, packet(1));
  receive(b, 0, 2, 10);
  receive(b, 1, 2, 10);
  send(b, 0);
  b.token(0, 2, false, 0, 2);
  source(b, 0, 10, 90, packet(0));
  receive(b, 0, 2, 10);
  send(b, 0);
  b.token(0, 2, false, 0);
  rig.run(b);
  EXPECT_EQ(rig.peek(0, 2, 0x200), 90u);
  EXPECT_EQ(rig.peek(1, 2, 0x200), 70u);
  EXPECT_EQ(rig.peek(1, 2, 0x224), 79u);
}

TEST(Stream, TheHeaderStaysWhereNobodyDropsIt) {
  Rig rig;
  Builder b(false, 2);
  lay_packets(b, false);
  source(b, 0, 10, 70, packet(1));
  receive(b, 0, 2, 11);
  receive(b, 1, 2, 10);
  send(b, 0);
  b.token(0, 2, false, 0, 2);
  rig.run(b);
  const uint32_t header = rig.peek(0, 2, 0x200);
  EXPECT_EQ(reg::packet_header::id.get(header), 1);
  EXPECT_EQ(reg::packet_header::type.get(header), 2);
  EXPECT_EQ(reg::packet_header::source_row.get(header), 1);
  EXPECT_EQ(__builtin_popcount(header) % 2, 1);
  EXPECT_EQ(rig.peek(0, 2, 0x204), 70u);
  EXPECT_EQ(rig.peek(1, 2, 0x200), 70u);
}

TEST(Stream, PacketsOfTwoSourcesDoNotMix) {
  Rig rig;
  Builder b(false, 2);
  lay_packets(b, true);
  const Router r{b};
  r.circuit(1, 1, kDma0, kNorth0);
  r.packet_slave(1, 2, kSouth0, 0, 4, 5, 3);  // same arbiter as the packets from the west
  r.packet_master(1, 2, kDma0, 5, 0b1100, true);
  source(b, 0, 64, 1000, packet(1));
  source(b, 1, 64, 2000, packet(4));
  receive(b, 0, 2, 64);
  // Short BDs, so that the two streams meet many times at this port.
  b.block(tile_address(1, 2, reg::core::DMA_BD.at(0)),
          core_bd(0x200, 8, {{bd::core::iteration_step, 8}, {bd::core::iteration_wrap, 16}}));
  b.write(core_queue(1, 2), task(0, 16, true));
  send(b, 0);
  send(b, 1);
  b.token(1, 2, false, 0);
  rig.run(b);
  const uint32_t first = rig.peek(1, 2, 0x200);
  for (uint32_t i = 0; i < 64; ++i) {
    EXPECT_EQ(rig.peek(1, 2, 0x200 + 4 * i), first + i);
    EXPECT_EQ(rig.peek(1, 2, 0x300 + 4 * i), 3000 - first + i);
  }
}

TEST(Stream, SuppressedTlastKeepsThePacketOpen) {
  Rig rig;
  Builder b(false, 2);
  lay_packets(b, true);
  BdList fields = packet(1);
  fields.insert(fields.end(), {{bd::mem::suppress_tlast, 1}, {bd::mem::use_next, 1}, {bd::mem::next_bd, 1}});
  source(b, 0, 10, 70, fields);
  b.block(tile_address(0, 1, reg::mem::DMA_BD.at(1)), mem_bd(0x1000, 6, packet(1)));
  receive(b, 0, 2, 16);
  receive(b, 1, 2, 16);
  send(b, 0);
  b.token(0, 2, false, 0, 2);
  rig.run(b);
  EXPECT_EQ(rig.peek(1, 2, 0x200 + 4 * 10), 70u);
}

struct BadRoute {
  const char* name;
  std::function<void(Builder&)> lay;
  const char* text;
};

class BadRoutes : public ::testing::TestWithParam<BadRoute> {};

TEST_P(BadRoutes, AreNamed) {
  Rig rig;
  Builder b(false, 2);
  GetParam().lay(b);
  source(b, 0, 4, 1, packet(9));
  send(b, 0);
  const SimulationError error = rig.error(b.token(0, 1, true, 0));
  EXPECT_EQ(error.kind, "route") << error.what();
  EXPECT_NE(std::string(error.what()).find(GetParam().text), std::string::npos) << error.what();
}

INSTANTIATE_TEST_SUITE_P(
    Stream, BadRoutes,
    ::testing::Values(
        BadRoute{"no_slot", [](Builder& b) { lay_packets(b, true); }, "no slot matches"},
        BadRoute{"no_master",
                 [](Builder& b) { b.write(tile_address(0, 1, reg::mem::SWITCH_SLAVE.at(0)), 1u << 31); },
                 "no master port"},
        BadRoute{"not_enabled", [](Builder& b) { Router{b}.circuit(0, 1, kDma0, kNorth0); }, "not enabled"},
        BadRoute{"edge",
                 [](Builder& b) {
                   Router{b}.circuit(0, 1, kDma0, kNorth0);
                   Router{b}.circuit(0, 2, kSouth0, kWest0);
                 },
                 "leaves the array"},
        BadRoute{"core_port",
                 [](Builder& b) {
                   Router{b}.circuit(0, 1, kDma0, kNorth0);
                   Router{b}.circuit(0, 2, kSouth0, {Side::kCore, 0});
                 },
                 "lead to a DMA"}),
    [](const auto& info) { return info.param.name; });

TEST(Stream, APacketRouteThatComesBackIsNamed) {
  Rig rig;
  Builder b(false, 2);
  const Router r{b};
  r.circuit(0, 1, kDma0, kNorth0);
  // East to (1, 2), back west into (0, 2), which sends the same id east again.
  r.packet_slave(0, 2, kSouth0, 0, 9, 0, 0);
  r.packet_slave(0, 2, kEast0, 0, 9, 0, 0);
  r.packet_master(0, 2, kEast0, 0, 1, false);
  r.packet_slave(1, 2, kWest0, 0, 9, 0, 0);
  r.packet_master(1, 2, kWest0, 0, 1, false);
  source(b, 0, 4, 1, packet(9));
  send(b, 0);
  const SimulationError error = rig.error(b.token(0, 1, true, 0));
  EXPECT_EQ(error.kind, "route");
  EXPECT_NE(std::string(error.what()).find("comes back"), std::string::npos) << error.what();
}

}  // namespace
}  // namespace onedispatch::sim::testing
