// SPDX-License-Identifier: Apache-2.0
// od::conv and od::dwconv of integers.
#pragma once
#include <memory>

#include "kernel.h"

namespace onedispatch::kernels {

std::unique_ptr<const Kernel> make_integer_conv(const Setup& setup);
std::unique_ptr<const Kernel> make_integer_depthwise_conv(const Setup& setup);

}  // namespace onedispatch::kernels
