// SPDX-License-Identifier: Apache-2.0
// Host speed at every SIMD level that this processor has, on one thread: of kernels on chunks, or of whole operators
// in recorded runs where a folder of cases is given (python -m tests.bench.levels writes them).
//   onedispatch_bench [--benchmark_filter=conv.*avx512$ ...] [FOLDER]
#include <cstdio>
#include <exception>

#include "bench.h"

int main(int argc, char** argv) {
  using namespace onedispatch::benchmarks;
  benchmark::Initialize(&argc, argv);
  if (argc > 2 || (argc == 2 && argv[1][0] == '-')) {
    benchmark::ReportUnrecognizedArguments(argc, argv);
    return 2;
  }
  try {
    if (argc == 2) {
      register_operators(argv[1]);
    } else {
      register_kernels();
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "onedispatch_bench: %s\n", error.what());
    return 2;
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
