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

  // Whether the run is to be recorded: instructions that come again, were not refused, and did not fail too often.
  bool wants(const uint8_t* bytes, size_t size);
  // Of a run that was to be recorded and could not be, for a reason that may pass.
  void fail(const uint8_t* bytes, size_t size) { ++seen_[key(bytes, size)].failures; }
  void refuse(const uint8_t* bytes, size_t size, std::string why);
  // Says so where it failed too often; else empty.
  std::string failed(const uint8_t* bytes, size_t size) const;
  // Why runs of these instructions are not recorded; empty where nothing is known against it.
  std::string refusal(const uint8_t* bytes, size_t size) const;

 private:
  static uint64_t key(const uint8_t* bytes, size_t size);

  struct Entry {
    std::shared_ptr<const Recording> recording;
    ArrayState state;
  };
  std::list<Entry> entries_;          // the last used first
  struct Seen {
    bool before = false;
    unsigned failures = 0;
  };
  std::map<uint64_t, Seen> seen_;  // by instructions
  std::map<uint64_t, std::string> refusals_;
};

}  // namespace onedispatch::sim
