// SPDX-License-Identifier: Apache-2.0
// One call of a function that somebody else compiled, kept from taking the process with it.
//
// While it runs, what the thread raises (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) ends the call alone, and so
// does a clock: the thread leaves the function by siglongjmp. Handlers that were there before get every signal
// that is not of such a call (faulthandler's, Python's, those of sanitizers).
//
// What is not kept: destructors of the frames that were left do not run, memory that they held is lost, and a
// lock that they held stays held, so a kernel that was ended by the clock is not called again. A function that
// calls exit() ends the process: `onedispatch kernel check` runs it in one of its own.
#pragma once
#include <cstdint>
#include <string>

#include "onedispatch/core_program.h"
#include "onedispatch/kernel.h"
#include "onedispatch/kernel_library.h"
#include "onedispatch/txn_format.h"

namespace onedispatch {

// How such a call ended.
struct Ending {
  enum class Kind { kReturned, kThrew, kSignal, kTimeout, kInterrupted };
  Kind kind = Kind::kReturned;
  int signal = 0;
  uintptr_t address = 0;   // of a memory fault, else 0
  bool wrote = false;      // the fault was a write, where the processor tells
  std::string what;        // of an exception; where a signal came from
};

constexpr uint32_t kDefaultLimit = host::KERNEL_MILLISECONDS;  // that a call of a foreign function may take

// What a call may take of those that the calling thread makes; also for bodies in Python, whose clock is Python's.
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

// Signals of Ctrl-C that came while somebody counted them; every call that is contained does.
uint64_t interrupts_seen();
class CountsInterrupts {
 public:
  CountsInterrupts();
  ~CountsInterrupts();
  CountsInterrupts(const CountsInterrupts&) = delete;
  CountsInterrupts& operator=(const CountsInterrupts&) = delete;
};

// While it lives, a crash of the thread that nothing contains says which kernel's Python body it is of: frames of the
// interpreter cannot be left by a jump, so the process ends.
class NamesCrash {
 public:
  explicit NamesCrash(const char* kernel);
  ~NamesCrash();
  NamesCrash(const NamesCrash&) = delete;
  NamesCrash& operator=(const NamesCrash&) = delete;

 private:
  const CountsInterrupts handlers_;
  const char* before_;
};

// Whether code lies in the object that this is part of.
bool is_ours(const void* function);

// `function` is where the code of the call lies: the clock leaves others (the allocator, say) in peace for a while.
Ending contain(void (*call)(void*), void* data, const void* function, uint32_t limit_ms);

// "crashed: SIGSEGV at address 0x0 (a null pointer) in acme_run+0x12 of libacme.so"; what every ending but
// kReturned is to a message, with the status of it.
std::string told(const Ending& ending, uint32_t limit_ms);
od_status status_of(const Ending& ending);

// A memory fault, with where it was.
struct FaultError : KernelError {
  uintptr_t address = 0;
  bool wrote = false;
};

// Throws KernelError (FaultError) "<who>: its function <name> <told>", or CallInterrupted, unless the call returned.
void require_returned(const Ending& ending, const std::string& who, const char* name, uint32_t limit_ms);

// `call()` contained; nothing with a destructor may live in it.
template <typename Call>
void contained(const std::string& who, const char* name, const void* function, Call call, uint32_t limit_ms = kDefaultLimit) {
  require_returned(contain([](void* data) { (*static_cast<Call*>(data))(); }, &call, function, limit_ms), who, name, limit_ms);
}

}  // namespace onedispatch
