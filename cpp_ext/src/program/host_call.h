// SPDX-License-Identifier: Apache-2.0
// One call of a member kernel on memory of the host: all members at once, every operand whole. The same
// functions run with the same kind of block as on a core; no clock counts it.
#pragma once
#include <cstdint>
#include <vector>

#include "onedispatch/kernel_library.h"
#include "onedispatch/print_log.h"

namespace onedispatch {

struct HostOperand {
  uint8_t* data = nullptr;  // null where it is absent
  uint64_t bytes = 0;
};

// `words` is the parameter block, whose index dimensions are all whole; `operands` are as the declaration has
// them, outputs hold their fill; it may take `limit_ms`. Throws KernelError for a block that does not describe
// them, and for what the kernel answers. What it prints is added to `prints`.
void call_on_host(const KernelPtr& kernel, std::vector<uint32_t> words, const std::vector<HostOperand>& operands,
                  std::vector<uint8_t>& scratch, uint32_t limit_ms, PrintLog& prints);

}  // namespace onedispatch
