// SPDX-License-Identifier: Apache-2.0
// What output chunks of member kernels hold before a call.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "onedispatch/kernel.h"

namespace onedispatch {

// One output: its fill (or zeros) wherever members may leave gaps, zeros where rows are padded to words.
class Fill {
 public:
  Fill(const od_setup& setup, uint32_t operand);
  void operator()(const od_call& call) const;

 private:
  uint32_t operand_;
  od_operand lies_;
  size_t bytes_;               // of an element
  uint8_t element_[4] = {};    // that the chunk is filled with
};

// Those of all outputs that are filled; null where there are none.
std::shared_ptr<const std::vector<Fill>> fills_of(const od_setup& setup);

}  // namespace onedispatch
