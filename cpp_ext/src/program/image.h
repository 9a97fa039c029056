// SPDX-License-Identifier: Apache-2.0
// A program image: the kernels that it carries, and what can be said of it before any core starts it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "onedispatch/kernel_library.h"

namespace onedispatch {

// A kernel in program memory, and a bit for each element type of its first output that it was linked for.
struct Carried {
  KernelPtr kernel;
  uint32_t types = 0;
};

// The one with that digest; nullptr where there is none.
const Carried* find(const std::vector<Carried>& carried, uint32_t digest);
std::string names_of(const std::vector<Carried>& carried);
// What a library calls the kernel, for messages.
std::string known_name(uint32_t digest);
// The number of a kernel's first output among its operands; libraries without one are not loaded.
uint32_t first_output(const od_kernel_spec& spec);

// Throws ProgramError for an image that no core starts, and where the first `most` of the parameter blocks
// that stand one after the other in `blocks` name kernels, or element types, that it does not carry.
void check_image(const std::vector<uint32_t>& image, const std::vector<uint32_t>& blocks, size_t most);

}  // namespace onedispatch
