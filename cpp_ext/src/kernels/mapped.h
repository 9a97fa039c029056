// SPDX-License-Identifier: Apache-2.0
// Functions of neighbours over a box, where operands are of several widths.
#pragma once
#include <algorithm>
#include <cstring>

#include "kernel.h"
#include "onedispatch/kernel_tables.h"
#include "strided.h"

namespace onedispatch::kernels {

// The inputs of a call run by run: `body(inputs, steps, out, n)` gets n neighbours of each, or one value
// where the step is 0, at multiples of their size. What lies apart is gathered before.
class Mapped {
 public:
  Mapped(const Setup& setup, int n_in, uint32_t out)
      : n_in_(static_cast<size_t>(n_in)), out_bytes_(od_dtypes[setup.operands[out].dtype].bytes), strided_(setup, n_in, out) {
    for (size_t i = 0; i < n_in_; ++i) {
      input_[i] = setup.operands[i];
      bytes_[i] = od_dtypes[input_[i].dtype].bytes;
    }
  }

  void check(const Call& call) const { strided_.check(call); }

  template <class Body>
  void run(const Call& call, Body body) const;

 private:
  // Elements of 64 bits lie at multiples of four bytes, as all chunks: they are always copied.
  static constexpr uint32_t kLargest = 8;
  // Elements of an input from `x` on, as `body` may read them.
  static const void* neighbours(const uint8_t* x, uint32_t bytes, int64_t stride, uint8_t* room, int count);

  size_t n_in_;
  uint32_t out_bytes_;
  std::array<uint32_t, kInputs> bytes_{};
  std::array<Operand, kInputs> input_;
  Strided strided_;
};

inline const void* Mapped::neighbours(const uint8_t* x, uint32_t bytes, int64_t stride, uint8_t* room, int count) {
  if (stride <= 1 && bytes < kLargest) return x;
  if (stride <= 1) return std::memcpy(room, x, static_cast<size_t>(stride == 0 ? 1 : count) * bytes);
  switch (bytes) {
    case 1: gather(x, stride, room, count); break;
    case 2: gather(reinterpret_cast<const uint16_t*>(x), stride, reinterpret_cast<uint16_t*>(room), count); break;
    case 4: gather(reinterpret_cast<const uint32_t*>(x), stride, reinterpret_cast<uint32_t*>(room), count); break;
    default: gather(reinterpret_cast<const Wide*>(x), stride, reinterpret_cast<Wide*>(room), count); break;
  }
  return room;
}

template <class Body>
void Mapped::run(const Call& call, Body body) const {
  Box own;
  const Box& box = strided_.box(call, own);
  const int64_t n = box.size[kDims - 1];
  int steps[kInputs] = {};
  bool blocks = out_bytes_ == kLargest;
  for (size_t i = 0; i < n_in_; ++i) {
    const int64_t stride = box.along_run(static_cast<int>(i));
    steps[i] = stride != 0;
    blocks = blocks || stride > 1 || bytes_[i] == kLargest;
  }
  const int64_t most = blocks ? kBlock : std::max<int64_t>(n, 1);
  for_each_run(box, strided_.bases(call), [&](const Bases& from, int64_t to) {
    alignas(64) uint8_t room[kInputs + 1][kBlock * kLargest];
    for (int64_t at = 0; at < n; at += most) {
      const int count = static_cast<int>(std::min(most, n - at));
      const void* x[kInputs] = {};
      for (size_t i = 0; i < n_in_; ++i) {
        const int64_t stride = box.along_run(static_cast<int>(i));
        x[i] = neighbours(input_[i].in(call) + (from[i] + at * stride) * bytes_[i], bytes_[i], stride, room[i], count);
      }
      uint8_t* const out = call.out + (to + at) * out_bytes_;
      if (out_bytes_ < kLargest) {
        body(x, steps, out, static_cast<size_t>(count));
        continue;
      }
      body(x, steps, room[kInputs], static_cast<size_t>(count));
      std::memcpy(out, room[kInputs], static_cast<size_t>(count) * out_bytes_);
    }
  });
}

}  // namespace onedispatch::kernels
