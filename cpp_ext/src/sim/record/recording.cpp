// SPDX-License-Identifier: Apache-2.0
#include "sim/record/recording.h"

#include <algorithm>
#include <cstring>

namespace onedispatch::sim {

bool overlap(const DdrRegions& regions) {
  for (size_t i = 0; i < regions.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      if (regions[i]->address < regions[k]->address + regions[k]->bytes && regions[k]->address < regions[i]->address + regions[i]->bytes) return true;
  return false;
}

uint64_t Recording::kernel_calls() const {
  uint64_t made = 0;
  for (const Part& part : parts) made += part.calls;
  return made;
}

void Guard::expect(const DdrRegions& regions) {
  for (const auto& region : regions) arguments.push_back({region->bytes, region->address % kBurst});
  for (const WordRange& range : deciding) {
    const auto* const from = words_at(*regions[range.argument], range.first);
    const size_t before = deciding_words.size();
    deciding_words.resize(before + range.words);
    std::memcpy(deciding_words.data() + before, from, size_t{4} * range.words);
  }
}

bool Guard::holds(const uint8_t* bytes, size_t size, const DdrRegions& regions) const {
  if (size != instructions.size() || regions.size() != arguments.size()) return false;
  for (size_t i = 0; i < regions.size(); ++i) {
    if (regions[i]->bytes != arguments[i].bytes || regions[i]->address % kBurst != arguments[i].misaligned) return false;
  }
  if (overlap(regions)) return false;
  if (std::memcmp(bytes, instructions.data(), size) != 0) return false;
  const uint32_t* expected = deciding_words.data();
  for (const WordRange& range : deciding) {
    if (std::memcmp(words_at(*regions[range.argument], range.first), expected, size_t{4} * range.words) != 0) return false;
    expected += range.words;
  }
  return std::all_of(read.begin(), read.end(), [&](const WordRange& range) {
    const DdrRegion& region = *regions[range.argument];
    return region.valid->all_written(word_of(region, range.first), range.words);
  });
}

}  // namespace onedispatch::sim
