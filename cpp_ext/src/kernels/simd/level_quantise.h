// SPDX-License-Identifier: Apache-2.0
// Floats as integers of a scale and a zero point, and back; sums and products of such integers. Of plain loops the
// compiler makes vectors of this level's width. Sums of products are rounded once, so every level gives the same bits.
namespace onedispatch::kernels::OD_LEVEL {

// saturate(round to even(x / scale) + zero). The quotient is kept within what `zero` leaves of T before it is rounded:
// NaN, which is no more than the least, becomes the least.
template <class T>
OD_INLINE T quantised(float x, float scale, T zero) {
  const float shift = zero;
  const float low = static_cast<float>(std::numeric_limits<T>::min()) - shift, high = static_cast<float>(std::numeric_limits<T>::max()) - shift;
  float quotient = x / scale;
  quotient = quotient > low ? quotient : low;
  quotient = quotient < high ? quotient : high;
  return static_cast<T>(static_cast<int32_t>(((quotient + kWhole) - kWhole) + shift));
}

// (x - zero) * scale; the difference, of 32 bits, wraps.
template <class T>
OD_INLINE float dequantised(T x, float scale, T zero) {
  const uint32_t difference = static_cast<uint32_t>(static_cast<int32_t>(x)) - static_cast<uint32_t>(static_cast<int32_t>(zero));
  return static_cast<float>(static_cast<int32_t>(difference)) * scale;
}

// y[i] = f(x[i], scale[i], zero[i]); where a step is 0, one value for all.
template <class From, class Zero, class To, class Fn>
static void map_scaled(const From* x, int sx, const float* scale, int ss, const Zero* zero, int sz, To* y, size_t n, Fn f) {
  if (n == 0) return;
  const float one = scale[0];
  const Zero same = zero[0];
  if (sx != 0 && ss == 0 && sz == 0) {
#pragma omp simd
    for (size_t i = 0; i < n; ++i) y[i] = f(x[i], one, same);
  } else if (sx != 0 && ss != 0 && sz == 0) {
#pragma omp simd
    for (size_t i = 0; i < n; ++i) y[i] = f(x[i], scale[i], same);
  } else if (sx != 0 && ss != 0) {
#pragma omp simd
    for (size_t i = 0; i < n; ++i) y[i] = f(x[i], scale[i], zero[i]);
  } else {
    for (size_t i = 0; i < n; ++i) y[i] = f(x[sx != 0 ? i : 0], scale[ss != 0 ? i : 0], zero[sz != 0 ? i : 0]);
  }
}

static void quantise(uint32_t dtype, const float* x, int sx, const float* scale, int ss, const void* zero, int sz, void* y, size_t n) {
  with_integer(dtype, [&](auto element) {
    using T = decltype(element);
    if constexpr (sizeof(T) < 4) {
      const T none = 0;
      const T* zeros = zero == nullptr ? &none : static_cast<const T*>(zero);
      map_scaled(x, sx, scale, ss, zeros, sz, static_cast<T*>(y), n, [](float value, float by, T shift) { return quantised<T>(value, by, shift); });
    }
  });
}

static void dequantise(uint32_t dtype, const void* x, int sx, const float* scale, int ss, const void* zero, int sz, float* y, size_t n) {
  with_integer(dtype, [&](auto element) {
    using T = decltype(element);
    const T none = 0;
    const T* zeros = zero == nullptr ? &none : static_cast<const T*>(zero);
    map_scaled(static_cast<const T*>(x), sx, scale, ss, zeros, sz, y, n, [](T value, float by, T shift) { return dequantised<T>(value, by, shift); });
  });
}

// The product of two f32 is a double, and no quotient that is not half an odd number becomes one when it is rounded.
template <class T>
static void shares_as(const float* x, double factor, double sum, double zero, T* y, size_t n) {
  constexpr double kWholeWide = 6755399441055744.0;  // 1.5 * 2^52, as kWhole
  const double low = std::numeric_limits<T>::min() - zero, high = std::numeric_limits<T>::max() - zero;
#pragma omp simd
  for (size_t i = 0; i < n; ++i) {
    double quotient = x[i] * factor / sum;
    quotient = quotient > low ? quotient : low;
    quotient = quotient < high ? quotient : high;
    y[i] = static_cast<T>(static_cast<int32_t>(((quotient + kWholeWide) - kWholeWide) + zero));
  }
}

static void shares(uint32_t dtype, const float* x, float factor, float sum, int32_t zero, void* y, size_t n) {
  if (dtype == params::dtype::i8) {
    shares_as(x, factor, sum, zero, static_cast<int8_t*>(y), n);
  } else {
    shares_as(x, factor, sum, zero, static_cast<uint8_t*>(y), n);
  }
}

// a * b + c, rounded once at every level, as fused(F, F, F) is.
OD_INLINE float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

// y[i] = f(a[i], b[i]), by vectors of whole numbers; where a step is 0, one value for all.
template <class T, class Fn>
static void map_pairs(const Combine& c, Fn f) {
  const T* a = static_cast<const T*>(c.a);
  const T* b = static_cast<const T*>(c.b);
  T* y = static_cast<T*>(c.y);
  const size_t n = c.n;  // bytes may be those of `c`: no compiler keeps what it reads there
  const bool many_a = c.step_a != 0, many_b = c.step_b != 0;
  if (n == 0) return;
  const I one_a = splat_i(a[0]), one_b = splat_i(b[0]);
  using Narrow = Vector<T>;
  const auto put = [&](size_t i, auto copy) {
    Narrow p{}, q{};
    if (many_a) copy(a + i, &p);
    if (many_b) copy(b + i, &q);
    const Narrow found = converted<T>(f(many_a ? converted<int32_t>(p) : one_a, many_b ? converted<int32_t>(q) : one_b));
    copy(&found, y + i);
  };
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) put(i, [](const void* from, void* to) { __builtin_memcpy(to, from, sizeof(Narrow)); });
  if (i < n) put(i, [left = (n - i) * sizeof(T)](const void* from, void* to) { copy_few<sizeof(Narrow) / 2>(from, to, left); });
}

// Floats rounded to even, then `zero` added, within what T has.
template <class T>
struct Placed {
  int32_t zero;
  float low = static_cast<float>(std::numeric_limits<T>::min() - zero), high = static_cast<float>(std::numeric_limits<T>::max() - zero);

  [[gnu::always_inline]] T operator()(float v) const {
    v = v > low ? v : low;
    v = v < high ? v : high;
    return static_cast<T>(static_cast<int32_t>((v + kWhole) - kWhole) + zero);
  }
};

// 16 bits: differences from zero points are exact floats, and the sum or product of them is rounded to a whole number
// before the result's zero point is added, so that no bits are lost to that.
template <class T>
static void combine_wide(const Combine& c) {
  const F first = splat(c.first), second = splat(c.second);
  const I zero_a = splat_i(c.zero_a), zero_b = splat_i(c.zero_b);
  const Rounding how = rounding_to<T>(Placed<T>{0}(c.shift));
  if (c.product) {
    map_pairs<T>(c, [&](I a, I b) { return rounded(as_floats(a - zero_a) * as_floats(b - zero_b) * first, how); });
  } else {
    map_pairs<T>(c, [&](I a, I b) { return rounded(fused(as_floats(a - zero_a), first, as_floats(b - zero_b) * second), how); });
  }
}

template <class T>
static void combine_as(const Combine& c) {
  const F first = splat(c.first), second = splat(c.second), shift = splat(c.shift);
  const Rounding how = rounding_to<T>(0);
  if (!c.product) {
    map_pairs<T>(c, [&](I a, I b) { return rounded(fused(as_floats(a), first, fused(as_floats(b), second, shift)), how); });
    return;
  }
  // Kept within what `shift` leaves of T before that is added: no compiler makes one operation of the two.
  const F low = how.low - shift, high = how.high - shift;
  const I zero_a = splat_i(c.zero_a), zero_b = splat_i(c.zero_b);
  map_pairs<T>(c, [&](I a, I b) {
    F v = as_floats((a - zero_a) * (b - zero_b)) * first;
    v = select(v > low, v, low);
    v = select(v < high, v, high);
    return rounded(v + shift, how);
  });
}

static void combine(const Combine& c) {
  with_integer(c.dtype, [&](auto element) {
    if constexpr (sizeof(element) == 1) combine_as<decltype(element)>(c);
    if constexpr (sizeof(element) == 2) combine_wide<decltype(element)>(c);
  });
}

// Of eight bytes at a time: no store before the loads of the next ones.
static void look_up(const uint8_t* entries, const uint8_t* x, uint8_t* y, size_t n) {
  size_t i = 0;
#if OD_VBMI
  if (__builtin_cpu_supports("avx512vbmi")) i = look_up_vectors(entries, x, y, n);
#endif
  for (; i + 8 <= n; i += 8) {
    uint8_t found[8];
#pragma GCC unroll 8
    for (size_t j = 0; j < 8; ++j) found[j] = entries[x[i + j]];
    __builtin_memcpy(y + i, found, sizeof found);
  }
  for (; i < n; ++i) y[i] = entries[x[i]];
}

}  // namespace onedispatch::kernels::OD_LEVEL
