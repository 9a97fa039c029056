// SPDX-License-Identifier: Apache-2.0
// test::wrong@1: y = x, and by its scalar `mode` everything that a kernel must not do. Built without our C++ header.
#include <unistd.h>

#include <cfenv>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <stdexcept>

extern "C" {
#include "wrong_specs.h"
}

namespace {

enum Mode {
  kFine, kWritesInput, kWritesBehind, kWritesBefore, kWritesFar, kReadsFar, kNull, kDivides, kAborts, kThrows, kThrowsNumber, kLoops,
  kSleeps, kLocks, kGarbage, kNoEnd, kRecurses, kTraps, kRounds, kPrepareLoops, kPrepareThrows, kPrepareCrashes, kReleaseCrashes, kCheckThrows
};

struct Plan {
  od_setup setup;
  unsigned mode;
};

volatile int zero = 0;
volatile float sink = 0;
volatile bool forever = true;
std::mutex held;

int deep(volatile char* above) {
  volatile char here[4096];
  here[0] = *above;
  return forever ? deep(here) + here[0] : here[1];
}

od_status prepare(const od_setup* setup, void** made, od_error*) {
  auto* plan = new Plan{*setup, setup->scalars[TEST_WRONG_MODE]};
  *made = plan;
  if (plan->mode == kPrepareLoops) while (forever) {}
  if (plan->mode == kPrepareThrows) throw std::out_of_range("no such column");
  if (plan->mode == kPrepareCrashes) std::memset(nullptr, zero, 4 + static_cast<size_t>(zero));
  return OD_OK;
}

od_status check(const void* made, const od_call*, od_error*) {
  if (static_cast<const Plan*>(made)->mode == kCheckThrows) throw std::length_error("too long");
  return OD_OK;
}

od_status misbehave(const Plan& plan, float* x, float* y, size_t count, od_error* error) {
  switch (plan.mode) {
    case kWritesInput: x[2] = 1; break;
    case kWritesBehind: y[count] = 1; break;
    case kWritesBefore: y[-1] = 1; break;
    case kWritesFar: y[100'000] = 1; break;
    case kReadsFar: sink = x[-30'000]; break;
    case kNull: *reinterpret_cast<volatile float*>(zero) = 1; break;
    case kDivides: sink = static_cast<float>(5 / zero); break;
    case kAborts: std::abort();
    case kThrows: throw std::runtime_error("no such row");
    case kThrowsNumber: throw 7;
    case kLoops: while (forever) {} break;
    case kSleeps: for (;;) sleep(1000);
    case kLocks: held.lock(); held.lock(); break;
    case kGarbage: return 4711;
    case kNoEnd: std::memset(error->text, 'x', sizeof error->text); return OD_PARAMETER_INVALID;
    case kRecurses: { char begin[1] = {0}; return deep(begin); }
    case kTraps: __builtin_trap();
    case kRounds: std::fesetround(FE_UPWARD); break;
    default: break;
  }
  return OD_OK;
}

od_status run(const void* made, const od_call* call, od_error* error) {
  const Plan& plan = *static_cast<const Plan*>(made);
  auto* x = reinterpret_cast<float*>(call->operand[TEST_WRONG_X]);
  auto* y = reinterpret_cast<float*>(call->operand[TEST_WRONG_Y]);
  size_t count = 1;
  for (const od_dim& dim : plan.setup.dims) count *= dim.tile;
  std::memcpy(y, x, count * sizeof *y);
  return misbehave(plan, x, y, count, error);
}

void release(void* made) {
  auto* plan = static_cast<Plan*>(made);
  if (plan->mode == kReleaseCrashes) std::abort();
  delete plan;
}

const od_kernel wrong = {&test_wrong_spec, prepare, check, run, release};
const od_kernel* const kernels[] = {&wrong};
const od_library library = {OD_LIBRARY_HEAD, "wrong", kernels, 1, nullptr, 0};

}  // namespace

extern "C" OD_EXPORT const od_library* od_kernel_library() { return &library; }
