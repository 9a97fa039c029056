// SPDX-License-Identifier: Apache-2.0
// od::quantise, od::dequantise: floats as integers of a scale and a zero point, and back, element by element.
#include "mapped.h"
#include "simd/simd.h"
#include "words.h"

namespace onedispatch::kernels {

namespace {

// Elements from `at` on as floats: where they lie, or widened. A step of 0 is one value for all.
const float* floats(uint32_t dtype, const void* x, int step, size_t at, size_t count, float* room) {
  const uint8_t* from = static_cast<const uint8_t*>(x) + (step != 0 ? at : 0) * element_bytes(dtype);
  if (is_word(dtype)) return reinterpret_cast<const float*>(from);
  simd().widen(dtype, from, room, step != 0 ? count : 1);
  return room;
}

// Zero points from `at` on; nullptr where there are none.
const void* zeros(uint32_t dtype, const void* zero, int step, size_t at) {
  if (zero == nullptr) return nullptr;
  return static_cast<const uint8_t*>(zero) + (step != 0 ? at : 0) * element_bytes(dtype);
}

class Quantise final : public Kernel {
 public:
  explicit Quantise(const Setup& setup)
      : from_(setup.operands[params::quantise::operand::x0].dtype),
        scales_(setup.operands[params::quantise::operand::x1].dtype),
        to_(setup.operands[params::quantise::operand::out].dtype),
        precision_(setup.scalars[params::quantise::scalar::precision]),
        mapped_(setup, setup.operands[params::quantise::operand::x2].present ? 3 : 2, params::quantise::operand::out) {}

  void check(const Call& call) const override { mapped_.check(call); }

  void run(const Call& call) const override {
    mapped_.run(call, [&](const void* const* x, const int* steps, uint8_t* out, size_t n) {
      float wide[kBlock], by[kBlock];
      for (size_t at = 0; at < n; at += kBlock) {
        const size_t count = std::min<size_t>(kBlock, n - at);
        const float* values = floats(from_, x[0], steps[0], at, count, wide);
        const float* scale = floats(scales_, x[1], steps[1], at, count, by);
        uint8_t* to = out + at * element_bytes(to_);
        if (precision_ == params::dtype::f32) {
          simd().quantise(to_, values, steps[0], scale, steps[1], zeros(to_, x[2], steps[2], at), steps[2], to, count);
        } else {
          rounded(values, steps[0], scale, steps[1], zeros(to_, x[2], steps[2], at), steps[2], to, count);
        }
      }
    });
  }

 private:
  // Floats as a narrower type has them, in `room`: `values` itself where they come from that type.
  const float* as_narrow(uint32_t from, const float* values, size_t n, float* room) const {
    if (from == precision_) return values;
    uint16_t narrow[kBlock];
    simd().narrow(precision_, values, narrow, n);
    simd().widen(precision_, narrow, room, n);
    return room;
  }

  // The same in a narrower type: elements, scales and quotients.
  void rounded(const float* x, int sx, const float* scale, int ss, const void* zero, int sz, void* y, size_t n) const {
    float dividends[kBlock], divisors[kBlock], quotients[kBlock];
    const float one = 1.0f;
    x = as_narrow(from_, x, sx != 0 ? n : 1, dividends);
    scale = as_narrow(scales_, scale, ss != 0 ? n : 1, divisors);
    simd().binary(params::eltwise_func::div_, x, sx, scale, ss, quotients, n);
    as_narrow(params::dtype::f32, quotients, n, quotients);
    simd().quantise(to_, quotients, 1, &one, 0, zero, sz, y, n);
  }

  uint32_t from_, scales_, to_, precision_;
  Mapped mapped_;
};

class Dequantise final : public Kernel {
 public:
  explicit Dequantise(const Setup& setup)
      : from_(setup.operands[params::dequantise::operand::x0].dtype),
        scales_(setup.operands[params::dequantise::operand::x1].dtype),
        to_(setup.operands[params::dequantise::operand::out].dtype),
        activation_(setup, params::dequantise::scalar::act),
        mapped_(setup, setup.operands[params::dequantise::operand::x2].present ? 3 : 2, params::dequantise::operand::out) {}

  void check(const Call& call) const override { mapped_.check(call); }

  void run(const Call& call) const override {
    mapped_.run(call, [&](const void* const* x, const int* steps, uint8_t* out, size_t n) {
      float by[kBlock], made[kBlock];
      for (size_t at = 0; at < n; at += kBlock) {
        const size_t count = std::min<size_t>(kBlock, n - at);
        const float* scale = floats(scales_, x[1], steps[1], at, count, by);
        uint8_t* to = out + at * element_bytes(to_);
        float* results = is_word(to_) ? reinterpret_cast<float*>(to) : made;
        simd().dequantise(from_, zeros(from_, x[0], steps[0], at), steps[0], scale, steps[1], zeros(from_, x[2], steps[2], at), steps[2], results, count);
        activation_.apply(results, count);
        if (!is_word(to_)) simd().narrow(to_, made, to, count);
      }
    });
  }

 private:
  uint32_t from_, scales_, to_;
  Activation activation_;
  Mapped mapped_;
};

}  // namespace

ONEDISPATCH_KERNEL(quantise, make<Quantise>)
ONEDISPATCH_KERNEL(dequantise, make<Dequantise>)

}  // namespace onedispatch::kernels
