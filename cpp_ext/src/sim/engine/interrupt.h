// SPDX-License-Identifier: Apache-2.0
// Asks the interrupt check, at a pace that costs nothing.
#pragma once
#include <chrono>
#include <cstdint>

#include "onedispatch/interrupt.h"

namespace onedispatch::sim {

constexpr std::chrono::milliseconds kInterruptInterval{100};

// Asks now.
void check_interrupt();

// For the inside of a loop: asks when a tenth of a second has passed.
class InterruptPace {
 public:
  void operator()() {
    if (--left_ == 0) look();
  }

 private:
  void look();
  // So few that even the longest kernel calls, some milliseconds each, do not add up to a second.
  static constexpr uint32_t kBetweenLooks = 32;
  uint32_t left_ = kBetweenLooks;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace onedispatch::sim
