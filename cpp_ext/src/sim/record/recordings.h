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
  // One that was made of such a run from this state; null where there is none.
  std::shared_ptr<const Recording> find(const uint8_t* bytes, size_t size, const DdrRegions& regions, const ArrayState& state);
  // Whether any has these instructions.
  bool knows(const uint8_t* bytes, size_t size) const;
  void add(std::shared_ptr<const Recording> recording, ArrayState state);

  // Whether the run is to be recorded: instructions that come a second time, and were not refused.
  bool wants(const uint8_t* bytes, size_t size);
  void refuse(const uint8_t* bytes, size_t size, std::string why);
  // Why runs of these instructions are not recorded; empty where nothing is known against it.
  std::string refusal(const uint8_t* bytes, size_t size) const;

 private:
  static uint64_t key(const uint8_t* bytes, size_t size);

  struct Entry {
    std::shared_ptr<const Recording> recording;
    ArrayState state;
  };
  std::list<Entry> entries_;          // the last used first
  std::vector<uint8_t> last_;         // instructions of the last run of the engine
  std::map<uint64_t, std::string> refusals_;
};

}  // namespace onedispatch::sim
