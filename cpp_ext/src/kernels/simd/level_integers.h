// SPDX-License-Identifier: Apache-2.0
// Element-wise integers, in their own width: they wrap. Plain loops; the compiler makes vectors of this
// level's width of them.
namespace onedispatch::kernels::OD_LEVEL {

// Calls body with a value of the integer type that `dtype` names.
template <class Body>
OD_INLINE void with_integer(uint32_t dtype, Body body) {
  switch (dtype) {
    case params::dtype::i8: body(int8_t{}); break;
    case params::dtype::u8: body(uint8_t{}); break;
    case params::dtype::i16: body(int16_t{}); break;
    case params::dtype::u16: body(uint16_t{}); break;
    case params::dtype::i32: body(int32_t{}); break;
    case params::dtype::u32: body(uint32_t{}); break;
    default: break;
  }
}

// y[i] = f(a[i], b[i]); where sa or sb is 0, one value for all.
template <class T, class To, class Fn>
static void map_elements(const void* a, int sa, const void* b, int sb, To* out, size_t n, Fn f) {
  const T* p = static_cast<const T*>(a);
  const T* q = static_cast<const T*>(b);
  if (n == 0) return;
  const T p0 = p[0], q0 = q[0];
  if (sa != 0 && sb != 0) {
#pragma omp simd
    for (size_t i = 0; i < n; ++i) out[i] = f(p[i], q[i]);
  } else if (sa != 0) {
#pragma omp simd
    for (size_t i = 0; i < n; ++i) out[i] = f(p[i], q0);
  } else if (sb != 0) {
#pragma omp simd
    for (size_t i = 0; i < n; ++i) out[i] = f(p0, q[i]);
  } else {
    const To value = f(p0, q0);
    for (size_t i = 0; i < n; ++i) out[i] = value;
  }
}

// Towards zero. What has no quotient gives zero, and the least number by -1 wraps to itself.
template <class T>
OD_INLINE T quotient(T p, T q) {
  if (q == 0) return 0;
  if constexpr (static_cast<T>(-1) < 0) {
    if (q == -1) return static_cast<T>(std::make_unsigned_t<T>{0} - static_cast<std::make_unsigned_t<T>>(p));
  }
  return static_cast<T>(p / q);
}

// By squares, and it wraps. Below an exponent of 0: towards zero, what has no inverse gives zero.
template <class T>
OD_INLINE T power(T p, T q) {
  uint32_t result = 1, square = static_cast<uint32_t>(p), bits = static_cast<uint32_t>(q);
  if (q < 0) {
    if (p != 1 && static_cast<T>(p + 1) != 0) return 0;
    bits &= 1;  // its inverse is itself
  }
  for (; bits != 0; bits >>= 1, square *= square) result *= (bits & 1) != 0 ? square : 1u;
  return static_cast<T>(result);
}

static void binary_int(uint32_t func, uint32_t dtype, const void* a, int sa, const void* b, int sb, void* y, size_t n) {
  namespace fn = params::eltwise_func;
  with_integer(dtype, [&](auto element) {
    using T = decltype(element);
    using Bits = std::make_unsigned_t<T>;
    const auto map = [&](auto f) { map_elements<T>(a, sa, b, sb, static_cast<T*>(y), n, f); };
    const auto wrapping = [&](auto f) {
      map_elements<Bits>(a, sa, b, sb, static_cast<Bits*>(y), n, [&](Bits p, Bits q) { return static_cast<Bits>(f(uint32_t{p}, uint32_t{q})); });
    };
    switch (static_cast<fn::Code>(func)) {
      case fn::add_: wrapping([](uint32_t p, uint32_t q) { return p + q; }); break;
      case fn::sub_: wrapping([](uint32_t p, uint32_t q) { return p - q; }); break;
      case fn::mul_: wrapping([](uint32_t p, uint32_t q) { return p * q; }); break;
      case fn::div_: map([](T p, T q) { return quotient(p, q); }); break;
      case fn::max_: map([](T p, T q) { return p < q ? q : p; }); break;
      case fn::min_: map([](T p, T q) { return q < p ? q : p; }); break;
      case fn::prelu_: map([](T p, T q) { return p < 0 ? static_cast<T>(uint32_t(p) * uint32_t(q)) : p; }); break;
      case fn::ipow_: map([](T p, T q) { return power(p, q); }); break;
      case fn::copy_:
      case fn::muladd_:
      case fn::fill_:
      case fn::pow_: break;  // copied and filled elsewhere; the others are for floats
    }
  });
}

// Towards zero, and it wraps; beyond 2^62, where a parameter is no number for integers, zero.
template <class T>
OD_INLINE T truncated(double v) {
  const double most = 4611686018427387904.0;
  return static_cast<T>(static_cast<int64_t>(v > -most && v < most ? v : 0.0));
}

static void unary_int(uint32_t code, float alpha, float beta, uint32_t dtype, const void* x, void* y, size_t n) {
  namespace act = params::activation;
  with_integer(dtype, [&](auto element) {
    using T = decltype(element);
    using Bits = std::make_unsigned_t<T>;
    const auto map = [&](auto f) {
      const T* from = static_cast<const T*>(x);
      T* to = static_cast<T*>(y);
#pragma omp simd
      for (size_t i = 0; i < n; ++i) to[i] = f(from[i]);
    };
    const auto negative = [](T v) { return static_cast<T>(static_cast<Bits>(Bits{0} - static_cast<Bits>(v))); };
    if (code == act::relu_) map([](T v) { return v < 0 ? T{0} : v; });
    if (code == act::neg_) map(negative);
    if (code == act::sign_) map([](T v) { return static_cast<T>((v > 0) - (v < 0)); });
    if (code == act::shrink_) {
      const double a = alpha, b = beta;
      map([&](T v) { return v < -a ? truncated<T>(v + b) : v > a ? truncated<T>(v - b) : T{0}; });
    }
    if (code == act::abs_) map([&](T v) { return v < 0 ? negative(v) : v; });
  });
}

}  // namespace onedispatch::kernels::OD_LEVEL
