// SPDX-License-Identifier: Apache-2.0
// Reports of runs and replays, as Python sees them.
#pragma once
#include <pybind11/pybind11.h>

#include "onedispatch/report.h"

// Where an operation is in its transaction.
pybind11::dict place(const onedispatch::OpRef& op);
pybind11::dict to_dict(const onedispatch::RunReport& report);
pybind11::dict to_dict(const onedispatch::ReplayReport& report);
