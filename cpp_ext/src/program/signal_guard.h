// SPDX-License-Identifier: Apache-2.0
// Guards calls of functions from plug-in libraries, so that a fault ends the call and not the process.
//
// While a guarded call runs, a fault of its thread (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) or the time limit
// ends the call alone: the thread leaves the function by siglongjmp. All other signals go to the handlers that
// were installed before (faulthandler's, Python's, those of sanitizers).
//
// Limits: destructors of the abandoned frames do not run, their memory is lost, and their locks stay locked, so a
// kernel that exceeded the time limit is not called again. A function that calls exit() ends the process:
// `onedispatch kernel check` runs it in a process of its own.
#pragma once
#include <cstdint>
#include <string>

#include "onedispatch/core_program.h"
#include "onedispatch/kernel.h"
#include "onedispatch/kernel_library.h"
#include "onedispatch/txn_format.h"

namespace onedispatch {

// How a guarded call ended.
struct CallOutcome {
  enum class Kind { kReturned, kThrew, kSignal, kTimeout, kInterrupted };
  Kind kind = Kind::kReturned;
  int signal = 0;
  uintptr_t address = 0;   // of a memory fault, else 0
  bool wrote = false;      // the fault was a write, where the processor tells
  std::string what;        // the exception, or the code that raised the signal
};

constexpr uint32_t kDefaultLimit = host::KERNEL_MILLISECONDS;  // milliseconds that a call of a plug-in function may take

// The time limit in milliseconds of calls that the calling thread makes; Python bodies have it too, by a Python clock.
uint32_t body_limit();
class BodyLimit {
 public:
  explicit BodyLimit(uint32_t milliseconds);
  ~BodyLimit();
  BodyLimit(const BodyLimit&) = delete;
  BodyLimit& operator=(const BodyLimit&) = delete;

 private:
  uint32_t before_;
};

// The number of Ctrl-C signals that arrived while an InterruptCounter lived; every guarded call has one.
uint64_t interrupts_seen();
class InterruptCounter {
 public:
  InterruptCounter();
  ~InterruptCounter();
  InterruptCounter(const InterruptCounter&) = delete;
  InterruptCounter& operator=(const InterruptCounter&) = delete;
};

// While it lives, an unguarded crash of the thread names the kernel whose Python body it is in: a jump cannot leave
// frames of the interpreter, so the process ends.
class CrashLabel {
 public:
  explicit CrashLabel(const char* kernel);
  ~CrashLabel();
  CrashLabel(const CrashLabel&) = delete;
  CrashLabel& operator=(const CrashLabel&) = delete;

 private:
  const InterruptCounter handlers_;
  const char* before_;
};

// Returns true if the function lies in the shared object that this code is part of.
bool is_ours(const void* function);

// Runs call(data). `function` tells which object the code of the call lies in: code of other objects, such as the
// allocator, may overstay the limit for a while.
CallOutcome call_guarded(void (*call)(void*), void* data, const void* function, uint32_t limit_ms);

// "crashed: SIGSEGV at address 0x0 (a null pointer) in acme_run+0x12 of libacme.so"; the text and the
// status of every outcome but kReturned.
std::string describe(const CallOutcome& outcome, uint32_t limit_ms);
od_status status_of(const CallOutcome& outcome);

// A memory fault and its address.
struct FaultError : KernelError {
  uintptr_t address = 0;
  bool wrote = false;
};

// Throws KernelError (FaultError) "<who>: its function <name> <description>", or CallInterrupted, unless the call returned.
void require_returned(const CallOutcome& outcome, const std::string& who, const char* name, uint32_t limit_ms);

// Runs `call()` guarded and throws as require_returned does; no object with a destructor may live in it.
template <typename Call>
void call_or_throw(const std::string& who, const char* name, const void* function, Call call, uint32_t limit_ms = kDefaultLimit) {
  require_returned(call_guarded([](void* data) { (*static_cast<Call*>(data))(); }, &call, function, limit_ms), who, name, limit_ms);
}

}  // namespace onedispatch
