// SPDX-License-Identifier: Apache-2.0
// Loads a shared object in a child process first: code that runs at load time may crash, loop or end its process.
#pragma once
#include <cstdint>
#include <string>

namespace onedispatch {

// Loads `path` in a child, gets its table of kernels and reads their declarations. Throws KernelError, with the
// last output of the child, if the child crashes or hangs. Errors of the loader are left for the caller to find.
void check_preload(const std::string& path, uint32_t limit_ms);

}  // namespace onedispatch
