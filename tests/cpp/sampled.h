// SPDX-License-Identifier: Apache-2.0
// How many random cases a test takes.
#pragma once

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

}  // namespace onedispatch
