// SPDX-License-Identifier: Apache-2.0
// A run that can be made again without the engine: what to compute from which words, in which order, and all
// that must be as it was.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "onedispatch/report.h"
#include "sim/array/ddr.h"
#include "sim/record/dataflow.h"
#include "sim/record/descriptors.h"

namespace onedispatch::sim {

// Words of an argument.
struct WordRange {
  uint32_t argument = 0, first = 0, words = 0;
};

inline uint8_t* words_at(const DdrRegion& region, uint32_t first) {
  return region.data + (region.address - region.origin) + size_t{4} * first;
}
// In words of the memory that its valid map counts.
inline uint64_t word_of(const DdrRegion& region, uint32_t first) { return (region.address - region.origin) / 4 + first; }
// Whether two of them do.
bool overlap(const DdrRegions& regions);

// Everything that decides what a run does, beside the state of the array.
struct Guard {
  static constexpr uint64_t kBurst = 64;

  struct Argument {
    uint64_t bytes = 0;
    uint64_t misaligned = 0;  // of its address: device memory is served in bursts
  };
  std::vector<uint8_t> instructions;
  std::vector<Argument> arguments;
  std::vector<WordRange> deciding;
  std::vector<uint32_t> deciding_words;  // of all ranges, one after the other
  std::vector<WordRange> read;           // what the host must have written

  // Takes arguments, and the deciding words, as they are.
  void expect(const DdrRegions& regions);
  bool holds(const uint8_t* bytes, size_t size, const DdrRegions& regions) const;
};

// Parts of it are in tables, which parts name by first entry and number.
struct Recording {
  // A chunk that calls read: where it lies, or what it is put together from.
  struct View {
    bool direct = false;  // it lies there as it is
    Space space;
    uint32_t first = 0;
    uint32_t first_block = 0, blocks = 0;
    uint32_t words = 0;
  };
  struct Call {
    std::array<uint32_t, OD_MAX_DIMS> origin{};
    uint32_t step = 0;
    std::array<uint32_t, params::kOutPort> views{kNoView, kNoView};
  };
  // Where an operand of a joined operation lies: in an argument, or its out chunk.
  struct Base {
    static constexpr uint32_t kOutChunk = ~0u;
    uint32_t operand = 0, argument = 0;
    uint64_t byte = 0;
  };
  // A tile, or several that were joined, or words that no kernel sees.
  struct Part {
    const CallableOperation* operation = nullptr;  // null: a view is stored as it is
    uint32_t occurrence = 0;
    uint32_t first_call = 0, calls = 0;
    uint32_t view = kNoView;
    uint32_t first_base = 0, bases = 0;  // of a joined one: of each call
    uint32_t out_bytes = 0, scratch_bytes = 0;
    bool direct = false;  // its out chunk is made where it will lie
    Space space;
    uint32_t first = 0;
    uint32_t first_block = 0, blocks = 0;  // of its stores
  };
  struct Level {
    uint32_t first = 0, parts = 0;
  };

  Guard guard;
  Descriptors descriptors;
  RunReport report;
  uint64_t took = 0;  // cycles, with what ended by itself after the last operation
  std::vector<View> views;
  std::vector<Call> calls;
  std::vector<Base> bases;
  std::vector<Part> parts;  // by levels: those of one level do not touch what others of it write
  std::vector<Level> levels;
  std::vector<RunBlock> blocks;
  std::vector<uint32_t> literals;
  std::vector<WordRange> written;
  uint32_t kept_words = 0;  // of what others read on the chip, an argument behind those of the run
  uint32_t most_words = 0;  // of a chunk that is put together
  uint32_t most_out_bytes = 0, most_scratch_bytes = 0;
  std::vector<std::shared_ptr<const CallableOperation>> operations;  // that parts point to

  uint64_t kernel_calls() const;
};

}  // namespace onedispatch::sim
