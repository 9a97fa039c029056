// SPDX-License-Identifier: Apache-2.0
// Decoding and validation of transactions: framing, every check, both versions.
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "txn/decode.h"
#include "txn/validate.h"

namespace {

using namespace onedispatch;
using txn::Check;
using txn::Fault;

constexpr uint32_t kShimBd0 = 0x1D000, kMemQueue0 = 1u << 20 | 0xA0604, kMemQueue1 = 1u << 20 | 0xA060C;

// A transaction of 4 columns, made word by word.
class File {
 public:
  explicit File(bool v1 = false) : v1_(v1) {}

  File& op(std::initializer_list<uint32_t> words) {
    words_.insert(words_.end(), words);
    ++ops_;
    return *this;
  }
  File& write(uint32_t reg, uint32_t value) {
    return v1_ ? op({0, reg, value}) : op({0, 0, reg, 0, value, 24});
  }
  File& masked(uint32_t code, uint32_t reg, uint32_t value, uint32_t mask) {
    return v1_ ? op({code, reg, value, mask}) : op({code, 0, reg, 0, value, mask, 32, 0});
  }
  File& block(uint32_t reg, const std::vector<uint32_t>& payload) {
    const auto count = static_cast<uint32_t>(payload.size());
    v1_ ? op({1, reg, 12 + 4 * count}) : op({1, 0, reg, 16 + 4 * count});
    words_.insert(words_.end(), payload.begin(), payload.end());
    return *this;
  }
  File& patch(uint32_t reg, uint32_t argument, uint32_t offset) {
    return v1_ ? op({129, 24, reg, argument, offset, 0})
               : op({129, 48, 0, 0, 0, 0, reg, 0, argument, 0, offset, 0});
  }
  std::vector<uint8_t> bytes() const {
    std::vector<uint8_t> all = {uint8_t(v1_ ? 1 : 0), uint8_t(v1_ ? 0 : 1), 4, 6, 4, 1, 0, 0};
    const auto add = [&](uint32_t word) {
      for (int i = 0; i < 4; ++i) all.push_back(static_cast<uint8_t>(word >> (8 * i)));
    };
    add(ops_);
    add(static_cast<uint32_t>(16 + 4 * words_.size()));
    for (uint32_t word : words_) add(word);
    return all;
  }

 private:
  bool v1_;
  uint32_t ops_ = 0;
  std::vector<uint32_t> words_;
};

txn::Frame decode(const std::vector<uint8_t>& bytes, std::vector<int64_t>* starts = nullptr) {
  std::vector<int64_t> own;
  if (starts == nullptr) starts = &own;
  starts->resize(txn::op_limit(bytes.data(), bytes.size()));
  return txn::decode(bytes.data(), bytes.size(), starts->data(), starts->size());
}

std::vector<txn::Finding> check(const std::vector<uint8_t>& bytes, const txn::ArgumentSizes* sizes = nullptr) {
  return txn::validate(bytes.data(), bytes.size(), sizes);
}

// "name op: numbers" of every finding.
std::vector<std::string> said(const File& file, const txn::ArgumentSizes* sizes = nullptr) {
  EXPECT_EQ(decode(file.bytes()).fault, Fault::kNone);
  std::vector<std::string> all;
  for (const txn::Finding& f : check(file.bytes(), sizes)) {
    std::string text = std::string(txn::name_of(f.check)) + " " + std::to_string(f.op) + ":";
    for (uint64_t number : f.numbers) text += " " + std::to_string(number);
    all.push_back(text);
  }
  return all;
}

using Lines = std::vector<std::string>;

TEST(TxnDecode, FindsEveryOpOfBothVersions) {
  for (const bool v1 : {false, true}) {
    File file(v1);
    file.write(0x14000, 1).block(kShimBd0, std::vector<uint32_t>(8)).masked(4, 0x1D220, 0, 1);
    file.patch(kShimBd0 + 4, 0, 0).op({5}).op({200, 12, 7}).op({250, 8});
    std::vector<int64_t> starts;
    const txn::Frame frame = decode(file.bytes(), &starts);
    EXPECT_EQ(frame.fault, Fault::kNone);
    EXPECT_EQ(frame.ops, 7u);
    EXPECT_EQ(frame.at, file.bytes().size());
    const std::vector<int64_t> wanted = v1 ? std::vector<int64_t>{16, 28, 72, 88, 112, 116, 128}
                                           : std::vector<int64_t>{16, 40, 88, 120, 168, 172, 184};
    EXPECT_EQ(starts, wanted);
  }
}

TEST(TxnDecode, StoresNoMoreThanThereIsRoomFor) {
  const std::vector<uint8_t> bytes = File().op({5}).op({5}).op({5}).bytes();
  int64_t starts[3] = {-1, -1, -1};
  EXPECT_EQ(txn::decode(bytes.data(), bytes.size(), starts, 2).ops, 3u);
  EXPECT_EQ(starts[1], 20);
  EXPECT_EQ(starts[2], -1);
}

TEST(TxnDecode, FrameFaults) {
  const std::vector<uint8_t> good = File().op({5}).bytes();
  EXPECT_EQ(decode({}).fault, Fault::kNoHeader);
  EXPECT_EQ(decode(std::vector<uint8_t>(15)).fault, Fault::kNoHeader);
  std::vector<uint8_t> bad = good;
  bad[0] = 1;  // 1.1
  EXPECT_EQ(decode(bad).fault, Fault::kVersion);
  bad = good;
  bad.push_back(0);
  EXPECT_EQ(decode(bad).fault, Fault::kByteSize);
  bad[12] = 21;
  EXPECT_EQ(decode(bad).fault, Fault::kAlignment);
  bad = good;
  bad[8] = 2;
  EXPECT_EQ(decode(bad).fault, Fault::kOpCount);
  bad[8] = 0;
  EXPECT_EQ(decode(bad).fault, Fault::kOpCount);
  EXPECT_EQ(decode(bad).ops, 1u);
}

TEST(TxnDecode, OpFaults) {
  const auto fault = [](std::initializer_list<uint32_t> words, Fault wanted, uint64_t size, bool v1 = false) {
    const txn::Frame frame = decode(File(v1).op({5}).op(words).bytes());
    EXPECT_EQ(frame.fault, wanted);
    EXPECT_EQ(frame.ops, 1u);
    EXPECT_EQ(frame.at, 20u);
    EXPECT_EQ(wanted == Fault::kOpSize ? frame.op_size : size, size);
  };
  fault({2}, Fault::kOpcode, 0);
  fault({100}, Fault::kOpcode, 0);
  fault({0, 0, 0, 0}, Fault::kOpSize, 24);           // the size field lies past the end
  fault({0, 0, 0, 0, 0, 28}, Fault::kOpSize, 28);    // another size than the only one
  fault({1, 0, 0, 12}, Fault::kOpSize, 12);          // smaller than its fixed part
  fault({1, 0, 0, 18, 0}, Fault::kOpSize, 18);       // no multiple of 4
  fault({1, 0, 0, 20}, Fault::kOpSize, 20);          // past the end
  fault({250, 0xFFFFFFFC}, Fault::kOpSize, 0xFFFFFFFC);
  fault({250, 0}, Fault::kOpSize, 0);
  fault({8, 0, 0}, Fault::kOpSize, 16);              // implied size, cut off
  fault({0, 0}, Fault::kOpSize, 12, true);
  const auto with_mask = [](uint32_t size) {
    File file;
    file.op({3, 0, 0, 0, 0, 0, size});
    if (size == 32) file.op({0});
    return decode(file.bytes()).fault;
  };
  EXPECT_EQ(with_mask(28), Fault::kNone);
  EXPECT_EQ(with_mask(24), Fault::kOpSize);
}

TEST(TxnValidate, AGoodFileHasNoFindings) {
  for (const bool v1 : {false, true}) {
    File file(v1);
    file.block(kShimBd0, std::vector<uint32_t>(16)).patch(kShimBd0 + 4, 0, 64).patch(kShimBd0 + 0x24, 1, 0);
    file.write(0x1D204, 0x80FF0003).write(kMemQueue1, 24).write(0x14000, 63);
    file.masked(3, 1u << 20 | 0xA0600, 2, 2).masked(4, 0x1D220, 0, 0x78003C).masked(7, 0x1D220, 1, 1);
    file.block(2u << 20 | 0xFFFC, {1}).op({128, 16, 0, 0x00010100}).op({6 | 3 << 8}).op({134, 12, 0});
    const txn::ArgumentSizes sizes = {{0, 64}, {1, 0}};
    EXPECT_EQ(said(file, &sizes), Lines{});
  }
}

TEST(TxnValidate, Header) {
  std::vector<uint8_t> bytes = File().bytes();
  bytes[2] = 77, bytes[3] = 5, bytes[4] = 0, bytes[5] = 2;
  std::vector<txn::Finding> found = check(bytes);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].check, Check::kGeneration);
  EXPECT_EQ(found[1].check, Check::kRows);
  EXPECT_EQ(found[2].check, Check::kColumns);
  EXPECT_EQ(found[2].byte_offset, 4u);
  EXPECT_EQ(found[2].op, -1);
  bytes = File().bytes();
  bytes[4] = 9;
  found = check(bytes);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].numbers[1], 8u);
}

TEST(TxnValidate, Addresses) {
  EXPECT_EQ(said(File().write(0x14002, 0)), Lines{"Address 0: 81922 0 0 0"});
  EXPECT_EQ(said(File(true).write(4u << 25 | 0x14000, 0)), Lines{"Address 0: 134299648 0 0 0"});
  EXPECT_EQ(said(File().op({0, 0, 0x14000, 1, 99, 24})), Lines{"Address 0: 4295049216 0 0 0"});
  EXPECT_EQ(said(File().write(6u << 20, 0)), Lines{"Row 0: 6 6291456 0 0"});
  EXPECT_EQ(said(File().masked(3, 0x14004, 0, 0)), Lines{"Register 0: 81924 81924 0 0"});
  // The first word that is no register: past a core's memory, behind the six words of a core's BD.
  EXPECT_EQ(said(File().block(2u << 20 | 0xFFFC, {0, 0})), Lines{"Register 0: 65536 2162684 0 0"});
  EXPECT_EQ(said(File().block(2u << 20 | 0x1D000, std::vector<uint32_t>(8))),
            Lines{"Register 0: 118808 2215936 0 0"});
  EXPECT_EQ(said(File().block(1u << 20 | 0xFFF10, std::vector<uint32_t>(100))),
            Lines{"Register 0: 1048340 2096912 0 0"});
  EXPECT_EQ(said(File().op({130, 32, 2, 0, 0x14000, 0, 3, 0})), Lines{"Address 0: 3 0 0 0"});
}

TEST(TxnValidate, Values) {
  EXPECT_EQ(said(File().write(0x14010, 64)), Lines{"LockValue 0: 1 64 0 0"});
  EXPECT_EQ(said(File().write(kMemQueue0, 24)), Lines{"QueueBd 0: 24 0 0 23"});
  EXPECT_EQ(said(File(true).write(kMemQueue1, 23)), Lines{"QueueBd 0: 23 1 24 47"});
  EXPECT_EQ(said(File().write(1u << 20 | 0xA063C, 0)), Lines{"QueueBd 0: 0 1 24 47"});
  EXPECT_EQ(said(File().write(0x1D204, 0x10)), Lines{"Reserved 0: 119300 16 0 0"});
  EXPECT_EQ(said(File().masked(4, 0x1D220, 3, 1)), Lines{"NeverTrue 0: 0 0 0 0"});
  EXPECT_EQ(said(File(true).masked(7, 0x1D220, 3, 1)), Lines{"NeverTrue 0: 0 0 0 0"});
  EXPECT_EQ(said(File().masked(4, 1u << 20 | 0xC0010, 64, 0xFF)), Lines{"NeverHeld 0: 1835024 64 63 0"});
  EXPECT_EQ(said(File().masked(4, 1u << 20 | 0xD0300, 3, 3)), Lines{"NeverHeld 0: 1901312 3 1 0"});
  EXPECT_EQ(said(File().masked(4, 1u << 20 | 0xD0300, 1, 1)), Lines{"NeverGranted 0: 1901312 0 0 0"});
  EXPECT_EQ(said(File().masked(4, 1u << 20 | 0xD0304, 1, 1)), Lines{});  // 63: all that a lock holds
  EXPECT_EQ(said(File().op({6 | 4 << 8})), Lines{"Preemption 0: 4 0 0 0"});
}

TEST(TxnValidate, Tokens) {
  EXPECT_EQ(said(File().op({128, 16, 2 | 7 << 8, 0x00010100})),
            (Lines{"TokenChannel 0: 2 0 7 0", "TokenRows 0: 1 7 0 0"}));
  EXPECT_EQ(said(File().op({128, 16, 0, 0x02010100})), Lines{"TokenChannel 0: 0 2 0 2"});
  EXPECT_EQ(said(File().op({128, 16, 1 << 16, 0x00040000})),
            (Lines{"TokenColumns 0: 4 1 0 0", "TokenRows 0: 0 0 0 0"}));
}

TEST(TxnValidate, Counts) {
  EXPECT_EQ(said(File().block(0, {})), Lines{"EmptyWrite 0: 0 0 0 0"});
  EXPECT_EQ(said(File().op({130, 28, 1, 0, 0x14000, 0, 0})), Lines{"AddressCount 0: 1 12 0 0"});
  EXPECT_EQ(said(File().op({140, 8})), Lines{"UnknownOpcode 0: 140 0 0 0"});
}

TEST(TxnValidate, PatchesFollowTheirBd) {
  const std::vector<uint32_t> bd(8);
  EXPECT_EQ(said(File().patch(kShimBd0 + 4, 0, 0)), Lines{"UnwrittenBd 0: 0 0 0 0"});
  EXPECT_EQ(said(File().block(kShimBd0, bd).patch(kShimBd0 + 8, 0, 0)), Lines{"UnwrittenBd 1: 0 0 0 0"});
  EXPECT_EQ(said(File().block(kShimBd0 + 4, bd).patch(kShimBd0 + 4, 0, 0)), Lines{"UnwrittenBd 1: 0 0 0 0"});
  EXPECT_EQ(said(File().block(kShimBd0, bd).patch(2u << 25 | (kShimBd0 + 4), 0, 0)),
            Lines{"UnwrittenBd 1: 0 0 0 0"});
  EXPECT_EQ(said(File().block(kShimBd0, bd).block(0x1D020, bd).patch(kShimBd0 + 4, 0, 2)),
            Lines{"Unaligned 2: 0 0 0 0"});
}

TEST(TxnValidate, ArgumentBounds) {
  // 7 rows of 16 words and 8: see the BD's length, wraps and steps.
  File file;
  file.block(kShimBd0, {64, 0, 0, 8u << 20, 8u << 20 | 15, 0, 0, 0}).patch(kShimBd0 + 4, 1, 32);
  const uint64_t reach = 4 * (7 * 16 + 8);
  txn::ArgumentSizes sizes = {{1, 32 + reach}};
  EXPECT_EQ(said(file, &sizes), Lines{});
  sizes[1] -= 1;
  EXPECT_EQ(said(file, &sizes), Lines{"PastArgument 1: 1 511 32 480"});
  sizes = {{0, 64}};
  EXPECT_EQ(said(file, &sizes), Lines{"NoArgument 1: 1 0 0 0"});
  const std::vector<txn::Patch> all = txn::patches(file.bytes().data(), file.bytes().size());
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].op, 1u);
  EXPECT_EQ(all[0].bd, 32);
  EXPECT_EQ(all[0].extent, reach);
}

TEST(TxnValidate, EveryCheckHasAName) {
  for (int i = 0; i < txn::kChecks; ++i) EXPECT_NE(txn::name_of(static_cast<Check>(i)), nullptr);
}

TEST(TxnValidate, DamagedBytesAreWalkedToTheFaultOnly) {
  std::vector<uint8_t> bytes = File().write(0x14000, 64).write(0x14000, 64).bytes();
  bytes[16 + 24] = 2;
  EXPECT_EQ(check(bytes).size(), 1u);
  bytes.resize(bytes.size() - 3);
  EXPECT_TRUE(check(bytes).empty());
  EXPECT_TRUE(txn::patches(bytes.data(), 7).empty());
}

}  // namespace
