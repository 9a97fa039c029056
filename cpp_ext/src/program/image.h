// SPDX-License-Identifier: Apache-2.0
// What can be said of a program image before any core starts it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace onedispatch {

// Throws ProgramError for an image that no core starts, and where the first `most` of the parameter blocks
// that stand one after the other in `blocks` name kernels, or element types, that it does not carry.
void check_image(const std::vector<uint32_t>& image, const std::vector<uint32_t>& blocks, size_t most);

}  // namespace onedispatch
