// SPDX-License-Identifier: Apache-2.0
// A foreign transaction without its overlay.
#include "target.h"

using namespace onedispatch;

ONEDISPATCH_FUZZ_TRANSACTIONS

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const char* const name = size > 2 && data[2] == 3 ? "npu1_2col" : size > 4 && data[4] > 2 ? "npu2" : "npu2_2col";
  fuzz::expect_typed_errors([&] {
    sim::Simulator simulator(find_device(name), fuzz::small_options(true), {});
    const ReplayReport report = simulator.replay(data, size);
    if (report.finished != (report.executed == report.run.operations)) __builtin_trap();
    if (!report.finished && report.stop.empty()) __builtin_trap();
  });
  return 0;
}
