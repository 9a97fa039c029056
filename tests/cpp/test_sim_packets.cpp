// SPDX-License-Identifier: Apache-2.0
// Control packets: headers in the data, and the control ports that they reach.
#include "test_sim_support.h"

namespace onedispatch::sim {
namespace {

using namespace testing;

constexpr uint32_t kStatus = 0x1D228;  // of shim MM2S0
const uint64_t kPush = tile_address(0, 0, 0x1D214);
using Words = std::vector<uint32_t>;

struct Packets : Rig {
  Words words;
  std::function<void(const Router&)> more_routes;
  Packets& add_packet(const Words& packet) {
    words.insert(words.end(), packet.begin(), packet.end());
    return *this;
  }
  void fill() {
    for (uint32_t i = 0; i < words.size(); ++i) buffers[0]->set(i, words[i]);
  }
  // One task that sends all of it.
  Builder sending(BdList fields = {}, bool drop = false) {
    fill();
    Builder b;
    lay_control(b, 0, drop);
    if (more_routes) more_routes(Router{b});
    fields.emplace_back(bd::shim::length, static_cast<uint32_t>(words.size()));
    b.block(tile_address(0, 0, reg::shim::DMA_BD.at(0)), shim_bd(fields)).patch(0, 0, 0, 0);
    b.write(kPush, task(0));
    return b;
  }
  Builder waiting(Builder b) { return b.poll(tile_address(0, 0, kStatus), 0, kIdleMask); }
  SimulationError failing(BdList fields = {}) { return error(waiting(sending(std::move(fields)))); }
};

TEST(ControlPackets, WritesReachTheTileOfTheirId) {
  for (const bool drop : {false, true}) {
    Packets p;
    p.add_packet(control_packet(2, 0x100, {1, 2, 3, 4})).add_packet(control_packet(1, 0x14010, {5}));
    p.add_packet(control_packet(8, 0x200, {6, 7})).add_packet(control_packet(9, 0x300, {8}, 2));
    const RunReport report = p.run(p.waiting(p.sending({}, drop)));
    EXPECT_EQ(p.peek(0, 1, 0x10C), 4u);
    EXPECT_EQ(p.peek(0, 0, 0x14010), 5u);
    EXPECT_EQ(p.peek(0, 2, 0x204), 7u);
    EXPECT_EQ(p.peek(0, 1, 0x300), 8u);  // to two tiles
    EXPECT_EQ(p.peek(0, 2, 0x300), 8u);
    EXPECT_EQ(p.simulator.array().packets, 4u);
    EXPECT_EQ(report.ddr_read[0], p.words.size() * 4);
  }
}

TEST(ControlPackets, TheHeaderMayComeFromTheDescriptor) {
  Packets p;
  const Words first = control_packet(2, 0x100, {1, 2});
  p.add_packet({first.begin() + 1, first.end()}).add_packet(control_packet(8, 0x200, {3}));
  p.run(p.waiting(p.sending({{bd::shim::enable_packet, 1}, {bd::shim::packet_id, 2}})));
  EXPECT_EQ(p.peek(0, 1, 0x104), 2u);
  EXPECT_EQ(p.peek(0, 2, 0x200), 3u);
}

TEST(ControlPackets, HaveTheEffectsOfWrites) {
  Packets p;
  // A whole transfer of the memory tile: lock, BDs and pushes, all by packets.
  const Words out = mem_bd(0, 4, {{bd::mem::acquire_enable, 1},
                                  {bd::mem::acquire_lock, 64 + 3},
                                  {bd::mem::acquire_value, -1}});
  const Words in = mem_bd(0x400, 4);
  const auto part = [](const Words& bd, int from) { return Words(bd.begin() + from, bd.begin() + from + 4); };
  p.add_packet(control_packet(2, reg::mem::DMA_BD.at(26), part(out, 0)));
  p.add_packet(control_packet(2, reg::mem::DMA_BD.at(26) + 16, part(out, 4)));
  p.add_packet(control_packet(2, reg::mem::DMA_BD.at(24), part(in, 0)));
  p.add_packet(control_packet(2, reg::mem::DMA_BD.at(24) + 16, part(in, 4)));
  p.add_packet(control_packet(2, 0xA063C, {task(26)})).add_packet(control_packet(2, 0xA060C, {task(24)}));
  p.add_packet(control_packet(2, 0, {9, 8, 7, 6})).add_packet(control_packet(2, 0xC0030, {1}));
  Builder b;
  Router{b}.circuit(0, 1, {Side::kDma, 1}, {Side::kDma, 1});
  p.run(b);
  p.run(p.waiting(p.sending())
            .poll(tile_address(0, 1, 0xA0664), 0, kIdleMask)
            .write(tile_address(0, 1, 0xC0030), 0));
  EXPECT_EQ(p.peek(0, 1, 0x400), 9u);
  EXPECT_EQ(p.peek(0, 1, 0x40C), 6u);
}

// Of a packet with four words of data that a shim sends, at the rate of its channel.
uint64_t packet_cycles() {
  const DeviceDescription device = find_device("npu2");
  return static_cast<uint64_t>(6 / device.at("dma.shim_words_per_cycle") + device.at("stream.control_packet_cycles"));
}

TEST(ControlPackets, TakeOneCyclePerWordThePortAndTheWay) {
  const auto cycles = [](size_t many) {
    Packets p;
    for (size_t i = 0; i < many; ++i) p.add_packet(control_packet(2, 0x100, {1, 2, 3, 4}));
    return p.run(p.waiting(p.sending())).cycles;
  };
  const uint64_t each = (cycles(1001) - cycles(1)) / 1000;
  EXPECT_GE(packet_cycles(), 7u);
  EXPECT_GE(each, packet_cycles());
  EXPECT_LE(each, packet_cycles() + 2);
}

// What waits for another access moves together: it is there as soon, and in the same order, as one by one.
TEST(ControlPackets, DescriptorsMoveTogether) {
  const uint32_t first = reg::mem::DMA_BD.at(0);
  const auto run_of = [&](size_t many, bool apart) {
    Packets p;
    for (uint32_t i = 0; i < many; ++i) {
      p.add_packet(control_packet(2, first + 16 * (i % 40), {i, i + 1, i + 2, 1u << 31}));
      if (apart) p.add_packet(control_packet(2, 0x100, {i}));
    }
    const RunReport report = p.run(p.waiting(p.sending()));
    EXPECT_EQ(p.simulator.array().packets, apart ? 2 * many : many);
    for (uint32_t i = 0; i < std::min<size_t>(many, 40); ++i)
      EXPECT_EQ(p.peek(0, 1, first + 16 * i), static_cast<uint32_t>(i + (many - 1 - i) / 40 * 40)) << i;
    return report;
  };
  const RunReport one = run_of(1, false), many = run_of(1001, false);
  const uint64_t each = (many.cycles - one.cycles) / 1000;
  EXPECT_GE(each, packet_cycles());
  EXPECT_LE(each, packet_cycles() + 2);
  EXPECT_LT(many.events, run_of(1001, true).events / 20);
}

TEST(ControlPackets, ProgramsMoveTogether) {
  Packets p;
  for (uint32_t i = 0; i < 64; ++i) p.add_packet(control_packet(8, reg::core::PROGRAM_MEMORY.offset + 16 * i, {i, i, i, ~i}));
  EXPECT_LT(p.run(p.waiting(p.sending())).events, 20u);
  EXPECT_EQ(p.peek(0, 2, reg::core::PROGRAM_MEMORY.offset + 16 * 63 + 12), ~63u);
}

TEST(ControlPackets, ErrorsNameThePacketOfARun) {
  Packets p;  // between the descriptors of a core there is nothing
  const Words wrong = control_packet(8, reg::core::DMA_BD.at(8) + 16, {1, 2, 3, 4});
  p.add_packet(control_packet(8, reg::core::DMA_BD.at(8) + 8, {1, 2})).add_packet(wrong);
  const SimulationError error = p.failing();
  EXPECT_EQ(error.kind, "register");
  EXPECT_NE(std::string(error.what()).find(hex(wrong[1])), std::string::npos) << error.what();
}

// Both shim channels send, slots alike, one way up.
struct TwoSenders : Packets {
  Words others;
  Builder both() {
    fill();
    for (uint32_t i = 0; i < others.size(); ++i) buffers[1]->set(i, others[i]);
    Builder b;
    lay_control(b);
    Router{b}.packet_slave(0, 0, {Side::kSouth, 7}, 0, 2, 7, 1);
    for (const uint32_t i : {0u, 1u}) {
      const auto length = static_cast<uint32_t>((i == 0 ? words : others).size());
      b.block(tile_address(0, 0, reg::shim::DMA_BD.at(i)), shim_bd({{bd::shim::length, length}})).patch(0, i, i, 0);
    }
    return b.write(kPush, task(0)).write(tile_address(0, 0, 0x1D21C), task(1));
  }
  static Builder other_ended(Builder b) { return b.poll(tile_address(0, 0, kStatus + 4), 0, kIdleMask); }
};

// Other packets pass between those of a stream that shares an arbiter with it.
TEST(ControlPackets, DescriptorsTakeTurnsWithOthers) {
  TwoSenders p;
  for (uint32_t i = 0; i < 40; ++i) p.add_packet(control_packet(2, reg::mem::DMA_BD.at(0) + 16 * i, {i, i, i, i}));
  p.others = control_packet(2, 0x2000, {5});
  const RunReport report = p.run(p.waiting(p.other_ended(p.both()).timer(1)).timer(2));
  EXPECT_EQ(p.peek(0, 1, 0x2000), 5u);
  ASSERT_EQ(report.timers.size(), 2u);
  EXPECT_GT(report.timers[1].second, report.timers[0].second + 100);
}

TEST(ControlPackets, ReadsAreAnswered) {
  Packets p;
  p.add_packet(control_packet(2, 0x100, {11, 12, 13, 14})).add_packet(read_packet(2, 0x104, 2, 6));
  p.add_packet(read_packet(2, 0x100, 1, 6));
  Builder b = p.sending();
  Router{b}.circuit(0, 1, {Side::kControl, 0}, {Side::kSouth, 0});
  Router{b}.circuit(0, 0, {Side::kNorth, 0}, {Side::kSouth, 2});
  b.write(tile_address(0, 0, reg::shim::DEMUX.offset), 1u << 4);
  b.block(tile_address(0, 0, reg::shim::DMA_BD.at(1)), shim_bd({{bd::shim::length, 5}})).patch(0, 1, 1, 0);
  b.write(tile_address(0, 0, 0x1D204), task(1, 1, true)).token(0, 0, false, 0);
  p.run(b);
  const uint32_t header = with_parity(6 | 1u << 16);
  const Words expected{header, 12, 13, header, 11};
  for (uint32_t i = 0; i < 5; ++i) EXPECT_EQ(p.buffers[1]->get(i), expected[i]) << i;

  Packets unrouted;
  unrouted.add_packet(read_packet(2, 0x104, 2, 6));
  EXPECT_EQ(unrouted.failing().kind, "route");
}

TEST(ControlPackets, HeadersInTheDataLeadToADmaUntilTlast) {
  Packets p;
  p.add_packet({with_parity(4), 100, 101, 102});
  Builder b = p.sending();
  b.block(tile_address(0, 1, reg::mem::DMA_BD.at(0)), mem_bd(0x800, 4));
  b.write(tile_address(0, 1, 0xA0614), task(0, 1, true)).token(0, 1, false, 2);
  p.run(b);
  EXPECT_EQ(p.peek(0, 1, 0x800), with_parity(4));  // the master keeps it
  EXPECT_EQ(p.peek(0, 1, 0x80C), 102u);
  Packets alone;
  EXPECT_EQ(alone.add_packet({with_parity(4)}).failing().kind, "unsupported");
}

TEST(ControlPackets, MayBeCutByADescriptorWithoutTlastOnly) {
  const Words packet = control_packet(2, 0x100, {1, 2, 3, 4});
  for (uint32_t cut = 1; cut < packet.size(); ++cut) {
    for (const bool open : {true, false}) {
      Packets p;
      p.add_packet(packet).add_packet(packet).fill();
      Builder b;
      lay_control(b);
      b.block(tile_address(0, 0, reg::shim::DMA_BD.at(0)),
              shim_bd({{bd::shim::length, cut},
                       {bd::shim::suppress_tlast, open},
                       {bd::shim::use_next, 1},
                       {bd::shim::next_bd, 1}}));
      b.patch(0, 0, 0, 0);
      b.block(tile_address(0, 0, reg::shim::DMA_BD.at(1)), shim_bd({{bd::shim::length, 12 - cut}}));
      b.patch(0, 1, 0, uint64_t{4} * cut).write(kPush, task(0));
      b = p.waiting(b);
      if (open) {
        p.run(b);
        EXPECT_EQ(p.peek(0, 1, 0x10C), 4u) << cut;
        EXPECT_EQ(p.simulator.array().packets, 2u);
      } else {
        EXPECT_EQ(p.error(b).kind, "packet") << cut;
      }
    }
  }
  Packets task_end;
  task_end.add_packet({packet.begin(), packet.begin() + 4});
  EXPECT_EQ(task_end.failing({{bd::shim::suppress_tlast, 1}}).kind, "packet");
}

TEST(ControlPackets, ErrorsNameTheTaskAndTheTile) {
  struct Case {
    Words packet;
    const char *kind, *text;
  };
  Words even_stream = control_packet(2, 0x100, {1}), even_control = even_stream;
  even_stream[0] ^= 1u << 31;
  even_control[1] ^= 1u << 31;
  const Case cases[] = {
      {control_packet(3, 0x100, {1}), "route", "no slot matches"},
      {even_stream, "packet", "stream header"},
      {even_control, "packet", "control header"},
      {control_packet(2, 0x100, {1}, 3), "packet", "operation 3"},
      {control_packet(2, 0x90000, {1}), "register", "mem tile c0 r1"},
      {control_packet(2, 0x102, {1}), "register", "offset 0x102"},
      {control_packet(2, 0xFFFFC, {1, 2}), "register", "0xFFFFC"},
      {control_packet(2, 0xC0000, {64}), "lock", "value 64"},
      {control_packet(2, 0xA0660, {1}), "register", "a write"},
      {control_packet(2, 0xA0604, {5}), "bd", "its valid bit is 0"},
  };
  for (const Case& one : cases) {
    Packets p;
    p.add_packet(control_packet(2, 0x200, {1})).add_packet(one.packet);
    const Builder b = p.sending();
    const SimulationError error = p.error(p.waiting(b));
    EXPECT_EQ(error.kind, one.kind) << error.what();
    EXPECT_NE(std::string(error.what()).find(one.text), std::string::npos) << error.what();
    const std::vector<uint8_t> bytes = b.bytes();  // the push is the last operation
    EXPECT_EQ(error.op.index, static_cast<int64_t>(load32(&bytes[8])) - 1) << one.text;
    EXPECT_GE(error.column, 0);
  }
}

TEST(ControlPackets, ADmaAndAControlPortAtOnceAreRefused) {
  Packets p;
  p.add_packet(control_packet(2, 0x100, {1}));
  p.more_routes = [](const Router& r) { r.packet_master(0, 1, {Side::kDma, 0}, 7, 1, false); };
  EXPECT_EQ(p.failing().kind, "unsupported");
  Packets circuit;  // no packet-switched port on the way
  circuit.add_packet(control_packet(2, 0x100, {1}));
  circuit.more_routes = [](const Router& r) { r.circuit(0, 0, {Side::kSouth, 3}, {Side::kControl, 0}); };
  EXPECT_EQ(circuit.failing().kind, "route");
}

TEST(ControlPackets, APacketMayPauseOrPushItsOwnChannel) {
  Packets p;
  p.add_packet(control_packet(1, 0x1D210, {2})).add_packet(control_packet(2, 0x100, {7}));
  Builder b = p.sending();
  b.block(tile_address(0, 1, 0), Words(300, 0));  // time for the packet to arrive
  for (int i = 0; i < 40; ++i) b.timer(0);
  b.write(tile_address(0, 0, 0x1D210), 0);
  p.run(p.waiting(b));
  EXPECT_EQ(p.peek(0, 1, 0x100), 7u);

  Packets pushes;  // the second BD holds one packet and is pushed by the first
  pushes.add_packet(control_packet(1, 0x1D214, {1})).fill();
  const Words later = control_packet(2, 0x100, {8});
  for (uint32_t i = 0; i < later.size(); ++i) pushes.buffers[1]->set(i, later[i]);
  Builder c;
  c.block(tile_address(0, 0, reg::shim::DMA_BD.at(1)), shim_bd({{bd::shim::length, 3}})).patch(0, 1, 1, 0);
  pushes.run(c);
  pushes.run(pushes.waiting(pushes.sending()));
  EXPECT_EQ(pushes.peek(0, 1, 0x100), 8u);
}

TEST(ControlPackets, AMemoryTileMaySendThemAndResetItself) {
  Packets p;
  Builder b;
  Router{b}.packet_slave(0, 1, {Side::kDma, 0}, 0, 2, 0, 0);
  Router{b}.packet_master(0, 1, {Side::kControl, 0}, 0, 1, false);
  Words words = control_packet(2, 0x1000, {5});
  const Words reset = control_packet(2, 0xA0630, {2}), never = control_packet(2, 0x1000, {6});
  words.insert(words.end(), reset.begin(), reset.end());
  words.insert(words.end(), never.begin(), never.end());
  b.block(tile_address(0, 1, 0), words);
  b.block(tile_address(0, 1, reg::mem::DMA_BD.at(0)), mem_bd(0, static_cast<uint32_t>(words.size())));
  b.write(tile_address(0, 1, 0xA0634), task(0)).poll(tile_address(0, 1, 0xA0680), 0, kIdleMask);
  p.run(b);
  EXPECT_EQ(p.peek(0, 1, 0x1000), 5u);
}

TEST(ControlPackets, TwoSendersShareAnArbiter) {
  TwoSenders p;  // packets of one never mix with those of the other
  for (uint32_t i = 0; i < 50; ++i) {
    p.add_packet(control_packet(2, 0x1000 + 16 * i, {i, i, i, i}));
    const Words other = control_packet(2, 0x2000 + 16 * i, {i, i});
    p.others.insert(p.others.end(), other.begin(), other.end());
  }
  p.run(p.other_ended(p.waiting(p.both())));
  EXPECT_EQ(p.peek(0, 1, 0x1000 + 16 * 49 + 12), 49u);
  EXPECT_EQ(p.peek(0, 1, 0x2000 + 16 * 49 + 4), 49u);
}

}  // namespace
}  // namespace onedispatch::sim
