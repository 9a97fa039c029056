// SPDX-License-Identifier: Apache-2.0
// Out chunks that others read on the chip: they lie in memory of their own while a recording is played. Where the tiles
// of an operation's occurrence are parts of one tensor, that has it as device memory would, so that those who read it
// may be joined. Chunks that are not there at the same time share their place.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "sim/record/dataflow.h"
#include "sim/record/order.h"
#include "sim/record/recording.h"

namespace onedispatch::sim {

class KeptChunks {
 public:
  // They lie in an argument of that number, behind those of the run.
  KeptChunks(const Dataflow& flow, const Recording& recording, uint32_t argument);

  // Calls use(first, local, words) for each run of words of the unit's out chunk from `from` on: where they lie.
  template <typename Use>
  void for_runs(uint32_t unit, uint32_t from, uint32_t words, Use use) {
    const Chunk& chunk = chunks_[unit].known ? chunks_[unit] : place(unit);
    const uint32_t end = from + words;
    for (uint32_t local = from; local < end;) {
      Piece piece = piece_at(chunk, local);
      while (true) {  // evenly spaced rows
        const uint32_t here = piece.left < end - local ? piece.left : end - local;
        use(piece.first, local, here);
        local += here;
        if (piece.more == 0 || local >= end) break;
        --piece.more;
        piece.first += piece.step - (piece.row - piece.left);
        piece.left = piece.row;
      }
    }
  }
  // Lets chunks share memory whose lifetimes do not overlap: from the level of the occurrence that writes them to that of
  // its last reader. moved() maps a word's old place to its new one.
  void reuse(const std::vector<uint32_t>& levels, const std::vector<Order::Handed>& handed);
  uint32_t moved(uint32_t first) const;
  // Whether the unit's out chunk lies there: others read it, or its neighbours', with which it may be joined.
  bool has(uint32_t unit) const { return chunks_[unit].known || tensors_.count(flow_.units[unit].occurrence) != 0; }
  // Calls use(stored) for each run of words that the unit leaves there; more than one unit may leave the same words. Few
  // are asked for in the end: those of a large network take much more memory than all else.
  template <typename Use>
  void for_stored(uint32_t unit, Use use) {
    if (!has(unit)) return;
    for_runs(unit, 0, out_words(unit), [&](uint32_t first, uint32_t local, uint32_t words) {
      use(Stored{unit, 0, argument_, first, local, words});
    });
  }
  // Units whose words another one leaves, too.
  bool is_repeated(uint32_t unit) const { return repeated_.count(unit) != 0; }
  uint64_t words() const { return words_; }

 private:
  // How the chunks of an output lie in a tensor: rows, by the coordinates of a tile.
  struct Output {
    uint32_t offset = 0, row = 0, end = 0;  // words of the chunk: where it begins, of a row, where it ends
    uint32_t in_row = 0;                    // the last axes, of which a row has all members
    uint32_t base = 0, words = 0;           // of its tensor
    struct Axis {
      uint32_t dim = 0, count = 1;  // rows along it
      int64_t stride = 0;           // words of the tensor from a member to the next
    };
    std::vector<Axis> axes;  // outermost first
  };
  struct Chunk {
    bool known = false;
    bool apart = true;   // it lies by itself, at `base`
    uint32_t base = 0, words = 0;
    const std::vector<Output>* outputs = nullptr;
    std::array<uint32_t, OD_MAX_DIMS> origin{};
  };
  struct Piece {
    uint32_t first, left;                    // words, up to the end of a row
    uint32_t row = 0, step = 0, more = 0;  // of a row, from a row to the next, and rows that follow so
  };

  // What an occurrence leaves, from its level to that of its last reader.
  struct Life {
    uint32_t first_level = 0, last_level = 0;
    uint32_t words = 0, first = 0;
  };
  struct Moved {
    uint32_t occurrence = 0, from = 0, words = 0;
    uint32_t* base = nullptr;
  };

  const Chunk& place(uint32_t unit);
  uint32_t out_words(uint32_t unit) const { return (flow_.units[unit].out_bytes + 3) / 4; }
  uint32_t room(uint64_t words);
  std::vector<Moved> all();
  static uint32_t fit(std::vector<Life*> lives);
  void lay_out(uint32_t occurrence);
  bool is_grid(const std::vector<uint32_t>& units, const OperationShape& shape, std::vector<uint32_t>& again) const;
  bool alike(uint32_t unit, uint32_t other) const;
  bool same_view(uint32_t one, uint32_t other) const;
  std::optional<std::vector<Output>> outputs_of(const OperationShape& shape, uint32_t out_words);
  const std::array<uint32_t, OD_MAX_DIMS>& origin_of(uint32_t unit) const { return recording_.calls[recording_.parts[unit].first_call].origin; }
  static Piece piece_at(const Chunk& chunk, uint32_t local);

  const Dataflow& flow_;
  const Recording& recording_;
  uint32_t argument_;
  uint64_t words_ = 0;
  std::map<uint32_t, std::vector<uint32_t>> units_;          // by occurrence
  std::map<uint32_t, std::vector<Output>> tensors_;          // of occurrences that have one
  std::map<uint32_t, uint32_t> moved_;                       // where pieces lay, and lie
  std::vector<Chunk> chunks_;                                // by unit
  std::set<uint32_t> laid_out_, repeated_;
};

}  // namespace onedispatch::sim
