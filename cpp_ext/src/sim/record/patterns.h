// SPDX-License-Identifier: Apache-2.0
// How the chunks of calls lie in device memory: many of them alike, each in a place of its own.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "sim/record/recording.h"

namespace onedispatch::sim {

class Patterns {
 public:
  static constexpr uint64_t kNowhere = ~0ull;  // it isn't in device memory
  // Of a chunk: argument in the high half; in the low one the word, counted from the chunk's place.
  using Words = std::vector<uint64_t>;
  struct Place {
    uint32_t pattern = ~0u;
    uint32_t first = 0;  // the least word
  };

  // `stored` is sorted by parts.
  Patterns(const Recording& recording, const std::vector<Stored>& stored) : recording_(recording), stored_(stored), views_(recording.views.size()), outs_(recording.parts.size()) {}

  Place of_view(uint32_t view);
  Place of_out(uint32_t part);
  // Good until the next call.
  const Words& words(uint32_t pattern);

 private:
  struct Pattern {
    uint32_t words = 0;
    std::vector<RunBlock> blocks;  // of device memory
    bool operator==(const Pattern& other) const;
  };
  struct Hash {
    size_t operator()(const Pattern& pattern) const;
  };

  Place place(uint32_t words);
  static bool spread(const Pattern& pattern, Words& words);

  const Recording& recording_;
  const std::vector<Stored>& stored_;
  std::vector<Place> views_, outs_;  // that were asked for
  std::unordered_map<Pattern, uint32_t, Hash> numbers_;
  std::vector<const Pattern*> patterns_;  // by number
  std::unordered_map<uint32_t, Words> spread_;
  BlockBuilder builder_;
  Pattern next_;  // to be placed
};

}  // namespace onedispatch::sim
