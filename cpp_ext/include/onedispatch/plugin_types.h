// SPDX-License-Identifier: Apache-2.0
// Element types of kernels in C++: float, od::bf16, od::f16, the integers of <cstdint>, bool.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "onedispatch/kernel.h"

#pragma GCC visibility push(hidden)  // two libraries may have classes of one name, each its own

namespace od {

namespace detail {

template <class To, class From>
To bits_to(From from) {
  static_assert(sizeof(To) == sizeof(From), "the same bits");
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

// Rounded to nearest, ties to even; a NaN stays one.
inline uint16_t bf16_bits(float value) {
  const uint32_t bits = bits_to<uint32_t>(value);
  if (value != value) return static_cast<uint16_t>((bits >> 16 & 0x8000u) | 0x7FC0u);
  return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

inline uint16_t f16_bits(float value) {
  const uint32_t bits = bits_to<uint32_t>(value), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u);
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);  // 65520 and more round to infinity
  if (magnitude < 0x38800000u) {  // below 2^-14: a multiple of 2^-24, which the sum with 0.5 rounds to
    const float shifted = bits_to<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (bits_to<uint32_t>(shifted) - 0x3F000000u));
  }
  const uint32_t rounded = magnitude + 0xFFFu + (magnitude >> 13 & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

inline float f16_value(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16, exponent = half >> 10 & 0x1Fu, fraction = half & 0x3FFu;
  if (exponent == 0) {
    const float value = static_cast<float>(fraction) * 5.9604644775390625e-8f;  // 2^-24
    return sign != 0 ? -value : value;
  }
  return bits_to<float>(sign | (exponent == 0x1Fu ? 0x7F800000u : (exponent + 112u) << 23) | fraction << 13);
}

}  // namespace detail

// Numbers of 16 bits that are computed with as floats: rounded when they are made, to nearest, ties to even.
struct bf16 {
  uint16_t bits;
  bf16() = default;
  bf16(float value) : bits(detail::bf16_bits(value)) {}  // NOLINT(google-explicit-constructor)
  operator float() const { return detail::bits_to<float>(static_cast<uint32_t>(bits) << 16); }  // NOLINT(google-explicit-constructor)
};

struct f16 {
  uint16_t bits;
  f16() = default;
  f16(float value) : bits(detail::f16_bits(value)) {}           // NOLINT(google-explicit-constructor)
  operator float() const { return detail::f16_value(bits); }  // NOLINT(google-explicit-constructor)
};

// T of templates, for lambdas: [](auto type) { using T = typename decltype(type)::type; ... }
template <class T>
struct Type {
  using type = T;
};

// What a kernel is written for: using types = od::Types<float, od::bf16>;
template <class... Ts>
struct Types {};

// OD_DTYPE_... of an element type.
template <class T>
constexpr uint32_t dtype_of() {
  if constexpr (std::is_same_v<T, float>) return OD_DTYPE_F32;
  else if constexpr (std::is_same_v<T, bf16>) return OD_DTYPE_BF16;
  else if constexpr (std::is_same_v<T, f16>) return OD_DTYPE_F16;
  else if constexpr (std::is_same_v<T, int8_t>) return OD_DTYPE_I8;
  else if constexpr (std::is_same_v<T, uint8_t>) return OD_DTYPE_U8;
  else if constexpr (std::is_same_v<T, int16_t>) return OD_DTYPE_I16;
  else if constexpr (std::is_same_v<T, uint16_t>) return OD_DTYPE_U16;
  else if constexpr (std::is_same_v<T, int32_t>) return OD_DTYPE_I32;
  else if constexpr (std::is_same_v<T, uint32_t>) return OD_DTYPE_U32;
  else {
    static_assert(std::is_same_v<T, bool>, "float, od::bf16, od::f16, int8_t to uint32_t, or bool");
    return OD_DTYPE_BOOL;
  }
}

// `value` rounded to nearest, ties to even, and held inside what T has; of integers.
template <class T>
T saturate(double value) {
  if (value != value) return T{0};
  const double low = static_cast<double>(std::numeric_limits<T>::min()), high = static_cast<double>(std::numeric_limits<T>::max());
  const double rounded = std::nearbyint(value);
  return static_cast<T>(rounded < low ? low : rounded > high ? high : rounded);
}

namespace detail {

// A number as an element: what is outside of an integer type's range becomes its nearest end.
template <class T>
T element(double value) {
  if constexpr (std::is_same_v<T, bool>) return value != 0;
  else if constexpr (std::is_integral_v<T>) return saturate<T>(value);
  else return T(static_cast<float>(value));
}

}  // namespace detail

}  // namespace od

#pragma GCC visibility pop
