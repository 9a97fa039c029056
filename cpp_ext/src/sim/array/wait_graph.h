// SPDX-License-Identifier: Apache-2.0
// The wait-for graph of channels and cores. An actor whose wait no other actor can end is a cause; actors
// that wait for each other form a cycle; all others that stand still wait because of these.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace onedispatch::sim {

constexpr uint32_t kNoWaiter = ~0u;

enum class Rank : uint8_t {
  kCause,   // no actor will end its wait
  kCircle,  // waits for others that wait for it
  kOther,   // moves, or waits for an actor that moves
  kVictim,  // waits because of a cause or a circle
};

// One channel or core that has something to do.
struct Waiting {
  std::string text;             // what it does or waits for
  bool stands = false;          // it waits
  std::vector<uint32_t> serve;  // which of the others could end that
  std::string why_unserved;     // why no actor will, where that is known
  bool awaited = false;         // the controller waits for it
  bool quiescent = false;       // it waits as it does between runs

  Rank rank = Rank::kOther;
  uint32_t because = kNoWaiter;
};

// Computes `rank` and `because` of all actors.
void find_causes(std::vector<Waiting>& all);
// Returns which actors belong in a report: quiescent ones only if another waits because of them.
std::vector<bool> worth_reporting(const std::vector<Waiting>& all);
// Returns their indices: causes first, those that the controller awaits before others, then cycles.
std::vector<uint32_t> causes_first(const std::vector<Waiting>& all);

}  // namespace onedispatch::sim
