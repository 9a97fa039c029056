// SPDX-License-Identifier: Apache-2.0
// Functions of f32 in double precision: where a sum cancels, an exponent magnifies, or an argument is reduced,
// what is left is right to the last bit of f32. A vector has half as many lanes. Series are cut where the next
// term is below 2^-40 of the sum.
namespace onedispatch::kernels::OD_LEVEL {

using L = int64_t __attribute__((vector_size(sizeof(D))));
using UL = uint64_t __attribute__((vector_size(sizeof(D))));
using H = float __attribute__((vector_size(sizeof(D) / 2)));
constexpr int kWide = kLanes / 2;

OD_INLINE D wide(double x) { return D{} + x; }
OD_INLINE D pick(L mask, D a, D b) { return mask ? a : b; }
OD_INLINE D size_of(D x) { return (D)((UL)x & ~(uint64_t{1} << 63)); }
OD_INLINE D with_sign(D x, D sign) { return (D)(((UL)x & ~(uint64_t{1} << 63)) | ((UL)sign & (uint64_t{1} << 63))); }
OD_INLINE D nearest(D x) {  // even where it is halfway; for sizes below 2^51
  const D magic = wide(6755399441055744.0);  // 1.5 * 2^52
  return (x + magic) - magic;
}

// Of functions that begin with x: f32 has nothing else near zero, and sums lose it, or its sign.
OD_INLINE D unless_tiny(D x, D r) { return pick(size_of(x) < wide(1e-4), x, r); }

template <int N>
OD_INLINE D series(const double (&c)[N], D x) {
  D r = wide(c[N - 1]);
#pragma GCC unroll 16
  for (int i = N - 2; i >= 0; --i) r = fma_wide(r, x, wide(c[i]));
  return r;
}

OD_INLINE D exp_wide(D x) {
  constexpr double c[] = {1.0, 1.0, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800};
  x = pick(x > wide(200.0), wide(200.0), x);  // f32 has no such results; a NaN passes both
  x = pick(x < wide(-200.0), wide(-200.0), x);
  const D magic = wide(6755399441055744.0);
  const D shifted = fma_wide(x, wide(1.4426950408889634), magic);
  const UL n = (UL)shifted - (UL)magic;
  const D whole = shifted - magic;
  D r = fma_wide(whole, wide(-0.693147180369123816490), x);  // the first part has zeros for n behind it
  r = fma_wide(whole, wide(-1.90821492927058770002e-10), r);
  return series(c, r) * (D)((n + 1023) << 52);
}

OD_INLINE D log_wide(D x) {
  constexpr double c[] = {1.0, 1.0 / 3, 1.0 / 5, 1.0 / 7, 1.0 / 9, 1.0 / 11, 1.0 / 13, 1.0 / 15, 1.0 / 17};
  constexpr uint64_t half = 0x3FE6A09E667F3BCDu;  // sqrt(1/2): exponent and mantissa are relative to it
  const UL bits = (UL)x - half + (uint64_t{1024} << 52);
  const D e = (D)((bits >> 52) | 0x4330000000000000u) - wide(4503599627370496.0 + 1024);
  const D m = (D)((bits & 0x000FFFFFFFFFFFFFu) + half);
  const D s = (m - wide(1.0)) / (m + wide(1.0)), square = s * s;
  const D r = fma_wide(e, wide(0.69314718055994530942), (s + s) * series(c, square));
  const double inf = std::numeric_limits<double>::infinity();
  const D special = pick(x == wide(0.0), wide(-inf), pick(x > wide(0.0), x, wide(std::numeric_limits<double>::quiet_NaN())));
  return pick((x > wide(0.0)) & (x < wide(inf)), r, special);
}

OD_INLINE D atan_wide(D x) {
  // Of t - t^3 * P(t^2) on [0, tan(pi/8)]: fitted in float64, to 1e-12.
  constexpr double c[] = {-0.33333333300186363, 0.19999994777784802,  -0.14285439406063705, 0.11104262879947517,
                          -0.08999016985911878, 0.0700029677983763, -0.03807331407422669};
  const D size = size_of(x);
  const L large = size > wide(2.414213562373095), middle = (size > wide(0.4142135623730950)) & ~large;
  const D top = pick(large, wide(-1.0), pick(middle, size - wide(1.0), size));
  const D below = pick(large, size, pick(middle, size + wide(1.0), wide(1.0)));
  const D base = pick(large, wide(1.5707963267948966), pick(middle, wide(0.7853981633974483), wide(0.0)));
  const D t = top / below, square = t * t;
  return with_sign(base + fma_wide(t * square, series(c, square), t), x);
}

// Half turns are parted into two numbers; sizes from 2^20 on take the C library's reduction, one by one.
struct Turned {
  D r;       // in [-pi/4, pi/4]
  UL turns;  // quarter turns
};
OD_INLINE Turned turned(D x) {
  const D magic = wide(6755399441055744.0);
  const D shifted = fma_wide(x, wide(0.63661977236758134308), magic);
  const D n = shifted - magic;
  D r = fma_wide(n, wide(-1.57079632673412561417e+00), x);  // 33 bits each: products are exact
  r = fma_wide(n, wide(-6.07710050630396597660e-11), r);
  r = fma_wide(n, wide(-2.02226624879595063154e-21), r);
  return {r, (UL)shifted};
}
OD_INLINE D sine_of(D r) {
  constexpr double c[] = {-1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800};
  const D square = r * r;
  return fma_wide(r * square, series(c, square), r);
}
OD_INLINE D cosine_of(D r) {
  constexpr double c[] = {1.0, -1.0 / 2, 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800};
  return series(c, r * r);
}
template <class Fn>
OD_INLINE D beyond(D x, D r, Fn exact) {
  const L far = ~(size_of(x) < wide(1048576.0));
  for (int i = 0; i < kWide; ++i) {
    if (far[i] != 0) r[i] = exact(x[i]);
  }
  return r;
}
// sin(x + quarters * pi / 2)
OD_INLINE D sine_from(D x, uint64_t quarters) {
  const Turned t = turned(x);
  const UL turns = t.turns + quarters;
  const D r = pick((L)((turns & 1) != 0), cosine_of(t.r), sine_of(t.r));
  return (D)((UL)r ^ (turns & 2) << 62);
}
OD_INLINE D sin_wide(D x) {
  return beyond(x, unless_tiny(x, sine_from(x, 0)), [](double v) { return __builtin_sin(v); });
}
OD_INLINE D cos_wide(D x) {
  return beyond(x, sine_from(x, 1), [](double v) { return __builtin_cos(v); });
}
OD_INLINE D tan_wide(D x) {
  const Turned t = turned(x);
  const L odd = (L)((t.turns & 1) != 0);
  const D s = sine_of(t.r), c = cosine_of(t.r);
  return beyond(x, unless_tiny(x, pick(odd, -c, s) / pick(odd, s, c)), [](double v) { return __builtin_tan(v); });
}

OD_INLINE D asin_wide(D x) { return atan_wide(x / root_wide((wide(1.0) - x) * (wide(1.0) + x))); }
OD_INLINE D acos_wide(D x) {
  const D r = atan_wide(root_wide((wide(1.0) - x) / (wide(1.0) + x)));
  return r + r;
}

OD_INLINE D sinh_wide(D x) {
  const D e = exp_wide(size_of(x));
  return unless_tiny(x, with_sign((e - wide(1.0) / e) * wide(0.5), x));
}
OD_INLINE D cosh_wide(D x) {
  const D e = exp_wide(size_of(x));
  return (e + wide(1.0) / e) * wide(0.5);
}
OD_INLINE D asinh_wide(D x) {
  const D size = size_of(x);
  return unless_tiny(x, with_sign(log_wide(size + root_wide(fma_wide(size, size, wide(1.0)))), x));
}
OD_INLINE D acosh_wide(D x) {
  const D r = log_wide(x + root_wide((x - wide(1.0)) * (x + wide(1.0))));
  return pick(x < wide(1.0), wide(std::numeric_limits<double>::quiet_NaN()), r);
}
OD_INLINE D atanh_wide(D x) {
  return unless_tiny(x, wide(0.5) * log_wide((wide(1.0) + x) / (wide(1.0) - x)));
}

OD_INLINE D pow_wide(D x, D y) {
  const double inf = std::numeric_limits<double>::infinity();
  const D size = size_of(x), far = size_of(y);
  D r = exp_wide(log_wide(size) * y);
  r = pick((size == wide(1.0)) & (far == wide(inf)), wide(1.0), r);
  const L even = far >= wide(16777216.0);  // f32 has no fractions there, and then no odd numbers
  const D half = y * wide(0.5);
  const L odd = ~even & (nearest(y) == y) & (nearest(half) != half);
  const L fraction = ~even & (nearest(y) != y);
  r = pick(odd, with_sign(r, x), r);
  const L no_root = fraction & (x < wide(0.0)) & (size < wide(inf));
  r = pick(no_root & (y == y), wide(std::numeric_limits<double>::quiet_NaN()), r);
  return pick((y == wide(0.0)) | (x == wide(1.0)), wide(1.0), r);
}

OD_INLINE D load_wide(const float* p, int n) {
  H v{};
  if (n == kWide) {
    __builtin_memcpy(&v, p, sizeof v);
  } else {
    for (int i = 0; i < n; ++i) v[i] = p[i];
  }
  return __builtin_convertvector(v, D);
}
OD_INLINE void store_wide(float* p, D x, int n) {
  const H v = __builtin_convertvector(x, H);
  if (n == kWide) {
    __builtin_memcpy(p, &v, sizeof v);
  } else {
    for (int i = 0; i < n; ++i) p[i] = v[i];
  }
}

template <class Fn>
OD_INLINE void map_wide(const float* x, float* y, size_t n, Fn f) {
  for (size_t i = 0; i < n; i += kWide) {
    const int part = n - i < kWide ? static_cast<int>(n - i) : kWide;
    store_wide(y + i, f(load_wide(x + i, part)), part);
  }
}
template <class Fn>
OD_INLINE void map_two_wide(const float* a, int sa, const float* b, int sb, float* y, size_t n, Fn f) {
  const D a0 = wide(n != 0 ? a[0] : 0.0f), b0 = wide(n != 0 ? b[0] : 0.0f);
  for (size_t i = 0; i < n; i += kWide) {
    const int part = n - i < kWide ? static_cast<int>(n - i) : kWide;
    store_wide(y + i, f(sa != 0 ? load_wide(a + i, part) : a0, sb != 0 ? load_wide(b + i, part) : b0), part);
  }
}

}  // namespace onedispatch::kernels::OD_LEVEL
