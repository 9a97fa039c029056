// SPDX-License-Identifier: Apache-2.0
// Plug-ins of kernel libraries, as plain Python data.
#pragma once
#include <pybind11/pybind11.h>

void bind_plugins(pybind11::module_& m);
