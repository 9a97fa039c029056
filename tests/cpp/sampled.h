// SPDX-License-Identifier: Apache-2.0
// How many random cases a test takes.
#pragma once

#include <cstddef>
#include <cstdlib>

namespace onedispatch {

// Whether a quarter of the cases is enough: under a sanitizer, where each takes several times as long. The release
// build has taken all of them, and `make nightly` takes all of them here too.
inline bool takes_quarter() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return std::getenv("ONEDISPATCH_NIGHTLY") == nullptr;
#else
  return false;
#endif
}

// Of `count` random cases, how many are taken: the first.
template <class Number>
Number sampled(Number count) { return takes_quarter() ? (count + 3) / 4 : count; }

// Whether case `number` of a table is taken: every fourth.
inline bool is_sampled(size_t number) { return !takes_quarter() || number % 4 == 0; }

}  // namespace onedispatch
