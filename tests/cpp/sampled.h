// SPDX-License-Identifier: Apache-2.0
// How many random cases a test takes.
#pragma once

#include <cstddef>
#include <cstdlib>

namespace onedispatch {

// `count`, but the first quarter under a sanitizer, where each takes several times as long: the release build has
// taken all of them, and `make nightly` takes all of them here too.
inline int sampled(int count) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return std::getenv("ONEDISPATCH_NIGHTLY") ? count : (count + 3) / 4;
#else
  return count;
#endif
}

// Whether case `number` of a table is among as many of them.
inline bool is_sampled(size_t number) { return sampled(4) == 4 || number % 4 == 0; }

}  // namespace onedispatch
