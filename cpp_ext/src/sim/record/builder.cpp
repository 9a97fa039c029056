// SPDX-License-Identifier: Apache-2.0
#include "sim/record/builder.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "onedispatch/text.h"

namespace onedispatch::sim {

namespace {

// Words of arguments that something was stored to.
class StoredWords {
 public:
  explicit StoredWords(const DdrRegions& regions) : regions_(regions) {}

  void add(const Stored& one) { words_of(one).add(one.first, one.words); }
  // The same; calls use(piece) for what of the words was not there.
  template <typename Use>
  void add_new(const Stored& one, Use use) {
    words_of(one).add_new(one.first, one.words, piece_by_piece(one, use));
  }
  // Takes the words out; calls use(piece) for what of them was there.
  template <typename Use>
  void take(const Stored& one, Use use) {
    words_of(one).take(one.first, one.words, piece_by_piece(one, use));
  }

 private:
  WordSet& words_of(const Stored& one) {
    const auto [at, added] = sets_.try_emplace(one.argument);
    if (added) at->second = WordSet(regions_[one.argument]->bytes / 4);
    return at->second;
  }

  template <typename Use>
  static auto piece_by_piece(const Stored& one, Use& use) {
    return [&one, &use](uint32_t first, uint32_t words) {
      Stored piece = one;
      piece.first = first;
      piece.local += first - one.first;
      piece.words = words;
      use(piece);
    };
  }

  const DdrRegions& regions_;
  std::map<uint32_t, WordSet> sets_;  // by argument
};

// Whether `next` lies behind the words, in the chunk and in device memory.
bool goes_on(const Stored& one, const Stored& next) { return one.argument == next.argument && one.first + one.words == next.first && one.local + one.words == next.local; }

// Divides the occurrences by cores: tiles of different ones may have been taken for one (see Occurrences). False if each is of
// one core.
bool divide(Dataflow& flow, const std::vector<uint32_t>& occurrences) {
  std::map<uint32_t, uint32_t> first_core;  // of each occurrence: it keeps its number
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> others;
  for (Unit& unit : flow.units) {
    if (!std::binary_search(occurrences.begin(), occurrences.end(), unit.occurrence)) continue;
    if (first_core.try_emplace(unit.occurrence, unit.core).first->second == unit.core) continue;
    const auto [other, added] = others.try_emplace({unit.occurrence, unit.core}, flow.occurrences);
    if (added) ++flow.occurrences;
    unit.occurrence = other->second;
  }
  return !others.empty();
}

}  // namespace

std::shared_ptr<Recording> RecordingBuilder::make(Dataflow flow, const DdrRegions& regions, unsigned threads) {
  for (;;) {
    RecordingBuilder builder(std::move(flow), regions, threads);
    try {
      return builder.build();
    } catch (const Circle& circle) {
      if (!divide(builder.flow_, circle.occurrences)) throw;
    }
    flow = std::move(builder.flow_);
  }
}

RecordingBuilder::RecordingBuilder(Dataflow flow, const DdrRegions& regions, unsigned threads)
    : flow_(std::move(flow)),
      regions_(regions),
      threads_(threads),
      places_(regions),
      order_(flow_, regions),
      kept_(flow_, *made_, static_cast<uint32_t>(regions.size())),
      occurrences_(flow_.occurrences) {}

std::shared_ptr<Recording> RecordingBuilder::build() {
  add_units();
  add_calls();
  add_views();
  read_all();
  add_stores();
  order();
  keep();
  forget();
  group();
  join();
  cut();
  store_all();
  sort();
  made_->literals = std::move(flow_.literals);
  return std::move(made_);
}

void RecordingBuilder::add_units() {
  for (const Unit& unit : flow_.units) {
    Recording::Part part;
    part.operation = unit.operation.get();
    part.occurrence = unit.occurrence;
    part.calls = unit.calls;
    part.out_bytes = unit.out_bytes;
    part.scratch_bytes = unit.scratch_bytes;
    made_->parts.push_back(part);
    made_->operations.push_back(unit.operation);
  }
}

// By their units, in order.
void RecordingBuilder::add_calls() {
  uint32_t next = 0;
  std::vector<uint32_t> at;
  for (Recording::Part& part : made_->parts) {
    at.push_back(part.first_call = next);
    next += part.calls;
  }
  made_->calls.resize(next);
  for (const FlowCall& call : flow_.calls) made_->calls[at[call.unit]++] = {call.origin, call.step, call.views};
}

// Device memory is named by its argument, what is kept by one that is behind them.
void RecordingBuilder::add_run(Space space, uint32_t first, uint32_t local, uint32_t words) {
  if (space.kind() == Space::kOut) {
    const Space kept(Space::kDdr, static_cast<uint32_t>(regions_.size()));
    kept_.for_runs(space.id(), first, words, [&](uint32_t lies, uint32_t own, uint32_t count) { data_.add(kept, lies, local + own - first, count); });
    return;
  }
  if (space.kind() == Space::kDdr) space = Space(Space::kDdr, flow_.accesses[space.id()].argument);
  (space.kind() == Space::kPadding ? padding_ : data_).add(space, first, local, words);
}

uint32_t RecordingBuilder::add_view(uint32_t words) {
  std::vector<RunBlock>& blocks = made_->blocks;
  Recording::View view;
  view.words = words;
  view.first_block = static_cast<uint32_t>(blocks.size());
  for (BlockBuilder* builder : {&padding_, &data_}) {
    const std::vector<RunBlock>& made = builder->take();
    blocks.insert(blocks.end(), made.begin(), made.end());
  }
  view.blocks = static_cast<uint32_t>(blocks.size()) - view.first_block;
  const RunBlock& last = blocks.back();
  if (view.blocks == 1 && last.run == words && last.space.kind() != Space::kPadding) {
    view.direct = true;
    view.space = last.space;
    view.first = last.first;
    view.blocks = 0;
    blocks.pop_back();
  } else {
    made_->most_words = std::max(made_->most_words, words);
  }
  made_->views.push_back(view);
  return static_cast<uint32_t>(made_->views.size() - 1);
}

void RecordingBuilder::add_views() {
  for (const Slice& slice : flow_.views) {
    uint32_t local = 0;
    flow_.segments.for_runs(slice, [&](Space space, uint32_t first, uint32_t words) {
      add_run(space, first, local, words);
      local += words;
    });
    add_view(slice.words);
  }
}

void RecordingBuilder::read_all() {
  std::unordered_set<uint64_t> seen;
  for (const FlowCall& call : flow_.calls) {
    const uint32_t occurrence = made_->parts[call.unit].occurrence;
    for (const uint32_t view : call.views)
      if (view != kNoView && seen.insert(uint64_t{view} << 32 | occurrence).second) order_.reads(occurrence, flow_.views[view]);
  }
}

void RecordingBuilder::add_stores() {
  for (const DdrAccess& access : flow_.accesses) {
    if (access.write) add_store(access);
    ends_.push_back(static_cast<uint32_t>(stored_.size()));
  }
}

// What a unit computed goes from its out chunk; all else is a part of its own, which no kernel sees.
void RecordingBuilder::add_store(const DdrAccess& access) {
  struct Run {
    Space space;
    uint32_t first, words;
  };
  std::vector<Run> sources;
  flow_.segments.for_runs(access.source, [&](Space space, uint32_t first, uint32_t words) { sources.push_back({space, first, words}); });
  const auto move = static_cast<uint32_t>(made_->parts.size());
  uint32_t moved = 0;
  const auto store = [&](const Run& from, uint32_t to, uint32_t words) {
    if (from.space.kind() == Space::kScratch) throw NotRecordable{"a kernel's scratch is written to device memory"};
    const auto order = static_cast<uint32_t>(stored_.size());
    if (from.space.kind() == Space::kOut) return stored_.push_back({from.space.id(), order, access.argument, to, from.first, words});
    add_run(from.space, from.first, moved, words);
    stored_.push_back({move, order, access.argument, to, moved, words});
    if (from.space.kind() == Space::kDdr) order_.reads_access(occurrences_, from.space.id());
    moved += words;
  };
  auto from = sources.begin();
  flow_.segments.for_runs(flow_.segments.whole(access.segment), [&](Space, uint32_t to, uint32_t words) {
    while (words > 0) {
      const uint32_t here = std::min(words, from->words);
      store(*from, to, here);
      from->first += from->space.kind() == Space::kPadding ? 0 : here;
      from->words -= here;
      if (from->words == 0) ++from;
      to += here;
      words -= here;
    }
  });
  if (moved == 0) return;
  Recording::Part part;
  part.view = add_view(moved);
  part.occurrence = occurrences_++;
  made_->parts.push_back(part);
}

void RecordingBuilder::order() {
  level_ = order_.levels(made_->parts, stored_, ends_, occurrences_);
  Guard& guard = made_->guard;
  guard.read = order_.read_from_outside();
  guard.deciding = order_.deciding();
  guard.expect(regions_);
  made_->written = order_.written();
}

// Sorts what is stored by parts.
void RecordingBuilder::group() {
  std::vector<uint32_t> next(made_->parts.size() + 1, 0);
  for (const Stored& one : stored_) ++next[one.part + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  std::vector<Stored> grouped(stored_.size());
  for (const Stored& one : stored_) grouped[next[one.part]++] = one;
  stored_.swap(grouped);
}

// Calls use(place, pieces) for each of the places among what is stored, with the words that nothing else there overwrites.
template <typename Use>
void RecordingBuilder::written_last(const std::vector<Stored>& all, std::vector<size_t> places, Use use) const {
  std::sort(places.begin(), places.end(), [&all](size_t a, size_t b) { return all[a].order > all[b].order; });
  StoredWords later(places_);
  for (const size_t i : places) {
    std::vector<Stored> pieces;
    later.add_new(all[i], [&](const Stored& piece) { pieces.push_back(piece); });
    use(i, std::move(pieces));
  }
}

// Of the words that an occurrence writes more than once, takes out all but the last write.
void RecordingBuilder::cut() {
  std::map<uint32_t, std::vector<size_t>> rewriting;  // what such occurrences store
  for (size_t i = 0; i < stored_.size(); ++i) {
    const Recording::Part& part = made_->parts[stored_[i].part];
    if (part.bases == 0 && order_.rewrites(part.occurrence)) rewriting[part.occurrence].push_back(i);
  }
  std::map<size_t, std::vector<Stored>> left;  // of what was cut
  for (const auto& [occurrence, own] : rewriting) {
    written_last(stored_, own, [&](size_t i, std::vector<Stored> pieces) {
      if (pieces.size() != 1 || pieces[0].words != stored_[i].words) left.emplace(i, std::move(pieces));
    });
  }
  if (left.empty()) return;
  std::vector<Stored> all;
  all.reserve(stored_.size() + left.size());
  for (size_t i = 0; i < stored_.size(); ++i) {
    const auto cut = left.find(i);
    if (cut == left.end()) {
      all.push_back(stored_[i]);
    } else {
      all.insert(all.end(), cut->second.begin(), cut->second.end());
    }
  }
  stored_.swap(all);
}

// Views read kept chunks where reuse() has placed them.
void RecordingBuilder::move_kept() {
  const Space kept(Space::kDdr, static_cast<uint32_t>(regions_.size()));
  std::vector<RunBlock> blocks;
  for (Recording::View& view : made_->views) {
    if (view.direct && view.space == kept) view.first = kept_.moved(view.first);
    const auto first = made_->blocks.begin() + view.first_block, end = first + view.blocks;
    view.first_block = static_cast<uint32_t>(blocks.size());
    for (auto block = first; block != end; ++block) {
      if (block->space == kept) {
        block->for_runs([&](int64_t from, int64_t local) { data_.add(kept, kept_.moved(static_cast<uint32_t>(from)), static_cast<uint32_t>(local), block->run); });
      } else {
        blocks.push_back(*block);
      }
    }
    const std::vector<RunBlock>& moved = data_.take();
    blocks.insert(blocks.end(), moved.begin(), moved.end());
    view.blocks = static_cast<uint32_t>(blocks.size()) - view.first_block;
  }
  made_->blocks.swap(blocks);
}

// What others read on the chip lies in an argument of its own.
void RecordingBuilder::keep() {
  kept_.reuse(level_, order_.on_chip());
  move_kept();
  made_->kept_words = static_cast<uint32_t>(kept_.words());
  if (kept_.words() * 4 > UINT32_MAX) throw NotRecordable{"what stays on the chip has " + counted(kept_.words(), "word")};
  auto kept = std::make_shared<DdrRegion>();
  kept->bytes = kept_.words() * 4;
  places_.push_back(std::move(kept));
}

// There is an order: what the run moved is of no more use, and large.
void RecordingBuilder::forget() {
  flow_.segments = {};
  flow_.accesses = {};
  flow_.deciding = {};
  flow_.views = {};
  flow_.calls = {};
}

// No word is written by two of the parts: they run side by side. It is left to the group whose tile wrote it last.
void RecordingBuilder::share(const Join& join, std::vector<JoinedPart>& parts) {
  const std::map<uint32_t, uint32_t> groups = join.groups();
  std::vector<Stored> all;
  std::map<uint32_t, StoredWords> left;  // by group
  for (const auto& [tile, group] : groups) {
    left.try_emplace(group, places_);
    const auto [first, end] = stored_of(stored_, tile);
    all.insert(all.end(), first, end);
    kept_.for_stored(tile, [&all](const Stored& one) { all.push_back(one); });
  }
  std::vector<size_t> places(all.size());
  std::iota(places.begin(), places.end(), size_t{0});
  written_last(all, std::move(places), [&](size_t i, const std::vector<Stored>& pieces) {
    for (const Stored& piece : pieces) left.at(groups.at(all[i].part)).add(piece);
  });
  for (JoinedPart& part : parts) {
    std::vector<Stored> own;
    for (const Stored& one : part.stored) {
      left.at(part.group).take(one, [&](const Stored& piece) {
        if (!own.empty() && goes_on(own.back(), piece)) {
          own.back().words += piece.words;
        } else {
          own.push_back(piece);
        }
      });
    }
    part.stored.swap(own);
  }
}

// Joined parts stand behind the others; those whose place they take are left out in the end.
void RecordingBuilder::join() {
  std::map<uint32_t, std::vector<uint32_t>> occurrences;
  for (uint32_t i = 0; i < flow_.units.size(); ++i) occurrences[made_->parts[i].occurrence].push_back(i);
  std::vector<Stored> stored;
  replaced_.assign(made_->parts.size(), 0);
  Patterns patterns(*made_, stored_, kept_);
  for (const auto& [occurrence, parts] : occurrences) {
    Join join(*made_, parts, patterns, places_, threads_);
    std::vector<JoinedPart> joined = join.make();
    if (joined.empty()) continue;
    if (join.overlaps()) share(join, joined);
    for (const uint32_t part : parts) replaced_[part] = 1;
    for (JoinedPart& one : joined) {
      Recording::Part part;
      part.operation = one.operation.get();
      part.occurrence = occurrence;
      part.first_call = static_cast<uint32_t>(made_->calls.size());
      part.calls = one.steps;
      part.first_base = static_cast<uint32_t>(made_->bases.size());
      part.bases = static_cast<uint32_t>(one.bases.size()) / one.steps;
      part.out_bytes = one.out_bytes;
      part.scratch_bytes = one.operation->scratch_bytes();
      made_->bases.insert(made_->bases.end(), one.bases.begin(), one.bases.end());
      Recording::Call call;
      call.origin = one.origin;
      for (; call.step < one.steps; ++call.step) made_->calls.push_back(call);
      const auto index = static_cast<uint32_t>(made_->parts.size());
      for (Stored& store : one.stored) {
        store.part = index;
        stored.push_back(store);
      }
      replaced_.push_back(0);
      if (one.in_place != nullptr) {
        in_place_.emplace(index, one.in_place.get());
        made_->operations.push_back(std::move(one.in_place));
      }
      made_->operations.push_back(std::move(one.operation));
      made_->parts.push_back(part);
    }
  }
  const auto is_replaced = [this](const Stored& one) { return replaced_[one.part] != 0; };
  stored_.erase(std::remove_if(stored_.begin(), stored_.end(), is_replaced), stored_.end());
  stored_.insert(stored_.end(), stored.begin(), stored.end());
  for (uint32_t unit = 0; unit < flow_.units.size(); ++unit)
    if (replaced_[unit] == 0 && !kept_.is_repeated(unit)) kept_.for_stored(unit, [this](const Stored& one) { stored_.push_back(one); });
  group();
  auto& all = made_->operations;
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
}

void RecordingBuilder::store_all() {
  for (auto first = stored_.begin(); first != stored_.end();) {
    const auto end = std::find_if(first, stored_.end(), [&](const Stored& one) { return one.part != first->part; });
    for (auto at = first; at != end; ++at) data_.add(Space(Space::kDdr, at->argument), at->first, at->local, at->words);
    const std::vector<RunBlock>& made = data_.take();
    Recording::Part& part = made_->parts[first->part];
    const RunBlock& only = made.front();
    const bool whole = made.size() == 1 && only.local == 0 && only.words() == only.run && 4 * only.run == part.out_bytes;
    const auto in_place = in_place_.find(first->part);
    const auto words = std::accumulate(first, end, uint64_t{0}, [](uint64_t sum, const Stored& one) { return sum + one.words; });
    if (!whole && in_place != in_place_.end() && first->local == 0 && 4 * words == part.out_bytes) {
      part.operation = in_place->second;
      part.direct = true;
      part.space = Space(Space::kDdr, first->argument);
      part.first = first->first;
    } else if (part.operation != nullptr && !part.direct && whole) {
      part.direct = true;
      part.space = only.space;
      part.first = only.first;
    } else {
      const bool leaves = std::any_of(first, end, [this](const Stored& one) { return one.argument < regions_.size(); });
      if (part.operation != nullptr && part.out_bytes % 4 != 0 && leaves) throw NotRecordable{"an output chunk ends inside a word"};
      part.first_block = static_cast<uint32_t>(made_->blocks.size());
      part.blocks = static_cast<uint32_t>(made.size());
      made_->blocks.insert(made_->blocks.end(), made.begin(), made.end());
    }
    first = end;
  }
}

// By levels; those that share operands follow each other.
void RecordingBuilder::sort() {
  Recording& made = *made_;
  std::vector<uint32_t> sorted;
  for (uint32_t i = 0; i < made.parts.size(); ++i) {
    const Recording::Part& part = made.parts[i];
    if (replaced_[i] != 0) continue;
    sorted.push_back(i);
    made.most_out_bytes = std::max(made.most_out_bytes, part.out_bytes);
    made.most_scratch_bytes = std::max(made.most_scratch_bytes, part.scratch_bytes);
  }
  const auto key = [&](uint32_t i) {
    const Recording::Part& part = made.parts[i];
    std::array<uint32_t, 2> operands{part.view, kNoView};
    if (part.calls != 0) operands = made.calls[part.first_call].views;
    return std::make_tuple(level_[part.occurrence], part.occurrence, operands[1], operands[0], i);
  };
  std::sort(sorted.begin(), sorted.end(), [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
  std::vector<Recording::Part> parts;
  parts.reserve(sorted.size());
  for (const uint32_t i : sorted) {
    const uint32_t level = level_[made.parts[i].occurrence];
    if (made.levels.size() <= level) made.levels.resize(level + 1, {static_cast<uint32_t>(parts.size()), 0});
    ++made.levels[level].parts;
    parts.push_back(made.parts[i]);
  }
  made.parts.swap(parts);
}

}  // namespace onedispatch::sim
