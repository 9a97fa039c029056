// SPDX-License-Identifier: Apache-2.0
#include "sim/record/segments.h"

#include "sim/array/bit_groups.h"

namespace onedispatch::sim {

// Whether `next` lies behind the blocks that `block` has along dimension `dim`, as far as they lie apart; then it joins.
bool BlockBuilder::joins(RunBlock& block, const RunBlock& next, unsigned dim) {
  bool alike = block.space == next.space && block.run == next.run;
  for (unsigned d = 0; d < dim; ++d) alike = alike && block.steps[d] == next.steps[d];
  if (!alike) return false;
  RunBlock::Step& step = block.steps[dim];
  const auto apart = [](uint32_t from, uint32_t to) { return static_cast<int64_t>(to) - static_cast<int64_t>(from); };
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

uint32_t Segments::add(const std::vector<RunBlock>& blocks) {
  Entry entry;
  entry.first = static_cast<uint32_t>(blocks_.size());
  entry.count = static_cast<uint32_t>(blocks.size());
  for (const RunBlock& block : blocks) {
    const bool alone = RunBlock::runs(block.steps) == 1;
    blocks_.push_back({block.space, block.first, block.run, alone ? 0 : static_cast<uint32_t>(steps_.size())});
    if (!alone) steps_.push_back(block.steps);
    entry.words += block.words();
  }
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
