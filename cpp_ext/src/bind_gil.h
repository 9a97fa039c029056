// SPDX-License-Identifier: Apache-2.0
// The interpreter's lock, given back while the simulator works.
#pragma once
#include <pybind11/pybind11.h>
#include <unistd.h>

#include <atomic>
#include <thread>

// The end of the process: the thread that runs Python's exit functions. By then others are daemons.
struct Ending {
  static inline std::atomic<bool> begun{false};
  static inline std::thread::id by;
  static void begin() {
    by = std::this_thread::get_id();
    begun = true;
  }
};

// As pybind11's gil_scoped_release, but for the end of a process: Python would end a daemon that asks for the lock by
// unwinding its stack, which no C++ frame above survives. It waits for the end of the process instead.
class Released {
 public:
  Released() : state_(PyEval_SaveThread()) {}
  ~Released() {
    while (Ending::begun && std::this_thread::get_id() != Ending::by) pause();
    PyEval_RestoreThread(state_);
  }
  Released(const Released&) = delete;
  Released& operator=(const Released&) = delete;

 private:
  PyThreadState* state_;
};
