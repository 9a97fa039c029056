// SPDX-License-Identifier: Apache-2.0
// Runs the compute jobs of cores on other threads while simulated time goes on.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace onedispatch::sim {

struct Job {
  std::function<void()> work;
  std::exception_ptr error;
  uint64_t nanoseconds = 0;  // that the work took; set when done
  enum State : int { kQueued, kRunning, kDone };
  std::atomic<int> state{kQueued};
};

// One pool serves all contexts of the process. A thread that waits for a job which no thread has
// begun runs it itself, so the pool can neither deadlock nor be required.
class WorkerPool {
 public:
  // Lives as long as the process, since other threads may simulate while it exits. A forked child
  // has none of its threads, so it gets a pool of its own; jobs that were queued can be waited for.
  static WorkerPool& shared();

  using Start = std::thread (*)(std::function<void()> body);
  // With fewer threads where the system gives no more.
  explicit WorkerPool(unsigned threads, Start start = start_thread);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  void submit(std::shared_ptr<Job> job);
  // Runs the job on the calling thread, unless another thread has begun it; returns when it is done. Does not throw: see Job::error.
  void wait(Job& job);
  size_t threads() const { return threads_.size(); }

  // Around a fork: no thread is inside a job, and none begins one, until resume().
  void pause();
  void resume();
  // Whether one is waited for: a job that takes long ends early then, where it can.
  bool pausing() const { return pausing_.load(std::memory_order_relaxed) != 0; }
  // The same for longer, by the thread that holds what jobs may wait for, of the shared pool where there is
  // one; on one thread, one after the other.
  static void hold_jobs();
  static void release_jobs();

 private:
  static std::thread start_thread(std::function<void()> body);
  void hold();
  void release();
  void serve();
  static void run(Job& job);
  static bool claim(Job& job);
  std::shared_ptr<Job> steal();
  void finish(Job& job);

  std::mutex mutex_;
  std::condition_variable work_ready_, job_done_;
  std::deque<std::shared_ptr<Job>> queue_;
  std::vector<std::thread> threads_;
  bool stopping_ = false;
  std::atomic<unsigned> pausing_{0};  // by how many
  unsigned running_ = 0;  // jobs that run on another thread than the one that waits for them
};

}  // namespace onedispatch::sim
