// SPDX-License-Identifier: Apache-2.0
#include "sim/record/recordings.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "onedispatch/hash.h"

namespace onedispatch::sim {

namespace {

constexpr size_t kMostRecordings = 32;  // of a network in several runs, or shapes; each has some megabytes
constexpr size_t kMostHistories = 1024;

}  // namespace

std::shared_ptr<const Recording> Recordings::find(const uint8_t* bytes, size_t size, const DdrRegions& regions, const ArrayState& state, const Array& array) {
  for (auto at = entries_.begin(); at != entries_.end(); ++at) {
    const bool same = at->state == state || *at->state == *state;
    if (!same || !at->recording->guard.holds(bytes, size, regions) || !at->recording->descriptors.are_in(array)) continue;
    entries_.splice(entries_.begin(), entries_, at);
    return entries_.front().recording;
  }
  return nullptr;
}

bool Recordings::knows(const uint8_t* bytes, size_t size) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    const std::vector<uint8_t>& own = entry.recording->guard.instructions;
    return own.size() == size && std::memcmp(own.data(), bytes, size) == 0;
  });
}

void Recordings::add(std::shared_ptr<const Recording> recording, ArrayState state) {
  entries_.push_front({std::move(recording), std::move(state)});
  if (entries_.size() > kMostRecordings) entries_.pop_back();
}

std::string Recordings::History::why() const {
  if (!ran) return "these instructions came for the first time";
  if (!refusal.empty()) return refusal;
  return "it left the array in another state each time, or its arguments overlapped";
}

Recordings::History& Recordings::history(const uint8_t* bytes, size_t size) {
  if (histories_.size() > kMostHistories) histories_.clear();
  return histories_[hash_words(bytes, size)];
}

}  // namespace onedispatch::sim
