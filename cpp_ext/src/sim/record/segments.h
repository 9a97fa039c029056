// SPDX-License-Identifier: Apache-2.0
// What the words of a memory are, by where they came from: segments of words that moved together.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/array/memory.h"

namespace onedispatch::sim {

// Where a word came from: what kind of place, and which one.
struct Space {
  enum Kind : uint32_t {
    kDdr,      // a read of device memory, or a write to it; words count from the argument's first
    kOut,      // the out chunk of a unit of calls
    kScratch,  // its scratch: of no value to others
    kPadding,  // a word that a descriptor put in; `first` is its value
    kLiteral,  // a word that an instruction or a packet wrote; `first` is its place among all literals
  };
  uint32_t bits = 0;

  Space() = default;
  Space(Kind kind, uint32_t id) : bits(kind << 28 | id) {}
  Kind kind() const { return static_cast<Kind>(bits >> 28); }
  uint32_t id() const { return bits & ((1u << 28) - 1); }
  bool operator==(Space other) const { return bits == other.bits; }
  bool operator!=(Space other) const { return bits != other.bits; }
};

// Runs of consecutive words in a space, and where each lies in a chunk or a stream; repeated along up to three
// dimensions, innermost first.
struct RunBlock {
  struct Step {
    uint32_t count = 1;
    int32_t step = 0, local = 0;  // words: in the space, in the chunk
    bool operator==(const Step& other) const {
      return count == other.count && step == other.step && local == other.local;
    }
  };
  Space space;
  uint32_t first = 0, local = 0, run = 0;  // words
  std::array<Step, 3> steps;

  using Steps = std::array<Step, 3>;
  static uint32_t runs(const Steps& steps) { return steps[0].count * steps[1].count * steps[2].count; }
  uint32_t words() const { return run * runs(steps); }
  // Calls use(first, local) for each run, in order.
  template <typename Use>
  void for_runs(Use use) const {
    for (int64_t k = 0; k < steps[2].count; ++k)
      for (int64_t j = 0; j < steps[1].count; ++j)
        for (int64_t i = 0; i < steps[0].count; ++i)
          use(first + steps[2].step * k + steps[1].step * j + steps[0].step * i, local + steps[2].local * k + steps[1].local * j + steps[0].local * i);
  }
};

// Puts runs together to blocks, in the order in which they come.
class BlockBuilder {
 public:
  // The run goes on where the one before it ended.
  void add(Space space, uint32_t first, uint32_t words) { add(space, first, end_, words); }
  void add(Space space, uint32_t first, uint32_t local, uint32_t words) {
    end_ = local + words;
    const uint32_t further = space.kind() == Space::kPadding ? 0 : run_.run;
    if (run_.run != 0 && run_.space == space && first == run_.first + further && local == run_.local + run_.run) {
      run_.run += words;
      return;
    }
    flush();
    run_.space = space;
    run_.first = first;
    run_.local = local;
    run_.run = words;
  }
  // All that was added, which is forgotten.
  const std::vector<RunBlock>& take();

 private:
  void flush();
  void fold(unsigned dim);
  static bool joins(RunBlock& block, const RunBlock& next, unsigned dim);

  uint32_t end_ = 0;
  RunBlock run_, line_;  // the run, and the line of equal runs before it
  std::vector<RunBlock> blocks_, done_;
};

// Part of a segment.
struct Slice {
  uint32_t segment = 0, offset = 0, words = 0;
  bool operator==(const Slice& other) const {
    return segment == other.segment && offset == other.offset && words == other.words;
  }
};

class Segments {
 public:
  uint32_t add(const std::vector<RunBlock>& blocks);
  uint32_t words(uint32_t segment) const { return segments_[segment].words; }
  Slice whole(uint32_t segment) const { return {segment, 0, words(segment)}; }
  // The space of a segment's first word.
  Space space(uint32_t segment) const { return blocks_[segments_[segment].first].space; }
  size_t blocks() const { return blocks_.size(); }  // of all segments
  // Calls use(space, first, words) for each run of the slice, in order.
  template <typename Use>
  void for_runs(const Slice& slice, Use use) const;

 private:
  struct Entry {
    uint32_t first = 0, count = 0, words = 0;
    mutable uint32_t near = 0, near_at = 0;  // the block that was found last, and its first word
  };
  // A run, or the first of many: most blocks are one run, so how it is repeated lies apart.
  struct Block {
    Space space;
    uint32_t first, run;
    uint32_t repeat;  // by number; of a block that takes turns with one before it: how far apart its runs lie
  };
  struct Repeat {
    RunBlock::Steps steps;  // of rounds: how many, and how far apart the runs of the first block lie
    uint32_t turns = 1;     // blocks that take turns: one run of each is a round
    uint32_t words = 0;     // of a round
    bool operator==(const Repeat& other) const { return steps == other.steps && turns == other.turns && words == other.words; }
  };

  void add_block(const RunBlock& block);
  void add_turns(const RunBlock* blocks, uint32_t turns, uint32_t rounds);
  uint32_t number_of(const Repeat& repeat);
  uint32_t words(const Block& block) const {
    const Repeat& repeat = repeats_[block.repeat];
    return (repeat.turns == 1 ? block.run : repeat.words) * RunBlock::runs(repeat.steps);
  }
  // Both call use(space, first, words) for `left` words from `inside` on, as far as there are so many; the words that are left.
  template <typename Use>
  uint32_t for_repeated(const Block& block, uint32_t inside, uint32_t left, Use use) const;
  template <typename Use>
  uint32_t for_turns(const Block* blocks, uint32_t inside, uint32_t left, Use use) const;

  std::vector<Block> blocks_;
  std::vector<Repeat> repeats_{1};  // the first: of one run
  std::vector<Entry> segments_;
};

template <typename Use>
void Segments::for_runs(const Slice& slice, Use use) const {
  const Entry& entry = segments_[slice.segment];
  const auto turns = [this](const Block& block) { return repeats_[block.repeat].turns; };
  uint32_t index = entry.near, start = entry.near_at;
  if (slice.offset < start) index = start = 0;
  for (uint32_t here; slice.offset >= start + (here = words(blocks_[entry.first + index])); index += turns(blocks_[entry.first + index])) start += here;
  entry.near = index;
  entry.near_at = start;
  uint32_t inside = slice.offset - start, left = slice.words;
  for (uint32_t further; left > 0; index += further, inside = 0) {
    const Block& block = blocks_[entry.first + index];
    further = turns(block);
    left = further == 1 ? for_repeated(block, inside, left, use) : for_turns(&block, inside, left, use);
  }
}

// Calls use(space, first, words) for the words of a run that lie from `inside` on; the words that are left.
template <typename Use>
uint32_t for_run(Space space, uint32_t first, uint32_t run, uint32_t inside, uint32_t left, Use use) {
  const uint32_t here = run - inside < left ? run - inside : left;
  use(space, first + (space.kind() == Space::kPadding ? 0 : inside), here);
  return left - here;
}

template <typename Use>
uint32_t Segments::for_repeated(const Block& block, uint32_t inside, uint32_t left, Use use) const {
  if (block.repeat == 0) return for_run(block.space, block.first, block.run, inside, left, use);
  const RunBlock::Steps& steps = repeats_[block.repeat].steps;
  uint32_t runs = inside / block.run, part = inside % block.run;
  const uint32_t all = RunBlock::runs(steps);
  uint32_t i0 = runs % steps[0].count, rest = runs / steps[0].count;
  uint32_t i1 = rest % steps[1].count, i2 = rest / steps[1].count;
  for (; runs < all && left > 0; ++runs, part = 0) {
    const int64_t first = block.first + int64_t{steps[0].step} * i0 + int64_t{steps[1].step} * i1 + int64_t{steps[2].step} * i2;
    left = for_run(block.space, static_cast<uint32_t>(first), block.run, part, left, use);
    if (++i0 == steps[0].count) {
      i0 = 0;
      if (++i1 == steps[1].count) {
        i1 = 0;
        ++i2;
      }
    }
  }
  return left;
}

template <typename Use>
uint32_t Segments::for_turns(const Block* blocks, uint32_t inside, uint32_t left, Use use) const {
  const Repeat& repeat = repeats_[blocks[0].repeat];
  uint32_t round = inside / repeat.words, part = inside % repeat.words, turn = 0;
  for (; part >= blocks[turn].run; ++turn) part -= blocks[turn].run;
  for (; round < repeat.steps[0].count && left > 0; ++round, turn = 0) {
    for (; turn < repeat.turns && left > 0; ++turn, part = 0) {
      const Block& block = blocks[turn];
      const int64_t step = turn == 0 ? repeat.steps[0].step : static_cast<int32_t>(block.repeat);
      left = for_run(block.space, static_cast<uint32_t>(block.first + step * round), block.run, part, left, use);
    }
  }
  return left;
}

// Which slices the words of a memory are: pieces that do not overlap. Where they begin is marked by bits, in groups of
// 64, and groups that have any by bits of their own, so that the piece before a word is found by a look or two.
class Pieces {
 public:
  explicit Pieces(uint64_t words) : slices_(words), begins_(words / 64 + 1), groups_(words / 4096 + 1) {}

  void write(uint32_t first, Slice slice);
  // Calls use(slice) for what lies in the range, in order. False where a word of it was never written.
  template <typename Use>
  bool read(uint32_t first, uint32_t words, Use use) const;

 private:
  static constexpr uint32_t kNone = ~0u;

  bool begins(uint32_t word) const { return begins_[word / 64] >> word % 64 & 1; }
  void begin(uint32_t word, const Slice& slice);
  void forget(uint32_t first, uint32_t words);
  // The last piece that begins before the word.
  uint32_t last_before(uint32_t word) const;

  Zeros<Slice> slices_;  // by their first words
  Zeros<uint64_t> begins_, groups_;
};

template <typename Use>
bool Pieces::read(uint32_t first, uint32_t words, Use use) const {
  uint32_t at = last_before(first + 1);
  while (words > 0) {
    if (at == kNone || !begins(at)) return false;
    const Slice& slice = slices_[at];
    const uint32_t inside = first - at;
    if (inside >= slice.words) return false;
    const uint32_t left = slice.words - inside, here = left < words ? left : words;
    use(Slice{slice.segment, slice.offset + inside, here});
    at = first += here;
    words -= here;
  }
  return true;
}

}  // namespace onedispatch::sim
