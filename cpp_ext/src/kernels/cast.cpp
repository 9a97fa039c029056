// SPDX-License-Identifier: Apache-2.0
// od::cast: elements of one type to elements of another, over a box of rank 5.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernel.h"
#include "onedispatch/kernel_tables.h"
#include "simd/simd.h"
#include "strided.h"

namespace onedispatch::kernels {

namespace {

constexpr int64_t kShort = 64;       // elements of a run that are not worth a conversion by themselves
constexpr int64_t kMostBetween = 3;  // results that only fill up a word, with zeros

bool is_half(uint32_t dtype) { return dtype == params::dtype::bf16 || dtype == params::dtype::f16; }

// Integers wrap; floats are cut towards zero, then wrap. What no integer of 64 bits is, is the nearest one.
template <class From, class To>
To converted(From value) {
  if constexpr (std::is_same_v<From, float> && !std::is_same_v<To, float>) {
    constexpr float kLimit = 9223371487098961920.0f;  // the last float below 2^63
    if (value != value) return 0;
    return static_cast<To>(static_cast<int64_t>(std::min(std::max(value, -kLimit), kLimit)));
  } else {
    return static_cast<To>(value);
  }
}

// Calls body with a value of the C++ type that holds elements of `dtype` in computations.
template <class Body>
void with_type(uint32_t dtype, Body body) {
  switch (dtype) {
    case params::dtype::i8: body(int8_t{}); break;
    case params::dtype::u8:
    case params::dtype::boolean: body(uint8_t{}); break;
    case params::dtype::i16: body(int16_t{}); break;
    case params::dtype::u16: body(uint16_t{}); break;
    case params::dtype::i32: body(int32_t{}); break;
    case params::dtype::u32: body(uint32_t{}); break;
    case params::dtype::i64: body(int64_t{}); break;
    default: body(float{}); break;
  }
}

class Cast final : public Kernel {
 public:
  explicit Cast(const Setup& setup)
      : from_(setup.operands[params::cast::operand::x0]),
        to_(setup.operands[params::cast::operand::out].dtype),
        strided_(setup, 1, params::cast::operand::out) {}

  void check(const Call& call) const override { strided_.check(call); }

  void run(const Call& call) const override {
    switch (od_dtypes[from_.dtype].bytes) {
      case 1: walk<uint8_t>(call); break;
      case 2: walk<uint16_t>(call); break;
      case 8: walk<Wide>(call); break;
      default: walk<uint32_t>(call); break;
    }
  }

 private:
  template <class T>
  void walk(const Call& call) const;
  void convert(const void* x, uint8_t* out, int n) const;

  Operand from_;
  uint32_t to_;
  Strided strided_;
};

// At most kBlock elements. Those of 64 bits go through blocks too: chunks begin with words only.
void Cast::convert(const void* x, uint8_t* out, int n) const {
  float wide[kBlock], rounded[kBlock];
  int64_t longs[kBlock], made[kBlock];
  const auto count = static_cast<size_t>(n);
  if (is_half(from_.dtype)) {
    simd().widen(from_.dtype, x, wide, count);
    x = wide;
  }
  if (from_.dtype == params::dtype::i64) x = std::memcpy(longs, x, count * sizeof *longs);
  uint8_t* target = is_half(to_)                    ? reinterpret_cast<uint8_t*>(rounded)
                    : to_ == params::dtype::i64 ? reinterpret_cast<uint8_t*>(made)
                                                    : out;
  with_type(from_.dtype, [&](auto source) {
    with_type(to_, [&](auto result) {
      const auto* values = static_cast<const decltype(source)*>(x);
      auto* results = reinterpret_cast<decltype(result)*>(target);
      if (to_ == params::dtype::boolean) {
        for (int i = 0; i < n; ++i) target[i] = values[i] != 0;
      } else {
        for (int i = 0; i < n; ++i) results[i] = converted<decltype(source), decltype(result)>(values[i]);
      }
    });
  });
  if (is_half(to_)) simd().narrow(to_, rounded, out, count);
  if (to_ == params::dtype::i64) std::memcpy(out, made, count * sizeof *made);
}

template <class T>
void Cast::walk(const Call& call) const {
  Box own;
  const Box& box = strided_.box(call, own);
  const T* chunk = reinterpret_cast<const T*>(from_.in(call));
  const int64_t n = box.size[kDims - 1], stride = box.along_run(0);
  const uint32_t bytes = od_dtypes[to_].bytes;
  if (n < kShort) {
    return for_runs_together(box, strided_.bases(call), &chunk, 1, kMostBetween, [&](const T* const* x, int64_t to, int64_t count) {
      convert(x[0], call.out + to * bytes, static_cast<int>(count));
    });
  }
  for_each_run(box, strided_.bases(call), [&](const Bases& from, int64_t to) {
    T gathered[kBlock];
    for (int64_t at = 0; at < n; at += kBlock) {
      const int count = static_cast<int>(std::min<int64_t>(kBlock, n - at));
      const T* x = chunk + from[0] + at * stride;
      if (stride == 0) std::fill(gathered, gathered + count, *x);
      if (stride > 1) gather(x, stride, gathered, count);
      convert(stride == 1 ? x : gathered, call.out + (to + at) * bytes, count);
    }
  });
}

}  // namespace

ONEDISPATCH_KERNEL(cast, make<Cast>)

}  // namespace onedispatch::kernels
