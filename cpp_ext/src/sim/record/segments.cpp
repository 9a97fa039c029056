// SPDX-License-Identifier: Apache-2.0
#include "sim/record/segments.h"

#include <iterator>

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
  for (const RunBlock& block : blocks) entry.words += block.words();
  blocks_.insert(blocks_.end(), blocks.begin(), blocks.end());
  segments_.push_back(entry);
  return static_cast<uint32_t>(segments_.size() - 1);
}

void Pieces::write(uint32_t first, Slice slice) {
  const uint32_t end = first + slice.words;
  auto at = pieces_.lower_bound(first);
  if (at != pieces_.end() && at->first == first && at->second.words == slice.words) {  // a slot that is filled again
    at->second = slice;
    return;
  }
  if (at != pieces_.begin()) {
    auto before = std::prev(at);
    const uint32_t before_end = before->first + before->second.words;
    if (before_end > first) {
      Slice& cut = before->second;
      if (before_end > end) {
        const uint32_t skipped = end - before->first;
        pieces_.emplace_hint(at, end, Slice{cut.segment, cut.offset + skipped, cut.words - skipped});
      }
      cut.words = first - before->first;
    }
  }
  at = pieces_.lower_bound(first);
  while (at != pieces_.end() && at->first < end) {
    const uint32_t at_end = at->first + at->second.words;
    if (at_end > end) {
      const uint32_t skipped = end - at->first;
      const Slice rest{at->second.segment, at->second.offset + skipped, at->second.words - skipped};
      pieces_.emplace(end, rest);
    }
    at = pieces_.erase(at);
  }
  pieces_.emplace(first, slice);
}

}  // namespace onedispatch::sim
