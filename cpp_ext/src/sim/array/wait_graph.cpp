// SPDX-License-Identifier: Apache-2.0
#include "sim/array/wait_graph.h"

#include <algorithm>
#include <deque>
#include <numeric>

namespace onedispatch::sim {
namespace {

bool stuck(const Waiting& one) { return one.stands && one.rank == Rank::kOther; }

// Marks every unranked actor that waits, directly or transitively, for one of `from`.
void mark_victims(std::vector<Waiting>& all, std::deque<uint32_t> from) {
  while (!from.empty()) {
    const uint32_t served = from.front();
    from.pop_front();
    for (uint32_t i = 0; i < all.size(); ++i) {
      Waiting& one = all[i];
      if (!stuck(one) || std::find(one.serve.begin(), one.serve.end(), served) == one.serve.end()) continue;
      one.rank = Rank::kVictim;
      one.because = served;
      from.push_back(i);
    }
  }
}

// Follows wait-for edges from `start`; returns the cycle that they end in, if any.
std::vector<uint32_t> circle_from(const std::vector<Waiting>& all, uint32_t start) {
  std::vector<uint32_t> path;
  for (uint32_t at = start;;) {
    const auto seen = std::find(path.begin(), path.end(), at);
    if (seen != path.end()) return {seen, path.end()};
    path.push_back(at);
    const auto& serve = all[at].serve;
    const auto next = std::find_if(serve.begin(), serve.end(), [&](uint32_t i) { return stuck(all[i]); });
    if (next == serve.end()) return {};
    at = *next;
  }
}

// Marks every actor whose wait a moving actor may still end, directly or transitively.
void mark_servable(const std::vector<Waiting>& all, std::vector<bool>& servable) {
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t i = 0; i < all.size(); ++i) {
      if (servable[i] || !stuck(all[i])) continue;
      const auto& serve = all[i].serve;
      servable[i] = std::any_of(serve.begin(), serve.end(), [&](uint32_t s) { return servable[s]; });
      changed = changed || servable[i];
    }
  }
}

// Sort key of reports: lower comes first.
int order(const Waiting& one) { return 2 * static_cast<int>(one.rank) + (one.awaited ? 0 : 1); }

// Marks the causes of awaited actors as awaited too.
void pass_on_awaited(std::vector<Waiting>& all) {
  for (uint32_t i = 0; i < all.size(); ++i) {
    if (!all[i].awaited) continue;
    uint32_t at = all[i].because;
    for (size_t steps = 0; at != kNoWaiter && !all[at].awaited && steps < all.size(); ++steps) {
      all[at].awaited = true;
      at = all[at].because;
    }
  }
}

}  // namespace

void find_causes(std::vector<Waiting>& all) {
  std::deque<uint32_t> causes;
  for (uint32_t i = 0; i < all.size(); ++i) {
    if (!all[i].stands || all[i].why_unserved.empty()) continue;
    all[i].rank = Rank::kCause;
    causes.push_back(i);
  }
  mark_victims(all, causes);
  std::vector<bool> servable(all.size());
  for (uint32_t i = 0; i < all.size(); ++i) servable[i] = !all[i].stands;
  mark_servable(all, servable);
  for (uint32_t i = 0; i < all.size(); ++i) {
    if (!stuck(all[i]) || servable[i]) continue;
    const std::vector<uint32_t> circle = circle_from(all, i);
    for (size_t k = 0; k < circle.size(); ++k) {
      all[circle[k]].rank = Rank::kCircle;
      all[circle[k]].because = circle[(k + 1) % circle.size()];
    }
    mark_victims(all, {circle.begin(), circle.end()});
  }
  pass_on_awaited(all);
}

std::vector<bool> worth_reporting(const std::vector<Waiting>& all) {
  std::vector<bool> reported(all.size());
  for (uint32_t i = 0; i < all.size(); ++i) {
    if (all[i].quiescent && !all[i].awaited) continue;
    for (uint32_t at = i; at != kNoWaiter && !reported[at]; at = all[at].because) reported[at] = true;
  }
  return reported;
}

std::vector<uint32_t> causes_first(const std::vector<Waiting>& all) {
  std::vector<uint32_t> numbers(all.size());
  std::iota(numbers.begin(), numbers.end(), 0u);
  std::stable_sort(numbers.begin(), numbers.end(),
                   [&](uint32_t a, uint32_t b) { return order(all[a]) < order(all[b]); });
  return numbers;
}

}  // namespace onedispatch::sim
