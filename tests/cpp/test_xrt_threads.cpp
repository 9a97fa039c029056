// SPDX-License-Identifier: Apache-2.0
// The host API from many threads, from a forked child, and when it is stopped.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "onedispatch/interrupt.h"
#include "sim/engine/workers.h"
#include "test_xrt_support.h"

namespace onedispatch::xrt {
namespace {

using testing::Host;
using namespace sim::testing;  // NOLINT: routes and descriptors
namespace reg = onedispatch::reg;
namespace bd = onedispatch::bd;

constexpr uint32_t kCopied = 256;
constexpr unsigned kThreads = 16, kRounds = 12;

// A chain that never ends fills argument 0 again and again, while the controller polls for nothing.
std::vector<uint8_t> endless() {
  Builder b;
  lay_feed_and_drain(b, 0);
  b.block(tile_address(0, 1, 0), std::vector<uint32_t>(kCopied, 0));
  b.block(tile_address(0, 0, reg::shim::DMA_BD.at(0)),
          shim_bd({{bd::shim::length, kCopied}, {bd::shim::use_next, 1}, {bd::shim::next_bd, 0}}));
  b.patch(0, 0, 0, 0);
  b.block(tile_address(0, 1, reg::mem::DMA_BD.at(24)),
          mem_bd(0, kCopied, {{bd::mem::use_next, 1}, {bd::mem::next_bd, 24}}));
  b.write(kMemOut, task(24)).write(kShimWrite, task(0));
  return b.poll(tile_address(0, 1, 0), 1, 1).bytes();
}

struct Copies : Host {
  std::vector<uint8_t> content = testing::copy_words(kCopied);
  bo instructions = buffer(content);

  run prepare(const bo& from, const bo& to) { return testing::prepared(super, instructions, from, to); }
  bo filled(uint8_t value) { return buffer(std::vector<uint8_t>(size_t{4} * kCopied, value)); }
  bo empty() { return bo(npu, size_t{4} * kCopied); }
  run prepare_endless() {
    const std::vector<uint8_t> bytes = endless();
    run made(super);
    made.set_arg(0, uint64_t{3});
    made.set_arg(1, buffer(bytes));
    made.set_arg(2, uint64_t{bytes.size()});
    made.set_arg(3, empty());
    return made;
  }
};

void in_threads(unsigned count, const std::function<void(unsigned)>& body) {
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < count; ++i) threads.emplace_back(body, i);
  for (std::thread& thread : threads) thread.join();
}

// Stops whatever asks while it is set.
struct Stop : Interrupted {};
std::atomic<bool> stopping{false};
struct Stopper {
  Stopper() {
    set_interrupt_check([] {
      if (stopping) throw Stop();
    });
  }
  ~Stopper() {
    set_interrupt_check(nullptr);
    stopping = false;
  }
};

bool all_are(const bo& buffer, uint8_t value) {
  return std::all_of(buffer.map(), buffer.map() + buffer.size(), [value](uint8_t b) { return b == value; });
}

// Recorded runs are made again by threads of a pool that all devices share.
TEST(XrtThreads, RecordedRunsOfManyDevicesShareThePool) {
  constexpr uint8_t kRuns = 40;
  std::atomic<unsigned> played{0}, wrong{0};
  in_threads(4, [&](unsigned number) {
    Copies host;
    host.npu.set_threads(2 + number);
    host.npu.set_record("on");
    const hw_context recording(host.npu, host.binary.get_uuid());
    const kernel own(recording, "MLIR_AIE");
    bo from = host.filled(0), to = host.empty();
    for (uint8_t round = 1; round <= kRuns; ++round) {
      std::fill_n(from.map(), from.size(), round);
      run made = testing::prepared(own, host.instructions, from, to);
      made.start();
      made.wait();
      played += made.report().recorded == kPlayed ? 1 : 0;
      wrong += all_are(to, round) ? 0 : 1;
    }
  });
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(played, 4u * (kRuns - 2));
}

TEST(XrtThreads, RunsOfOneContextFollowOneAnother) {
  Copies host;
  in_threads(kThreads, [&host](unsigned i) {
    const auto value = static_cast<uint8_t>(i + 1);
    const bo to = host.empty();
    run mine = host.prepare(host.filled(value), to);
    for (unsigned round = 0; round < kRounds; ++round) {
      mine.start();
      ASSERT_EQ(mine.wait(), ert_cmd_state::COMPLETED);
      ASSERT_TRUE(all_are(to, value));
      ASSERT_EQ(mine.report().ddr_written.size(), 2u);
    }
  });
}

TEST(XrtThreads, ArgumentsChangeWhileTheRunGoesOn) {
  Copies host;
  run shared = host.prepare(host.filled(1), host.empty());
  std::atomic<unsigned> completed{0}, refused{0};
  in_threads(kThreads, [&](unsigned i) {
    for (unsigned round = 0; round < kRounds; ++round) {
      if (i % 2 != 0) {
        shared.set_arg(3, host.filled(static_cast<uint8_t>(i)));
        shared.set_arg(4, host.empty());  // drops the last reference to the one before
        continue;
      }
      try {
        shared.start();
        completed += shared.wait() == ert_cmd_state::COMPLETED;
      } catch (const DeviceError&) {  // another thread has it running
        ++refused;
      }
      (void)shared.report();
    }
  });
  EXPECT_GT(completed, 0u);
  EXPECT_EQ(completed + refused, kRounds * kThreads / 2);
}

TEST(XrtThreads, EveryoneWhoWaitsIsToldTheEnd) {
  Copies host;
  host.npu.set_event_limit(20'000);
  const hw_context context(host.npu, host.binary.get_uuid());
  host.super = kernel(context, "MLIR_AIE");
  run wrong = host.prepare_endless();
  EXPECT_EQ(wrong.wait(), ert_cmd_state::NEW);
  in_threads(6, [&wrong](unsigned i) {
    if (i == 0) return wrong.start();
    while (wrong.state() == ert_cmd_state::NEW) std::this_thread::yield();
    if (i % 2 != 0) {
      EXPECT_THROW(wrong.wait(), SimulationError);
    }
  });
  EXPECT_EQ(wrong.state(), ert_cmd_state::ERROR);
}

TEST(XrtThreads, ATimeoutEndsTheWaitAndNotTheRun) {
  const Stopper stopper;
  Copies host;
  run mine = host.prepare_endless();
  std::thread thread([&mine] { EXPECT_THROW(mine.start(), Stop); });
  while (mine.state() != ert_cmd_state::RUNNING) std::this_thread::yield();
  EXPECT_EQ(mine.wait(20), ert_cmd_state::TIMEOUT);
  EXPECT_EQ(mine.state(), ert_cmd_state::RUNNING);
  stopping = true;
  thread.join();
}

TEST(XrtThreads, HandlesMayGoBeforeTheRunEnds) {
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i) {
    auto host = std::make_unique<Copies>();
    const bo to = host->empty();
    threads.emplace_back([to, mine = host->prepare(host->filled(7), to)]() mutable {
      mine.start();
      EXPECT_EQ(mine.wait(), ert_cmd_state::COMPLETED);
      EXPECT_TRUE(all_are(to, 7));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(XrtThreads, PartsOfOneBufferAreWrittenAtOnce) {
  Copies host;
  for (unsigned round = 0; round < kRounds; ++round) {
    const bo whole = host.empty(), to = host.empty();
    in_threads(kThreads, [&whole](unsigned i) {
      constexpr size_t kPart = size_t{4} * kCopied / kThreads;
      bo part(whole, kPart, kPart * i);  // 16 words: several parts share the bits of what was written
      const std::vector<uint8_t> data(4, 9);
      for (size_t at = 0; at < kPart; at += 4) part.write(data.data(), 4, at);
    });
    run mine = host.prepare(whole, to);
    mine.start();
    ASSERT_EQ(mine.wait(), ert_cmd_state::COMPLETED);
    ASSERT_TRUE(all_are(to, 9));
  }
}

TEST(XrtThreads, TwoArraysDoNotDisturbEachOther) {
  const auto work = [](uint32_t first, uint64_t* cycles) {
    Rig rig;
    rig.buffers[0]->count_up(first);
    for (int i = 0; i < 20; ++i) {
      Builder b;
      lay_feed_and_drain(b, 0);
      b.block(tile_address(0, 0, reg::shim::DMA_BD.at(0)), shim_bd({{bd::shim::length, 3000}}))
          .patch(0, 0, 0, 0);
      b.block(tile_address(0, 1, reg::mem::DMA_BD.at(0)), mem_bd(0, 3000)).write(kMemIn, task(0, 1, true));
      b.write(kShimRead, task(0)).token(0, 1, false, 0);
      *cycles = rig.run(b).cycles;
      ASSERT_EQ(rig.peek(0, 1, 2999 * 4), first + 2999);
    }
  };
  uint64_t a = 0, b = 1;
  std::thread one(work, 10, &a), two(work, 20, &b);
  one.join();
  two.join();
  EXPECT_EQ(a, b);
}

TEST(XrtThreads, DevicesAndListsAreShared) {
  Copies host;
  runlist list(host.context);
  in_threads(kThreads, [&](unsigned i) {
    for (unsigned round = 0; round < kRounds; ++round) {
      if (i == 0) list.execute();
      if (i == 1) (void)list.wait(1);
      if (i == 2 && round % 4 == 0) list.reset();
      if (i > 2 && i < 6) list.add(host.prepare(host.filled(3), host.empty()));
      if (i == 6) host.npu.set_constant("clock.array_mhz", 1000.0 + round);
      if (i == 7) host.npu.register_xclbin(host.binary);
      if (i == 8) hw_context(host.npu, host.binary.get_uuid());
      if (i == 9) (void)host.npu.description().at("clock.array_mhz");
      if (i == 10) (void)replay(host.npu, host.content.data(), host.content.size());
      if (i > 10) (void)host.empty();
    }
  });
}

TEST(XrtThreads, AStoppedRunIsAbortedAndTheContextGoesOn) {
  const Stopper stopper;
  Copies host;
  const bo to = host.empty();
  run first = host.prepare(host.filled(5), to);
  first.start();
  const uint64_t cycles = first.report().cycles;
  run mine = host.prepare_endless();
  std::thread other([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    stopping = true;
  });
  EXPECT_THROW(mine.start(), Stop);
  other.join();
  EXPECT_EQ(mine.state(), ert_cmd_state::ABORT);
  EXPECT_EQ(mine.wait(), ert_cmd_state::ABORT);
  stopping = false;
  run again = host.prepare(host.filled(6), to);
  again.start();
  EXPECT_EQ(again.wait(), ert_cmd_state::COMPLETED);
  EXPECT_TRUE(all_are(to, 6));
  EXPECT_EQ(again.report().cycles, cycles);
  // So does one that waits for its turn.
  std::thread busy([&mine] { EXPECT_THROW(mine.start(), Stop); });
  while (mine.state() != ert_cmd_state::RUNNING) std::this_thread::yield();
  std::thread waits([&again] { EXPECT_THROW(again.start(), Stop); });
  while (again.state() != ert_cmd_state::RUNNING) std::this_thread::yield();
  stopping = true;
  busy.join();
  waits.join();
  EXPECT_EQ(again.state(), ert_cmd_state::ABORT);
}

// Forks, and expects the child to return true within half a minute and then to exit well.
void expect_child(const std::function<bool()>& body) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(30);
    const int status = body() && !::testing::Test::HasFailure() ? 0 : 1;
#ifdef __SANITIZE_ADDRESS__
    _exit(status);  // the leak checker would look for what threads of the parent held
#else
    std::exit(status);
#endif
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

bool copies_well(Copies& host, uint8_t value) {
  const bo to = host.empty();
  run mine = host.prepare(host.filled(value), to);
  mine.start();
  return mine.wait() == ert_cmd_state::COMPLETED && all_are(to, value);
}

TEST(XrtFork, AChildHasWorkersOfItsOwn) {
  sim::WorkerPool& parents = sim::WorkerPool::shared();
  std::atomic<int> ran{0};
  const auto begun = std::make_shared<sim::Job>(), waiting = std::make_shared<sim::Job>();
  begun->work = [&ran] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    ++ran;
  };
  waiting->work = [&ran] { ++ran; };
  parents.submit(begun);
  parents.submit(waiting);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  expect_child([&] {
    sim::WorkerPool& own = sim::WorkerPool::shared();
    own.wait(*begun);
    own.wait(*waiting);
    return &own != &parents && ran == 2;
  });
  parents.wait(*begun);
  parents.wait(*waiting);
  EXPECT_EQ(ran, 2);
}

TEST(XrtFork, AChildGoesOnWithEveryObject) {
  Copies host;
  ASSERT_TRUE(copies_well(host, 1));
  expect_child([&host] { return copies_well(host, 2); });
  EXPECT_TRUE(copies_well(host, 3));
}

TEST(XrtFork, WhatAnotherThreadRanEndsInTheChildOnly) {
  const Stopper stopper;
  Copies host;
  run theirs = host.prepare_endless();
  std::thread thread([&theirs] { EXPECT_THROW(theirs.start(), Stop); });
  while (theirs.state() != ert_cmd_state::RUNNING) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  for (int i = 0; i < 5; ++i)
    expect_child([&] {
      return theirs.state() == ert_cmd_state::ABORT && theirs.wait() == ert_cmd_state::ABORT && copies_well(host, 2);
    });
  EXPECT_EQ(theirs.state(), ert_cmd_state::RUNNING);
  stopping = true;
  thread.join();
  stopping = false;
  EXPECT_TRUE(copies_well(host, 3));
}

}  // namespace
}  // namespace onedispatch::xrt
