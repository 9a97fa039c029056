// SPDX-License-Identifier: Apache-2.0
#include "txn/shim_bds.h"

#include <algorithm>

#include "txn/load.h"

namespace onedispatch::txn {
namespace {

struct Dimension {
  uint64_t count, step;
};

// The farthest of the first `length` words that the dimensions walk, the innermost first.
uint64_t farthest(const Dimension (&dims)[3], uint64_t length) {
  // The last word as one digit per dimension.
  uint64_t digits[3], left = length - 1;
  for (int i = 0; i < 3; ++i) {
    digits[i] = left % dims[i].count;
    left /= dims[i].count;
  }
  uint64_t last = 0;
  for (int i = 0; i < 3; ++i) last += digits[i] * dims[i].step;
  // Rows that were passed before it were whole: one less of a digit, all of those inside it.
  uint64_t most = last, outside = last, inside = 0;
  for (int i = 0; i < 3; ++i) {
    outside -= digits[i] * dims[i].step;
    if (digits[i] != 0) most = std::max(most, outside + (digits[i] - 1) * dims[i].step + inside);
    inside += (dims[i].count - 1) * dims[i].step;
  }
  return most;
}

}  // namespace

uint64_t shim_extent(const uint8_t* words) {
  namespace f = bd::shim;
  const auto value = [words](Field field) {
    return static_cast<uint64_t>(field.get(load32(words + 4 * field.word)));
  };
  const uint64_t length = value(f::length);
  if (length == 0) return 0;
  // Items left to walk, the innermost first: words, rows, planes. No wrap: all of them.
  uint64_t left = length;
  const auto dimension = [&left](uint64_t wrap, uint64_t step) {
    const uint64_t count = wrap != 0 ? std::min(wrap, left) : left;
    left = (left + count - 1) / count;
    return Dimension{count, step};
  };
  const Dimension d0 = dimension(value(f::d0_wrap), value(f::d0_step));
  const Dimension d1 = dimension(value(f::d1_wrap), value(f::d1_step));
  return 4 * (farthest({d0, d1, {left, value(f::d2_step)}}, length) + 1);
}

}  // namespace onedispatch::txn
