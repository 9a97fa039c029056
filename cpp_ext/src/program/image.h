// SPDX-License-Identifier: Apache-2.0
// A program image: the kernels that it carries, and what can be said of it before any core starts it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "onedispatch/kernel_library.h"

namespace onedispatch {

// A kernel in program memory, or a function that kernels call (one that came after its table was sealed), and a
// bit for each element type that it was linked for: of the kernel's first output, or what the function sees.
struct Carried {
  KernelPtr kernel;  // of a function: one that has it in a table
  uint32_t types = 0;
  const od_function_spec* function = nullptr;

  uint32_t digest() const { return function != nullptr ? function->digest : kernel->spec->digest; }
  const char* name() const { return function != nullptr ? function->name : kernel->spec->name; }
  uint32_t code_bytes() const { return function != nullptr ? function->code_bytes : kernel->spec->code_bytes; }
  uint32_t known_types() const;
};

// What libraries know by that digest, for no element type yet; its kernel is null where none does.
Carried known_by(uint32_t digest);
// The one with that digest; nullptr where there is none.
const Carried* find(const std::vector<Carried>& carried, uint32_t digest);
// The function that such a word chooses, where it is one that came later; else nullptr.
const od_function_spec* later_function(const od_scalar_spec& scalar, uint32_t word);
// Whether the function, where there is one, is carried for elements of that type.
bool carries(const std::vector<Carried>& carried, const od_function_spec* function, uint32_t dtype);
std::string names_of(const std::vector<Carried>& carried);
// What a library calls the kernel, for messages.
std::string known_name(uint32_t digest);
// The number of a kernel's first output among its operands; libraries without one are not loaded.
uint32_t first_output(const od_kernel_spec& spec);

// Throws ProgramError for an image that no core starts, and where the first `most` of the parameter blocks
// in `blocks`, which stand behind control packets, name kernels, or element types, that it does not carry.
void check_image(const std::vector<uint32_t>& image, const std::vector<uint32_t>& blocks, size_t most);

}  // namespace onedispatch
