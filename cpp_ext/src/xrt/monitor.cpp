// SPDX-License-Identifier: Apache-2.0
#include "monitor.h"

#include <pthread.h>

#include <atomic>

namespace onedispatch::xrt {
namespace {

std::atomic<uint64_t> forks{0};
std::atomic<Monitor*> current{new Monitor};

void before_fork() { current.load()->mutex.lock(); }
void after_fork_in_parent() { current.load()->mutex.unlock(); }
void after_fork_in_child() {
  ++forks;
  current.load()->mutex.unlock();  // a signal handler that forked may be waiting with it
  current.store(new Monitor);
}

// When the library is loaded, so that no fork comes before it; and before the handlers of the workers are registered
// (sim/engine/workers.cpp), which therefore run before these. They give the interpreter's lock away while they wait: a
// thread that takes it then may want this lock, and would have both if it were held already.
[[gnu::constructor(101)]] void register_handlers() {
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

}  // namespace

Monitor& Monitor::shared() { return *current.load(std::memory_order_acquire); }
uint64_t Monitor::process() { return forks.load(std::memory_order_relaxed); }

}  // namespace onedispatch::xrt
