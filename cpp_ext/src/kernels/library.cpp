// SPDX-License-Identifier: Apache-2.0
// Our own kernels as a library, by the table that a stranger's shared object has.
#include "onedispatch/kernel_library.h"
#include "onedispatch/kernel_specs.h"

// One row per declaration: a declared kernel without code does not link, code without one does not compile.
#define ROW(name) extern "C" const od_kernel name##_kernel;
OD_KERNELS(ROW)
#undef ROW

namespace {

#define ROW(name) &name##_kernel,
constexpr const od_kernel* kKernels[] = {OD_KERNELS(ROW)};
#undef ROW

constexpr od_library kLibrary = {OD_LIBRARY_HEAD, "onedispatch", kKernels, sizeof kKernels / sizeof *kKernels, nullptr, 0};

}  // namespace

namespace onedispatch {

const od_library& own_library() { return kLibrary; }

}  // namespace onedispatch
