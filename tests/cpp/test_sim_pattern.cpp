// SPDX-License-Identifier: Apache-2.0
// Address patterns against a model that is too simple to be wrong: one address per word.
#include <algorithm>
#include <random>

#include "test_sim_support.h"

namespace onedispatch::sim::testing {
namespace {

constexpr uint32_t kPad = 0xABCD1234;

// Word addresses in stream order; -1 is a padding word.
std::vector<int64_t> addresses(const Shape& s) {
  std::vector<int64_t> all;
  std::array<uint64_t, 4> size{1, 1, 1, 1}, before{}, after{};
  for (unsigned d = 0; d < s.count; ++d) {
    size[d] = s.dims[d].size;
    before[d] = s.dims[d].before;
    after[d] = s.dims[d].after;
  }
  const auto inside = [&](unsigned d, uint64_t i) { return i >= before[d] && i < before[d] + size[d]; };
  const auto end = [&](unsigned d) { return before[d] + size[d] + after[d]; };
  for (uint64_t l = 0; l < end(3); ++l)
    for (uint64_t k = 0; k < end(2); ++k)
      for (uint64_t j = 0; j < end(1); ++j)
        for (uint64_t i = 0; i < end(0); ++i) {
          const bool data = inside(0, i) && inside(1, j) && inside(2, k) && inside(3, l);
          const uint64_t at = s.base + (i - before[0]) * s.dims[0].step + (j - before[1]) * s.dims[1].step +
                              (k - before[2]) * s.dims[2].step + (l - before[3]) * s.dims[3].step;
          all.push_back(data ? static_cast<int64_t>(at) : -1);
        }
  return all;
}

Shape random_shape(std::mt19937& random, bool padded) {
  const auto pick = [&](uint32_t low, uint32_t high) { return low + random() % (high - low + 1); };
  Shape s;
  s.count = pick(3, 4);
  s.base = pick(0, 50);
  uint64_t product = 1;
  for (unsigned d = 0; d < s.count; ++d) {
    s.dims[d].step = pick(0, 3) == 0 ? product : pick(1, 40);
    s.dims[d].size = d + 1 == s.count ? 0 : pick(padded ? 1 : 0, 5);
    if (s.dims[d].size == 0) break;
    product *= s.dims[d].size;
    if (padded && d < 3) {
      s.dims[d].before = pick(0, 2);
      s.dims[d].after = pick(0, 2);
    }
  }
  s.length = pick(1, 300);
  return s;
}

class Patterns : public ::testing::TestWithParam<int> {};

TEST_P(Patterns, GatherAgreesWithTheWordModel) {
  std::mt19937 random(static_cast<uint32_t>(GetParam()));
  for (int round = 0; round < 50; ++round) {
    const Shape given = random_shape(random, round % 2 == 0);
    const Shape s = has_padding(given) ? resolve_padded(given) : resolve(given);
    std::vector<int64_t> expected = addresses(s);
    ASSERT_GE(expected.size(), given.length);
    expected.resize(given.length);
    const auto data = std::count_if(expected.begin(), expected.end(), [](int64_t at) { return at >= 0; });
    ASSERT_EQ(s.length, static_cast<uint64_t>(data));
    uint64_t highest = 0;
    for (const int64_t at : expected)
      highest = std::max<uint64_t>(highest, at < 0 ? 0 : static_cast<uint64_t>(at));
    ASSERT_EQ(s.base + furthest_word(s), std::max<uint64_t>(highest, s.base));
    Memory memory(static_cast<uint32_t>(highest + 1) * 4);
    for (uint32_t i = 0; i <= highest; ++i) store32(&memory.bytes[size_t{4} * i], i);
    memory.valid.mark(0, highest + 1);
    Cursor cursor(s, memory.bytes.data(), &memory.valid, kPad);
    for (size_t done = 0; done < expected.size();) {
      const size_t words = std::min<size_t>(expected.size() - done, 1 + random() % 40);
      std::vector<uint8_t> out(words * 4);
      ASSERT_EQ(cursor.gather(out.data(), words), Cursor::kAllWritten);
      for (size_t i = 0; i < words; ++i) {
        const int64_t at = expected[done + i];
        ASSERT_EQ(load32(&out[4 * i]), at < 0 ? kPad : static_cast<uint32_t>(at)) << "word " << done + i;
      }
      done += words;
    }
  }
}

TEST_P(Patterns, ScatterAgreesWithTheWordModelAndMarksExactlyWhatItWrites) {
  std::mt19937 random(static_cast<uint32_t>(GetParam()) + 1000);
  for (int round = 0; round < 50; ++round) {
    const Shape s = resolve(random_shape(random, false));
    std::vector<int64_t> expected = addresses(s);
    expected.resize(s.length);
    const uint64_t words = s.base + furthest_word(s) + 1;
    Memory memory(static_cast<uint32_t>(words) * 4);
    std::vector<uint32_t> model(words, 0);
    std::vector<bool> written(words, false);
    Cursor cursor(s, memory.bytes.data(), &memory.valid, 0);
    uint32_t next = 1;
    for (size_t done = 0; done < expected.size();) {
      const size_t count = std::min<size_t>(expected.size() - done, 1 + random() % 40);
      std::vector<uint8_t> in(count * 4);
      for (size_t i = 0; i < count; ++i) {
        model[static_cast<size_t>(expected[done + i])] = next;
        written[static_cast<size_t>(expected[done + i])] = true;
        store32(&in[4 * i], next++);
      }
      cursor.scatter(in.data(), count);
      done += count;
    }
    for (uint64_t i = 0; i < words; ++i) {
      ASSERT_EQ(load32(&memory.bytes[4 * i]), model[i]);
      ASSERT_EQ(memory.valid.all_written(i, 1), written[i]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, Patterns, ::testing::Range(0, 8));

TEST(Patterns, GatherNamesTheFirstUnwrittenWord) {
  Memory memory(64 * 4);
  memory.valid.mark(0, 40);
  Shape s;
  s.count = 3;
  s.length = 64;
  Cursor cursor(resolve(s), memory.bytes.data(), &memory.valid, 0);
  std::vector<uint8_t> out(64 * 4);
  EXPECT_EQ(cursor.gather(out.data(), 64), 40u);
}

TEST(ValidMap, RangesAcrossGroups) {
  ValidMap map(300);
  map.mark(60, 140);
  EXPECT_TRUE(map.all_written(60, 140));
  EXPECT_EQ(map.first_unwritten(60, 141), 200u);
  EXPECT_EQ(map.first_unwritten(59, 3), 59u);
  EXPECT_TRUE(map.all_written(299, 0));
}

TEST(ValidMap, IsWhatWasMarked) {
  constexpr uint64_t kWords = 64 * 70 + 11;  // more groups than a word has bits, the last one not whole
  std::mt19937 random(11);
  for (int round = 0; round < 8; ++round) {
    ValidMap map(kWords);
    std::vector<bool> model(kWords);
    for (int step = 0; step < 200; ++step) {
      const uint64_t first = random() % kWords, most = random() % 4 == 0 ? kWords : 200;
      const uint64_t count = random() % (std::min(most, kWords - first) + 1);
      if (step % 2 == 0) {
        map.mark(first, count);
        std::fill_n(model.begin() + static_cast<std::ptrdiff_t>(first), count, true);
      }
      const auto begin = model.begin() + static_cast<std::ptrdiff_t>(first), end = begin + static_cast<std::ptrdiff_t>(count);
      const auto expected = static_cast<uint64_t>(std::find(begin, end, false) - model.begin());
      ASSERT_EQ(map.first_unwritten(first, count), expected);
      ASSERT_EQ(map.all_written(first, count), expected == first + count);
    }
    map.forget();
    EXPECT_EQ(map.first_unwritten(0, kWords), 0u);
  }
}

TEST(Bd, WhatWasDecodedCountsWithItsWords) {
  std::mt19937 random(5);
  for (const TileKind kind : {TileKind::kShim, TileKind::kMem, TileKind::kCore}) {
    for (int round = 0; round < 50; ++round) {
      BdWords words{};  // any, but for a counter that wraps soon
      for (uint32_t& word : words) word = random();
      const Field wrap = kind == TileKind::kShim  ? bd::shim::iteration_wrap
                         : kind == TileKind::kMem ? bd::mem::iteration_wrap
                                                  : bd::core::iteration_wrap;
      words[wrap.word] = wrap.set(words[wrap.word], 1 + random() % 4);
      Bd bd = decode_bd(kind, words);
      for (int step = 0; step < 9; ++step) {
        const BdWords before = words;
        EXPECT_EQ(counts_iterations(bd), (step_iteration(kind, words), words != before));
        step_iteration(kind, bd);
        const Bd anew = decode_bd(kind, words);
        ASSERT_EQ(bd.shape.base, anew.shape.base);
        ASSERT_EQ(bd.byte_address, anew.byte_address);
        ASSERT_EQ(bd.iteration, anew.iteration);
      }
    }
  }
}

TEST(Bd, IterationCounterWrapsInItsOwnRegister) {
  BdWords words{};
  words[bd::core::iteration_wrap.word] = bd::core::iteration_wrap.set(0, 3);
  const auto current = [&] {
    return bd::core::iteration_current.get(words[bd::core::iteration_current.word]);
  };
  step_iteration(TileKind::kCore, words);
  step_iteration(TileKind::kCore, words);
  EXPECT_EQ(current(), 2);
  step_iteration(TileKind::kCore, words);
  EXPECT_EQ(current(), 0);
}

uint64_t bursts(const Shape& shape, uint64_t first) {
  std::vector<uint8_t> bytes(4096);
  ValidMap valid(1024);
  return Cursor(resolve(shape), bytes.data(), &valid, 0).bursts(shape.length, first, 6);
}

Shape runs(uint64_t base, uint64_t words, uint64_t step, uint64_t count) {
  Shape shape;
  shape.base = base;
  shape.length = words * count;
  shape.count = 2;
  shape.dims[0] = {words, 1, 0, 0};
  shape.dims[1] = {0, step, 0, 0};
  return shape;
}

TEST(Bursts, AreWholeAndCountedByAddressAndLength) {
  EXPECT_EQ(bursts(runs(0, 11, 64, 1), 0), 1u);    // 44 bytes
  EXPECT_EQ(bursts(runs(10, 11, 64, 1), 0), 2u);   // 44 bytes across a border
  EXPECT_EQ(bursts(runs(0, 17, 64, 1), 0), 2u);    // 68 bytes
  EXPECT_EQ(bursts(runs(15, 18, 64, 1), 0), 3u);   // 72 bytes from the last word of a burst
  EXPECT_EQ(bursts(runs(0, 11, 64, 10), 0), 10u);  // a burst each
  EXPECT_EQ(bursts(runs(0, 11, 11, 10), 0), 7u);   // 440 bytes in one
  EXPECT_EQ(bursts(runs(0, 8, 8, 4), 32), 3u);     // the memory itself lies across a border
}

TEST(Bursts, DoNotDependOnHowTheyAreCut) {
  std::vector<uint8_t> bytes(4096);
  ValidMap valid(1024);
  const Shape shape = resolve(runs(3, 37, 41, 9));
  Cursor whole(shape, bytes.data(), &valid, 0);
  const uint64_t all = whole.bursts(shape.length, 0, 6);
  for (uint64_t piece = 1; piece < 60; ++piece) {
    Cursor cut(shape, bytes.data(), &valid, 0);
    uint64_t sum = 0;
    for (uint64_t left = shape.length; left > 0; left -= std::min(left, piece))
      sum += cut.bursts(std::min(left, piece), 0, 6);
    EXPECT_EQ(sum, all) << piece;
  }
}

}  // namespace
}  // namespace onedispatch::sim::testing
