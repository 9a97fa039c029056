// SPDX-License-Identifier: Apache-2.0
// Coverage of GCC for libFuzzer. GCC calls __sanitizer_cov_trace_pc() once per basic block; libFuzzer
// wants a table of 8-bit counters and their addresses. A block's slot is found by its address: no two
// blocks share one. Linked with -Wl,--wrap=__sanitizer_cov_trace_pc, as libFuzzer has a function of
// that name, which aborts. This file itself is compiled without instrumentation.
#include <cstddef>
#include <cstdint>

namespace {

constexpr size_t kSlots = size_t{1} << 17;  // several times the blocks of the simulator

// libFuzzer's layout: the address, and 1 for the entry of a function.
struct Block {
  uintptr_t address;
  uintptr_t flags;
};

Block blocks[kSlots];
uint8_t counters[kSlots];
size_t used = 0;

}  // namespace

extern "C" {

void __sanitizer_cov_8bit_counters_init(uint8_t* begin, uint8_t* end);
void __sanitizer_cov_pcs_init(const uintptr_t* begin, const uintptr_t* end);

// Targets keep everything on one thread, so plain stores do.
void __wrap___sanitizer_cov_trace_pc() {
  const auto address = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
  // Relative to this program, wherever it was loaded: the same block has the same slot in every run.
  const uintptr_t place = address - reinterpret_cast<uintptr_t>(counters);
  size_t slot = (place * 0x9E3779B97F4A7C15ull) >> (64 - 17);
  while (blocks[slot].address != address) {
    if (blocks[slot].address == 0) {
      if (used == kSlots - 1) return;
      ++used;
      blocks[slot].address = address;
      break;
    }
    slot = (slot + 1) % kSlots;
  }
  if (counters[slot] != 0xFF) ++counters[slot];
}

// GCC compares floating point numbers through these; libFuzzer has no use for them.
void __sanitizer_cov_trace_cmpf(float, float) {}
void __sanitizer_cov_trace_cmpd(double, double) {}

}  // extern "C"

namespace {

[[gnu::constructor]] void announce() {
  __sanitizer_cov_8bit_counters_init(counters, counters + kSlots);
  __sanitizer_cov_pcs_init(&blocks[0].address, &blocks[0].address + 2 * kSlots);
}

}  // namespace
