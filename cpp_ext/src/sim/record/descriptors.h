// SPDX-License-Identifier: Apache-2.0
// Which BDs a run loads as it finds them in the array, and which it leaves there. Those that it writes before it loads
// them may have been anything: other runs, of other transactions, use the same ones.
#pragma once
#include <cstdint>
#include <vector>

#include "sim/array/array.h"

namespace onedispatch::sim {

struct HeldBd {
  uint32_t tile = 0, bd = 0;
  BdWords words{};
  OpRef writer;
};

struct Descriptors {
  std::vector<HeldBd> found, left;

  bool are_in(const Array& array) const;  // what is found
  void leave_in(Array& array) const;
};

// Follows the BDs of a run.
class BdFollower {
 public:
  explicit BdFollower(const Array& array);

  void write(const Tile& tile, uint32_t bd, uint32_t first, uint32_t words);
  void read(const Tile& tile, uint32_t bd, uint32_t word);
  void load(const Tile& tile, uint32_t bd);
  // After the run.
  Descriptors take() const;

 private:
  struct Known {
    BdWords words;
    uint8_t written = 0;  // a bit for each word
    bool found = false;   // it was loaded, or a word read, before that was written
  };

  const Array& array_;
  std::vector<std::vector<Known>> tiles_;  // as they were before the run
};

}  // namespace onedispatch::sim
