// SPDX-License-Identifier: Apache-2.0
#include "sim/record/recording.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <unordered_set>

#include "sim/record/order.h"

namespace onedispatch::sim {

namespace {

constexpr uint64_t kBurst = 64;

bool overlap(const DdrRegion& a, const DdrRegion& b) {
  return a.address < b.address + b.bytes && b.address < a.address + a.bytes;
}

const uint8_t* words_at(const DdrRegion& region, uint32_t first) {
  return region.data + (region.address - region.origin) + size_t{4} * first;
}

// In words of the memory that its valid map counts.
uint64_t word_of(const DdrRegion& region, uint32_t first) { return (region.address - region.origin) / 4 + first; }

}  // namespace

bool Guard::holds(const uint8_t* bytes, size_t size, const DdrRegions& regions) const {
  if (size != instructions.size() || regions.size() != arguments.size()) return false;
  for (size_t i = 0; i < regions.size(); ++i) {
    if (regions[i]->bytes != arguments[i].bytes || regions[i]->address % kBurst != arguments[i].misaligned) return false;
    for (size_t k = 0; k < i; ++k)
      if (overlap(*regions[i], *regions[k])) return false;
  }
  if (std::memcmp(bytes, instructions.data(), size) != 0) return false;
  const uint32_t* expected = deciding_words.data();
  for (const WordRange& range : deciding) {
    if (std::memcmp(words_at(*regions[range.argument], range.first), expected, size_t{4} * range.words) != 0) return false;
    expected += range.words;
  }
  return std::all_of(read.begin(), read.end(), [&](const WordRange& range) {
    const DdrRegion& region = *regions[range.argument];
    return region.valid->all_written(word_of(region, range.first), range.words);
  });
}

namespace {

// Out words that go to device memory.
struct Stored {
  uint32_t part, argument, first, local, words;
};

// Takes out the words that another part writes later: the last one counts, whoever comes last now.
void cut(std::vector<Stored>& stored, const std::vector<Order::Cut>& cuts) {
  std::unordered_map<uint32_t, std::vector<Order::Cut>> by_part;
  for (const Order::Cut& one : cuts) by_part[one.part].push_back(one);
  std::vector<Stored> kept;
  for (const Stored& whole : stored) {
    const auto own = by_part.find(whole.part);
    if (own == by_part.end()) {
      kept.push_back(whole);
      continue;
    }
    std::vector<Stored> left{whole};
    for (const Order::Cut& out : own->second) {
      std::vector<Stored> next;
      for (const Stored& piece : left) {
        const uint32_t end = piece.first + piece.words, out_end = out.first + out.words;
        if (out.argument != piece.argument || out_end <= piece.first || end <= out.first) {
          next.push_back(piece);
          continue;
        }
        if (piece.first < out.first) next.push_back({piece.part, piece.argument, piece.first, piece.local, out.first - piece.first});
        if (out_end < end) next.push_back({piece.part, piece.argument, out_end, piece.local + (out_end - piece.first), end - out_end});
      }
      left.swap(next);
    }
    kept.insert(kept.end(), left.begin(), left.end());
  }
  stored.swap(kept);
}

}  // namespace

Recording::Recording(Dataflow flow, const DdrRegions& regions) {
  if (!flow.refusal.empty()) throw flow.refusal;
  for (size_t i = 0; i < regions.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      if (overlap(*regions[i], *regions[k])) throw std::string("two of its arguments overlap");
  const Segments& segments = flow.segments;
  const auto units = static_cast<uint32_t>(flow.units.size());

  // Which parts read and write which accesses: units, and copies that no kernel sees.
  Order order(flow, regions);
  std::vector<Stored> stored;
  struct Move {
    BlockBuilder words;
    uint32_t part;
  };
  parts.resize(units);
  std::vector<uint32_t> occurrence(units);
  for (uint32_t i = 0; i < units; ++i) occurrence[i] = flow.units[i].occurrence;
  uint32_t occurrences = flow.occurrences;
  std::vector<uint8_t> kept(units, 0);
  BlockBuilder data, padding;
  const auto add_view = [&](View view) {
    for (BlockBuilder* builder : {&padding, &data}) {
      const std::vector<Block>& made = builder->take();
      if (view.blocks == 0) view.first_block = static_cast<uint32_t>(blocks.size());
      view.blocks += static_cast<uint32_t>(made.size());
      blocks.insert(blocks.end(), made.begin(), made.end());
    }
    const Block& only = blocks.back();
    if (view.blocks == 1 && only.run == view.words && only.space.kind() != Space::kPadding) {
      view.direct = true;
      view.space = only.space;
      view.first = only.first;
      blocks.pop_back();
      view.blocks = 0;
    } else {
      most_words = std::max(most_words, view.words);
    }
    views.push_back(view);
  };
  // Device memory by its argument, and what comes from a core by its unit.
  const auto add_run = [&](Space space, uint32_t first, uint32_t local, uint32_t words) {
    switch (space.kind()) {
      case Space::kDdr: data.add(Space(Space::kDdr, flow.accesses[space.id()].argument), first, local, words); break;
      case Space::kPadding: padding.add(space, first, local, words); break;
      case Space::kOut:
        kept[space.id()] = 1;
        data.add(space, first, local, words);
        break;
      default: data.add(space, first, local, words);
    }
  };

  std::unordered_set<uint64_t> seen;
  for (const FlowCall& call : flow.calls) {
    for (const uint32_t view : call.views) {
      if (view == kNoView || !seen.insert(uint64_t{view} << 32 | occurrence[call.unit]).second) continue;
      order.reads(occurrence[call.unit], flow.views[view]);
    }
  }
  for (const Slice& slice : flow.views) {
    uint32_t local = 0;
    segments.for_runs(slice, [&](Space space, uint32_t first, uint32_t words) {
      add_run(space, first, local, words);
      local += words;
    });
    View view;
    view.words = slice.words;
    add_view(view);
  }
  for (uint32_t index = 0; index < flow.accesses.size(); ++index) {
    const DdrAccess& access = flow.accesses[index];
    if (!access.write) continue;
    // From runs of the source to runs of device memory.
    struct Run {
      Space space;
      uint32_t first, words;
    };
    std::vector<Run> sources;
    segments.for_runs(access.source, [&](Space space, uint32_t first, uint32_t words) { sources.push_back({space, first, words}); });
    uint32_t move = ~0u, at = 0, local = 0;
    const Slice whole{access.segment, 0, segments.words(access.segment)};
    segments.for_runs(whole, [&](Space, uint32_t first, uint32_t words) {
      while (words > 0) {
        Run& from = sources[at];
        const uint32_t here = std::min(words, from.words);
        if (from.space.kind() == Space::kScratch) throw std::string("a kernel's scratch is written to device memory");
        if (from.space.kind() == Space::kOut) {
          stored.push_back({from.space.id(), access.argument, first, from.first, here});
          order.writes(index, from.space.id(), first, here);
        } else {
          if (move == ~0u) {
            move = static_cast<uint32_t>(parts.size());
            parts.emplace_back();
            occurrence.push_back(occurrences++);
            local = 0;
          }
          add_run(from.space, from.first, local, here);
          stored.push_back({move, access.argument, first, local, here});
          order.writes(index, move, first, here);
          if (from.space.kind() == Space::kDdr) order.reads_access(occurrence[move], from.space.id());
          local += here;
        }
        if (from.space.kind() != Space::kPadding) from.first += here;
        from.words -= here;
        if (from.words == 0) ++at;
        first += here;
        words -= here;
      }
    });
    if (move == ~0u) continue;
    parts[move].view = static_cast<uint32_t>(views.size());
    View view;
    view.words = local;
    add_view(view);
  }

  std::vector<uint32_t> level = order.levels(occurrence, occurrences);
  cut(stored, order.cuts());
  guard.read = order.read_from_outside();
  guard.deciding = order.deciding();
  written = order.written();
  for (const WordRange& range : guard.deciding) {
    const size_t before = guard.deciding_words.size();
    guard.deciding_words.resize(before + range.words);
    std::memcpy(guard.deciding_words.data() + before, words_at(*regions[range.argument], range.first), size_t{4} * range.words);
  }
  for (const auto& region : regions) guard.arguments.push_back({region->bytes, region->address % kBurst});

  // Calls by their units.
  std::vector<uint32_t> next(units + 1, 0);
  for (const FlowCall& call : flow.calls) ++next[call.unit + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  calls.resize(flow.calls.size());
  for (uint32_t i = 0; i < units; ++i) parts[i].first_call = next[i];
  for (const FlowCall& call : flow.calls) {
    Call& made = calls[next[call.unit]++];
    made.origin = call.origin;
    made.step = call.step;
    made.views = call.views;
  }

  std::stable_sort(stored.begin(), stored.end(), [](const Stored& a, const Stored& b) { return a.part < b.part; });
  std::vector<uint32_t> kept_at(units, 0);
  for (uint32_t i = 0; i < units; ++i) {
    const Unit& unit = flow.units[i];
    parts[i].operation = unit.operation.get();
    parts[i].calls = unit.calls;
    parts[i].out_bytes = unit.out_bytes;
    parts[i].scratch_bytes = unit.scratch_bytes;
    most_out_bytes = std::max(most_out_bytes, unit.out_bytes);
    most_scratch_bytes = std::max(most_scratch_bytes, unit.scratch_bytes);
    operations_.push_back(unit.operation);
    if (kept[i] == 0) continue;
    kept_at[i] = kept_words;
    kept_words += (unit.out_bytes + 3) / 4;
    parts[i].direct = true;
    parts[i].space = Space(Space::kOut, 0);
    parts[i].first = kept_at[i];
  }
  // What lies on the chip until others read it has one place for all.
  const auto settle = [&](Space& space, uint32_t& first) {
    if (space.kind() != Space::kOut) return;
    first += kept_at[space.id()];
    space = Space(Space::kOut, 0);
  };
  for (Block& block : blocks) settle(block.space, block.first);
  for (View& view : views)
    if (view.direct) settle(view.space, view.first);
  std::sort(operations_.begin(), operations_.end());
  operations_.erase(std::unique(operations_.begin(), operations_.end()), operations_.end());
  for (size_t i = 0; i < stored.size();) {
    Part& part = parts[stored[i].part];
    size_t end = i;
    for (; end < stored.size() && stored[end].part == stored[i].part; ++end)
      data.add(Space(Space::kDdr, stored[end].argument), stored[end].first, stored[end].local, stored[end].words);
    const std::vector<Block>& made = data.take();
    const Block& first = made.front();
    if (part.operation != nullptr && !part.direct && made.size() == 1 && first.local == 0 && 4 * first.run == part.out_bytes && first.words() == first.run) {
      part.direct = true;
      part.space = first.space;
      part.first = first.first;
    } else {
      if (part.operation != nullptr && part.out_bytes % 4 != 0) throw std::string("an output chunk ends inside a word");
      part.first_block = static_cast<uint32_t>(blocks.size());
      part.blocks = static_cast<uint32_t>(made.size());
      blocks.insert(blocks.end(), made.begin(), made.end());
    }
    i = end;
  }

  // Parts by levels; those that share operands follow each other.
  std::vector<uint32_t> sorted(parts.size());
  std::iota(sorted.begin(), sorted.end(), 0u);
  const auto key = [&](uint32_t i) {
    const Part& part = parts[i];
    const std::array<uint32_t, 2> operands = part.calls != 0 ? calls[part.first_call].views : std::array<uint32_t, 2>{part.view, kNoView};
    return std::make_tuple(level[occurrence[i]], occurrence[i], operands[1], operands[0], i);
  };
  std::sort(sorted.begin(), sorted.end(), [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
  std::vector<Part> by_level;
  by_level.reserve(parts.size());
  for (const uint32_t i : sorted) {
    const uint32_t at = level[occurrence[i]];
    if (levels.size() <= at) levels.resize(at + 1, {static_cast<uint32_t>(by_level.size()), 0});
    ++levels[at].parts;
    by_level.push_back(parts[i]);
  }
  parts.swap(by_level);
  literals = std::move(flow.literals);
}

}  // namespace onedispatch::sim
