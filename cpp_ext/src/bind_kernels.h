// SPDX-License-Identifier: Apache-2.0
// Kernels that Python registers: the part of the module _core that runs Python functions on simulated cores.
#pragma once
#include <pybind11/pybind11.h>

#include <memory>
#include <utility>

#include "onedispatch/interrupt.h"

// What a signal handler of Python raised, KeyboardInterrupt mostly: it ends a run, and is not a failure of the run.
struct Signal : onedispatch::Interrupted {
  Signal() = default;  // what is set now
  explicit Signal(pybind11::error_already_set&& error) : raised(std::move(error)) {}
  pybind11::error_already_set raised;
};

// Throws DeviceError on a thread that runs a kernel's Python function: it has no array of its own, and would wait
// for the one that waits for it.
void require_no_kernel_runs(const char* what);

void bind_kernels(pybind11::module_& m);

// What a kernel's Python function raised, as errors carry it; none: nothing. With the interpreter lock.
pybind11::object raised_by(const std::shared_ptr<void>& cause);
