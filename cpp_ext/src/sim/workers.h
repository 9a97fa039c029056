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

// One pool serves all contexts of the process. A thread that waits for a job which nobody has
// begun runs it itself, so the pool can neither deadlock nor be required.
class WorkerPool {
 public:
  static WorkerPool& shared();
  explicit WorkerPool(unsigned threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  void submit(std::shared_ptr<Job> job);
  // Runs the job on the calling thread, unless somebody has begun it; returns when it is done. Does not throw: see Job::error.
  void wait(Job& job);

 private:
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
};

}  // namespace onedispatch::sim
