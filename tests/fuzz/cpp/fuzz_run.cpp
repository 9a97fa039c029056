// SPDX-License-Identifier: Apache-2.0
// An ordinary run: the controller, register writes, DMAs, switches, cores and their kernels. The
// partition starts bare; seeds carry their overlay as first operations.
#include "sim/array/bytes.h"
#include "target.h"

using namespace onedispatch;

ONEDISPATCH_FUZZ_TRANSACTIONS

namespace {

constexpr uint32_t kArguments = 6, kWords = 1 << 12;

struct Stage {
  explicit Stage(const char* name) : simulator(find_device(name), fuzz::small_options(), {}) {}
  void run(const uint8_t* data, size_t size);

  std::vector<uint8_t> memory = std::vector<uint8_t>(size_t{4} * kWords);
  sim::ValidMap valid{kWords};
  sim::Simulator simulator;
};

// All arguments are the same memory: hostile transactions may name any.
void Stage::run(const uint8_t* data, size_t size) {
  valid.mark(0, kWords);
  for (uint32_t i = 0; i < kWords; ++i) sim::store32(&memory[size_t{4} * i], 0x3F800000u + (i & 0xFF));
  sim::DdrRegions regions;
  for (uint32_t i = 0; i < kArguments; ++i) {
    auto region = std::make_shared<sim::DdrRegion>();
    region->address = region->origin = 0x4000000000ull + i * 0x10000000ull;
    region->bytes = memory.size();
    region->data = memory.data();
    region->valid = &valid;
    regions.push_back(std::move(region));
  }
  fuzz::expect_typed_errors([&] { simulator.run(data, size, std::move(regions)); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Made anew each time: what a run leaves behind must not decide what the next input does.
  Stage(size > 2 && data[2] == 3 ? "npu1_1col" : "npu2_1col").run(data, size);
  return 0;
}
