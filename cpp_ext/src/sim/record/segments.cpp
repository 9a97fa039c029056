// SPDX-License-Identifier: Apache-2.0
#include "sim/record/segments.h"

#include <algorithm>

#include "sim/array/bit_groups.h"

namespace onedispatch::sim {

namespace {

int64_t apart(uint32_t from, uint32_t to) { return static_cast<int64_t>(to) - static_cast<int64_t>(from); }

bool is_run(const RunBlock& block) { return RunBlock::runs(block.steps) == 1; }

}  // namespace

// Whether `next` lies behind the blocks that `block` has along dimension `dim`, as far as they lie apart; then it joins.
bool BlockBuilder::joins(RunBlock& block, const RunBlock& next, unsigned dim) {
  bool alike = block.space == next.space && block.run == next.run;
  for (unsigned d = 0; d < dim; ++d) alike = alike && block.steps[d] == next.steps[d];
  if (!alike) return false;
  RunBlock::Step& step = block.steps[dim];
  const int64_t there = apart(block.first, next.first), here = apart(block.local, next.local);
  if (step.count == 1) {
    if (there != static_cast<int32_t>(there) || here != static_cast<int32_t>(here)) return false;
    step.step = static_cast<int32_t>(there);
    step.local = static_cast<int32_t>(here);
  } else if (there != int64_t{step.step} * step.count || here != int64_t{step.local} * step.count) {
    return false;
  }
  ++step.count;
  return true;
}

void BlockBuilder::flush() {
  if (run_.run == 0) return;
  if (line_.run == 0 || !joins(line_, run_, 0)) {
    if (line_.run != 0) blocks_.push_back(line_);
    line_ = run_;
  }
  run_.run = 0;
}

// Equal blocks that lie evenly apart become one, along dimension `dim`.
void BlockBuilder::fold(unsigned dim) {
  size_t kept = 0;
  for (size_t i = 1; i < blocks_.size(); ++i)
    if (!joins(blocks_[kept], blocks_[i], dim)) blocks_[++kept] = blocks_[i];
  if (!blocks_.empty()) blocks_.resize(kept + 1);
}

const std::vector<RunBlock>& BlockBuilder::take() {
  flush();
  if (line_.run != 0) blocks_.push_back(line_);
  line_ = run_ = RunBlock{};
  end_ = 0;
  fold(1);
  fold(2);
  done_.swap(blocks_);
  blocks_.clear();
  return done_;
}

namespace {

constexpr size_t kMostTurns = 128, kLeastSaved = 8;  // blocks
constexpr unsigned kTries = 32;                      // of a segment, to find blocks that take turns

struct Rounds {
  uint32_t turns = 1, count = 1;
};

// Runs from block `first` on that come again and again, each as far apart as the time before: elements of several chunks
// that a transposition puts side by side.
Rounds rounds_at(const std::vector<RunBlock>& blocks, size_t first) {
  const auto step = [&blocks](size_t from, size_t to) { return apart(blocks[from].first, blocks[to].first); };
  const auto alike = [&](size_t a, size_t b) {
    const bool runs = is_run(blocks[a]) && is_run(blocks[b]);
    return runs && blocks[a].space == blocks[b].space && blocks[a].run == blocks[b].run && step(a, b) == static_cast<int32_t>(step(a, b));
  };
  const size_t last = std::min(blocks.size(), first + 1 + kMostTurns);
  size_t end = first + 1;
  while (end < last && !alike(first, end)) ++end;
  if (end == last) return {};
  const size_t turns = end - first;
  while (end < blocks.size() && alike(end - turns, end) && (end < first + 2 * turns || step(end - turns, end) == step(end - 2 * turns, end - turns))) ++end;
  const size_t count = (end - first) / turns;
  if ((count - 1) * turns < kLeastSaved) return {};
  return {static_cast<uint32_t>(turns), static_cast<uint32_t>(count)};
}

}  // namespace

// Neighbours often have the same.
uint32_t Segments::number_of(const Repeat& repeat) {
  if (!(repeats_.back() == repeat)) repeats_.push_back(repeat);
  return static_cast<uint32_t>(repeats_.size() - 1);
}

void Segments::add_block(const RunBlock& block) {
  blocks_.push_back({block.space, block.first, block.run, is_run(block) ? 0 : number_of({block.steps})});
}

void Segments::add_turns(const RunBlock* blocks, uint32_t turns, uint32_t rounds) {
  const auto step = [&](uint32_t turn) { return static_cast<int32_t>(apart(blocks[turn].first, blocks[turns + turn].first)); };
  Repeat repeat;
  repeat.steps[0] = {rounds, step(0), 0};
  repeat.turns = turns;
  for (uint32_t turn = 0; turn < turns; ++turn) repeat.words += blocks[turn].run;
  for (uint32_t turn = 0; turn < turns; ++turn) {
    const RunBlock& block = blocks[turn];
    blocks_.push_back({block.space, block.first, block.run, turn == 0 ? number_of(repeat) : static_cast<uint32_t>(step(turn))});
  }
}

uint32_t Segments::add(const std::vector<RunBlock>& blocks) {
  Entry entry;
  entry.first = static_cast<uint32_t>(blocks_.size());
  for (const RunBlock& block : blocks) entry.words += block.words();
  unsigned tries = 0;
  for (size_t i = 0; i < blocks.size();) {
    const Rounds found = tries < kTries ? rounds_at(blocks, i) : Rounds{};
    if (found.turns == 1) {
      ++tries;
      add_block(blocks[i++]);
    } else {
      add_turns(&blocks[i], found.turns, found.count);
      i += size_t{found.turns} * found.count;
    }
  }
  entry.count = static_cast<uint32_t>(blocks_.size()) - entry.first;
  segments_.push_back(entry);
  return static_cast<uint32_t>(segments_.size() - 1);
}

void Pieces::begin(uint32_t word, const Slice& slice) {
  slices_[word] = slice;
  begins_[word / 64] |= uint64_t{1} << word % 64;
  groups_[word / 4096] |= uint64_t{1} << word / 64 % 64;
}

void Pieces::forget(uint32_t first, uint32_t words) {
  for_groups(first, words, [this](uint64_t group, uint64_t mask) {
    begins_[group] &= ~mask;
    if (begins_[group] == 0) groups_[group / 64] &= ~(uint64_t{1} << group % 64);
    return true;
  });
}

uint32_t Pieces::last_before(uint32_t word) const {
  const auto highest = [](uint64_t bits) { return static_cast<uint32_t>(63 - __builtin_clzll(bits)); };
  const auto below = [](uint64_t bits, uint32_t end) { return bits & ((uint64_t{1} << end) - 1); };
  uint32_t group = word / 64;
  uint64_t bits = below(begins_[group], word % 64);
  if (bits == 0) {
    uint32_t many = group / 64;
    uint64_t there = below(groups_[many], group % 64);
    while (there == 0) {
      if (many == 0) return kNone;
      there = groups_[--many];
    }
    group = many * 64 + highest(there);
    bits = begins_[group];
  }
  return group * 64 + highest(bits);
}

void Pieces::write(uint32_t first, Slice slice) {
  if (begins(first) && slices_[first].words == slice.words) {  // a slot that is filled again
    slices_[first] = slice;
    return;
  }
  const uint32_t end = first + slice.words, last = last_before(end);
  if (last != kNone && last + slices_[last].words > end) {
    const Slice& cut = slices_[last];
    const uint32_t skipped = end - last;
    begin(end, {cut.segment, cut.offset + skipped, cut.words - skipped});
  }
  const uint32_t before = last_before(first);
  if (before != kNone && before + slices_[before].words > first) slices_[before].words = first - before;
  forget(first, slice.words);
  begin(first, slice);
}

}  // namespace onedispatch::sim
