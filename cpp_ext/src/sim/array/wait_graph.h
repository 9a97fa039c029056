// SPDX-License-Identifier: Apache-2.0
// Who waits because of whom. What waits for something that nobody will do is the cause; what waits
// for each other is a circle; all others that stand still wait because of these.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace onedispatch::sim {

constexpr uint32_t kNobody = ~0u;

enum class Rank : uint8_t {
  kCause,   // no one who could serve it will
  kCircle,  // waits for others that wait for it
  kOther,   // moves, or waits for somebody who does
  kVictim,  // waits because of a cause or a circle
};

// One channel or core that has something to do.
struct Waiting {
  std::string text;             // what it does or waits for
  bool stands = false;          // it waits
  std::vector<uint32_t> serve;  // which of the others could end that
  std::string nobody;           // why no one will, where that is known
  bool awaited = false;         // the controller waits for it
  bool rests = false;           // it waits as it does between runs

  Rank rank = Rank::kOther;
  uint32_t because = kNobody;
};

// Finds rank and because of all.
void find_causes(std::vector<Waiting>& all);
// Who belongs in a report: not what rests, unless somebody waits because of it.
std::vector<bool> worth_telling(const std::vector<Waiting>& all);
// Their numbers: causes first, those that the controller waits for before others, then circles.
std::vector<uint32_t> causes_first(const std::vector<Waiting>& all);

}  // namespace onedispatch::sim
