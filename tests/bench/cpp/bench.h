// SPDX-License-Identifier: Apache-2.0
// What the benchmarks share: each is registered once for every SIMD level that this processor has.
#pragma once
#include <benchmark/benchmark.h>

#include <string>
#include <utility>
#include <vector>

#include "kernels/simd/simd.h"

namespace onedispatch::benchmarks {

// `measure(state, level)` as NAME/LEVEL, on this thread. Its processor time counts, not what others do meanwhile.
template <class Measure>
void each_level(const std::string& name, const Measure& measure) {
  for (const char* level : kernels::kSimdLevels) {
    if (!kernels::use_simd(level)) continue;
    const auto on_level = [level, measure](benchmark::State& state) {
      kernels::use_simd(level);
      measure(state, level);
    };
    benchmark::RegisterBenchmark((name + "/" + level).c_str(), on_level);
  }
}

// The rate of so much work in each iteration, under the name of its unit.
inline void set_rate(benchmark::State& state, const std::string& unit, double work) {
  state.counters[unit] = benchmark::Counter(work, benchmark::Counter::kIsIterationInvariantRate);
}

void register_kernels();
// Of the cases in a folder.
void register_operators(const std::string& folder);

}  // namespace onedispatch::benchmarks
