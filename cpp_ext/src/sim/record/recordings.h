// SPDX-License-Identifier: Apache-2.0
// The recordings of a context, and which run is worth one.
#pragma once
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/record/recording.h"

namespace onedispatch::sim {

using ArrayState = std::shared_ptr<const std::vector<uint8_t>>;

class Recordings {
 public:
  // One that was made of such a run from this state of the array; null where there is none.
  std::shared_ptr<const Recording> find(const uint8_t* bytes, size_t size, const DdrRegions& regions, const ArrayState& state, const Array& array);
  // Whether any has these instructions.
  bool knows(const uint8_t* bytes, size_t size) const;
  void add(std::shared_ptr<const Recording> recording, ArrayState state);

  // What is known of runs of these instructions.
  struct History {
    bool ran = false;
    std::string refusal;    // why they are never recorded
    unsigned failures = 0;  // recordings that failed for a reason that may pass

    bool worth_recording() const { return ran && refusal.empty() && failures < kMostFailures; }
    // Why the engine makes a run that is not recorded.
    std::string why() const;
  };
  History& history(const uint8_t* bytes, size_t size);

 private:
  static constexpr unsigned kMostFailures = 3;  // each takes as long as a recording

  struct Entry {
    std::shared_ptr<const Recording> recording;
    ArrayState state;
  };
  std::list<Entry> entries_;              // the last used first
  std::map<uint64_t, History> histories_;  // by the hash of instructions
};

}  // namespace onedispatch::sim
