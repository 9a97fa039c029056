// SPDX-License-Identifier: Apache-2.0
// A first look at a shared object, from a child of this process: what runs when it is loaded may crash, loop or
// end the process.
#pragma once
#include <cstdint>
#include <string>

namespace onedispatch {

// Loads `path` in a child, asks for its table of kernels and reads what they declare. Throws KernelError where the child does not live
// through that, with what it said last. What the loader refuses is left for the caller to find.
void probe_library(const std::string& path, uint32_t limit_ms);

}  // namespace onedispatch
