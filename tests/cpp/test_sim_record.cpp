// SPDX-License-Identifier: Apache-2.0
// Recordings: what words are by where they came from, and runs that are made from that.
#include <gtest/gtest.h>

#include <random>

#include "sim/record/occurrences.h"
#include "sim/record/segments.h"
#include "test_xrt_support.h"

namespace onedispatch::sim {
namespace {


// Words one by one, so that it does not matter where runs are cut.
std::vector<std::pair<uint32_t, uint32_t>> words_of(const Segments& segments, const Slice& slice) {
  std::vector<std::pair<uint32_t, uint32_t>> words;
  segments.for_runs(slice, [&](Space space, uint32_t first, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) words.emplace_back(space.bits, first + (space.kind() == Space::kPadding ? 0 : i));
  });
  return words;
}

// Adds a run to the builder, and its words to what is expected.
void add_run(BlockBuilder& builder, std::vector<std::pair<uint32_t, uint32_t>>& expected, Space space, uint32_t first, uint32_t run) {
  builder.add(space, first, run);
  for (uint32_t i = 0; i < run; ++i) expected.emplace_back(space.bits, space.kind() == Space::kPadding ? first : first + i);
}

TEST(Segments, BlocksHoldTheWordsThatWereAddedInTheirOrder) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    BlockBuilder builder;
    Segments segments;
    std::vector<std::pair<uint32_t, uint32_t>> expected;
    const uint32_t run = 1 + random() % 5, lines = 1 + random() % 4, planes = 1 + random() % 4;
    for (uint32_t k = 0; k < planes; ++k) {
      for (uint32_t j = 0; j < lines; ++j) {
        const Space space(random() % 4 == 0 ? Space::kPadding : Space::kDdr, 1);
        add_run(builder, expected, space, 1000 * k + 100 * j, run);
      }
    }
    const uint32_t segment = segments.add(builder.take());
    ASSERT_EQ(segments.words(segment), expected.size());
    const auto all = static_cast<uint32_t>(expected.size());
    const uint32_t from = random() % all, count = 1 + random() % (all - from);
    const std::vector<std::pair<uint32_t, uint32_t>> part(expected.begin() + from, expected.begin() + from + count);
    EXPECT_EQ(words_of(segments, {segment, from, count}), part);
    EXPECT_EQ(words_of(segments, {segment, 0, all}), expected);
  }
}

TEST(Segments, BlocksThatTakeTurnsAreKeptOnce) {
  std::mt19937 random(4);
  for (int round = 0; round < 300; ++round) {
    BlockBuilder builder;
    Segments segments;
    std::vector<std::pair<uint32_t, uint32_t>> expected;
    const auto add = [&](Space space, uint32_t first, uint32_t run) { add_run(builder, expected, space, first, run); };
    const uint32_t turns = 2 + random() % 30, rounds = 9 + random() % 9, before = random() % 3, behind = random() % 3, rest = random() % turns;
    std::vector<uint32_t> runs, steps;
    for (uint32_t t = 0; t < turns; ++t) {
      runs.push_back(1 + random() % 3);
      steps.push_back(3 + random() % 9);
    }
    for (uint32_t i = 0; i < before; ++i) add(Space(Space::kDdr, 100 + i), 7 * i, 2);
    for (uint32_t r = 0; r <= rounds; ++r) {
      for (uint32_t t = 0; t < (r == rounds ? rest : turns); ++t) {
        const bool padding = t % 5 == 4;
        add(Space(padding ? Space::kPadding : Space::kOut, t), padding ? 3 : 5000 + steps[t] * r, runs[t]);
      }
    }
    for (uint32_t i = 0; i < behind; ++i) add(Space(Space::kDdr, 200 + i), 7 * i, 2);
    const uint32_t segment = segments.add(builder.take());
    EXPECT_LE(segments.blocks(), before + behind + turns + rest);
    const auto all = static_cast<uint32_t>(expected.size());
    ASSERT_EQ(segments.words(segment), all);
    EXPECT_EQ(words_of(segments, segments.whole(segment)), expected);
    for (int slice = 0; slice < 20; ++slice) {
      const uint32_t from = random() % all, count = 1 + random() % (all - from);
      const std::vector<std::pair<uint32_t, uint32_t>> part(expected.begin() + from, expected.begin() + from + count);
      EXPECT_EQ(words_of(segments, {segment, from, count}), part);
    }
  }
}

TEST(Segments, EvenPatternsAreOneBlock) {
  BlockBuilder builder;
  for (uint32_t k = 0; k < 3; ++k)
    for (uint32_t j = 0; j < 4; ++j)
      for (uint32_t i = 0; i < 5; ++i) builder.add(Space(Space::kDdr, 0), 1000 * k + 100 * j + 10 * i, 2);
  EXPECT_EQ(builder.take().size(), 1u);
}

// Of no contents: they are distinguished by where they lie.
const CallableOperation* operation(uintptr_t which) { return reinterpret_cast<const CallableOperation*>(16 * (1 + which)); }

TEST(Occurrences, CoresWithoutATileLeaveThemOut) {
  Occurrences occurrences;
  const CallableOperation *const norm = operation(0), *const product = operation(1);
  const uint32_t wide = 0, narrow = 1;  // cores
  EXPECT_EQ(occurrences.begin(wide, norm, {10, 0}), 0u);
  EXPECT_EQ(occurrences.begin(wide, product, {20, 0}), 1u);
  EXPECT_EQ(occurrences.begin(narrow, product, {21, 0}), 1u);
  EXPECT_EQ(occurrences.begin(wide, norm, {30, 0}), 2u);
  EXPECT_EQ(occurrences.begin(narrow, norm, {31, 0}), 2u) << "its first one is the other's second";
  EXPECT_EQ(occurrences.begin(narrow, product, {41, 0}), 3u) << "and it may be ahead";
  EXPECT_EQ(occurrences.begin(wide, product, {40, 0}), 3u);
  EXPECT_EQ(occurrences.count(), 4u);
}

TEST(Occurrences, OfOneOperationFollowEachOther) {
  Occurrences occurrences;
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(occurrences.begin(0, operation(0), {10 * i, 0}), i);
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(occurrences.begin(1, operation(0), {10 * i + 1, 0}), i) << "however late";
}

TEST(Occurrences, BlocksSayWhichWasLeftOut) {
  Occurrences occurrences;
  EXPECT_EQ(occurrences.begin(0, operation(0), {10, 0}), 0u);
  EXPECT_EQ(occurrences.begin(0, operation(1), {20, 0}), 1u);
  EXPECT_EQ(occurrences.begin(0, operation(0), {30, 0}), 2u);
  EXPECT_EQ(occurrences.begin(1, operation(0), {31, 0}), 2u) << "its block came behind those of the first";
  EXPECT_EQ(occurrences.begin(2, operation(0), {5, 8}), 0u) << "an old block, which was not sent again";
}

// Every word knows who wrote it last.
TEST(Pieces, AgreeWithAWordModel) {
  std::mt19937 random(5);
  constexpr uint32_t kWords = 64;
  Pieces pieces(kWords);
  std::vector<std::pair<uint32_t, uint32_t>> model(kWords, {~0u, 0});
  for (uint32_t round = 0; round < 2000; ++round) {
    const uint32_t first = random() % kWords, count = 1 + random() % (kWords - first), offset = random() % 9;
    pieces.write(first, {round, offset, count});
    for (uint32_t i = 0; i < count; ++i) model[first + i] = {round, offset + i};
    const uint32_t from = random() % kWords, length = 1 + random() % (kWords - from);
    std::vector<std::pair<uint32_t, uint32_t>> found;
    const bool known = pieces.read(from, length, [&](const Slice& slice) {
      for (uint32_t i = 0; i < slice.words; ++i) found.emplace_back(slice.segment, slice.offset + i);
    });
    const std::vector<std::pair<uint32_t, uint32_t>> wanted(model.begin() + from, model.begin() + from + length);
    const bool written = std::none_of(wanted.begin(), wanted.end(), [](const auto& word) { return word.first == ~0u; });
    ASSERT_EQ(known, written);
    if (known) {
      ASSERT_EQ(found, wanted);
    }
  }
}

}  // namespace
}  // namespace onedispatch::sim

namespace onedispatch::xrt {
namespace {

using testing::Host;
constexpr uint32_t kWords = 64;

struct Recorded : Host {
  std::vector<uint8_t> content = testing::copy_words(kWords);
  bo instructions = buffer(content);
  hw_context recording = [this] {
    npu.set_record("on");
    return hw_context(npu, binary.get_uuid());
  }();
  kernel own{recording, "MLIR_AIE"};

  RunReport start(const bo& from, const bo& to) { return start(instructions, from, to); }
  RunReport start(const bo& what, const bo& from, const bo& to) {
    run made = testing::prepared(own, what, from, to);
    made.start();
    made.wait();
    return made.report();
  }
  bo filled(uint8_t value) { return buffer(std::vector<uint8_t>(size_t{4} * kWords, value)); }
  void fill(bo& buffer, uint8_t value) const {
    const std::vector<uint8_t> bytes(size_t{4} * kWords, value);
    buffer.write(bytes.data(), bytes.size(), 0);
  }
  static uint8_t first(const bo& of) { return of.map()[0]; }
};

TEST(Recording, CopiesWhatThereIsNow) {
  Recorded host;
  bo to(host.npu, size_t{4} * kWords), from = host.filled(0);
  uint64_t cycles = 0;
  const std::vector<std::string> expected{"these instructions came for the first time", kRecorded, kPlayed, kPlayed};
  for (size_t i = 0; i < expected.size(); ++i) {
    host.fill(from, static_cast<uint8_t>(7 + i));
    const RunReport report = host.start(from, to);
    EXPECT_EQ(report.recorded, expected[i]);
    EXPECT_EQ(Recorded::first(to), 7 + i);
    if (i != 0) {
      EXPECT_EQ(report.cycles, cycles);
    }
    cycles = report.cycles;
  }
}

TEST(Recording, ReadsWhatTheHostWroteOnly) {
  Recorded host;
  bo to(host.npu, size_t{4} * kWords), nothing(host.npu, size_t{4} * kWords);
  bo from = host.filled(1);
  for (int i = 0; i < 3; ++i) host.start(from, to);
  EXPECT_THROW(host.start(nothing, to), SimulationError);
  host.start(host.filled(9), to);
  EXPECT_EQ(Recorded::first(to), 9);
}

TEST(Recording, IsNotUsedForOneBufferTwice) {
  Recorded host;
  bo to(host.npu, size_t{4} * kWords), same = host.filled(5);
  for (int i = 0; i < 3; ++i) host.start(same, to);
  EXPECT_NE(host.start(same, same).recorded, kPlayed);
  for (int i = 0; i < 3; ++i) host.start(same, to);  // descriptors hold these addresses again
  EXPECT_EQ(host.start(same, to).recorded, kPlayed);
}

TEST(Recording, IsNotUsedForOtherInstructions) {
  Recorded host;
  bo to(host.npu, size_t{4} * kWords);
  bo from = host.filled(1);
  for (int i = 0; i < 3; ++i) host.start(from, to);
  uint8_t* const words = host.instructions.map();
  const uint8_t before = words[host.content.size() - 8];
  words[host.content.size() - 8] ^= 1;  // of the token that it waits for
  EXPECT_THROW(host.start(from, to), std::runtime_error);
  words[host.content.size() - 8] = before;
  host.fill(from, 3);
  host.start(from, to);
  EXPECT_EQ(Recorded::first(to), 3);
}

TEST(Recording, IsUsedBetweenRunsOfOthers) {
  Recorded host;
  bo half = host.buffer(testing::copy_words(kWords / 2));
  bo to(host.npu, size_t{4} * kWords), from = host.filled(0);
  const std::vector<std::string> expected{"these instructions came for the first time", kRecorded, kPlayed, kPlayed};
  for (size_t i = 0; i < expected.size(); ++i) {
    for (const bo* one : {&half, &host.instructions}) {
      host.fill(from, static_cast<uint8_t>(7 + i));
      host.fill(to, 0);
      EXPECT_EQ(host.start(*one, from, to).recorded, expected[i]);
      EXPECT_EQ(Recorded::first(to), 7 + i);
      EXPECT_EQ(to.map()[4 * kWords - 1], one == &half ? 0 : 7 + i);
    }
  }
}

TEST(Recording, CountsOnTheBdsThatItFound) {
  Recorded host;
  const bo half = host.buffer(testing::copy_words(kWords / 2)), again = host.buffer(testing::push_again());
  bo to(host.npu, size_t{4} * kWords), from = host.filled(0);
  const auto copied = [&](uint8_t value) {
    host.fill(from, value);
    host.fill(to, 0);
    const std::string recorded = host.start(again, from, to).recorded;
    EXPECT_EQ(Recorded::first(to), value);
    return std::pair(recorded, to.map()[4 * kWords - 1]);
  };
  for (uint8_t value = 1; value < 4; ++value) {  // whether that which they found was left by the engine, or not
    host.start(from, to);
    EXPECT_EQ(copied(value).second, value);
    EXPECT_EQ(copied(value + 10), (std::pair{std::string(value == 1 ? kRecorded : kPlayed), static_cast<uint8_t>(value + 10)}));
    host.start(half, from, to);
    const auto [recorded, last] = copied(value + 20);
    EXPECT_EQ(last, 0);
    EXPECT_EQ(recorded == kPlayed, value != 1);
  }
}

// Memory of a caller, with a page behind it.
struct Callers {
  alignas(4096) uint8_t bytes[8192] = {};
  static constexpr size_t kBytes = size_t{4} * kWords;
};

TEST(Recording, RunsUseAttachedMemory) {
  Recorded host;
  bo to(host.npu, Callers::kBytes), from = host.filled(1);
  const auto source = std::make_unique<Callers>(), target = std::make_unique<Callers>();
  ASSERT_TRUE(from.attach(source->bytes, Callers::kBytes, false) && to.attach(target->bytes, Callers::kBytes, true));
  for (uint8_t value = 2; value < 6; ++value) {  // the engine's, then played
    std::fill_n(source->bytes, Callers::kBytes, value);
    host.start(from, to);
    EXPECT_EQ(target->bytes[0], value);
    EXPECT_EQ(target->bytes[Callers::kBytes - 1], value);
    EXPECT_EQ(target->bytes[Callers::kBytes], 0);
  }
  EXPECT_EQ(host.start(from, to).recorded, kPlayed);
  ASSERT_TRUE(from.attach(nullptr, 0, false) && to.attach(nullptr, 0, true));
  host.fill(from, 9);
  EXPECT_EQ(host.start(from, to).recorded, kPlayed);
  EXPECT_EQ(Recorded::first(to), 9);
  EXPECT_EQ(target->bytes[0], 5);
}

TEST(Recording, NoRunWritesWhatIsAttachedForReading) {
  Recorded host;
  bo to(host.npu, Callers::kBytes), from = host.filled(1);
  const auto constant = std::make_unique<Callers>();
  ASSERT_TRUE(to.attach(constant->bytes, Callers::kBytes, false));
  for (int i = 0; i < 4; ++i) {
    EXPECT_NE(host.start(from, to).recorded, kPlayed);
    EXPECT_EQ(constant->bytes[0], 0);
    EXPECT_EQ(Recorded::first(to), 1);
  }
}

TEST(Recording, AttachesWhatIsAsLargeAsTheBuffer) {
  Recorded host;
  bo to(host.npu, Callers::kBytes);
  const auto memory = std::make_unique<Callers>();
  EXPECT_FALSE(to.attach(memory->bytes, Callers::kBytes - 4, true));
  EXPECT_FALSE(to.attach(memory->bytes + 2, Callers::kBytes, true));
  EXPECT_FALSE(to.attach(memory->bytes + 4096 - Callers::kBytes, Callers::kBytes, true));
  EXPECT_TRUE(to.attach(memory->bytes + 4, Callers::kBytes, true));
}

TEST(Recording, CountsWhatRunsWrote) {
  Recorded host;
  bo to(host.npu, Callers::kBytes), from = host.filled(1);
  EXPECT_EQ(to.unwritten(Callers::kBytes, 0), Callers::kBytes);
  for (int i = 0; i < 3; ++i) {
    host.start(from, to);
    EXPECT_EQ(to.unwritten(Callers::kBytes, 0), 0u);
    to.forget(8, 4);
    EXPECT_EQ(to.unwritten(Callers::kBytes, 0), 8u);
    EXPECT_EQ(to.unwritten(4, 5), 8u);  // of two words
  }
  EXPECT_THROW(to.forget(1, Callers::kBytes), DeviceError);
}

TEST(Recording, ModesAreThree) {
  device npu("npu2");
  EXPECT_THROW(npu.set_record("sometimes"), DeviceError);
  npu.set_record("verify");
}

}  // namespace
}  // namespace onedispatch::xrt
