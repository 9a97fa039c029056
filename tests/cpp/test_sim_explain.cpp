// SPDX-License-Identifier: Apache-2.0
// Reports of deadlocks: the cause before its victims, circles named as such.
#include "test_sim_support.h"

namespace onedispatch::sim::testing {
namespace {

const uint64_t kMemOther = tile_address(0, 1, reg::mem::DMA_S2MM_QUEUE.at(2));

BdList takes(uint32_t lock, uint32_t released = 0) {
  BdList fields = {
      {bd::mem::acquire_enable, 1}, {bd::mem::acquire_lock, 64 + lock}, {bd::mem::acquire_value, -1}};
  if (released != 0) fields.insert(fields.end(), {{bd::mem::release_lock, 64 + released}, {bd::mem::release_value, 1}});
  return fields;
}

std::string report(const Builder& b) {
  Rig rig;
  rig.buffers[0]->count_up();
  const SimulationError error = rig.error(b);
  EXPECT_EQ(error.kind, "deadlock");
  return error.what();
}

void expect_in_order(const std::string& text, std::initializer_list<const char*> parts) {
  size_t at = 0;
  for (const char* part : parts) {
    at = text.find(part, at);
    ASSERT_NE(at, std::string::npos) << part << " in:\n" << text;
  }
}

TEST(Explain, TheCauseComesBeforeItsVictims) {
  Builder b;
  lay_feed_and_drain(b, 0);
  // The receiver waits for a lock that is never released; what sends to it, and what waits for the lock
  // that it would release, are victims.
  b.block(tile_address(0, 0, reg::shim::DMA_BD.at(0)), shim_bd({{bd::shim::length, 8}})).patch(0, 0, 0, 0);
  b.block(mem_bd_at(0), mem_bd(0, 8, takes(7, 9))).block(mem_bd_at(24), mem_bd(0, 8, takes(9)));
  b.write(kShimRead, task(0)).write(kMemOut, task(24)).write(kMemIn, task(0, 1, true)).token(0, 1, false, 0);
  const std::string text = report(b);
  expect_in_order(text, {"cause: mem tile c0 r1 S2MM0: waits for lock 7", "nothing that runs releases this lock",
                         "shim tile c0 r0 MM2S0: waits to send", "waits because of mem tile c0 r1 S2MM0",
                         "MM2S5: waits for lock 9", "waits because of mem tile c0 r1 S2MM0"});
  EXPECT_EQ(text.find("cause:", text.find("cause:") + 1), std::string::npos) << text;
}

TEST(Explain, NamesTheBdThatWouldHelp) {
  Builder b;
  b.block(mem_bd_at(0), mem_bd(0, 0, takes(7))).block(mem_bd_at(3), mem_bd(0, 0, takes(1, 7)));
  b.write(kMemIn, task(0, 1, true)).token(0, 1, false, 0);
  expect_in_order(report(b), {"cause: ", "S2MM0: waits for lock 7", "BD 3 of mem tile c0 r1 would, but no task comes to it"});
}

TEST(Explain, OneThatWaitsForItself) {
  Builder b;
  b.block(mem_bd_at(0), mem_bd(0, 0, takes(7, 7))).write(kMemIn, task(0, 1, true)).token(0, 1, false, 0);
  expect_in_order(report(b), {"cause: ", "S2MM0: waits for lock 7", "only what comes after it would release this lock"});
}

TEST(Explain, CirclesAreNamed) {
  Builder b;
  b.block(mem_bd_at(0), mem_bd(0, 0, takes(1, 2))).block(mem_bd_at(1), mem_bd(0, 0, takes(2, 1)));
  b.block(mem_bd_at(24), mem_bd(0, 0, takes(2)));
  b.write(kMemOut, task(24)).write(kMemOther, task(1)).write(kMemIn, task(0, 1, true)).token(0, 1, false, 0);
  const std::string text = report(b);
  expect_in_order(text, {"circle: mem tile c0 r1 S2MM0: waits for lock 1", "waits because of mem tile c0 r1 S2MM2",
                         "circle: mem tile c0 r1 S2MM2: waits for lock 2", "waits because of mem tile c0 r1 S2MM0",
                         "\n  mem tile c0 r1 MM2S5: waits for lock 2"});
  EXPECT_EQ(text.find("cause:"), std::string::npos) << text;
}

TEST(Explain, WhatTheControllerWaitsForAndNobodyDoes) {
  Builder token;
  token.block(mem_bd_at(0), mem_bd(0, 0)).write(kMemIn, task(0)).token(0, 1, false, 0).token(0, 1, false, 2);
  expect_in_order(report(token), {"cause: mem tile c0 r1 S2MM0 has no task"});
  Builder lock;
  const uint32_t window = reg::mem::LOCK_REQUEST.offset + 5 * reg::LOCK_REQUEST_STRIDE + reg::LOCK_REQUEST_ACQUIRE;
  lock.poll(tile_address(0, 1, window + (0x7F << reg::LOCK_REQUEST_VALUE_SHIFT)), 1, 1);
  expect_in_order(report(lock), {"cause: the controller waits for lock 5 of mem tile c0 r1 (value 0, wanted >= 1)"});
}

TEST(Explain, OfManyCausesTheAwaitedComesFirst) {
  Builder b;
  b.block(mem_bd_at(0), mem_bd(0, 0, takes(1))).block(mem_bd_at(1), mem_bd(0, 0, takes(2, 3)));
  b.block(mem_bd_at(24), mem_bd(0, 0, takes(3)));
  b.write(kMemIn, task(0)).write(kMemOther, task(1)).write(kMemOut, task(24, 1, true)).token(0, 1, true, 5);
  expect_in_order(report(b), {"cause: mem tile c0 r1 S2MM2", "cause: mem tile c0 r1 S2MM0", "MM2S5"});
}

}  // namespace
}  // namespace onedispatch::sim::testing
