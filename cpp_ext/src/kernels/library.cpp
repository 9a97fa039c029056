// SPDX-License-Identifier: Apache-2.0
// The built-in kernels as a library, in the same table that a plug-in library exports.
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
