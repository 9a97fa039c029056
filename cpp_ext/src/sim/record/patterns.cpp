// SPDX-License-Identifier: Apache-2.0
#include "sim/record/patterns.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "onedispatch/hash.h"

namespace onedispatch::sim {

namespace {

constexpr size_t kMostSpread = 64;  // patterns whose runs are kept one by one

static_assert(std::has_unique_object_representations_v<RunBlock>, "blocks are compared by their bytes");

int64_t least_word(const RunBlock& block) {
  int64_t least = block.first;
  for (const RunBlock::Step& step : block.steps) least += std::min<int64_t>(0, int64_t{step.step} * (step.count - 1));
  return least;
}

}  // namespace

bool Patterns::Equal::operator()(const Pattern& a, const Pattern& b) const {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(RunBlock)) == 0);
}

size_t Patterns::Hash::operator()(const Pattern& pattern) const { return hash_words(pattern.data(), pattern.size() * sizeof(RunBlock)); }

// Of the next pattern, whose blocks say where they lie.
Patterns::Place Patterns::place() {
  Pattern& blocks = next_;
  Place place;
  if (!blocks.empty()) {
    int64_t least = least_word(blocks[0]);
    for (const RunBlock& block : blocks) least = std::min(least, least_word(block));
    place.first = static_cast<uint32_t>(least);
    for (RunBlock& block : blocks) block.first -= place.first;
  }
  const auto [at, added] = numbers_.try_emplace(next_, static_cast<uint32_t>(patterns_.size()));
  if (added) patterns_.push_back(&at->first);
  place.pattern = at->second;
  return place;
}

Patterns::Place Patterns::of_view(uint32_t index) {
  Place& known = views_[index];
  if (known.pattern != ~0u) return known;
  const Recording::View& view = recording_.views[index];
  next_.clear();
  if (view.direct) {
    RunBlock whole;
    whole.space = view.space;
    whole.first = view.first;
    whole.run = view.words;
    next_.push_back(whole);
  }
  const auto* const first = recording_.blocks.data() + view.first_block;
  next_.insert(next_.end(), first, first + view.blocks);
  const auto elsewhere = [](const RunBlock& block) { return block.space.kind() != Space::kDdr; };
  next_.erase(std::remove_if(next_.begin(), next_.end(), elsewhere), next_.end());
  return known = place();
}

Patterns::Place Patterns::of_out(uint32_t unit) {
  Place& known = outs_[unit];
  if (known.pattern != ~0u) return known;
  const auto add = [this](const Stored& one) { builder_.add(Space(Space::kDdr, one.argument), one.first, one.local, one.words); };
  const auto [first, end] = stored_of(stored_, unit);
  std::for_each(first, end, add);
  kept_.for_stored(unit, add);
  next_ = builder_.take();
  return known = place();
}

const Patterns::Runs& Patterns::runs(uint32_t pattern) {
  const auto found = runs_.find(pattern);
  if (found != runs_.end()) return found->second;
  if (runs_.size() == kMostSpread) runs_.clear();
  return runs_.emplace(pattern, spread(*patterns_[pattern])).first->second;
}

// None where a word of the chunk lies in several places.
Patterns::Runs Patterns::spread(const Pattern& pattern) {
  Runs all, runs;
  for (const RunBlock& block : pattern)
    block.for_runs([&](int64_t first, int64_t local) { all.push_back({static_cast<uint32_t>(local), block.run, block.space.id(), static_cast<uint32_t>(first)}); });
  const auto before = [](const Run& a, const Run& b) { return a.local < b.local; };
  if (!std::is_sorted(all.begin(), all.end(), before)) std::sort(all.begin(), all.end(), before);
  for (const Run& run : all) {
    if (runs.empty() || runs.back().local + runs.back().words < run.local) {
      runs.push_back(run);
      continue;
    }
    Run& last = runs.back();
    if (last.local + last.words > run.local) return {};
    if (last.argument == run.argument && last.first + last.words == run.first) {
      last.words += run.words;
    } else {
      runs.push_back(run);
    }
  }
  return runs;
}

}  // namespace onedispatch::sim
