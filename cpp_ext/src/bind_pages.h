// SPDX-License-Identifier: Apache-2.0
// Mapped files that others may cut short: who reads a page that is not there any more reads zeros, where the system
// would end the process by SIGBUS, and can ask afterwards whether that happened.
#pragma once
#include <pybind11/pybind11.h>

void bind_pages(pybind11::module_& m);
