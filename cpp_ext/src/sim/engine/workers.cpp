// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/workers.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <new>
#include <system_error>

#include "onedispatch/interrupt.h"

namespace onedispatch::sim {

namespace {

std::atomic<WorkerPool*> the_pool{nullptr};
std::mutex making;  // of the_pool; held across a fork

std::atomic<StepBack> step_back{nullptr};
std::atomic<StepForth> step_forth{nullptr};

// Around a wait for others.
class Apart {
 public:
  Apart() : held_(step_back.load() == nullptr ? nullptr : step_back.load()()) {}
  ~Apart() {
    if (held_ != nullptr) step_forth.load()(held_);
  }
  Apart(const Apart&) = delete;
  Apart& operator=(const Apart&) = delete;

 private:
  void* held_;
};

void before_fork() {
  const Apart apart;
  making.lock();
  if (WorkerPool* const pool = the_pool.load()) pool->pause();
}

void after_fork_in_parent() {
  if (WorkerPool* const pool = the_pool.load()) pool->resume();
  making.unlock();
}

void after_fork_in_child() {
  the_pool.store(nullptr);  // its threads are gone, so that it cannot even be destroyed
  making.unlock();
}

// When the library is loaded, so that no fork comes before it.
[[maybe_unused]] const int registered =
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);

}  // namespace

WorkerPool& WorkerPool::shared() {
  if (WorkerPool* const pool = the_pool.load(std::memory_order_acquire)) return *pool;
  const std::lock_guard<std::mutex> hold(making);
  if (WorkerPool* const pool = the_pool.load()) return *pool;
  // The simulating thread works too, so one thread less than the machine has.
  the_pool.store(new WorkerPool(std::max(1u, std::thread::hardware_concurrency()) - 1));
  return *the_pool.load();
}

// Signals are for the threads of the program around us: one that waits in the kernel must see them.
std::thread WorkerPool::start_thread(std::function<void()> body) {
  sigset_t all, before;
  sigfillset(&all);
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) sigdelset(&all, own);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread started(std::move(body));
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return started;
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
}

WorkerPool::WorkerPool(unsigned threads, Start start) {
  try {
    threads_.reserve(threads);
    for (unsigned i = 0; i < threads; ++i) threads_.push_back(start([this] { serve(); }));
  } catch (const std::system_error&) {  // a limit on threads, or no address space for a stack
  } catch (const std::bad_alloc&) {
  }
}

void WorkerPool::pause() {
  std::unique_lock<std::mutex> hold(mutex_);
  ++pausing_;
  job_done_.wait(hold, [this] { return running_ == 0; });
  hold.release();
}

namespace {

thread_local WorkerPool* held_here = nullptr;

}  // namespace

void WorkerPool::hold_jobs() {
  held_here = the_pool.load();
  if (held_here != nullptr) held_here->hold();
}

void WorkerPool::release_jobs() {
  if (held_here != nullptr) held_here->release();
  held_here = nullptr;
}

void WorkerPool::hold() {
  const Apart apart;
  std::unique_lock<std::mutex> lock(mutex_);
  ++pausing_;
  job_done_.wait(lock, [this] { return running_ == 0; });
}

void WorkerPool::release() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    --pausing_;
  }
  work_ready_.notify_all();
}

void WorkerPool::resume() {
  --pausing_;
  mutex_.unlock();
  work_ready_.notify_all();
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
    work_ready_.wait(hold, [this] { return stopping_ || (!queue_.empty() && pausing_ == 0); });
    if (stopping_) return;
    const std::shared_ptr<Job> job = std::move(queue_.front());
    queue_.pop_front();
    if (!claim(*job)) continue;
    ++running_;
    hold.unlock();
    run(*job);
    hold.lock();
    --running_;
    job->state.store(Job::kDone, std::memory_order_release);
    job_done_.notify_all();
  }
}

bool WorkerPool::claim(Job& job) {
  int expected = Job::kQueued;
  return job.state.compare_exchange_strong(expected, Job::kRunning);
}

// Takes the newest job that no thread has begun; its own simulation needs it last.
std::shared_ptr<Job> WorkerPool::steal() {
  const std::lock_guard<std::mutex> hold(mutex_);
  while (!queue_.empty() && pausing_ == 0) {
    const std::shared_ptr<Job> job = std::move(queue_.back());
    queue_.pop_back();
    if (!claim(*job)) continue;
    ++running_;
    return job;
  }
  return nullptr;
}

void WorkerPool::finish(Job& job) {
  run(job);
  // Under the mutex, so that a thread between its last look and its sleep does not miss it.
  {
    const std::lock_guard<std::mutex> hold(mutex_);
    --running_;
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
  if (job.state.load(std::memory_order_acquire) == Job::kDone) return;
  const Apart apart;
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

namespace onedispatch {

void set_waiting_hooks(StepBack back, StepForth forth) {
  sim::step_forth.store(forth);
  sim::step_back.store(back);
}

}  // namespace onedispatch
