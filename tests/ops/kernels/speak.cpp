// SPDX-License-Identifier: Apache-2.0
// test::speak@1: copies, and says so: a line per call and per element, in every format.
#include <algorithm>
#include <cstring>
#include <exception>
#include <stdexcept>

#include "onedispatch/plugin_print.h"
#include "speak_specs.h"

namespace {

struct Plan {
  od_setup setup;
};

od_status prepare(const od_setup* setup, void** made, od_error*) {
  *made = new Plan{*setup};
  return OD_OK;
}

od_status run(const void* made, const od_call* call, od_error* error) {
  const od_setup& setup = static_cast<const Plan*>(made)->setup;
  const auto print = [&](const uint32_t* member, const char* format, auto... values) {
    onedispatch::printing::print(*call, *setup.spec, member, format, values...);
  };
  uint32_t count = 1;
  for (const od_dim& dim : setup.dims) count *= dim.tile;
  const auto* x = reinterpret_cast<const float*>(call->operand[TEST_SPEAK_X]);
  std::memcpy(call->operand[TEST_SPEAK_Y], x, 4 * count);
  const uint32_t lines = setup.scalars[TEST_SPEAK_LINES];
  try {
    print(nullptr, "tile of %u: %bf %hf %f %hhd %hu %x %s %5.1f%%", count, x[0], x[0], x[0], -1, 65535, 255, "text", 12.25);
    for (uint32_t i = 0; i < lines; ++i) {
      const uint32_t member[OD_MAX_DIMS] = {call->origin[0], call->origin[1], call->origin[2], call->origin[3], call->origin[4] + i % setup.dims[4].tile};
      print(member, "line %u of %u", i, lines);
    }
    if (setup.scalars[TEST_SPEAK_FAILS] != 0) throw std::runtime_error("it was told to fail");
  } catch (const std::exception& wrong) {
    std::strncpy(error->text, wrong.what(), OD_ERROR_BYTES - 1);
    return OD_RUNTIME_FAILURE;
  }
  return OD_OK;
}

void release(void* made) { delete static_cast<Plan*>(made); }

const od_kernel speak = {&test_speak_spec, prepare, nullptr, run, release};
const od_kernel* const kernels[] = {&speak};
const od_library library = {OD_LIBRARY_HEAD, "speak", kernels, 1, nullptr, 0};

}  // namespace

extern "C" OD_EXPORT const od_library* od_kernel_library(void);
extern "C" const od_library* od_kernel_library(void) { return &library; }
