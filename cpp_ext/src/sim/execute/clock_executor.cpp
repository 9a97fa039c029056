// SPDX-License-Identifier: Apache-2.0
#include "sim/execute/clock_executor.h"

#include <algorithm>

#include "sim/array/bytes.h"

namespace onedispatch::sim {

namespace {

constexpr const char* kBlock = "the parameter block";

bool is_lost(const Channel& c) { return c.region && c.region->lost.touches(c.first_byte, c.span_bytes); }

// Passes over what the cursor did not follow: most of them never have to.
void catch_up(Channel& c) {
  if (c.lag != 0) c.cursor.skip(c.lag);
  c.lag = 0;
}

}  // namespace

void ClockExecutor::reset() { known_.assign(array_.tiles().size(), {}); }

// Calls visit(span) with what is known of each tile whose memory the channel's BD touches.
template <typename Visit>
void ClockExecutor::for_known_of(const Channel& c, Visit visit) {
  if (c.memory_tile == kNone) return;
  for (uint32_t tile = c.memory_tile; tile <= c.last_memory_tile; tile += array_.rows()) visit(known_[tile]);
}

// Whether any word of the channel's BD may be known. An answer of a control port is.
bool ClockExecutor::may_know(const Channel& c) {
  if (c.region) return c.region->valid->any();
  bool known = c.memory_tile == kNone;
  for_known_of(c, [&](const Span& span) { known = known || span.touches(c.first_byte, c.span_bytes); });
  return known;
}

void ClockExecutor::move(Channel& s, const Route& route, uint64_t words) {
  const uint8_t* known = nullptr;
  if (may_know(s)) {
    known = known_words(s, words);
  } else {
    s.lag += words;
  }
  for (const Destination& d : route.destinations) {
    Channel& c = array_.channels()[d.channel];
    if (c.region) continue;
    if (known != nullptr) {
      deliver(c, known, words);
    } else {
      lose(c, words);
    }
  }
}

// The next words of the source, where all of them are known. Advances.
const uint8_t* ClockExecutor::known_words(Channel& s, uint64_t words) {
  catch_up(s);
  if (scratch_.size() < 4 * words) scratch_.resize(4 * words);
  const bool known = s.cursor.gather(scratch_.data(), words) == Cursor::kAllWritten;
  return known && !is_lost(s) ? scratch_.data() : nullptr;
}

void ClockExecutor::deliver(Channel& c, const uint8_t* words, uint64_t count) {
  if (c.region) return;
  catch_up(c);
  c.cursor.scatter(words, count);
  for_known_of(c, [&](Span& span) { span.add(c.first_byte, c.span_bytes); });
}

void ClockExecutor::lose(Channel& c, uint64_t words) {
  c.lag += words;
  if (!may_know(c)) return;
  c.lag -= words;
  catch_up(c);
  ValidMap& valid = array_.tiles()[c.memory_tile].memory.whole->valid;
  c.cursor.for_runs(words, [&](uint64_t first, uint64_t count) { valid.forget(first, count); }, [](uint64_t) {});
  c.cursor.skip(words);
}

void ClockExecutor::lose(const Tile& tile, MemoryRange range) {
  const uint64_t first = tile.memory.first_byte + range.offset;
  if (range.bytes != 0 && known_[tile.index].touches(first, range.bytes))
    tile.memory.whole->valid.forget(first / 4, (first % 4 + range.bytes + 3) / 4);
}

// What the channel's BD would write of device memory, in whichever arguments it lies.
void ClockExecutor::place(Channel& c) {
  if (c.mm2s) return;
  for (const auto& region : array_.regions())
    if (region->valid == c.region->valid) region->lost.add(c.first_byte, c.span_bytes);
}

Executor::Words ClockExecutor::ahead(Channel& s, uint64_t most) {
  catch_up(s);
  const uint64_t count = std::min(most, s.cursor.left_of_run());
  const uint8_t* const at = s.cursor.readable(count);
  if (at == nullptr && s.cursor.contiguous(count) != nullptr) fail_unknown(s, s.cursor.next_word());
  return {at, at == nullptr ? 0 : count};
}

void ClockExecutor::read_deciding(const Channel& s, Cursor& from, uint8_t* to, uint64_t words) const {
  const uint64_t first = from.next_word(), unknown = from.gather(to, words);
  if (unknown != Cursor::kAllWritten || is_lost(s)) fail_unknown(s, unknown != Cursor::kAllWritten ? unknown : first);
}

uint32_t ClockExecutor::peek(Channel& s) {
  catch_up(s);
  uint8_t bytes[4];
  Cursor ahead = s.cursor;
  read_deciding(s, ahead, bytes, 1);
  return load32(bytes);
}

void ClockExecutor::take(Channel& s, uint32_t* to, uint64_t words) {
  catch_up(s);
  read_deciding(s, s.cursor, reinterpret_cast<uint8_t*>(to), words);
}

void ClockExecutor::write(Tile& tile, uint32_t offset, const uint8_t* data, uint64_t bytes) {
  tile.memory.set(offset, data, bytes);
  known_[tile.index].add(tile.memory.first_byte + offset, bytes);
}

uint32_t ClockExecutor::read(const Tile& tile, uint32_t offset) {
  if (tile.memory.unwritten_byte(offset, 4) != MemoryPart::kAllWritten) fail_unknown(tile, "a read", offset);
  return load32(tile.memory.data() + offset);
}

void ClockExecutor::begin(Core& core) {
  if (core.action->job != nullptr) return;
  const Tile& tile = array_.tiles()[core.tile];
  for (const MemoryRange& range : core.action->reads) {
    const uint64_t byte = tile.memory.unwritten_byte(range.offset, range.bytes);
    if (byte != MemoryPart::kAllWritten) fail_unknown(tile, kBlock, byte);
  }
}

uint64_t ClockExecutor::end(Core& core) {
  for (const MemoryRange& range : core.action->writes) lose(array_.tiles()[core.tile], range);
  return 0;
}

void ClockExecutor::explain_nonsense(const Core& core) const {
  const Tile& tile = array_.tiles()[core.tile];
  if (tile.memory.unwritten_byte(0, 4) != MemoryPart::kAllWritten) fail_unknown(tile, kBlock, 0);
}

void ClockExecutor::fail_unknown(const Channel& s, uint64_t word) const {
  array_.fail(s, "clock",
              {array_.channel_name(s) + " BD " + std::to_string(s.bd_id), "packets from " + array_.place_of(s, word) + ", which a clock without data does not know",
               "packets that the host gave before the run, or that instructions wrote", "Run it: its time depends on what it computes."});
}

// Of the tile's data memory, where `what` reads it.
void ClockExecutor::fail_unknown(const Tile& tile, const char* what, uint64_t byte) const {
  SimulationError error("clock",
                        {what + (" of " + array_.tile_name(tile.index)), "byte " + hex(byte) + " of its data memory, which a clock without data does not know",
                         "words that the host gave before the run, or that instructions wrote", "Run it: its time depends on what it computes."},
                        static_cast<int>(tile.column), static_cast<int>(tile.row));
  error.op = array_.current_op;
  throw error;
}

}  // namespace onedispatch::sim
