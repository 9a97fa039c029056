// SPDX-License-Identifier: Apache-2.0
// A foreign transaction without its overlay.
#include <algorithm>

#include "sim/replay/replay_simulator.h"
#include "target.h"

using namespace onedispatch;

ONEDISPATCH_FUZZ_TRANSACTIONS

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // As many columns as the transaction wants: clearing a large array takes longer than most runs.
  const bool npu1 = size > 2 && data[2] == 3;
  const unsigned columns = size > 4 ? data[4] : 1u, most = npu1 ? 3 : 7;
  const std::string name =
      (npu1 ? "npu1_" : "npu2_") + std::to_string(std::min(std::max(columns, 1u), most)) + "col";
  fuzz::expect_typed_errors([&] {
    sim::ReplaySimulator simulator(find_device(name), fuzz::small_options());
    const ReplayReport report = simulator.replay(data, size);
    if (report.finished != (report.executed == report.run.operations)) __builtin_trap();
    if (!report.finished && report.stop.empty()) __builtin_trap();
  });
  return 0;
}
