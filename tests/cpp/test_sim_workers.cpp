// SPDX-License-Identifier: Apache-2.0
// The worker pool: every job runs once, whoever runs it, and errors wait for the one who asks.
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "sim/workers.h"

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

}  // namespace
}  // namespace onedispatch::sim
