// SPDX-License-Identifier: Apache-2.0
// A clock without data: the engine decides all that it decides in any run, so time passes as it always does, but no
// tensor moves and no kernel is called.
//
// Some words decide: those of control packets and parameter blocks, and those that the controller reads. So words that
// are known do move, on the chip: those that the host gave, and those that instructions and packets write. The map of
// an on-chip memory says which of its words are known, and Tile::known where to look at all: nearly nothing lies there.
// Words become unknown where unknown ones are moved to them, or a kernel writes. Device memory is not written; what
// would be is lost to the run. Where an unknown word decides, the run ends, and says so.
#include "sim/array/array.h"
#include "sim/array/bytes.h"

namespace onedispatch::sim {

// Calls visit(tile) for the tiles whose memory the channel's BD touches.
template <typename Visit>
void Array::for_tiles_of(const Channel& c, Visit visit) {
  if (c.memory_tile == kNone) return;
  for (uint32_t tile = c.memory_tile; tile <= c.last_memory_tile; tile += rows_) visit(tiles_[tile]);
}

// Whether any word of the channel's BD may be known. An answer of a control port is.
bool Array::may_know(const Channel& c) {
  if (c.region) return c.region->valid->any();
  bool known = c.memory_tile == kNone;
  for_tiles_of(c, [&](const Tile& tile) { known = known || tile.known.touches(c.first_byte, c.span_bytes); });
  return known;
}

void Array::pass_segment(Channel& s, const Route& route, uint64_t words) {
  const uint8_t* known = nullptr;
  if (may_know(s)) {
    known = known_words(s, words);
  } else {
    s.lag += words;
  }
  count_ddr(s, route, words);
  for (const Destination& d : route.destinations) {
    Channel& c = channels_[d.channel];
    changed_memory(c);
    if (c.region) continue;
    if (known != nullptr) {
      learn(c, known, words);
    } else {
      lose(c, words);
    }
  }
}

// The next words of the source, where all of them are known. Advances.
const uint8_t* Array::known_words(Channel& s, uint64_t words) {
  catch_up(s);
  if (scratch_.size() < 4 * words) scratch_.resize(4 * words);
  const bool known = s.cursor.gather(scratch_.data(), words) == Cursor::kAllWritten;
  return known && !is_lost(s) ? scratch_.data() : nullptr;
}

void Array::learn(Channel& c, const uint8_t* from, uint64_t words) {
  catch_up(c);
  c.cursor.scatter(from, words);
  for_tiles_of(c, [&](Tile& tile) { tile.known.add(c.first_byte, c.span_bytes); });
}

void Array::lose(Channel& c, uint64_t words) {
  c.lag += words;
  if (!may_know(c)) return;
  c.lag -= words;
  catch_up(c);
  ValidMap& known = tiles_[c.memory_tile].memory.whole->valid;
  c.cursor.for_runs(words, [&](uint64_t first, uint64_t count) { known.forget(first, count); }, [](uint64_t) {});
  c.cursor.skip(words);
}

void Array::lose(Tile& tile, MemoryRange range) {
  const uint64_t first = tile.memory.first_byte + range.offset;
  if (range.bytes != 0 && tile.known.touches(first, range.bytes))
    tile.memory.whole->valid.forget(first / 4, (first % 4 + range.bytes + 3) / 4);
}

// What the channel's BD would write of device memory, in whichever arguments it lies.
void Array::lose_ddr(const Channel& c) {
  for (const auto& region : regions_)
    if (region->valid == c.region->valid) region->lost.add(c.first_byte, c.span_bytes);
}

bool Array::is_lost(const Channel& c) { return c.region && c.region->lost.touches(c.first_byte, c.span_bytes); }

// Passes over what the cursor did not follow: most of them never have to.
void Array::catch_up(Channel& c) {
  if (c.lag != 0) c.cursor.skip(c.lag);
  c.lag = 0;
}

void Array::fail_unknown(const Channel& s, uint64_t word) const {
  fail(s, "clock",
       {channel_name(s) + " BD " + std::to_string(s.bd_id), "packets from " + place_of(s, word) + ", which a clock without data does not know",
        "packets that the host gave before the run, or that instructions wrote", "Run it: its time depends on what it computes."});
}

// Of the tile's data memory, where `what` reads it.
void Array::fail_unknown(const Tile& tile, const char* what, uint64_t byte) const {
  SimulationError error("clock",
                        {what + (" of " + tile_name(tile.index)), "byte " + hex(byte) + " of its data memory, which a clock without data does not know",
                         "words that the host gave before the run, or that instructions wrote", "Run it: its time depends on what it computes."},
                        static_cast<int>(tile.column), static_cast<int>(tile.row));
  error.op = current_op;
  throw error;
}

void Array::check_known(const Tile& tile, const char* what, uint32_t offset) const {
  if (tile.memory.first_unwritten(offset / 4, 1) == offset / 4) fail_unknown(tile, what, offset);
}

}  // namespace onedispatch::sim
