// SPDX-License-Identifier: Apache-2.0
// Whole operators in many threads at once: their kernels run on the workers that all of them share.
#include <atomic>
#include <thread>

#include "operator_case.h"
#include "../sampled.h"

namespace onedispatch::operator_tests {
namespace {

TEST(OperatorThreads, ManyRunAtOnceAndAgree) {
  constexpr size_t kThreads = 8, kRounds = 2;
  for (const char* const op_type : {"MatMul", "Conv", "Softmax"}) {
    size_t number = 0;
    each_case(op_type, [&number](const OperatorCase& one) {
      if (!is_sampled(number++)) return;
      const Tensor expected = one.run();
      std::atomic<size_t> equal{0};
      std::vector<std::thread> threads;
      for (size_t i = 0; i < kThreads; ++i)
        threads.emplace_back([&] {
          for (size_t round = 0; round < kRounds; ++round) equal += one.run().values == expected.values;
        });
      for (std::thread& thread : threads) thread.join();
      EXPECT_EQ(equal, kThreads * kRounds);
    });
  }
}

}  // namespace
}  // namespace onedispatch::operator_tests
