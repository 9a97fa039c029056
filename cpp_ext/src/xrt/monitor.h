// SPDX-License-Identifier: Apache-2.0
// What threads share in this layer: one lock for the short sections of all objects, and one signal
// for threads that wait for a run. Runs themselves hold a Turn, not the lock.
#pragma once
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "sim/engine/interrupt.h"

namespace onedispatch::xrt {

// A forked child has the memory of all threads and only the one that forked. That one held this
// lock, so no short section is half done in the child; runs under way never end there.
class Monitor {
 public:
  // Never destroyed; another one in a forked child, since waiters are part of a condition variable.
  static Monitor& shared();
  // How many forks lie behind this process.
  static uint64_t process();

  std::mutex mutex;

  // `done()` is called under the lock, which `hold` has. False: the time is over. Asks the
  // interrupt check now and then.
  template <typename Done>
  bool wait(std::unique_lock<std::mutex>& hold, std::chrono::milliseconds most, Done done) {
    const auto end = std::chrono::steady_clock::now() + most;
    while (!done()) {
      auto step = sim::kInterruptInterval;
      if (most.count() > 0) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
            end - std::chrono::steady_clock::now());
        if (left.count() <= 0) return false;
        step = std::min(step, left);
      }
      changed_.wait_for(hold, step);
      hold.unlock();
      sim::check_interrupt();
      hold.lock();
    }
    return true;
  }
  void notify() { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
};

using Hold = std::unique_lock<std::mutex>;
inline Hold hold_monitor() { return Hold(Monitor::shared().mutex); }

// Who may use a context's simulator. Under the monitor.
struct Occupant {
  std::thread::id thread;
  uint64_t process;
  bool alive() const { return process == Monitor::process(); }
};

}  // namespace onedispatch::xrt
