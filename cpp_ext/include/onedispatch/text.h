// SPDX-License-Identifier: Apache-2.0
// Numbers as messages say them; transactions/base/text.py does the same in Python.
#pragma once
#include <cstdint>
#include <string>

namespace onedispatch {

// "1 word", "2,000 words", "3 addresses".
inline std::string counted(uint64_t number, const std::string& noun) {
  std::string digits = std::to_string(number);
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits + " " + noun + (number == 1 ? "" : noun.back() == 's' ? "es" : "s");
}

// A tile's place in the array as every text names it: "c2 r1".
inline std::string tile_place(int64_t column, int64_t row) {
  return "c" + std::to_string(column) + " r" + std::to_string(row);
}

// "0 to 3"; "3" of a range of one.
inline std::string span(int64_t low, int64_t high) {
  return std::to_string(low) + (low == high ? "" : " to " + std::to_string(high));
}

}  // namespace onedispatch
