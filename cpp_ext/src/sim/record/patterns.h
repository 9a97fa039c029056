// SPDX-License-Identifier: Apache-2.0
// How the chunks of calls lie in device memory: many of them alike, each in a place of its own.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "sim/record/kept_chunks.h"
#include "sim/record/recording.h"

namespace onedispatch::sim {

class Patterns {
 public:
  // Words of a chunk that lie together: where in the chunk, and in an argument, counted from the chunk's place.
  struct Run {
    uint32_t local, words, argument, first;
  };
  using Runs = std::vector<Run>;  // by where they are in the chunk; as long as they can be
  struct Place {
    uint32_t pattern = ~0u;
    uint32_t first = 0;  // the least word
  };

  // `stored` is sorted by parts; what is kept goes without it.
  Patterns(const Recording& recording, const std::vector<Stored>& stored, KeptChunks& kept)
      : recording_(recording), stored_(stored), kept_(kept), views_(recording.views.size()), outs_(recording.parts.size()) {}

  Place of_view(uint32_t view);
  Place of_out(uint32_t unit);
  // Good until the next call.
  const Runs& runs(uint32_t pattern);

 private:
  using Pattern = std::vector<RunBlock>;  // of device memory; other words are of no place
  struct Hash {
    size_t operator()(const Pattern& pattern) const;
  };
  struct Equal {
    bool operator()(const Pattern& a, const Pattern& b) const;
  };

  Place place();
  static Runs spread(const Pattern& pattern);

  const Recording& recording_;
  const std::vector<Stored>& stored_;
  KeptChunks& kept_;
  std::vector<Place> views_, outs_;  // that were asked for
  std::unordered_map<Pattern, uint32_t, Hash, Equal> numbers_;
  std::vector<const Pattern*> patterns_;  // by number
  std::unordered_map<uint32_t, Runs> runs_;
  BlockBuilder builder_;
  Pattern next_;  // to be placed
};

}  // namespace onedispatch::sim
