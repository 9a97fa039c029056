// SPDX-License-Identifier: Apache-2.0
// What the targets share. A target returns normally or throws one of the typed errors; anything else
// ends the fuzzer with the input that did it.
#pragma once
#include <memory>
#include <string>

#include "mutate.h"
#include "onedispatch/errors.h"
#include "sim/control/controller.h"

namespace onedispatch::fuzz {

template <typename Work>
void expect_typed_errors(const Work& work) {
  try {
    work();
  } catch (const TransactionError&) {
  } catch (const SimulationError&) {
  } catch (const DeviceError&) {
  } catch (const ContainerError&) {
  }
}

// Everything on one thread, and an early end for what makes no progress.
inline sim::Options small_options() {
  sim::Options options;
  options.threads = 1;
  options.event_limit = 20'000;
  return options;
}

// Makes libFuzzer change inputs that are transactions operation by operation.
#define ONEDISPATCH_FUZZ_TRANSACTIONS                                                                      \
  extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t limit, unsigned seed) {     \
    using namespace onedispatch::fuzz;                                                                     \
    Random random(seed);                                                                                   \
    return replaced(data, limit, mutated(Bytes(data, data + size), limit, random));                        \
  }                                                                                                        \
  extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* one, size_t one_size, const uint8_t* two,     \
                                              size_t two_size, uint8_t* out, size_t limit, unsigned seed) { \
    using namespace onedispatch::fuzz;                                                                     \
    Random random(seed);                                                                                   \
    return replaced(out, limit,                                                                            \
                    crossed(Bytes(one, one + one_size), Bytes(two, two + two_size), limit, random));       \
  }

// Copies `bytes` to `out`; how many.
inline size_t replaced(uint8_t* out, size_t limit, const Bytes& bytes) {
  const size_t size = std::min(limit, bytes.size());
  std::copy_n(bytes.begin(), size, out);
  return size;
}

}  // namespace onedispatch::fuzz
