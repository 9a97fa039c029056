// SPDX-License-Identifier: Apache-2.0
#include "sim/record/patterns.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "onedispatch/hash.h"

namespace onedispatch::sim {

namespace {

constexpr size_t kMostSpread = 64;  // patterns whose words are kept one by one

static_assert(std::has_unique_object_representations_v<RunBlock>, "blocks are compared by their bytes");

int64_t least_word(const RunBlock& block) {
  int64_t least = block.first;
  for (const RunBlock::Step& step : block.steps) least += std::min<int64_t>(0, int64_t{step.step} * (step.count - 1));
  return least;
}

}  // namespace

bool Patterns::Pattern::operator==(const Pattern& other) const {
  return words == other.words && blocks.size() == other.blocks.size() && std::memcmp(blocks.data(), other.blocks.data(), blocks.size() * sizeof(RunBlock)) == 0;
}

size_t Patterns::Hash::operator()(const Pattern& pattern) const {
  return hash_words(reinterpret_cast<const uint8_t*>(pattern.blocks.data()), pattern.blocks.size() * sizeof(RunBlock)) ^ pattern.words;
}

// Of the next pattern, whose blocks say where they lie.
Patterns::Place Patterns::place(uint32_t words) {
  std::vector<RunBlock>& blocks = next_.blocks;
  Place place;
  if (!blocks.empty()) {
    int64_t least = least_word(blocks[0]);
    for (const RunBlock& block : blocks) least = std::min(least, least_word(block));
    place.first = static_cast<uint32_t>(least);
    for (RunBlock& block : blocks) block.first -= place.first;
  }
  next_.words = words;
  const auto [at, added] = numbers_.try_emplace(next_, static_cast<uint32_t>(patterns_.size()));
  if (added) patterns_.push_back(&at->first);
  place.pattern = at->second;
  return place;
}

Patterns::Place Patterns::of_view(uint32_t index) {
  Place& known = views_[index];
  if (known.pattern != ~0u) return known;
  const Recording::View& view = recording_.views[index];
  next_.blocks.clear();
  if (view.direct) {
    RunBlock whole;
    whole.space = view.space;
    whole.first = view.first;
    whole.run = view.words;
    next_.blocks.push_back(whole);
  }
  const auto* const first = recording_.blocks.data() + view.first_block;
  next_.blocks.insert(next_.blocks.end(), first, first + view.blocks);
  const auto elsewhere = [](const RunBlock& block) { return block.space.kind() != Space::kDdr; };
  next_.blocks.erase(std::remove_if(next_.blocks.begin(), next_.blocks.end(), elsewhere), next_.blocks.end());
  return known = place(view.words);
}

Patterns::Place Patterns::of_out(uint32_t part) {
  Place& known = outs_[part];
  if (known.pattern != ~0u) return known;
  auto at = std::lower_bound(stored_.begin(), stored_.end(), part, [](const Stored& one, uint32_t number) { return one.part < number; });
  for (; at != stored_.end() && at->part == part; ++at) builder_.add(Space(Space::kDdr, at->argument), at->first, at->local, at->words);
  next_.blocks = builder_.take();
  return known = place((recording_.parts[part].out_bytes + 3) / 4);
}

const Patterns::Words& Patterns::words(uint32_t number) {
  const auto found = spread_.find(number);
  if (found != spread_.end()) return found->second;
  if (spread_.size() == kMostSpread) spread_.clear();
  const Pattern& pattern = *patterns_[number];
  Words& words = spread_[number];
  words.assign(pattern.words, kNowhere);
  if (!spread(pattern, words)) words.assign(pattern.words, kNowhere);
  return words;
}

// False where a word of the chunk lies in several places, or one behind its end.
bool Patterns::spread(const Pattern& pattern, Words& words) {
  bool once = true;
  for (const RunBlock& block : pattern.blocks) {
    const uint64_t argument = uint64_t{block.space.id()} << 32;
    block.for_runs([&](int64_t first, int64_t local) {
      once = once && static_cast<size_t>(local) + block.run <= words.size();
      for (uint32_t i = 0; once && i < block.run; ++i) {
        uint64_t& word = words[static_cast<size_t>(local + i)];
        once = word == kNowhere;
        word = argument | static_cast<uint64_t>(first + i);
      }
    });
  }
  return once;
}

}  // namespace onedispatch::sim
