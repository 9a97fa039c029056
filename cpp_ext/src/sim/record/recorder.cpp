// SPDX-License-Identifier: Apache-2.0
#include "sim/record/recorder.h"

#include <algorithm>

#include "onedispatch/text.h"
#include "sim/array/bytes.h"

namespace onedispatch::sim {

namespace {

constexpr uint64_t kMostWords = 1u << 31;  // of an argument: steps between its words must be numbers

constexpr uint32_t kPaddingSlice = ~0u;    // of no segment: words of the value `offset`

uint32_t words_of(MemoryRange range) { return (range.offset % 4 + range.bytes + 3) / 4; }

bool overlap(MemoryRange a, MemoryRange b) {
  return a.bytes != 0 && b.bytes != 0 && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

// Slices that go on where the one before them ended are one.
void append(std::vector<Slice>& slices, const Slice& slice) {
  if (!slices.empty()) {
    Slice& last = slices.back();
    if (last.segment == slice.segment && last.offset + last.words == slice.offset) {
      last.words += slice.words;
      return;
    }
  }
  slices.push_back(slice);
}

// Both halves of the product, each of which depends on all of both factors.
uint64_t mixed(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

SlicesDigest digest_of(const std::vector<Slice>& slices) {
  // Odd numbers without a pattern: digits of the square roots of 2, 3, 5 and 7.
  constexpr uint64_t kFirst[] = {0x6A09E667F3BCC909, 0xBB67AE8584CAA73B}, kSecond[] = {0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1};
  SlicesDigest digest{slices.size(), ~slices.size()};
  for (const Slice& slice : slices) {
    const uint64_t where = uint64_t{slice.segment} << 32 | slice.offset;
    for (size_t i = 0; i < digest.size(); ++i) digest[i] = mixed(where ^ digest[i] ^ kFirst[i], slice.words ^ kSecond[i]) + kFirst[i];
  }
  return digest;
}

}  // namespace

void Recorder::refuse(std::string why) {
  if (flow_.refusal.empty()) flow_.refusal = std::move(why);
}

uint32_t Recorder::argument_of(const DdrRegion& region) const {
  uint32_t index = 0;
  while (arguments_[index].get() != &region) ++index;
  return index;
}

// The segment of the words that the channel's descriptor names next in device memory.
uint32_t Recorder::add_access(const Channel& channel, uint64_t words, bool write, Slice source) {
  const DdrRegion& region = *channel.region;
  DdrAccess access;
  access.write = write;
  access.argument = argument_of(region);
  access.source = source;
  if (region.bytes / 4 > kMostWords) refuse("an argument has " + counted(region.bytes, "byte"));
  const Space space(Space::kDdr, static_cast<uint32_t>(flow_.accesses.size()));
  const int64_t shift = (static_cast<int64_t>(region.origin) - static_cast<int64_t>(region.address)) / 4;
  channel.cursor.for_runs(
      words,
      [&](uint64_t at, uint64_t count) {
        builder_.add(space, static_cast<uint32_t>(static_cast<int64_t>(at) + shift), static_cast<uint32_t>(count));
      },
      [](uint64_t) {});
  access.segment = flow_.segments.add(builder_.take());
  flow_.accesses.push_back(access);
  return access.segment;
}

// One slice that is all of these.
Slice Recorder::joined(const std::vector<Slice>& slices) {
  if (slices.size() == 1 && slices[0].segment != kPaddingSlice) return slices[0];
  const auto [known, added] = joined_.try_emplace(digest_of(slices));
  if (added) known->second = join(slices);
  return known->second;
}

Slice Recorder::join(const std::vector<Slice>& slices) {
  uint32_t words = 0;
  for (const Slice& slice : slices) {
    words += slice.words;
    if (slice.segment == kPaddingSlice) {
      builder_.add(Space(Space::kPadding, 0), slice.offset, slice.words);
    } else {
      flow_.segments.for_runs(slice, [this](Space space, uint32_t first, uint32_t count) { builder_.add(space, first, count); });
    }
  }
  return add_segment(words);
}

// Of what the builder has.
Slice Recorder::add_segment(uint32_t words) { return {flow_.segments.add(builder_.take()), 0, words}; }

Slice Recorder::read(const Memory& memory, uint64_t first, uint64_t words) {
  slices_.clear();
  const bool known = pieces_of(memory).read(static_cast<uint32_t>(first), static_cast<uint32_t>(words),
                                           [this](const Slice& slice) { append(slices_, slice); });
  if (!known) refuse("it reads words that it has not written");
  return refused() ? Slice{} : joined(slices_);
}

Slice Recorder::read(const Channel& source, uint64_t words) {
  if (source.reply) depends("registers that a packet read");
  if (refused()) return {};
  if (source.region) return {add_access(source, words, false, {}), 0, static_cast<uint32_t>(words)};
  const Pieces& pieces = pieces_of(*source.memory);
  slices_.clear();
  bool known = true;
  source.cursor.for_runs(
      words,
      [&](uint64_t at, uint64_t count) {
        known = known && pieces.read(static_cast<uint32_t>(at), static_cast<uint32_t>(count),
                                     [this](const Slice& slice) { append(slices_, slice); });
      },
      [&](uint64_t count) { slices_.push_back({kPaddingSlice, source.cursor.pad_value(), static_cast<uint32_t>(count)}); });
  if (!known) refuse("it reads words that it has not written");
  if (refused()) return {};
  for (const Slice& slice : slices_) leave(slice);
  return joined(slices_);
}

// What a core computed goes on to other places: it must be final.
void Recorder::leave(const Slice& slice) {
  if (slice.segment == kPaddingSlice) return;
  const Space space = flow_.segments.space(slice.segment);
  if (space.kind() == Space::kOut) flow_.units[space.id()].left = true;
  if (space.kind() == Space::kScratch) refuse("a kernel's scratch is moved");
}

void Recorder::write(const Channel& channel, const Slice& slice) {
  if (channel.region) {
    add_access(channel, slice.words, true, slice);
    return;
  }
  Pieces& pieces = pieces_of(*channel.memory);
  uint32_t offset = slice.offset;
  const auto piece = [&](uint64_t at, uint64_t count) {
    pieces.write(static_cast<uint32_t>(at), Slice{slice.segment, offset, static_cast<uint32_t>(count)});
    offset += static_cast<uint32_t>(count);
  };
  channel.cursor.for_runs(slice.words, piece, [](uint64_t) {});
}

void Recorder::move(Channel& source, const Route& route, uint64_t words) {
  if (!refused()) record_move(source, route, words);
  does_.move(source, route, words);
}

void Recorder::record_move(const Channel& source, const Route& route, uint64_t words) {
  const Slice slice = read(source, words);
  for (size_t i = 0; i < route.destinations.size() && !refused(); ++i)
    write(array_.channels()[route.destinations[i].channel], slice);
}

void Recorder::take(Channel& source, uint32_t* to, uint64_t words) {
  if (!refused()) record_decision(source, words);
  does_.take(source, to, words);
}

void Recorder::record_decision(const Channel& source, uint64_t words) {
  const Slice slice = read(source, words);
  if (!refused()) flow_.deciding.push_back(slice);
}

void Recorder::record_block(const Core& core, MemoryRange block) {
  const MemoryPart& memory = memory_of(core);
  const Slice slice = read(*memory.whole, memory.first_word() + block.offset / 4, words_of(block));
  if (refused()) return;
  flow_.deciding.push_back(slice);
  CoreState& state = cores_[core.index];
  state.block_read = true;
  state.delivered = {slices_.front().segment, slices_.front().offset};
}

// Words that no memory held before; null: zeros.
Slice Recorder::literals(const uint8_t* from, uint32_t words) {
  if (from == nullptr) {
    builder_.add(Space(Space::kPadding, 0), 0, words);
  } else {
    builder_.add(Space(Space::kLiteral, 0), static_cast<uint32_t>(flow_.literals.size()), words);
    for (uint32_t i = 0; i < words; ++i) flow_.literals.push_back(load32(from + size_t{4} * i));
  }
  return add_segment(words);
}

void Recorder::deliver(Channel& destination, const uint8_t* words, uint64_t count) {
  if (!refused()) write(destination, literals(words, static_cast<uint32_t>(count)));
  does_.deliver(destination, words, count);
}

void Recorder::write(Tile& tile, uint32_t offset, const uint8_t* data, uint64_t bytes) {
  const MemoryPart& memory = tile.memory;
  if (!refused())
    pieces_of(*memory.whole).write(static_cast<uint32_t>(memory.first_word()) + offset / 4, literals(data, static_cast<uint32_t>(bytes / 4)));
  does_.write(tile, offset, data, bytes);
}

uint32_t Recorder::read(const Tile& tile, uint32_t offset) {
  depends("data memory that the controller reads");
  return does_.read(tile, offset);
}

uint32_t Recorder::view_of(const MemoryPart& memory, MemoryRange range) {
  const Slice slice = read(*memory.whole, memory.first_word() + range.offset / 4, words_of(range));
  if (refused()) return kNoView;
  leave(slice);
  const auto [at, added] = views_.try_emplace(slice, static_cast<uint32_t>(flow_.views.size()));
  if (added) flow_.views.push_back(slice);
  return at->second;
}

uint32_t Recorder::occurrence_of(CoreState& state, uint32_t core, const KernelCall& call) {
  const CallableOperation* const operation = call.operation.get();
  if (!state.block_read && state.operation == operation) return state.occurrence;
  state.block_read = false;
  state.operation = operation;
  return state.occurrence = occurrences_.begin(core, operation, state.delivered);
}

bool Recorder::holds(const MemoryPart& memory, MemoryRange range, uint32_t segment) {
  bool whole = true;
  uint32_t expected = 0;
  const bool known = pieces_of(*memory.whole).read(static_cast<uint32_t>(memory.first_word()) + range.offset / 4, words_of(range), [&](const Slice& slice) {
    whole = whole && slice.segment == segment && slice.offset == expected;
    expected += slice.words;
  });
  return known && whole;
}

// The unit that the call goes on with, or a new one.
uint32_t Recorder::unit_of(CoreState& state, const Core& core, const KernelCall& call) {
  const MemoryPart& memory = memory_of(core);
  const MemoryRange& out = call.chunks[params::kOutPort];
  const uint32_t occurrence = occurrence_of(state, core.index, call);
  if (call.step == 0) {
    Unit unit;
    unit.operation = call.operation;
    unit.occurrence = occurrence;
    unit.core = core.index;
    unit.out_bytes = out.bytes;
    unit.scratch_bytes = call.scratch.bytes;
    flow_.units.push_back(std::move(unit));
    return static_cast<uint32_t>(flow_.units.size() - 1);
  }
  const Unit& unit = flow_.units[state.unit];
  const bool in_slot = overlap(call.scratch, out);  // sums wait where their results will lie
  if (unit.occurrence != occurrence || unit.left) refuse("sums leave their core before they are complete");
  if ((call.continues_out && !in_slot && !holds(memory, out, unit.out_segment)) ||
      (call.continues_scratch && !holds(memory, call.scratch, unit.scratch_segment)))
    refuse("sums are changed between the steps of a tile");
  return state.unit;
}

void Recorder::begin(Core& core) {
  const Work* const job = core.action->job;
  if (job != nullptr && !refused()) record_begin(core, job->call());
  if (job == nullptr)
    for (const MemoryRange& block : core.action->reads)
      if (!refused()) record_block(core, block);
  does_.begin(core);
}

// `call`: null where a call can be made by its core alone.
void Recorder::record_begin(const Core& core, const KernelCall* call) {
  if (call == nullptr) return refuse("a kernel of a plug-in runs, or one that prints");
  const MemoryPart& memory = memory_of(core);
  CoreState& state = cores_[core.index];
  const MemoryRange& out = call->chunks[params::kOutPort];
  FlowCall traced;
  traced.origin = call->origin;
  traced.step = call->step;
  for (uint32_t port = 0; port < params::kOutPort; ++port) {
    const MemoryRange& chunk = call->chunks[port];
    if (chunk.bytes == 0) continue;
    if (overlap(chunk, out) || overlap(chunk, call->scratch)) return refuse("a kernel writes where it reads");
    traced.views[port] = view_of(memory, chunk);
    if (refused()) return;
  }
  state.unit = traced.unit = unit_of(state, core, *call);
  if (refused()) return;
  ++flow_.units[state.unit].calls;
  flow_.calls.push_back(traced);
  state.call = *call;
}

// All of the range is what the unit leaves there.
void Recorder::set(const MemoryPart& memory, MemoryRange range, uint32_t& segment, Space space) {
  const uint32_t words = words_of(range);
  if (segment == ~0u) {
    builder_.add(space, 0, words);
    segment = flow_.segments.add(builder_.take());
  }
  pieces_of(*memory.whole).write(static_cast<uint32_t>(memory.first_word()) + range.offset / 4, {segment, 0, words});
}

uint64_t Recorder::end(Core& core) {
  const uint64_t nanoseconds = does_.end(core);
  if (core.action->job != nullptr && !refused()) record_end(core);
  return nanoseconds;
}

void Recorder::record_end(const Core& core) {
  const MemoryPart& memory = memory_of(core);
  const CoreState& state = cores_[core.index];
  Unit& unit = flow_.units[state.unit];
  const KernelCall& call = state.call;
  if (call.scratch.bytes != 0) set(memory, call.scratch, unit.scratch_segment, Space(Space::kScratch, state.unit));
  const bool sums_wait = !call.last && overlap(call.scratch, call.chunks[params::kOutPort]);
  if (call.writes_out && !sums_wait) set(memory, call.chunks[params::kOutPort], unit.out_segment, Space(Space::kOut, state.unit));
}

}  // namespace onedispatch::sim
