// SPDX-License-Identifier: Apache-2.0
// In which order the parts of a recorded run come, and how its chunks lie, against models of words.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "sampled.h"
#include "sim/record/order.h"
#include "sim/record/patterns.h"
#include "sim/record/word_set.h"

namespace onedispatch::sim {
namespace {

using Random = std::mt19937;

TEST(WordSet, AgreesWithAModelOfBits) {
  Random random(7);
  constexpr uint32_t kWords = 300;
  for (int round = 0; round < 50; ++round) {
    WordSet set(kWords);
    std::vector<bool> model(kWords);
    for (int i = 0; i < 20; ++i) {
      const uint32_t first = random() % kWords, count = random() % (kWords - first);
      std::vector<bool> fresh(kWords);
      uint32_t end = 0;
      set.add_new(first, count, [&](uint32_t from, uint32_t words) {
        EXPECT_TRUE(words > 0 && (end == 0 || from > end)) << "runs are as long as they can be, in order";
        end = from + words;
        std::fill_n(fresh.begin() + from, words, true);
      });
      for (uint32_t at = 0; at < kWords; ++at) {
        const bool inside = first <= at && at < first + count;
        ASSERT_EQ(fresh[at], inside && !model[at]);
        if (inside) model[at] = true;
      }
    }
    std::vector<bool> found(kWords);
    set.for_runs([&](uint32_t from, uint32_t words) { std::fill_n(found.begin() + from, words, true); });
    EXPECT_EQ(found, model);
    for (int i = 0; i < 20; ++i) {
      const uint32_t first = random() % kWords, count = random() % (kWords - first);
      std::vector<bool> taken(kWords);
      set.take(first, count, [&](uint32_t from, uint32_t words) { std::fill_n(taken.begin() + from, words, true); });
      for (uint32_t at = 0; at < kWords; ++at) {
        const bool inside = first <= at && at < first + count;
        ASSERT_EQ(taken[at], inside && model[at]);
        if (inside) model[at] = false;
      }
    }
  }
}

// A run of accesses to one argument: each reads or writes some words for an occurrence, whose only part has its number.
class Accesses {
 public:
  static constexpr uint32_t kWords = 200, kOccurrences = 12;

  Accesses() {
    auto region = std::make_shared<DdrRegion>();
    region->bytes = 4 * kWords;
    regions.push_back(region);
    parts.resize(kOccurrences);
    for (uint32_t i = 0; i < kOccurrences; ++i) parts[i].occurrence = i;
  }

  void add(bool write, uint32_t occurrence, uint32_t first, uint32_t words) {
    BlockBuilder builder;
    builder.add(Space(Space::kDdr, static_cast<uint32_t>(flow.accesses.size())), first, words);
    DdrAccess access;
    access.write = write;
    access.segment = flow.segments.add(builder.take());
    flow.accesses.push_back(access);
    if (write) stored.push_back({occurrence, static_cast<uint32_t>(stored.size()), 0, first, 0, words});
    ends.push_back(static_cast<uint32_t>(stored.size()));
    users.push_back(occurrence);
  }

  // By a model of words: null where there is no order.
  std::unique_ptr<std::vector<uint32_t>> levels_of_model();
  // Then known: the occurrences that depend on themselves, by way of others too.
  std::vector<uint32_t> circles_of_model() const;

  Dataflow flow;
  DdrRegions regions;
  std::vector<Recording::Part> parts;
  std::vector<Stored> stored;
  std::vector<uint32_t> ends, users;
  std::set<uint32_t> rewriting;
  std::set<std::pair<uint32_t, uint32_t>> edges;
  std::vector<bool> outside = std::vector<bool>(kWords), written = std::vector<bool>(kWords);
};

std::unique_ptr<std::vector<uint32_t>> Accesses::levels_of_model() {
  struct Word {
    uint32_t writer = ~0u;
    std::set<uint32_t> readers;
  };
  std::vector<Word> words(kWords);
  for (size_t i = 0; i < flow.accesses.size(); ++i) {
    const uint32_t user = users[i];
    bool possible = true;
    flow.segments.for_runs(flow.segments.whole(flow.accesses[i].segment), [&](Space, uint32_t first, uint32_t count) {
      for (uint32_t at = first; at < first + count; ++at) {
        Word& word = words[at];
        if (!flow.accesses[i].write) {
          if (word.writer == ~0u) outside[at] = true;
          if (word.writer != ~0u) edges.insert({word.writer, user});
          word.readers.insert(user);
          continue;
        }
        possible = possible && !outside[at];
        if (word.writer == user) rewriting.insert(user);
        if (word.writer != ~0u && word.writer != user) edges.insert({word.writer, user});
        for (const uint32_t reader : word.readers) edges.insert({reader, user});
        word = {user, {}};
        written[at] = true;
      }
    });
    if (!possible) return nullptr;
  }
  auto levels = std::make_unique<std::vector<uint32_t>>(kOccurrences, 0);
  for (uint32_t round = 0; round <= kOccurrences; ++round) {
    bool settled = true;
    for (const auto& [before, after] : edges) {
      if ((*levels)[after] > (*levels)[before]) continue;
      (*levels)[after] = (*levels)[before] + 1;
      settled = false;
    }
    if (settled) return levels;
  }
  return nullptr;  // they depend on each other in a circle
}

std::vector<uint32_t> Accesses::circles_of_model() const {
  std::set<std::pair<uint32_t, uint32_t>> reached = edges;
  for (uint32_t by = 0; by < kOccurrences; ++by)  // Warshall's algorithm
    for (uint32_t from = 0; from < kOccurrences; ++from)
      for (uint32_t to = 0; to < kOccurrences; ++to)
        if (reached.count({from, by}) != 0 && reached.count({by, to}) != 0) reached.insert({from, to});
  std::vector<uint32_t> found;
  for (uint32_t i = 0; i < kOccurrences; ++i)
    if (reached.count({i, i}) != 0) found.push_back(i);
  return found;
}

std::vector<bool> words_of_ranges(const std::vector<WordRange>& ranges) {
  std::vector<bool> words(Accesses::kWords);
  for (const WordRange& range : ranges) std::fill_n(words.begin() + range.first, range.words, true);
  return words;
}

// As operations follow each other: each reads what the one before it wrote, or what is there before the run, and writes to
// the other half. Now and then one reads anything, or comes late.
Accesses random_accesses(Random& random) {
  constexpr uint32_t kHalf = 80;
  Accesses made;
  std::vector<std::pair<uint32_t, uint32_t>> before, own;  // ranges that were written
  for (uint32_t i = 0; i < 60; ++i) {
    const uint32_t late = random() % 60 == 0 ? 1 : 0, occurrence = std::max(late, i / 5) - late;
    if (i % 5 == 0) before.swap(own), own.clear();
    if (i % 5 > 1) {
      const uint32_t first = occurrence % 2 * kHalf + random() % kHalf, words = 1 + random() % 90;
      own.emplace_back(first, std::min(words, (occurrence % 2 + 1) * kHalf - first));
      made.add(true, occurrence, own.back().first, own.back().second);
    } else if (random() % 60 == 0) {
      const uint32_t first = random() % Accesses::kWords;
      made.add(false, occurrence, first, 1 + random() % (Accesses::kWords - first));
    } else if (before.empty() || random() % 4 == 0) {
      made.add(false, occurrence, 2 * kHalf, 1 + random() % (Accesses::kWords - 2 * kHalf));
    } else {
      const auto [first, words] = before[random() % before.size()];
      const uint32_t skipped = random() % words;
      made.add(false, occurrence, first + skipped, 1 + random() % (words - skipped));
    }
  }
  return made;
}

TEST(Order, AgreesWithAModelOfWords) {
  Random random(11);
  int ordered = 0, impossible = 0, circles = 0;
  for (int round = 0; round < sampled(3000); ++round) {
    Accesses run = random_accesses(random);
    const auto expected = run.levels_of_model();
    Order order(run.flow, run.regions);
    for (uint32_t i = 0; i < run.flow.accesses.size(); ++i)
      if (!run.flow.accesses[i].write) order.reads_access(run.users[i], i);
    std::vector<uint32_t> levels;
    try {
      levels = order.levels(run.parts, run.stored, run.ends, Accesses::kOccurrences);
    } catch (const Circle& circle) {
      ASSERT_EQ(expected, nullptr) << "in round " << round;
      EXPECT_EQ(circle.occurrences, run.circles_of_model());
      ++circles;
      continue;
    } catch (const NotRecordable&) {
      ASSERT_EQ(expected, nullptr) << "in round " << round;
      ++impossible;
      continue;
    }
    ASSERT_NE(expected, nullptr) << "in round " << round;
    ++ordered;
    EXPECT_EQ(levels, *expected);
    EXPECT_EQ(words_of_ranges(order.read_from_outside()), run.outside);
    EXPECT_EQ(words_of_ranges(order.written()), run.written);
    for (uint32_t i = 0; i < Accesses::kOccurrences; ++i) EXPECT_EQ(order.rewrites(i), run.rewriting.count(i) != 0);
  }
  EXPECT_GT(ordered, sampled(100));
  EXPECT_GT(impossible, sampled(100));
  EXPECT_GT(circles, sampled(100));
}

// A recording of views alone, each of rows of device memory.
struct Views {
  Recording recording;
  BlockBuilder builder;

  void add(uint32_t first, uint32_t rows, uint32_t apart, uint32_t words, uint32_t argument = 0) {
    for (uint32_t row = 0; row < rows; ++row) builder.add(Space(Space::kDdr, argument), first + row * apart, row * words, words);
    Recording::View view;
    view.first_block = static_cast<uint32_t>(recording.blocks.size());
    for (const RunBlock& block : builder.take()) recording.blocks.push_back(block);
    view.blocks = static_cast<uint32_t>(recording.blocks.size()) - view.first_block;
    view.words = rows * words;
    recording.views.push_back(view);
  }
};

TEST(ChunkPatterns, ChunksThatLieAlikeAreOne) {
  Views views;
  views.add(100, 3, 50, 8);
  views.add(720, 3, 50, 8);
  views.add(720, 3, 51, 8);
  views.add(720, 3, 50, 8, 1);
  const std::vector<Stored> none;
  const Dataflow nothing;
  KeptChunks kept(nothing, views.recording, 1);
  Patterns patterns(views.recording, none, kept);
  const Patterns::Place one = patterns.of_view(0), other = patterns.of_view(1);
  EXPECT_EQ(one.pattern, other.pattern);
  EXPECT_EQ(one.first, 100u);
  EXPECT_EQ(other.first, 720u);
  EXPECT_NE(patterns.of_view(2).pattern, one.pattern);
  EXPECT_NE(patterns.of_view(3).pattern, one.pattern);
  const Patterns::Runs& runs = patterns.runs(one.pattern);
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[2].local, 16u);
  EXPECT_EQ(runs[2].first, 100u);
}

TEST(ChunkPatterns, WhatIsStoredInSeveralPlacesLiesNowhere) {
  Recording recording;
  recording.parts.resize(2);
  const std::vector<Stored> stored{{0, 0, 0, 40, 0, 8}, {0, 1, 0, 60, 8, 8}, {1, 2, 0, 80, 0, 8}, {1, 3, 0, 90, 4, 8}};
  Dataflow flow;
  flow.units.resize(2);
  KeptChunks kept(flow, recording, 1);
  Patterns patterns(recording, stored, kept);
  EXPECT_EQ(patterns.runs(patterns.of_out(0).pattern).size(), 2u);
  EXPECT_TRUE(patterns.runs(patterns.of_out(1).pattern).empty());
}

}  // namespace
}  // namespace onedispatch::sim
