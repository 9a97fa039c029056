// SPDX-License-Identifier: Apache-2.0
// What kernels print and what their calls take, as Python sees it.
#pragma once
#include <pybind11/pybind11.h>

#include <string>
#include <vector>

#include "onedispatch/report.h"

// Custom kernels, files and paths may hold bytes that are no UTF-8.
pybind11::str shown(const std::string& text);

// A line as onedispatch/plugin_print.h makes it.
std::string printed(const std::string& format, const pybind11::sequence& values);

pybind11::dict trace_of(const onedispatch::RunReport& report);
// (kernel, lines lost, [(member, text)])
pybind11::tuple row_of(const onedispatch::PrintRing& ring);
pybind11::list prints_of(const std::vector<onedispatch::PrintReport>& prints);

void bind_prints(pybind11::module_& m);
