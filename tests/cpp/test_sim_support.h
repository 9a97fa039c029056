// SPDX-License-Identifier: Apache-2.0
// What the simulator's tests share: writing transactions, descriptors and routes; a rig to run them.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "onedispatch/txn_format.h"
#include "sampled.h"
#include "sim/control/controller.h"
#include "sim/transport/ports.h"

namespace onedispatch::sim::testing {

inline uint64_t tile_address(uint32_t column, uint32_t row, uint32_t offset) {
  return (uint64_t{column} << reg::COLUMN_SHIFT) | (uint64_t{row} << reg::ROW_SHIFT) | offset;
}

// Queues and descriptors of the first shim and the memory tile above it.
const uint64_t kShimRead = tile_address(0, 0, reg::shim::DMA_MM2S_QUEUE.at(0));
const uint64_t kShimWrite = tile_address(0, 0, reg::shim::DMA_S2MM_QUEUE.at(0));
const uint64_t kMemIn = tile_address(0, 1, reg::mem::DMA_S2MM_QUEUE.at(0));
const uint64_t kMemOut = tile_address(0, 1, reg::mem::DMA_MM2S_QUEUE.at(5));
inline uint64_t shim_bd_at(uint32_t bd) { return tile_address(0, 0, reg::shim::DMA_BD.at(bd)); }
inline uint64_t mem_bd_at(uint32_t bd, uint32_t column = 0) { return tile_address(column, 1, reg::mem::DMA_BD.at(bd)); }
constexpr uint32_t kIdleMask = 0x0078003C;  // of a channel's status: nothing running, nothing queued

// Appends operations of version 0.1 or 1.0.
class Builder {
 public:
  explicit Builder(bool v1 = false, uint32_t columns = 1) : v1_(v1), columns_(columns) {
    bytes_.resize(txn::Header::size);
  }

  Builder& write(uint64_t address, uint32_t value) {
    return v1_ ? words({0, low(address), value}) : words({0, 0, low(address), 0, value, 24});
  }
  Builder& block(uint64_t address, const std::vector<uint32_t>& payload) {
    const auto size = static_cast<uint32_t>(payload.size() * 4);
    if (v1_) {
      words({1, low(address), 12 + size});
    } else {
      words({1, 0, low(address), 16 + size});
    }
    for (const uint32_t word : payload) word_out(word);
    return *this;  // counted by words()
  }
  Builder& mask_write(uint64_t address, uint32_t value, uint32_t mask) {
    return masked(3, address, value, mask);
  }
  Builder& poll(uint64_t address, uint32_t value, uint32_t mask) { return masked(4, address, value, mask); }
  Builder& token(uint32_t column, uint32_t row, bool mm2s, uint32_t channel, uint32_t columns = 1) {
    return words({128, 16, static_cast<uint32_t>(mm2s) | row << 8 | column << 16,
                  1u << 8 | columns << 16 | channel << 24});
  }
  Builder& patch(uint32_t column, uint32_t bd, uint32_t argument, uint64_t offset) {
    const uint32_t at = low(tile_address(column, 0, reg::shim::DMA_BD.at(bd) + 4));
    if (v1_) return words({129, 24, at, argument, low(offset), static_cast<uint32_t>(offset >> 32)});
    return words({129, 48, 0, 0, 0, 0, at, 0, argument, 0, low(offset), static_cast<uint32_t>(offset >> 32)});
  }
  Builder& read_register(uint64_t address, uint32_t times) {
    words({130, 16 + 8 * times, times, 0});
    for (uint32_t i = 0; i < times; ++i) {
      word_out(low(address));
      word_out(0);
    }
    return *this;
  }
  Builder& timer(uint32_t id) { return words({131, 12, id}); }
  Builder& load_pdi(uint32_t id) { return words({8 | id << 16, 0, 0, 0}); }
  Builder& merge_sync(uint32_t tokens, uint32_t columns) {
    return words({132, 16, tokens | columns << 8, 0});
  }
  Builder& words(std::initializer_list<uint32_t> list) {
    for (const uint32_t word : list) word_out(word);
    ++count_;
    return *this;
  }

  std::vector<uint8_t> bytes() const {
    std::vector<uint8_t> all = bytes_;
    all[0] = v1_ ? 1 : 0;
    all[1] = v1_ ? 0 : 1;
    all[2] = 4;
    all[3] = 6;
    all[4] = static_cast<uint8_t>(columns_);
    all[5] = 1;
    store32(&all[8], count_);
    store32(&all[12], static_cast<uint32_t>(all.size()));
    return all;
  }

 private:
  static uint32_t low(uint64_t value) { return static_cast<uint32_t>(value); }
  void word_out(uint32_t word) {
    bytes_.resize(bytes_.size() + 4);
    store32(&bytes_[bytes_.size() - 4], word);
  }
  Builder& masked(uint32_t code, uint64_t address, uint32_t value, uint32_t mask) {
    return v1_ ? words({code, low(address), value, mask})
               : words({code, 0, low(address), 0, value, mask, 28});
  }

  bool v1_;
  uint32_t columns_;
  uint32_t count_ = 0;
  std::vector<uint8_t> bytes_;
};

// A descriptor in words; fields by name from bd::shim, bd::mem, bd::core.
using BdList = std::vector<std::pair<Field, int64_t>>;
inline std::vector<uint32_t> make_bd(uint32_t words, const BdList& fields) {
  std::vector<uint32_t> bd(words, 0);
  for (const auto& [field, value] : fields) bd[field.word] = field.set(bd[field.word], value);
  return bd;
}
inline std::vector<uint32_t> shim_bd(BdList fields) {
  fields.emplace_back(bd::shim::valid, 1);
  return make_bd(8, fields);
}
inline std::vector<uint32_t> mem_bd(uint32_t byte, uint32_t words, BdList fields = {}) {
  fields.emplace_back(bd::mem::valid, 1);
  fields.emplace_back(bd::mem::base, (byte + reg::mem::kOwnMemoryView) / 4);
  fields.emplace_back(bd::mem::length, words);
  return make_bd(8, fields);
}
inline std::vector<uint32_t> core_bd(uint32_t byte, uint32_t words, BdList fields = {}) {
  fields.emplace_back(bd::core::valid, 1);
  fields.emplace_back(bd::core::base, byte / 4);
  fields.emplace_back(bd::core::length, words);
  return make_bd(6, fields);
}
inline uint32_t task(uint32_t bd, uint32_t repeat = 1, bool token = false) {
  return bd | (repeat - 1) << 16 | (token ? 1u << 31 : 0u);
}

// Writes circuit and packet routes.
struct Router {
  Builder& b;
  uint32_t block(TileKind kind, bool master) const {
    if (kind == TileKind::kShim)
      return master ? reg::shim::SWITCH_MASTER.offset : reg::shim::SWITCH_SLAVE.offset;
    if (kind == TileKind::kMem)
      return master ? reg::mem::SWITCH_MASTER.offset : reg::mem::SWITCH_SLAVE.offset;
    return master ? reg::core::SWITCH_MASTER.offset : reg::core::SWITCH_SLAVE.offset;
  }
  static TileKind kind(uint32_t row) {
    return row == 0 ? TileKind::kShim : row == 1 ? TileKind::kMem : TileKind::kCore;
  }
  void circuit(uint32_t column, uint32_t row, Port from, Port to) const {
    const auto slave = static_cast<uint32_t>(port_index(kind(row), false, from));
    const auto master = static_cast<uint32_t>(port_index(kind(row), true, to));
    b.write(tile_address(column, row, block(kind(row), false) + 4 * slave), 1u << 31);
    b.write(tile_address(column, row, block(kind(row), true) + 4 * master), 1u << 31 | slave);
  }
  void packet_slave(uint32_t column, uint32_t row, Port from, uint32_t slot, uint32_t id, uint32_t arbiter,
                    uint32_t msel) const {
    const auto slave = static_cast<uint32_t>(port_index(kind(row), false, from));
    const uint32_t slots = block(kind(row), false) + 0x100;
    b.write(tile_address(column, row, block(kind(row), false) + 4 * slave), 3u << 30);
    b.write(tile_address(column, row, slots + 16 * slave + 4 * slot),
            arbiter | msel << 4 | 1u << 8 | 0x1Fu << 16 | id << 24);
  }
  void packet_master(uint32_t column, uint32_t row, Port to, uint32_t arbiter, uint32_t msels,
                     bool drop) const {
    const auto master = static_cast<uint32_t>(port_index(kind(row), true, to));
    b.write(tile_address(column, row, block(kind(row), true) + 4 * master),
            3u << 30 | (drop ? 0x80u : 0u) | msels << 3 | arbiter);
  }
};

// Shim MM2S0 -> mem S2MM0 and mem MM2S5 -> shim S2MM0, as the overlay of the operators does.
inline void lay_feed_and_drain(Builder& b, uint32_t column) {
  const Router r{b};
  b.write(tile_address(column, 0, reg::shim::MUX.offset), 1u << 10 | 1u << 14);
  b.write(tile_address(column, 0, reg::shim::DEMUX.offset), 1u << 4 | 1u << 6);
  r.circuit(column, 0, {Side::kSouth, 3}, {Side::kNorth, 0});
  r.circuit(column, 1, {Side::kSouth, 0}, {Side::kDma, 0});
  r.circuit(column, 1, {Side::kDma, 5}, {Side::kSouth, 0});
  r.circuit(column, 0, {Side::kNorth, 0}, {Side::kSouth, 2});
}

inline uint32_t with_parity(uint32_t word) {
  uint32_t ones = 0;
  for (uint32_t rest = word; rest != 0; rest &= rest - 1) ++ones;
  return ones % 2 == 1 ? word : word | 1u << 31;
}

// [stream header][control header][data words]
inline std::vector<uint32_t> control_packet(uint32_t id, uint32_t offset, std::vector<uint32_t> data,
                                            uint32_t operation = 0, uint32_t column = 0) {
  const auto beats = static_cast<uint32_t>(data.size());
  data.insert(data.begin(),
              {with_parity(id | column << 21), with_parity(offset | (beats - 1) << 20 | operation << 22)});
  return data;
}
// Reads `words` words; the answer has id `answer`.
inline std::vector<uint32_t> read_packet(uint32_t id, uint32_t offset, uint32_t words, uint32_t answer) {
  return {with_parity(id), with_parity(offset | (words - 1) << 20 | 1u << 22 | answer << 24)};
}

// Packets of shim MM2S0 by id: 1 its own control port, 2 the memory tile's, 8 that of core row 0, 9 both
// of these; 4 mem S2MM2. `drop`: the last masters drop the header.
inline void lay_control(Builder& b, uint32_t column = 0, bool drop = false) {
  const Router r{b};
  b.write(tile_address(column, 0, reg::shim::MUX.offset), 1u << 10 | 1u << 14);
  b.write(tile_address(column, 0, reg::shim::SWITCH_SLAVE.at(5)), 3u << 30);  // South 3
  const auto slots = [&](uint32_t row, Port from, std::vector<std::pair<uint32_t, uint32_t>> ways) {
    for (uint32_t i = 0; i < ways.size(); ++i)
      r.packet_slave(column, row, from, i, ways[i].first, 7, ways[i].second);
  };
  slots(0, {Side::kSouth, 3}, {{1, 0}});
  // Everything else goes on: a slot that asks for no bit of the id.
  b.write(tile_address(column, 0, reg::shim::SWITCH_SLAVE.offset + 0x100 + 16 * 5 + 4), 7u | 1u << 4 | 1u << 8);
  r.packet_master(column, 0, {Side::kControl, 0}, 7, 1, drop);
  r.packet_master(column, 0, {Side::kNorth, 5}, 7, 2, false);
  slots(1, {Side::kSouth, 5}, {{2, 0}, {8, 1}, {9, 2}, {4, 3}});
  r.packet_master(column, 1, {Side::kControl, 0}, 7, 1 | 4, drop);
  r.packet_master(column, 1, {Side::kNorth, 5}, 7, 2 | 4, false);
  r.packet_master(column, 1, {Side::kDma, 2}, 7, 8, drop);
  slots(2, {Side::kSouth, 5}, {{8, 0}, {9, 0}});
  r.packet_master(column, 2, {Side::kControl, 0}, 7, 1, drop);
}

constexpr uint32_t kTokenId = 15, kTokenLane = 3, kTokenArbiter = 6;

// Tokens of all tiles of a column go down South lane 3 to the controller.
inline void lay_tokens(Builder& b, uint32_t column, uint32_t id = kTokenId) {
  const Router r{b};
  for (uint32_t row = 0; row < 6; ++row) {
    const TileKind kind = Router::kind(row);
    r.packet_slave(column, row, {Side::kControl, 0}, 3, id, kTokenArbiter, 0);
    if (row < 5) r.packet_slave(column, row, {Side::kNorth, kTokenLane}, 3, id, kTokenArbiter, 0);
    r.packet_master(column, row, {Side::kSouth, row == 0 ? 0 : kTokenLane}, kTokenArbiter, 1, false);
    const Block s2mm = kind == TileKind::kShim ? reg::shim::DMA_S2MM_CTRL
                       : kind == TileKind::kMem ? reg::mem::DMA_S2MM_CTRL
                                                : reg::core::DMA_S2MM_CTRL;
    const Block mm2s = kind == TileKind::kShim ? reg::shim::DMA_MM2S_CTRL
                       : kind == TileKind::kMem ? reg::mem::DMA_MM2S_CTRL
                                                : reg::core::DMA_MM2S_CTRL;
    for (uint32_t channel = 0; channel < s2mm.count; ++channel) {
      b.write(tile_address(column, row, s2mm.at(channel)), id << 8);
      b.write(tile_address(column, row, mm2s.at(channel)), id << 8);
    }
  }
}
inline Overlays token_overlay(uint32_t columns = 2) {
  Builder b(false, columns);
  for (uint32_t column = 0; column < columns; ++column) lay_tokens(b, column);
  return {{0, b.bytes()}};
}

struct Buffer {
  std::vector<uint8_t> bytes;
  ValidMap valid;
  std::shared_ptr<DdrRegion> region;

  explicit Buffer(uint32_t words, uint64_t address) : bytes(size_t{4} * words), valid(words) {
    region = std::make_shared<DdrRegion>();
    region->address = region->origin = address;
    region->bytes = bytes.size();
    region->data = bytes.data();
    region->valid = &valid;
  }
  uint32_t get(uint32_t word) const { return load32(&bytes[size_t{4} * word]); }
  void set(uint32_t word, uint32_t value) {
    store32(&bytes[size_t{4} * word], value);
    valid.mark(word, 1);
  }
  void count_up(uint32_t first = 1000) {
    for (uint32_t i = 0; i < bytes.size() / 4; ++i) set(i, first + i);
  }
};

// A clock without data beside a simulator: it says what its runs cost before they are made, or that it cannot know.
class Clock {
 public:
  // `given`: whether it knows what is in device memory.
  Clock(const DeviceDescription& device, const Options& options, const Overlays& overlays, bool given)
      : given_(given), simulator_(device, timed(options), overlays) {}

  void time(const std::vector<uint8_t>& transaction, const std::vector<std::unique_ptr<Buffer>>& buffers) {
    report_.reset();
    failure_.reset();
    if (!follows_) return;
    DdrRegions regions;
    std::vector<ValidMap> nothing(buffers.size());
    for (size_t i = 0; i < buffers.size(); ++i) {
      regions.push_back(std::make_shared<DdrRegion>(*buffers[i]->region));
      nothing[i] = ValidMap(buffers[i]->bytes.size() / 4);
      if (!given_) regions[i]->valid = &nothing[i];
    }
    try {
      report_ = simulator_.run(transaction.data(), transaction.size(), regions);
    } catch (const SimulationError& error) {
      failure_ = error;
    } catch (const TransactionError&) {
    }
    follows_ = report_.has_value();  // else its array is no longer as that of the simulator
  }
  void expect_same(const RunReport& run) const {
    if (!report_ && failure_) {
      EXPECT_EQ(failure_->kind, "clock") << failure_->what();
    }
    if (!report_) return;
    EXPECT_EQ(values_of(*report_), values_of(run));
    EXPECT_EQ(report_->recorded, kTimed);
  }
  // The run failed: so does the clock, but where it takes data to see that.
  void expect_same(const SimulationError& run) {
    const bool needs_data = run.kind == "memory" || run.kind == "core";
    if ((report_ || failure_) && !needs_data) {
      EXPECT_TRUE(failure_ && (failure_->kind == "clock" || failure_->kind == run.kind))
          << run.what() << "\n" << (failure_ ? failure_->what() : "");
    }
    follows_ = false;
  }
  const std::optional<RunReport>& report() const { return report_; }
  const std::optional<SimulationError>& failure() const { return failure_; }

 private:
  static Options timed(Options options) {
    options.clock = true;
    return options;
  }
  static std::vector<uint64_t> values_of(const RunReport& r) {
    std::vector<uint64_t> all{r.cycles, r.operations, r.events, r.kernel_calls, r.ddr_burst_bytes};
    for (const auto& [id, cycle] : r.timers) all.insert(all.end(), {id, cycle});
    all.insert(all.end(), r.ddr_read.begin(), r.ddr_read.end());
    all.insert(all.end(), r.ddr_written.begin(), r.ddr_written.end());
    for (const ChannelReport& c : r.channels) all.insert(all.end(), {c.column, c.row, c.mm2s, c.channel, c.bytes, c.busy, c.stall});
    for (const CoreReport& c : r.cores) all.insert(all.end(), {c.column, c.row, c.busy, c.calls});
    for (const auto& [address, value] : r.registers) all.insert(all.end(), {address, value});
    return all;
  }

  bool given_, follows_ = true;
  Simulator simulator_;
  std::optional<RunReport> report_;
  std::optional<SimulationError> failure_;
};

// A simulator with buffers: two of 64 Ki words unless given otherwise. Its runs cost what clocks say.
struct Rig {
  explicit Rig(const Overlays& overlays = token_overlay(), const char* name = "npu2_2col", Options options = inline_options())
      : simulator(find_device(name), options, overlays) {
    for (const bool given : {true, false}) clocks.push_back(std::make_unique<Clock>(find_device(name), options, overlays, given));
    add(1 << 16);
    add(1 << 16);
  }
  static Options inline_options() {
    Options options;
    options.threads = 1;
    options.event_limit = 200'000;
    return options;
  }
  Buffer& add(uint32_t words) {
    buffers.push_back(std::make_unique<Buffer>(words, 0x4000000000ull + buffers.size() * 0x10000000ull));
    return *buffers.back();
  }
  RunReport run(const Builder& builder) {
    const std::vector<uint8_t> bytes = builder.bytes();
    DdrRegions regions;
    for (const auto& buffer : buffers) {
      regions.push_back(std::make_shared<DdrRegion>(*buffer->region));
    }
    for (const auto& clock : clocks) clock->time(bytes, buffers);
    try {
      RunReport report = simulator.run(bytes.data(), bytes.size(), regions);
      for (const auto& clock : clocks) clock->expect_same(report);
      return report;
    } catch (const SimulationError& error) {
      for (const auto& clock : clocks) clock->expect_same(error);
      throw;
    }
  }
  // The error that a run ends with; fails the test when there is none.
  SimulationError error(const Builder& builder) {
    try {
      run(builder);
    } catch (const SimulationError& error) {
      return error;
    }
    ADD_FAILURE() << "the run succeeded";
    return SimulationError("none", {});
  }
  uint32_t peek(uint32_t column, uint32_t row, uint32_t byte) {
    return simulator.array().read(tile_address(column, row, byte));
  }

  std::vector<std::unique_ptr<Buffer>> buffers;
  Simulator simulator;
  std::vector<std::unique_ptr<Clock>> clocks;  // all words given; none
};

}  // namespace onedispatch::sim::testing
