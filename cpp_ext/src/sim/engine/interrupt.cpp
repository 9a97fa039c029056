// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/interrupt.h"

#include <atomic>

namespace onedispatch {
namespace {

std::atomic<InterruptCheck> current_check{nullptr};

}  // namespace

void set_interrupt_check(InterruptCheck check) { current_check.store(check); }

namespace sim {

void check_interrupt() {
  if (const InterruptCheck check = current_check.load(std::memory_order_relaxed)) check();
}

void InterruptPace::look() {
  left_ = kBetweenLooks;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < kInterruptInterval) return;
  last_ = now;
  check_interrupt();
}

}  // namespace sim
}  // namespace onedispatch
