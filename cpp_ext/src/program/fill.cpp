// SPDX-License-Identifier: Apache-2.0
#include "fill.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "../kernels/simd/simd.h"
#include "onedispatch/kernel_tables.h"
#include "operation.h"

namespace onedispatch {

namespace {

// The bytes of `value` as an element; integers are those that the declaration accepts.
void encode(uint32_t dtype, double value, uint8_t* element) {
  const bool is_float = dtype == OD_DTYPE_F32 || dtype == OD_DTYPE_BF16 || dtype == OD_DTYPE_F16;
  uint32_t word = 0;
  if (is_float) {
    const auto narrow = static_cast<float>(value);
    std::memcpy(&word, &narrow, sizeof word);
  } else {
    word = static_cast<uint32_t>(static_cast<int64_t>(value));
  }
  if (od_dtypes[dtype].bytes == sizeof word) {
    std::memcpy(element, &word, sizeof word);
  } else {
    kernels::simd().narrow(dtype, &word, element, 1);
  }
}

}  // namespace

Fill::Fill(const od_setup& setup, uint32_t operand) : operand_(operand), lies_(setup.operands[operand]), bytes_(od_dtypes[lies_.dtype].bytes) {
  if (!std::isnan(lies_.fill)) encode(lies_.dtype, lies_.fill, element_);
}

void Fill::operator()(const od_call& call) const {
  uint8_t* const chunk = call.operand[operand_];
  size_t elements = 1;  // row-major, as every out chunk
  for (uint32_t i = 0; i < lies_.n_axes; ++i) elements *= static_cast<size_t>(lies_.axes[i].chunk);
  const size_t bytes = elements * bytes_;
  std::memcpy(chunk, element_, bytes_);
  for (size_t done = bytes_; done < bytes; done *= 2) std::memcpy(chunk + done, chunk, std::min(done, bytes - done));
  if (lies_.n_axes == 0 || lies_.axes[lies_.n_axes - 1].padding == 0) return;
  // Of padded rows the innermost axis has what fills up the words.
  const od_axis& axis = lies_.axes[lies_.n_axes - 1];
  const int64_t member = axis.along == OD_ALONG_NOTHING ? 0 : call.origin[axis.along];
  const auto row = static_cast<size_t>(axis.chunk);
  const int64_t inside = std::max<int64_t>(axis.extent - axis.padding - chunk_begin(axis, member), 0);
  const size_t kept = std::min(row, static_cast<size_t>(inside));
  for (size_t at = 0; at < elements; at += row) std::memset(chunk + (at + kept) * bytes_, 0, (row - kept) * bytes_);
}

std::shared_ptr<const std::vector<Fill>> fills_of(const od_setup& setup) {
  std::vector<Fill> fills;
  for (uint32_t i = 0; i < setup.spec->n_operands; ++i) {
    if (is_filled(setup, i)) fills.emplace_back(setup, i);
  }
  return fills.empty() ? nullptr : std::make_shared<const std::vector<Fill>>(std::move(fills));
}

}  // namespace onedispatch
