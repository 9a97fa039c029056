// SPDX-License-Identifier: Apache-2.0
#include "workers.h"

#include <algorithm>
#include <chrono>

namespace onedispatch::sim {

WorkerPool& WorkerPool::shared() {
  // The simulating thread works too, so one thread less than the machine has.
  static WorkerPool pool(std::max(1u, std::thread::hardware_concurrency()) - 1);
  return pool;
}

WorkerPool::WorkerPool(unsigned threads) {
  threads_.reserve(threads);
  for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { serve(); });
}

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard<std::mutex> hold(mutex_);
    stopping_ = true;
  }
  work_ready_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::run(Job& job) {
  const auto begin = std::chrono::steady_clock::now();
  try {
    job.work();
  } catch (...) {
    job.error = std::current_exception();
  }
  job.work = nullptr;
  job.nanoseconds = static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin).count());
}

void WorkerPool::submit(std::shared_ptr<Job> job) {
  if (threads_.empty()) return;  // wait() runs it
  {
    const std::lock_guard<std::mutex> hold(mutex_);
    queue_.push_back(std::move(job));
  }
  work_ready_.notify_one();
}

void WorkerPool::serve() {
  std::unique_lock<std::mutex> hold(mutex_);
  for (;;) {
    work_ready_.wait(hold, [this] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    const std::shared_ptr<Job> job = std::move(queue_.front());
    queue_.pop_front();
    if (!claim(*job)) continue;
    hold.unlock();
    run(*job);
    hold.lock();
    job->state.store(Job::kDone, std::memory_order_release);
    job_done_.notify_all();
  }
}

bool WorkerPool::claim(Job& job) {
  int expected = Job::kQueued;
  return job.state.compare_exchange_strong(expected, Job::kRunning);
}

// The newest job that nobody has begun; its own simulation needs it last.
std::shared_ptr<Job> WorkerPool::steal() {
  const std::lock_guard<std::mutex> hold(mutex_);
  while (!queue_.empty()) {
    const std::shared_ptr<Job> job = std::move(queue_.back());
    queue_.pop_back();
    if (claim(*job)) return job;
  }
  return nullptr;
}

void WorkerPool::finish(Job& job) {
  run(job);
  // Under the mutex, so that a thread between its last look and its sleep does not miss it.
  {
    const std::lock_guard<std::mutex> hold(mutex_);
    job.state.store(Job::kDone, std::memory_order_release);
  }
  job_done_.notify_all();
}

void WorkerPool::wait(Job& job) {
  if (claim(job)) {
    run(job);
    job.state.store(Job::kDone, std::memory_order_release);
    return;
  }
  constexpr int kSpins = 2000;  // a few microseconds: less than a sleep costs
  while (job.state.load(std::memory_order_acquire) != Job::kDone) {
    // Another thread has it: do what others would have to do later.
    if (const std::shared_ptr<Job> other = steal()) {
      finish(*other);
      continue;
    }
    for (int i = 0; i < kSpins && job.state.load(std::memory_order_acquire) != Job::kDone; ++i) {}
    std::unique_lock<std::mutex> hold(mutex_);
    job_done_.wait(hold, [&job] { return job.state.load(std::memory_order_acquire) == Job::kDone; });
  }
}

}  // namespace onedispatch::sim
