// SPDX-License-Identifier: Apache-2.0
// The worker pool: every job runs once, on any thread, and errors wait for the thread that asks.
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

#include "sim/engine/workers.h"

namespace onedispatch::sim {
namespace {

std::shared_ptr<Job> job_of(std::function<void()> work) {
  auto job = std::make_shared<Job>();
  job->work = std::move(work);
  return job;
}

class Pools : public ::testing::TestWithParam<unsigned> {};

TEST_P(Pools, EachJobRunsOnceBeforeItsWaitReturns) {
  WorkerPool pool(GetParam());
  const auto simulate = [&pool] {
    std::vector<int> runs(500, 0);
    std::vector<std::shared_ptr<Job>> jobs;
    for (int& count : runs) {
      jobs.push_back(job_of([&count] { ++count; }));
      pool.submit(jobs.back());
    }
    for (size_t i = 0; i < jobs.size(); ++i) {
      pool.wait(*jobs[(i * 7) % jobs.size()]);
      ASSERT_EQ(runs[(i * 7) % jobs.size()], 1);
    }
  };
  std::thread one(simulate), two(simulate);
  one.join();
  two.join();
}

TEST_P(Pools, AnErrorStaysWithItsJob) {
  WorkerPool pool(GetParam());
  const auto bad = job_of([] { throw std::runtime_error("kernel"); });
  std::atomic<bool> ran{false};
  const auto good = job_of([&ran] { ran = true; });
  pool.submit(bad);
  pool.submit(good);
  pool.wait(*good);
  pool.wait(*bad);
  EXPECT_TRUE(ran);
  EXPECT_FALSE(good->error);
  EXPECT_THROW(std::rethrow_exception(bad->error), std::runtime_error);
}

INSTANTIATE_TEST_SUITE_P(Threads, Pools, ::testing::Values(0u, 1u, 3u));

std::atomic<unsigned> threads_left{0};
std::thread start_while_some_are_left(std::function<void()> body) {
  if (threads_left == 0) throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  --threads_left;
  return std::thread(std::move(body));
}

TEST(Pool, GoesOnWithTheThreadsThatTheSystemGives) {
  for (const unsigned given : {0u, 1u, 2u}) {
    threads_left = given;
    WorkerPool pool(4, &start_while_some_are_left);
    EXPECT_EQ(pool.threads(), given);
    std::atomic<int> runs{0};
    for (int i = 0; i < 50; ++i) {
      const auto job = job_of([&runs] { ++runs; });
      pool.submit(job);
      pool.wait(*job);
    }
    EXPECT_EQ(runs, 50);
  }
}

TEST(Pool, NoJobRunsWhileItPauses) {
  WorkerPool pool(3);
  std::atomic<int> inside{0}, runs{0};
  std::atomic<bool> over{false};
  std::thread simulates([&] {
    while (!over) {
      std::vector<std::shared_ptr<Job>> jobs;
      for (int i = 0; i < 20; ++i) {
        jobs.push_back(job_of([&] {
          ++inside;
          ++runs;
          --inside;
        }));
        pool.submit(jobs.back());
      }
      while (jobs.back()->state != Job::kDone) std::this_thread::yield();  // the workers do them all
      for (const auto& job : jobs) pool.wait(*job);
    }
  });
  for (int i = 0; i < 200; ++i) {
    pool.pause();
    const int before = runs;
    EXPECT_EQ(inside, 0);
    std::this_thread::yield();
    EXPECT_EQ(runs, before);
    pool.resume();
  }
  over = true;
  simulates.join();
}

}  // namespace
}  // namespace onedispatch::sim
