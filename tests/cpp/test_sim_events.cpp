// SPDX-License-Identifier: Apache-2.0
// The event queue against a list that is sorted whenever something is taken.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "sim/engine/event_queue.h"

namespace onedispatch::sim {
namespace {

// Times from now on as they come in runs: now itself, the next cycles, a kernel's, far beyond all lists.
uint64_t later(std::mt19937& random, uint64_t now) {
  constexpr uint64_t kMost[] = {1, 3, 70, 16'500, 100'000};
  return now + random() % kMost[random() % 5];
}

TEST(EventQueue, TakesByTimeThenInTheOrderOfScheduling) {
  std::mt19937 random(3);
  EventQueue queue;
  std::vector<Event> model;
  const auto first = [&] {
    return std::min_element(model.begin(), model.end(), [](const Event& a, const Event& b) {
      return a.time != b.time ? a.time < b.time : a.subject < b.subject;  // which count up
    });
  };
  uint64_t now = 0;
  for (uint32_t step = 0; step < 20'000; ++step) {
    const bool fills = step / 500 % 2 == 0;
    if (model.empty() || random() % 5 < (fills ? 3u : 2u)) {
      const uint64_t time = later(random, now);
      model.push_back(Event{time, step, 7, EventKind::kCore});
      queue.push(time, EventKind::kCore, step, 7);
      continue;
    }
    const auto expected = first();
    ASSERT_EQ(queue.next_time(), expected->time);
    const Event event = queue.pop();
    ASSERT_EQ(event.subject, expected->subject);
    ASSERT_EQ(event.time, expected->time);
    now = event.time;
    if (random() % 8 == 0) now += random() % (model.size() < 2 ? 5000 : 1);  // the controller's time goes on alone
    model.erase(expected);
  }
  EXPECT_EQ(queue.empty(), model.empty());
}

TEST(EventQueue, ForgetsWhatItHadAndGoesOn) {
  EventQueue queue;
  for (uint64_t time = 0; time < 80'000; time += 1200) queue.push(time, EventKind::kSegment, 0, 0);
  for (int i = 0; i < 20; ++i) queue.pop();
  queue.clear();
  EXPECT_TRUE(queue.empty());
  queue.push(9000, EventKind::kBdDone, 2, 0);
  queue.push(7000, EventKind::kBdDone, 1, 0);
  EXPECT_EQ(queue.pop().subject, 1u);
  EXPECT_EQ(queue.pop().subject, 2u);
  EXPECT_TRUE(queue.empty());
}

}  // namespace
}  // namespace onedispatch::sim
