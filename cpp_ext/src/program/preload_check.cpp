// SPDX-License-Identifier: Apache-2.0
#include "preload_check.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include "signal_guard.h"
#include "onedispatch/kernel_library.h"
#include "plugin_library.h"

namespace onedispatch {

namespace {

constexpr int kSound = 71;             // exit code of a child that completed, used for nothing else
constexpr size_t kLastWords = 400;     // bytes of what a child said

// Follows every pointer of the tables; what they say that is wrong is for the caller to find.
void read_tables(const od_library* library) {
  try {
    check_library(library);
    check_plugins(*library);
  } catch (const KernelError&) {
    return;
  }
}

// In the child, with one thread; what is thrown here ends it, before it takes itself for us.
[[noreturn]] void look(const char* path, int said) noexcept {
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) std::signal(fault, SIG_DFL);
  const rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  dup2(said, STDOUT_FILENO);
  dup2(said, STDERR_FILENO);
  void* const handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void* const symbol = handle == nullptr ? nullptr : dlsym(handle, OD_KERNEL_LIBRARY_SYMBOL);
  if (symbol != nullptr) read_tables(reinterpret_cast<od_kernel_library_function>(symbol)());
  _exit(kSound);
}

// What comes until the end of the pipe or of the time; whether the end came.
bool listen(int from, uint32_t limit_ms, std::string& said) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
    if (left <= 0) return false;
    pollfd ready = {from, POLLIN, 0};
    const int found = poll(&ready, 1, static_cast<int>(left));
    if (found <= 0) {
      if (found < 0 && errno == EINTR) continue;
      return false;
    }
    char text[512];
    const ssize_t count = read(from, text, sizeof text);
    if (count <= 0) return true;
    said.append(text, static_cast<size_t>(count));
    if (said.size() > kLastWords) said.erase(0, said.size() - kLastWords);
  }
}

int reaped(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  return status;
}

}  // namespace

void check_preload(const std::string& path, uint32_t limit_ms) {
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) return;  // no files left: the loader will say so
  const pid_t child = fork();
  if (child == 0) look(path.c_str(), pipe_ends[1]);
  close(pipe_ends[1]);
  std::string said;
  const bool ended = child > 0 && listen(pipe_ends[0], limit_ms, said);
  close(pipe_ends[0]);
  if (child < 0) return;
  if (!ended) kill(child, SIGKILL);
  const int status = reaped(child);
  if (ended && WIFEXITED(status) && WEXITSTATUS(status) == kSound) return;
  std::string how = "did not end within " + std::to_string(limit_ms) + " milliseconds";
  if (ended) how = WIFSIGNALED(status) ? std::string("ended with ") + strsignal(WTERMSIG(status)) : "ended with exit code " + std::to_string(WEXITSTATUS(status));
  while (!said.empty() && std::isspace(static_cast<unsigned char>(said.back())) != 0) said.pop_back();
  throw KernelError{ended ? OD_CRASH : OD_TIMEOUT, "kernel library " + path + ": a process that loaded it to look at it " + how +
                                                       (said.empty() ? ", without a word" : "; its last words: " + said)};
}

}  // namespace onedispatch
