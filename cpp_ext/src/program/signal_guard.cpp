// SPDX-License-Identifier: Apache-2.0
#include "signal_guard.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cfenv>
#include <cmath>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <memory>
#include <mutex>
#include <typeinfo>

namespace onedispatch {

namespace {

// Sanitizers find faults themselves and keep records of frames, which siglongjmp would leave wrong: under them
// signals and clock are theirs, and exceptions alone are caught.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kCatchesSignals = false;
#else
constexpr bool kCatchesSignals = true;
#endif

constexpr long kTick = 50'000'000;       // nanoseconds between two looks of the clock
constexpr unsigned kGraceTicks = 20;     // that a call may overstay in code of others, which may hold a lock
constexpr unsigned kInterruptTicks = 4;  // after Ctrl-C: calls of ordinary length end by themselves
constexpr size_t kStackBytes = 64 * 1024;

constexpr std::array<int, 5> kFaults = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

int tick_signal() { return SIGRTMAX - 3; }  // not one of the two that glibc keeps

// Where the object that holds a function lies.
struct Text {
  uintptr_t first = 0, end = 0;
  bool holds(uintptr_t at) const { return first <= at && at < end; }
};

struct Active {
  sigjmp_buf jump;
  Text text;
  timespec deadline;
  uint64_t interrupts = 0;  // there were before
  unsigned overstayed = 0, after_interrupt = 0;
  CallOutcome::Kind kind = CallOutcome::Kind::kReturned;
  int signal = 0;
  uintptr_t address = 0, pc = 0;
  bool wrote = false;
};

// Reached from signal handlers: never allocated on first use.
__attribute__((tls_model("initial-exec"))) thread_local Active* active = nullptr;
__attribute__((tls_model("initial-exec"))) thread_local bool chaining = false;

__attribute__((tls_model("initial-exec"))) thread_local const char* python_kernel = nullptr;  // whose body runs

std::atomic<uint64_t> interrupts{0};
char tick_mark;  // its address is how a tick of ours is known

// ---- Handlers -----------------------------------------------------------------------------------------

std::mutex installing;
unsigned users = 0;  // calls that run
constexpr size_t kHandled = kFaults.size() + 2;
std::array<struct sigaction, kHandled> before;  // by place: the faults, SIGINT, the tick

int signal_at(size_t place) { return place < kFaults.size() ? kFaults[place] : place == kFaults.size() ? SIGINT : tick_signal(); }

void die_of(int signal) {
  std::signal(signal, SIG_DFL);
  raise(signal);
}

// Calls the handler that was installed before ours.
void chain(int signal, siginfo_t* info, void* context) {
  size_t place = 0;
  while (signal_at(place) != signal) ++place;
  const struct sigaction& old = before[place];
  if (chaining) return die_of(signal);  // the one before us hands it back to us: faulthandler, enabled meanwhile
  if ((old.sa_flags & SA_SIGINFO) != 0) {
    chaining = true;
    old.sa_sigaction(signal, info, context);
    chaining = false;
  } else if (old.sa_handler == SIG_DFL) {
    if (signal != tick_signal()) die_of(signal);
  } else if (old.sa_handler != SIG_IGN) {
    chaining = true;
    old.sa_handler(signal);
    chaining = false;
  }
}

uintptr_t counter_of(void* context) {
#if defined(__x86_64__)
  return static_cast<uintptr_t>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return static_cast<uintptr_t>(static_cast<ucontext_t*>(context)->uc_mcontext.pc);
#else
  static_cast<void>(context);
  return 0;
#endif
}

bool wrote(void* context) {
#if defined(__x86_64__)
  return (static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#else
  static_cast<void>(context);
  return false;
#endif
}

[[noreturn]] void leave(Active& call, CallOutcome::Kind kind, void* context) {
  call.kind = kind;
  call.pc = counter_of(context);
  active = nullptr;
  siglongjmp(call.jump, 1);
}

void write_text(const char* text) {
  const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
  static_cast<void>(written);
}

void name_kernel() {
  if (python_kernel == nullptr) return;
  write_text("onedispatch: the Python body of kernel ");
  write_text(python_kernel);
  write_text(" crashed, which ends this process; `onedispatch kernel check FILE`, or check=\"access\", runs it in another one\n");
  python_kernel = nullptr;  // handlers before ours may come back here
}

void on_fault(int signal, siginfo_t* info, void* context) {
  Active* const call = active;
  // Of the thread itself: by the processor, or by abort(). What another process sends is not the call's.
  const bool own = info->si_code > 0 || (info->si_code == SI_TKILL && info->si_pid == getpid());
  if (call == nullptr || !own) {
    if (own) name_kernel();
    return chain(signal, info, context);
  }
  call->signal = signal;
  call->address = signal == SIGSEGV || signal == SIGBUS ? reinterpret_cast<uintptr_t>(info->si_addr) : 0;
  call->wrote = wrote(context);
  leave(*call, CallOutcome::Kind::kSignal, context);
}

void on_interrupt(int signal, siginfo_t* info, void* context) {
  // Who ignores Ctrl-C (what a shell runs in the background does) has calls that run on.
  if (before[kFaults.size()].sa_handler != SIG_IGN) interrupts.fetch_add(1);
  chain(signal, info, context);
}

void on_tick(int signal, siginfo_t* info, void* context) {
  if (info->si_code != SI_TIMER || info->si_value.sival_ptr != &tick_mark) return chain(signal, info, context);
  Active* const call = active;
  if (call == nullptr) return;
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  const bool late = now.tv_sec > call->deadline.tv_sec || (now.tv_sec == call->deadline.tv_sec && now.tv_nsec >= call->deadline.tv_nsec);
  const bool stopped = interrupts.load() != call->interrupts && ++call->after_interrupt >= kInterruptTicks;
  if (!late && !stopped) return;
  if (!call->text.holds(counter_of(context)) && ++call->overstayed < kGraceTicks) return;
  leave(*call, stopped ? CallOutcome::Kind::kInterrupted : CallOutcome::Kind::kTimeout, context);
}

void install() {
  const std::lock_guard<std::mutex> hold(installing);
  if (users++ != 0) return;
  for (size_t place = 0; place < kHandled; ++place) {
    struct sigaction ours = {};
    struct sigaction old = {};
    sigemptyset(&ours.sa_mask);
    ours.sa_sigaction = place < kFaults.size() ? on_fault : place == kFaults.size() ? on_interrupt : on_tick;
    sigaction(signal_at(place), nullptr, &old);
    // Faults of the handlers before us come to us too, and end there. Ctrl-C wakes what it always woke.
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ours.sa_flags |= place < kFaults.size() ? SA_NODEFER : place == kFaults.size() ? old.sa_flags & SA_RESTART : SA_RESTART;
    if (old.sa_sigaction != ours.sa_sigaction) before[place] = old;
    sigaction(signal_at(place), &ours, nullptr);
  }
}

void uninstall() {
  const std::lock_guard<std::mutex> hold(installing);
  if (--users != 0) return;
  for (size_t place = 0; place < kHandled; ++place) {
    if (signal_at(place) == tick_signal()) continue;  // a last tick may be under way
    struct sigaction now = {};
    sigaction(signal_at(place), nullptr, &now);
    const bool ours = (now.sa_flags & SA_SIGINFO) != 0 && (now.sa_sigaction == on_fault || now.sa_sigaction == on_interrupt);
    if (ours) sigaction(signal_at(place), &before[place], nullptr);  // else another handler replaced ours, and may call it
  }
}

// ---- What a thread needs once -------------------------------------------------------------------------

// A stack for handlers, so that a body may run out of its own; left alone where the thread has one.
struct HandlerStack {
  std::unique_ptr<char[]> bytes;
  HandlerStack() {
    stack_t now = {};
    if (sigaltstack(nullptr, &now) != 0 || (now.ss_flags & SS_DISABLE) == 0) return;
    bytes = std::make_unique<char[]>(kStackBytes);
    stack_t given = {};
    given.ss_sp = bytes.get();
    given.ss_size = kStackBytes;
    sigaltstack(&given, nullptr);
  }
  ~HandlerStack() {
    stack_t now = {};
    if (bytes == nullptr || sigaltstack(nullptr, &now) != 0 || now.ss_sp != bytes.get()) return;
    stack_t none = {};
    none.ss_flags = SS_DISABLE;
    sigaltstack(&none, nullptr);
  }
};

// A clock that signals this thread alone.
class Clock {
 public:
  ~Clock() {
    if (there() && ::getpid() == process_) timer_delete(timer_);
  }

  void start() {
    if (!there() || ::getpid() != process_) make();  // a forked child has none
    set(kTick);
  }
  void stop() { set(0); }

 private:
  bool there() const { return process_ != 0; }

  void make() {
    process_ = 0;
    sigevent event = {};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = tick_signal();
    event.sigev_value.sival_ptr = &tick_mark;
    event._sigev_un._tid = static_cast<pid_t>(syscall(SYS_gettid));
    if (timer_create(CLOCK_MONOTONIC, &event, &timer_) != 0) return;  // without one a call may take any time
    process_ = ::getpid();
    sigset_t tick;
    sigemptyset(&tick);
    sigaddset(&tick, tick_signal());
    pthread_sigmask(SIG_UNBLOCK, &tick, nullptr);
  }

  void set(long nanoseconds) {
    if (!there()) return;
    const itimerspec every = {{0, nanoseconds}, {0, nanoseconds}};
    timer_settime(timer_, 0, &every, nullptr);
  }

  timer_t timer_{};
  pid_t process_ = 0;
};

thread_local uint32_t limit_of_thread = kDefaultLimit;
thread_local HandlerStack handler_stack;
thread_local Clock call_clock;

Text text_of(const void* function) {
  struct Search {
    uintptr_t at;
    Text found;
  } search{reinterpret_cast<uintptr_t>(function), {}};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        Search& wanted = *static_cast<Search*>(data);
        for (unsigned i = 0; i < info->dlpi_phnum; ++i) {
          const auto& part = info->dlpi_phdr[i];
          const uintptr_t first = info->dlpi_addr + part.p_vaddr;
          if (part.p_type != PT_LOAD || wanted.at < first || wanted.at >= first + part.p_memsz) continue;
          wanted.found = {first, first + part.p_memsz};
          return 1;
        }
        return 0;
      },
      &search);
  return search.found;
}

// Most threads call the same function again and again.
const Text& text_by_thread(const void* function) {
  static thread_local const void* last = nullptr;
  static thread_local Text text;
  if (last != function) text = text_of(last = function);
  return text;
}

// ---- Words --------------------------------------------------------------------------------------------

const char* name_of(int signal) {
  switch (signal) {
    case SIGSEGV: return "SIGSEGV";
    case SIGBUS: return "SIGBUS";
    case SIGFPE: return "SIGFPE";
    case SIGILL: return "SIGILL";
    default: return "SIGABRT";
  }
}

std::string hex(uintptr_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

std::string plain(const char* mangled) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(abi::__cxa_demangle(mangled, nullptr, nullptr, &status), std::free);
  return status == 0 ? name.get() : mangled;
}

// "acme_run+0x12 of libacme.so"
std::string code_at(uintptr_t pc) {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<void*>(pc), &info) == 0 || info.dli_fname == nullptr) return hex(pc);
  const std::string path = info.dli_fname, file = path.substr(path.rfind('/') + 1);
  if (info.dli_sname == nullptr) return hex(pc - reinterpret_cast<uintptr_t>(info.dli_fbase)) + " of " + file;
  return plain(info.dli_sname) + "+" + hex(pc - reinterpret_cast<uintptr_t>(info.dli_saddr)) + " of " + file;
}

std::string seconds(uint32_t milliseconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", milliseconds / 1000.0);
  return std::string(text) + (milliseconds == 1000 ? " second" : " seconds");
}

// A body that calls exit() ends the process, since exit() cannot be abandoned half done; its exit code is not a
// success then. _exit() leaves no chance to report it.
void report_exit(int code, void*) {
  if (active == nullptr) return;
  std::fprintf(stderr, "onedispatch: a custom kernel called exit(%d), which ends the process\n", code);
  std::fflush(nullptr);
  if (code == EXIT_SUCCESS) _exit(EXIT_FAILURE);
}

// What it threw; the call itself is inside a function of its own, so that nothing of ours is jumped over.
CallOutcome caught(void (*call)(void*), void* data) {
  CallOutcome outcome;
  try {
    call(data);
    active = nullptr;
    return outcome;
  } catch (abi::__forced_unwind&) {  // the thread is cancelled
    throw;
  } catch (const std::exception& error) {
    active = nullptr;
    outcome.what = plain(typeid(error).name()) + ": " + error.what();
  } catch (...) {
    active = nullptr;
    const std::type_info* const type = abi::__cxa_current_exception_type();
    outcome.what = type == nullptr ? "something" : plain(type->name());
  }
  outcome.kind = CallOutcome::Kind::kThrew;
  return outcome;
}

timespec deadline_of(uint32_t limit_ms) {
  timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  at.tv_sec += limit_ms / 1000;
  at.tv_nsec += long{1'000'000} * (limit_ms % 1000);
  if (at.tv_nsec >= 1'000'000'000) at.tv_nsec -= 1'000'000'000, ++at.tv_sec;
  return at;
}

// A jump out of the call ends here; nothing with a destructor lives in this frame.
__attribute__((noinline)) bool jumped(Active& here, void (*call)(void*), void* data, CallOutcome& outcome) {
  if (sigsetjmp(here.jump, 0) != 0) return true;
  active = &here;
  outcome = caught(call, data);
  return false;
}

}  // namespace

uint64_t interrupts_seen() { return interrupts.load(); }
InterruptCounter::InterruptCounter() {
  if (kCatchesSignals) install();
}
InterruptCounter::~InterruptCounter() {
  if (kCatchesSignals) uninstall();
}

CrashLabel::CrashLabel(const char* kernel) : before_(python_kernel) { python_kernel = kernel; }
CrashLabel::~CrashLabel() { python_kernel = before_; }

uint32_t body_limit() { return limit_of_thread; }
BodyLimit::BodyLimit(uint32_t milliseconds) : before_(limit_of_thread) { limit_of_thread = milliseconds; }
BodyLimit::~BodyLimit() { limit_of_thread = before_; }

bool is_ours(const void* function) {
  static const Text ours = text_of(reinterpret_cast<const void*>(&is_ours));
  return ours.holds(reinterpret_cast<uintptr_t>(function));
}

CallOutcome call_guarded(void (*call)(void*), void* data, const void* function, uint32_t limit_ms) {
  if (!kCatchesSignals) return caught(call, data);
  static_cast<void>(handler_stack);
  static const int registered = on_exit(report_exit, nullptr);
  static_cast<void>(registered);
  Active here;
  here.text = text_by_thread(function);
  here.deadline = deadline_of(limit_ms);
  here.interrupts = interrupts.load();
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  fenv_t floats;
  fegetenv(&floats);
  CallOutcome outcome;
  const InterruptCounter handlers;
  call_clock.start();
  const bool left = jumped(here, call, data, outcome);
  call_clock.stop();
  fesetenv(&floats);  // rounding and flush-to-zero are the thread's, not the body's
  if (!left) return outcome;
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);  // abort() unblocks its own
  outcome.kind = here.kind;
  outcome.signal = here.signal;
  outcome.address = here.address;
  outcome.wrote = here.wrote;
  outcome.what = code_at(here.pc);
  return outcome;
}

std::string describe(const CallOutcome& outcome, uint32_t limit_ms) {
  switch (outcome.kind) {
    case CallOutcome::Kind::kThrew: return "threw " + outcome.what + "; nothing may be thrown over the border of onedispatch/kernel.h";
    case CallOutcome::Kind::kTimeout: return "did not end within " + seconds(limit_ms) + "; it was left in " + outcome.what;
    case CallOutcome::Kind::kInterrupted: return "was left in " + outcome.what + " on Ctrl-C";
    default: break;
  }
  const bool faulted = outcome.signal == SIGSEGV || outcome.signal == SIGBUS;
  const std::string where = faulted ? " at address " + hex(outcome.address) + (outcome.address < 4096 ? " (a null pointer)" : "") : "";
  return std::string(outcome.signal == SIGABRT ? "aborted" : "crashed") + " (" + name_of(outcome.signal) + where + ") in " + outcome.what;
}

od_status status_of(const CallOutcome& outcome) {
  switch (outcome.kind) {
    case CallOutcome::Kind::kReturned: return OD_OK;
    case CallOutcome::Kind::kSignal: return OD_CRASH;
    case CallOutcome::Kind::kTimeout: return OD_TIMEOUT;
    default: return OD_RUNTIME_FAILURE;
  }
}

void require_returned(const CallOutcome& outcome, const std::string& who, const char* name, uint32_t limit_ms) {
  if (outcome.kind == CallOutcome::Kind::kReturned) return;
  const std::string text = who + ": its function " + name + " " + describe(outcome, limit_ms);
  if (outcome.kind == CallOutcome::Kind::kInterrupted) throw CallInterrupted{text};
  if (outcome.address != 0) throw FaultError{{status_of(outcome), text}, outcome.address, outcome.wrote};
  throw KernelError{status_of(outcome), text};
}

}  // namespace onedispatch
