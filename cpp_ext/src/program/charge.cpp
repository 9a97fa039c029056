// SPDX-License-Identifier: Apache-2.0
#include "charge.h"

#include <algorithm>
#include <cstring>

#include "super_kernel.h"

namespace onedispatch {

std::vector<uint64_t> charged_cycles(const uint8_t* block, size_t bytes, const DeviceDescription& device, uint32_t column,
                                     uint32_t row, size_t most) {
  std::vector<uint8_t> memory(device.geometry.core_memory);
  if (bytes != 0) std::memcpy(memory.data(), block, std::min({bytes, size_t{kParameterBytes}, memory.size()}));
  std::vector<Carried> everything;
  for (const KernelPtr& kernel : registry().all()) {
    everything.push_back({kernel, UINT32_MAX});
    for (uint32_t i = 0; i < kernel->spec->n_scalars; ++i) {
      const od_scalar_spec& scalar = kernel->spec->scalars[i];
      for (uint32_t code = 0; scalar.type == OD_SCALAR_FUNCTION && code <= scalar.high; ++code) {
        const od_function_spec& function = scalar.functions[code];
        if (function.digest != 0) everything.push_back({kernel, UINT32_MAX, &function});
      }
    }
  }
  SuperKernel program({memory.data(), column, row}, device, std::move(everything));
  std::vector<uint64_t> cycles;
  while (cycles.size() < most) {
    const Action action = program.resume();
    if (action.kind == Action::Kind::kCompute) cycles.push_back(action.cycles);
    if (action.kind == Action::Kind::kRelease && action.lock == params::kParametersEmpty) break;
  }
  return cycles;
}

}  // namespace onedispatch
