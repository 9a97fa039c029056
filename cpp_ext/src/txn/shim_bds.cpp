// SPDX-License-Identifier: Apache-2.0
#include "txn/shim_bds.h"

#include <algorithm>

#include "txn/load.h"

namespace onedispatch::txn {

uint64_t shim_extent(const uint8_t* words) {
  namespace f = bd::shim;
  const auto value = [words](Field field) { return static_cast<uint64_t>(field.get(load32(words + 4 * field.word))); };
  const uint64_t length = value(f::length);
  if (length == 0) return 0;
  // Items left to walk in each dimension, the innermost first: words, rows, planes.
  uint64_t left = length, reach = 0;
  const auto dimension = [&](uint64_t wrap, uint64_t step) {
    const uint64_t count = wrap != 0 ? std::min(wrap, left) : left;
    reach += (count - 1) * step;
    left = wrap != 0 ? (left + wrap - 1) / wrap : 1;
  };
  dimension(value(f::d0_wrap), value(f::d0_step));
  dimension(value(f::d1_wrap), value(f::d1_step));
  reach += (left - 1) * value(f::d2_step);
  return 4 * (reach + 1);
}

}  // namespace onedispatch::txn
