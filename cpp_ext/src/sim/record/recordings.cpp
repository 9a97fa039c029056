// SPDX-License-Identifier: Apache-2.0
#include "sim/record/recordings.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace onedispatch::sim {

namespace {

constexpr size_t kMostRecordings = 8;   // each has some megabytes
constexpr size_t kMostRefusals = 1024, kMostSeen = 1024;
constexpr unsigned kMostFailures = 3;  // each costs as much as a recording

}  // namespace

uint64_t Recordings::key(const uint8_t* bytes, size_t size) {
  uint64_t hash = 0xCBF29CE484222325ull ^ size;
  for (size_t at = 0; at + 4 <= size; at += 4) {
    uint32_t word;
    std::memcpy(&word, bytes + at, sizeof word);
    hash = (hash ^ word) * 0x100000001B3ull;
  }
  return hash;
}

std::shared_ptr<const Recording> Recordings::find(const uint8_t* bytes, size_t size, const DdrRegions& regions, const ArrayState& state) {
  for (auto at = entries_.begin(); at != entries_.end(); ++at) {
    const bool same = at->state == state || *at->state == *state;
    if (!same || !at->recording->guard.holds(bytes, size, regions)) continue;
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

bool Recordings::wants(const uint8_t* bytes, size_t size) {
  if (seen_.size() > kMostSeen) seen_.clear();
  Seen& seen = seen_[key(bytes, size)];
  const bool again = std::exchange(seen.before, true);
  return again && seen.failures < kMostFailures && refusal(bytes, size).empty();
}

void Recordings::refuse(const uint8_t* bytes, size_t size, std::string why) {
  if (refusals_.size() == kMostRefusals) refusals_.clear();
  refusals_[key(bytes, size)] = std::move(why);
}

std::string Recordings::failed(const uint8_t* bytes, size_t size) const {
  const auto found = seen_.find(key(bytes, size));
  const bool often = found != seen_.end() && found->second.failures >= kMostFailures;
  return often ? "it left the array in another state each time, or its arguments overlapped" : "";
}

std::string Recordings::refusal(const uint8_t* bytes, size_t size) const {
  if (refusals_.empty()) return "";
  const auto found = refusals_.find(key(bytes, size));
  return found == refusals_.end() ? "" : found->second;
}

}  // namespace onedispatch::sim
