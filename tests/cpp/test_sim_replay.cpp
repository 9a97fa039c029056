// SPDX-License-Identifier: Apache-2.0
// Replays: transactions without the overlay that they were written for.
#include "onedispatch/xrt.h"
#include "sim/replay/replay_simulator.h"
#include "test_sim_support.h"

namespace onedispatch::sim {
namespace {

using namespace testing;

constexpr uint32_t kWords = 256;

struct Stage {
  ReplaySimulator simulator{find_device("npu2_2col"), Rig::inline_options()};
  ReplayReport run(const Builder& builder) {
    const std::vector<uint8_t> bytes = builder.bytes();
    return simulator.replay(bytes.data(), bytes.size());
  }
};

uint64_t lock_at(uint32_t lock) { return tile_address(0, 1, 0xC0000 + 0x10 * lock); }
uint64_t acquire_at(uint32_t lock, int32_t value) {
  return tile_address(0, 1, 0xD0000 + 0x400 * lock + 0x200 + ((static_cast<uint32_t>(value) & 0x7F) << 2));
}
uint64_t mem_s2mm(uint32_t channel) { return tile_address(0, 1, 0xA0604 + 8 * channel); }
uint64_t mem_mm2s(uint32_t channel) { return tile_address(0, 1, 0xA0634 + 8 * channel); }
uint64_t mem_s2mm_status(uint32_t channel) { return tile_address(0, 1, 0xA0660 + 4 * channel); }
uint64_t mem_mm2s_status(uint32_t channel) { return tile_address(0, 1, 0xA0680 + 4 * channel); }

BdList locks(uint32_t acquire, int32_t value, uint32_t release = 0, int32_t by = 0) {
  return {{bd::mem::acquire_enable, 1},
          {bd::mem::acquire_lock, 64 + acquire},
          {bd::mem::acquire_value, value},
          {bd::mem::release_lock, 64 + release},
          {bd::mem::release_value, by}};
}

const ChannelReport* find(const ReplayReport& report, uint32_t row, bool mm2s, uint32_t channel) {
  for (const ChannelReport& c : report.run.channels)
    if (c.column == 0 && c.row == row && c.mm2s == mm2s && c.channel == channel) return &c;
  return nullptr;
}

// Host buffer -> nowhere, and nowhere -> memory tile.
Builder open_streams(bool v1 = false) {
  Builder b(v1);
  b.block(tile_address(0, 0, reg::shim::DMA_BD.at(0)), shim_bd({{bd::shim::length, kWords}}));
  b.patch(0, 0, 2, 4096);
  b.write(tile_address(0, 0, 0x1D214), task(0, 2));
  b.block(mem_bd_at(0), mem_bd(0x100, kWords));
  b.write(mem_s2mm(0), task(0));
  b.poll(mem_s2mm_status(0), 0, kIdleMask);
  b.poll(tile_address(0, 0, 0x1D228), 0, kIdleMask);
  return b;
}

TEST(Replay, StreamsWithoutARouteAreOpen) {
  Stage stage;
  const ReplayReport report = stage.run(open_streams());
  EXPECT_TRUE(report.finished) << report.stop;
  EXPECT_TRUE(report.unfinished.empty());
  EXPECT_TRUE(report.assumed.empty());
  const ChannelReport* sent = find(report, 0, true, 0);
  const ChannelReport* fed = find(report, 1, false, 0);
  ASSERT_NE(sent, nullptr);
  ASSERT_NE(fed, nullptr);
  EXPECT_EQ(sent->bytes, 2 * kWords * 4);
  EXPECT_TRUE(sent->open);
  EXPECT_EQ(fed->bytes, kWords * 4);
  EXPECT_TRUE(fed->open);
  EXPECT_GE(fed->busy, kWords);  // the rate of the stream
  ASSERT_EQ(report.arguments.size(), 1u);
  EXPECT_EQ(report.arguments[0].argument, 2u);
  EXPECT_EQ(report.arguments[0].first, 4096u);
  EXPECT_EQ(report.arguments[0].end, 4096u + kWords * 4);
  EXPECT_EQ(report.arguments[0].read, 2 * kWords * 4);
  EXPECT_EQ(report.arguments[0].written, 0u);
}

TEST(Replay, SourcesSupplyTheSamePatternEveryTime) {
  Stage first, second;
  first.run(open_streams());
  second.run(open_streams(true));
  uint32_t before = 0;
  for (uint32_t i = 0; i < kWords; ++i) {
    const uint32_t word = first.simulator.array().read(tile_address(0, 1, 0x100 + 4 * i));
    EXPECT_EQ(word, second.simulator.array().read(tile_address(0, 1, 0x100 + 4 * i)));
    if (i > 0) {
      EXPECT_NE(word, before);
    }
    before = word;
  }
}

TEST(Replay, BothVersionsAndRepeatedReplaysDoTheSame) {
  Stage stage;
  const ReplayReport first = stage.run(open_streams());
  const ReplayReport again = stage.run(open_streams());
  const ReplayReport other = stage.run(open_streams(true));
  EXPECT_EQ(first.run.cycles, again.run.cycles);
  EXPECT_EQ(first.settled_cycles, again.settled_cycles);
  EXPECT_EQ(first.run.cycles, other.run.cycles);
}

TEST(Replay, AbsentCoreProgramsAnswer) {
  Builder b;
  const uint64_t ready = tile_address(0, 2, 0x43BFC), given = tile_address(0, 2, 0x43C04);
  for (int i = 0; i < 3; ++i) {
    b.poll(ready, 1, 1);
    b.block(tile_address(0, 2, 0x4880), {0x66660001, 1, 2, 3});
    b.poll(given, 1, 1);
  }
  Stage stage;
  const ReplayReport report = stage.run(b);
  EXPECT_TRUE(report.finished) << report.stop;
  EXPECT_EQ(report.handshakes, 3u);
  EXPECT_GE(report.run.cycles, 2 * kAnswerCycles);  // the first needs no answer
  EXPECT_TRUE(report.assumed.empty());
}

TEST(Replay, ALockThatNobodyTouchesHasAPartnerOutside) {
  Builder b;
  b.block(mem_bd_at(0), mem_bd(0, 16, locks(3, -2)));
  b.write(mem_mm2s(0), task(0, 2));
  b.poll(mem_mm2s_status(0), 0, kIdleMask);
  b.poll(acquire_at(9, 1), 1, 1);
  Stage stage;
  const ReplayReport report = stage.run(b);
  EXPECT_TRUE(report.finished) << report.stop;
  ASSERT_EQ(report.assumed.size(), 2u);
  EXPECT_EQ(report.assumed[0].lock, 3u);
  EXPECT_EQ(report.assumed[0].times, 2u);
  EXPECT_FALSE(report.assumed[0].set);
  EXPECT_EQ(report.assumed[1].lock, 9u);
  EXPECT_EQ(report.assumed[1].times, 1u);
}

TEST(Replay, ALockThatIsSetButNeverReleasedHasOneToo) {
  Builder b;
  b.write(lock_at(0), 1);
  b.poll(acquire_at(0, 0), 1, 1);
  Stage stage;
  const ReplayReport report = stage.run(b);
  EXPECT_TRUE(report.finished) << report.stop;
  ASSERT_EQ(report.assumed.size(), 1u);
  EXPECT_TRUE(report.assumed[0].set);
}

TEST(Replay, ALockWithAPartnerInTheTransactionCanDeadlock) {
  Builder b;
  b.block(mem_bd_at(0), mem_bd(0, 16, locks(0, 0, 1, 1)));
  b.block(mem_bd_at(1), mem_bd(0, 16, locks(1, -2)));  // waits for two, gets one
  b.write(mem_s2mm(0), task(0));
  b.write(mem_mm2s(0), task(1));
  b.poll(mem_mm2s_status(0), 0, kIdleMask);
  b.timer(1);
  Stage stage;
  const ReplayReport report = stage.run(b);
  EXPECT_FALSE(report.finished);
  EXPECT_EQ(report.stop_kind, "deadlock");
  EXPECT_EQ(report.stop_op.index, 4);
  EXPECT_EQ(report.executed, 4u);
  ASSERT_EQ(report.unfinished.size(), 1u);
  EXPECT_TRUE(report.unfinished[0].mm2s);
  EXPECT_FALSE(report.unfinished[0].moving);
  EXPECT_NE(report.unfinished[0].why.find("waits for lock 1 (value 1, wanted >= 2)"), std::string::npos);
  EXPECT_TRUE(stage.run(open_streams()).finished);  // nothing stays behind
}

TEST(Replay, AnAcquireOfEqualLeavesTheValue) {
  Builder b;
  b.block(mem_bd_at(0), mem_bd(0, 16, locks(0, 0, 1, 1)));
  b.block(mem_bd_at(1), mem_bd(0, 16, locks(1, 1)));
  b.block(mem_bd_at(24), mem_bd(0, 16, locks(1, 1)));
  b.write(mem_mm2s(0), task(1));
  b.write(mem_mm2s(1), task(24));
  b.write(mem_s2mm(0), task(0));
  b.poll(acquire_at(1, 1), 1, 1);
  Stage stage;
  const ReplayReport report = stage.run(b);
  EXPECT_TRUE(report.finished) << report.stop;
  EXPECT_TRUE(report.unfinished.empty());
  EXPECT_TRUE(report.assumed.empty());
}

TEST(Replay, TheLengthOfAPaddedDescriptorCountsThePadding) {
  Builder b;
  BdList padded{{bd::mem::d0_wrap, 12}, {bd::mem::d0_zeros_after, 4}};
  b.block(mem_bd_at(0), mem_bd(reg::mem::kMemoryBytes - 2 * 12 * 4, 2 * 16, padded));  // ends with the memory
  b.write(mem_mm2s(0), task(0));
  b.block(mem_bd_at(24), make_bd(8, {{bd::mem::valid, 1},  // nothing but padding, at no address
                                     {bd::mem::length, 640},
                                     {bd::mem::d0_wrap, 510},
                                     {bd::mem::d1_wrap, 1020},
                                     {bd::mem::d2_zeros_before, 15}}));
  b.write(mem_mm2s(1), task(24));
  b.poll(mem_mm2s_status(0), 0, kIdleMask);
  b.poll(mem_mm2s_status(1), 0, kIdleMask);
  Stage stage;
  const ReplayReport report = stage.run(b);
  EXPECT_TRUE(report.finished) << report.stop;
  EXPECT_EQ(find(report, 1, true, 0)->bytes, 2 * 16 * 4u);
  EXPECT_EQ(find(report, 1, true, 1)->bytes, 640 * 4u);
}

TEST(Replay, PaddingArrivesWhereTheStreamIsRouted) {
  Builder b;
  Router{b}.circuit(0, 1, {Side::kDma, 1}, {Side::kDma, 1});
  b.write(tile_address(0, 1, 0xA06E4), 7);  // the channel's pad value
  for (uint32_t i = 0; i < 6; ++i) b.write(tile_address(0, 1, 4 * i), 100 + i);
  const BdList padded{{bd::mem::d0_wrap, 3}, {bd::mem::d1_step, 3}, {bd::mem::d0_zeros_before, 1}};
  b.block(mem_bd_at(26), mem_bd(0, 8, padded));
  b.block(mem_bd_at(24), mem_bd(0x1000, 8));
  b.write(mem_mm2s(1), task(26));
  b.write(mem_s2mm(1), task(24));
  b.poll(mem_s2mm_status(1), 0, kIdleMask);
  Stage stage;
  const ReplayReport report = stage.run(b);
  EXPECT_TRUE(report.finished) << report.stop;
  EXPECT_FALSE(find(report, 1, false, 1)->open);
  const std::vector<uint32_t> wanted{7, 100, 101, 102, 7, 103, 104, 105};
  for (uint32_t i = 0; i < 8; ++i)
    EXPECT_EQ(stage.simulator.array().read(tile_address(0, 1, 0x1000 + 4 * i)), wanted[i]) << i;
}

TEST(Replay, ADescriptorThatNobodyWroteMovesNothing) {
  Builder b;
  b.write(mem_s2mm(0), task(3));
  b.poll(mem_s2mm_status(0), 0, kIdleMask);
  Stage stage;
  const ReplayReport report = stage.run(b);
  EXPECT_TRUE(report.finished) << report.stop;
  ASSERT_EQ(report.absent_bds.size(), 1u);
  EXPECT_EQ(report.absent_bds[0].bd, 3u);
  b.block(mem_bd_at(5), std::vector<uint32_t>(8, 0));  // written, as invalid
  b.write(mem_s2mm(0), task(5));
  EXPECT_EQ(stage.run(b).stop_kind, "bd");
}

TEST(Replay, AStreamWithARouteIsReal) {
  Builder b;
  lay_feed_and_drain(b, 0);
  b.block(tile_address(0, 0, reg::shim::DMA_BD.at(0)), shim_bd({{bd::shim::length, kWords}}));
  b.patch(0, 0, 0, 0);
  b.write(tile_address(0, 0, 0x1D214), task(0));
  Stage stage;
  const ReplayReport waiting = stage.run(b);  // no channel receives
  EXPECT_TRUE(waiting.finished);
  ASSERT_EQ(waiting.unfinished.size(), 1u);
  EXPECT_NE(waiting.unfinished[0].why.find("not ready: mem tile c0 r1 S2MM0"), std::string::npos);
  b.block(mem_bd_at(0), mem_bd(0, kWords));
  b.write(mem_s2mm(0), task(0));
  const ReplayReport served = stage.run(b);
  EXPECT_TRUE(served.unfinished.empty());
  EXPECT_FALSE(find(served, 1, false, 0)->open);
}

TEST(Replay, AChainWithoutAnEndIsReportedAsMoving) {
  Builder b;
  b.block(mem_bd_at(0), mem_bd(0, 64, {{bd::mem::use_next, 1}, {bd::mem::next_bd, 0}}));
  b.write(mem_s2mm(0), task(0));
  b.timer(0);
  Stage stage;
  const ReplayReport report = stage.run(b);
  EXPECT_TRUE(report.finished);
  ASSERT_EQ(report.unfinished.size(), 1u);
  EXPECT_TRUE(report.unfinished[0].moving);
  b.poll(mem_s2mm_status(0), 0, kIdleMask);  // and waiting for it is refused
  EXPECT_EQ(stage.run(b).stop_kind, "endless_wait");
}

TEST(Replay, ALockThatNobodyTakesDoesNotOverflow) {
  Builder b;
  b.block(mem_bd_at(0), mem_bd(0, 1, {{bd::mem::release_lock, 64 + 2}, {bd::mem::release_value, 1}}));
  b.write(mem_s2mm(0), task(0, 100));
  b.poll(mem_s2mm_status(0), 0, kIdleMask);
  Stage stage;
  const ReplayReport report = stage.run(b);
  EXPECT_TRUE(report.finished) << report.stop;
  ASSERT_EQ(report.assumed.size(), 1u);
  EXPECT_EQ(report.assumed[0].lock, 2u);
}

TEST(Replay, CustomOpcodesWithoutMeaningAreSkipped) {
  for (const bool v1 : {false, true}) {
    Builder b(v1);
    b.words({150, 12, 7}).words({150, 12, 8}).timer(3);
    Stage stage;
    const ReplayReport report = stage.run(b);
    EXPECT_TRUE(report.finished) << report.stop;
    ASSERT_EQ(report.skipped.size(), 1u);
    EXPECT_EQ(report.skipped[0].first, 150u);
    EXPECT_EQ(report.skipped[0].second, 2u);
    EXPECT_EQ(report.run.timers.size(), 1u);
    Rig rig;  // an ordinary run does not guess
    try {
      rig.run(b);
      ADD_FAILURE();
    } catch (const TransactionError& error) {
      EXPECT_NE(std::string(error.what()).find("no public meaning"), std::string::npos) << error.what();
      EXPECT_EQ(error.op.index, 0);
    }
  }
}

TEST(Replay, OtherErrorsStopIt) {
  Stage stage;
  Builder bad;
  bad.timer(0).write(tile_address(0, 1, 0x90000), 0);
  const ReplayReport report = stage.run(bad);
  EXPECT_FALSE(report.finished);
  EXPECT_EQ(report.stop_kind, "register");
  EXPECT_EQ(report.stop_op.index, 1);
  const std::vector<uint8_t> junk(64, 0xAB);
  EXPECT_THROW(stage.simulator.replay(junk.data(), junk.size()), TransactionError);
}

ControlPackets given_packets(const std::vector<std::vector<uint32_t>>& list) {
  ControlPackets packets;
  for (const auto& one : list) {
    for (const uint32_t word : one) {
      packets.bytes.resize(packets.bytes.size() + 4);
      store32(&packets.bytes[packets.bytes.size() - 4], word);
    }
  }
  Builder overlay;
  lay_control(overlay);
  packets.overlay = overlay.bytes();
  return packets;
}

TEST(Replay, ControlPacketsAreExecuted) {
  ControlPackets packets = given_packets({control_packet(2, 0x100, {5, 6, 7, 8}), control_packet(8, 0x40, {9}),
                                          control_packet(1, 0x1D004, {0, 0}), control_packet(2, 0xC0000, {0})});
  const auto words = static_cast<uint32_t>(packets.bytes.size() / 4), half = words / 2;
  packets.patches.push_back(PacketPatch{4 * 11, 1, 64, false});
  Builder b;
  b.write(lock_at(0), 1);
  b.block(tile_address(0, 0, reg::shim::DMA_BD.at(4)),  // cuts a packet in two
          shim_bd({{bd::shim::length, half},
                   {bd::shim::suppress_tlast, 1},
                   {bd::shim::use_next, 1},
                   {bd::shim::next_bd, 5}}));
  b.patch(0, 4, 4, 0);
  b.block(tile_address(0, 0, reg::shim::DMA_BD.at(5)), shim_bd({{bd::shim::length, words - half}}));
  b.patch(0, 5, 4, uint64_t{half} * 4).write(tile_address(0, 0, 0x1D214), task(4));
  b.poll(acquire_at(0, 0), 1, 1);
  Stage stage;
  const std::vector<uint8_t> bytes = b.bytes();
  const ReplayReport report = stage.simulator.replay(bytes.data(), bytes.size(), packets);
  EXPECT_TRUE(report.finished) << report.stop;
  EXPECT_EQ(report.packets, 4u);
  EXPECT_TRUE(report.assumed.empty());
  EXPECT_EQ(stage.simulator.array().read(tile_address(0, 1, 0x10C)), 8u);
  EXPECT_EQ(stage.simulator.array().read(tile_address(0, 2, 0x40)), 9u);
  EXPECT_EQ(stage.simulator.array().read(tile_address(0, 0, 0x1D004)), txn::DDR_APERTURE + 64);
  EXPECT_NE(stage.simulator.array().read(tile_address(0, 0, 0x1D008)), 0u);

  store32(packets.bytes.data(), with_parity(5));  // an id without a route
  const ReplayReport unknown = stage.simulator.replay(bytes.data(), bytes.size(), packets);
  EXPECT_EQ(unknown.stop_kind, "route");
  packets.patches[0].offset = packets.bytes.size() - 4;
  EXPECT_THROW(stage.simulator.replay(bytes.data(), bytes.size(), packets), DeviceError);
}

TEST(Replay, DataWithoutBytesPassesTheRoutesOfPackets) {
  ControlPackets packets = given_packets({control_packet(2, 0x100, {5})});
  const std::vector<uint8_t> bytes = open_streams().bytes();  // sends from another argument
  Stage stage;
  const ReplayReport report = stage.simulator.replay(bytes.data(), bytes.size(), packets);
  EXPECT_TRUE(report.finished) << report.stop;
  EXPECT_EQ(report.packets, 0u);
  EXPECT_TRUE(find(report, 0, true, 0)->open);
}

// A transaction with something of everything, for damage.
Builder mixture() {
  Builder b = open_streams();
  lay_feed_and_drain(b, 0);
  Router{b}.circuit(0, 1, {Side::kDma, 1}, {Side::kDma, 1});
  const BdList padded{{bd::mem::d0_wrap, 3}, {bd::mem::d1_step, 3}, {bd::mem::d0_zeros_before, 1}};
  b.block(mem_bd_at(26), mem_bd(0, 32, padded));
  b.block(mem_bd_at(24), mem_bd(0x1000, 32, locks(2, -1, 3, 1)));
  b.write(mem_mm2s(1), task(26));
  b.write(mem_s2mm(1), task(24));
  b.poll(mem_s2mm_status(1), 0, kIdleMask);
  b.poll(acquire_at(3, -1), 1, 1);
  b.poll(tile_address(0, 2, 0x43BFC), 1, 1).poll(tile_address(0, 2, 0x43C04), 1, 1);
  b.block(tile_address(0, 0, reg::shim::DMA_BD.at(1)), shim_bd({{bd::shim::length, 64}}));
  b.patch(0, 1, 1, 64).write(tile_address(0, 0, 0x1D204), task(1, 3, true));
  b.block(mem_bd_at(25), mem_bd(0x2000, 192, {{bd::mem::enable_packet, 1}}));
  b.write(mem_mm2s(5), task(25)).token(0, 0, false, 0).timer(1);
  return b;
}

TEST(Replay, DamagedTransactionsEndInAReport) {
  Stage stage;
  ASSERT_TRUE(stage.run(mixture()).finished);
  const std::vector<uint8_t> whole = mixture().bytes();
  uint64_t state = 88172645463325252ull;
  const auto next = [&state](uint64_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
  };
  constexpr size_t head = txn::Header::size;
  unsigned finished = 0, stopped = 0, refused = 0;
  for (int i = 0; i < 600; ++i) {
    std::vector<uint8_t> bytes = whole;
    for (uint64_t n = 1 + next(6); n > 0; --n)
      bytes[head + next(bytes.size() - head)] ^= static_cast<uint8_t>(1u << next(8));
    try {
      const ReplayReport report = stage.simulator.replay(bytes.data(), bytes.size());
      EXPECT_EQ(report.finished, report.executed == report.run.operations);
      EXPECT_TRUE(report.finished || !report.stop.empty());
      ++(report.finished ? finished : stopped);
    } catch (const TransactionError&) {
      ++refused;
    }
  }
  EXPECT_GT(finished, 0u);
  EXPECT_GT(stopped, 0u);
  EXPECT_GT(refused, 0u);
}

// Packets with tiles that exist, offsets near registers that do something, and any data.
TEST(Replay, RandomPacketsEndInAReport) {
  Stage stage;
  const std::vector<uint8_t> bytes = open_streams().bytes();
  uint64_t state = 0x9E3779B97F4A7C15ull;
  const auto next = [&state] {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return static_cast<uint32_t>(state >> 16);
  };
  const uint32_t near[] = {0x0,     0x14000, 0x1D000, 0x1D200, 0x1DE00, 0x1F000,
                           0x3F000, 0xA0000, 0xA0600, 0xB0000, 0xC0000};
  unsigned stopped = 0;
  for (int i = 0; i < 300; ++i) {
    ControlPackets packets = given_packets({});
    packets.argument = 2;
    packets.bytes.resize(4096 + kWords * 4);
    const uint32_t ids[] = {1, 2, 8, 9};
    for (uint32_t word = 1024; word + 6 <= 1024 + kWords; word += 6) {
      store32(&packets.bytes[size_t{4} * word], with_parity(ids[next() % 4] | (next() % 2) << 21));
      store32(&packets.bytes[size_t{4} * word + 4],
              with_parity(near[next() % 11] + next() % 64 * 4 + (3u << 20) + (next() % 8 == 0 ? 1u << 22 : 0u)));
      for (uint32_t k = 2; k < 6; ++k) store32(&packets.bytes[size_t{4} * (word + k)], next() >> next() % 32);
    }
    const ReplayReport report = stage.simulator.replay(bytes.data(), bytes.size(), packets);
    stopped += report.finished ? 0 : 1;
    EXPECT_TRUE(report.finished || !report.stop.empty());
  }
  EXPECT_GT(stopped, 0u);
}

TEST(Replay, OrdinaryRunsStayStrict) {
  Rig rig;
  rig.buffers[0]->count_up();
  Builder sink, unread;
  sink.block(tile_address(0, 0, reg::shim::DMA_BD.at(0)), shim_bd({{bd::shim::length, kWords}}));
  sink.patch(0, 0, 0, 0).write(tile_address(0, 0, 0x1D214), task(0));
  sink.poll(tile_address(0, 0, 0x1D228), 0, ~0u);
  EXPECT_EQ(rig.error(sink).kind, "route");
  unread.write(mem_s2mm(0), task(3));
  EXPECT_EQ(rig.error(unread).kind, "bd");
}

TEST(Replay, HostApi) {
  const std::vector<uint8_t> bytes = open_streams().bytes();
  const xrt::device device("npu2");
  const ReplayReport report = xrt::replay(device, bytes.data(), bytes.size());
  EXPECT_TRUE(report.finished);
  EXPECT_GT(report.run.cycles, 0u);
}

}  // namespace
}  // namespace onedispatch::sim
