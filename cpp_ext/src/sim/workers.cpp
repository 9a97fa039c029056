// SPDX-License-Identifier: Apache-2.0
#include "workers.h"

#include <algorithm>

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
  try {
    job.work();
  } catch (...) {
    job.error = std::current_exception();
  }
  job.work = nullptr;
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
    int expected = Job::kQueued;
    if (!job->state.compare_exchange_strong(expected, Job::kRunning)) continue;
    hold.unlock();
    run(*job);
    hold.lock();
    job->state.store(Job::kDone, std::memory_order_release);
    job_done_.notify_all();
  }
}

void WorkerPool::wait(Job& job) {
  if (job.state.load(std::memory_order_acquire) == Job::kDone) return;
  int expected = Job::kQueued;
  if (job.state.compare_exchange_strong(expected, Job::kRunning)) {
    run(job);
    job.state.store(Job::kDone, std::memory_order_release);
    return;
  }
  std::unique_lock<std::mutex> hold(mutex_);
  job_done_.wait(hold, [&job] { return job.state.load(std::memory_order_acquire) == Job::kDone; });
}

}  // namespace onedispatch::sim
