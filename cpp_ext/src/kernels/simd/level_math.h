// SPDX-License-Identifier: Apache-2.0
// Unary and binary functions. Polynomials are minimax fits (weighted least squares with Lawson
// iterations in float64) over the stated ranges; the tests hold each function to a few ULP of libm.
namespace onedispatch::kernels::OD_LEVEL {

// ln 2 split so that a product of the first part with a small integer is exact.
constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;

template <int N>
OD_INLINE F polynomial(const float (&c)[N], F x) {  // c[0] + c[1] x + ...
  F r = splat(c[N - 1]);
#pragma GCC unroll 16
  for (int i = N - 2; i >= 0; --i) r = fma(r, x, splat(c[i]));
  return r;
}

#if !OD_BOUNDS
OD_INLINE F at_most(F x, float limit) { return select(x > splat(limit), splat(limit), x); }
OD_INLINE F at_least(F x, float limit) { return select(x < splat(limit), splat(limit), x); }
#endif

OD_INLINE F exp_f(F x) {
  constexpr float c[] = {4.999999305e-01f, 1.666651479e-01f, 4.166845679e-02f, 8.369418847e-03f, 1.381314439e-03f};
  constexpr float kZero = -104.0f;  // results are 0 from here on
  x = at_least(at_most(x, 89.0f), kZero);
  const F magic = splat(kWhole);
  const F shifted = fma(x, splat(1.44269504f), magic);
  const F whole = shifted - magic;
  F r = fma(whole, splat(-kLn2High), x);
  r = fma(whole, splat(-kLn2Low), r);
  // Processors take a hundred cycles for a result that becomes 0 by being scaled, as masked scores all do.
  const F p = select(x == splat(kZero), F{}, fma(r * r, polynomial(c, r), r) + splat(1.0f));
#if OD_SCALES
  return scaled(p, whole);
#else
  const I n = sub_wrap((I)shifted, (I)magic);
  const I half = n >> 1;  // two factors, so that denormals and infinity come out right
  const U low = (U)half + 127u, high = (U)n - (U)half + 127u;
  return p * (F)(low << 23) * (F)(high << 23);
#endif
}

OD_INLINE F log_f(F x) {
  constexpr float c[] = {3.333333120e-01f,  -2.500083796e-01f, 2.000129269e-01f, -1.662276490e-01f,
                         1.419969585e-01f, -1.316418644e-01f, 1.277911363e-01f, -7.646101491e-02f};
  const I tiny = x < splat(1.17549435e-38f);
  const F scaled = select(tiny, x * splat(8388608.0f), x);
  const I bits = sub_wrap((I)scaled, splat_i(0x3F3504F3));  // exponent and mantissa relative to sqrt(1/2)
  const I exponent = (bits >> 23) - (tiny & splat_i(23));
  const F f = (F)((bits & splat_i(0x007FFFFF)) + splat_i(0x3F3504F3)) - splat(1.0f);
  const F e = as_floats(exponent);
  const F square = f * f;
  F r = fma(e, splat(kLn2Low), square * f * polynomial(c, f));
  r = fma(square, splat(-0.5f), r) + f;
  r = fma(e, splat(kLn2High), r);
  const float inf = std::numeric_limits<float>::infinity();
  r = select(x == splat(0.0f), splat(-inf), r);
  r = select(x < splat(0.0f), splat(std::numeric_limits<float>::quiet_NaN()), r);
  return select((x == splat(inf)) | (x != x), x, r);
}

OD_INLINE F tanh_f(F x) {
  constexpr float c[] = {-3.333327208e-01f, 1.333115281e-01f, -5.371410728e-02f, 2.055171920e-02f, -5.603913786e-03f};
  const F size = absolute(x), square = x * x;
  const F small = fma(square * x, polynomial(c, square), x);
  const F big = splat(1.0f) - splat(2.0f) / (exp_f(size + size) + splat(1.0f));
  return select(size < splat(0.625f), small, copy_sign(big, x));
}

OD_INLINE F sigmoid_f(F x) {
  const F e = exp_f((F)((I)x | splat_i(INT32_MIN)));  // exp(-|x|) cannot overflow
  return select(x < splat(0.0f), e, splat(1.0f)) / (e + splat(1.0f));
}

OD_INLINE F erf_f(F x) {
  constexpr float small_c[] = {1.283791666e-01f, -3.761263303e-01f, 1.128368371e-01f, -2.685870670e-02f,
                               5.199247309e-03f, -8.121884600e-04f, 8.280390996e-05f};
  // erfc(t) = exp(-(t + t * Q(t))) on [0.9, 4]; above, erf is 1 in f32.
  constexpr float big_c[] = {1.286409637e-01f, 6.351814986e-01f,  1.061876100e-01f, -2.372018528e-02f,
                             3.622918397e-03f, -3.180595924e-04f, 1.076316332e-05f};
  const F size = absolute(x);
  const F t = at_most(size, 4.0f);
  const F big = splat(1.0f) - exp_f(-fma(t, polynomial(big_c, t), t));
  const F small = fma(x, polynomial(small_c, x * x), x);
  return select(size < splat(0.92f), small, copy_sign(big, x));
}

// exp(x) - 1, for x up to 80.
OD_INLINE F expm1_f(F x) {
  constexpr float c[] = {4.999999305e-01f, 1.666651479e-01f, 4.166845679e-02f, 8.369418847e-03f, 1.381314439e-03f};
  x = at_least(x, -30.0f);
  const F magic = splat(kWhole);
  const F shifted = fma(x, splat(1.44269504f), magic);
  const F whole = shifted - magic;
  F r = fma(whole, splat(-kLn2High), x);
  r = fma(whole, splat(-kLn2Low), r);
  const F scale = (F)(((U)sub_wrap((I)shifted, (I)magic) + 127u) << 23);
  return fma(fma(r * r, polynomial(c, r), r), scale, scale - splat(1.0f));
}

// log(1 + exp(x)). The logarithm of 1 + t is that of log_f, with what log_f would have to recover from 1 + t.
OD_INLINE F softplus_f(F x) {
  constexpr float c[] = {3.333333120e-01f,  -2.500083796e-01f, 2.000129269e-01f, -1.662276490e-01f,
                         1.419969585e-01f, -1.316418644e-01f, 1.277911363e-01f, -7.646101491e-02f};
  const F t = exp_f((F)((I)x | splat_i(INT32_MIN)));
  const I high = t > splat(0.41421356f);  // 1 + t is parted as 2 * (1 + f)
  const F f = select(high, fma(t, splat(0.5f), splat(-0.5f)), t);
  const F e = select(high, splat(1.0f), splat(0.0f));
  const F square = f * f;
  F r = fma(e, splat(kLn2Low), square * f * polynomial(c, f));
  r = fma(square, splat(-0.5f), r) + f;
  return fma(e, splat(kLn2High), r) + select(x < splat(0.0f), splat(0.0f), x);
}

// x * tanh(log(1 + exp(x))): the tangent is that of e * (e + 2) and the same plus 2.
OD_INLINE F mish_f(F x) {
  const F e = exp_f(at_most(x, 20.0f));
  const F n = e * (e + splat(2.0f));
  return x * (n / (n + splat(2.0f)));
}

OD_INLINE F gelu_f(F x) { return splat(0.5f) * x * (splat(1.0f) + erf_f(x * splat(0.70710678f))); }
OD_INLINE F gelu_tanh_f(F x) {
  const F cube = x * x * x;
  return splat(0.5f) * x * (splat(1.0f) + tanh_f(splat(0.79788456f) * fma(splat(0.044715f), cube, x)));
}

OD_INLINE F clamped(F x, F low, F high) {  // a NaN stays one
  x = select(x < low, low, x);
  return select(x > high, high, x);
}

// To a whole number by adding 2^23: sizes from there on are whole, and a sign stays where nothing else does.
OD_INLINE F round_f(F x) {
  const F size = absolute(x), magic = splat(8388608.0f);
  return select(size < magic, copy_sign((size + magic) - magic, x), x);
}
OD_INLINE F floor_f(F x) {
  const F r = round_f(x);
  return select(r > x, r - splat(1.0f), r);
}
OD_INLINE F ceil_f(F x) { return -floor_f(-x); }

OD_INLINE F sign_f(F x) {
  const F zero = splat(0.0f);
  return select(x > zero, splat(1.0f), select(x < zero, splat(-1.0f), select(x == zero, zero, x)));
}

static void unary(uint32_t code, float alpha, float beta, const float* x, float* y, size_t n) {
  namespace act = params::activation;
  const F a = splat(alpha), b = splat(beta), zero = splat(0.0f);
  const float inf = std::numeric_limits<float>::infinity();
  switch (static_cast<act::Code>(code)) {
    case act::none_: if (x != y && n != 0) __builtin_memmove(y, x, n * sizeof *x); break;
    case act::relu_: map_one(x, y, n, [&](F v) { return select(v < zero, zero, v); }); break;
    case act::leakyrelu_: map_one(x, y, n, [&](F v) { return select(v < zero, a * v, v); }); break;
    case act::clip_:
      map_one(x, y, n, [&](F v) {
        const F low = select(v < a, a, v);
        return select(low > b, b, low);
      });
      break;
    case act::sigmoid_: map_one(x, y, n, [&](F v) { return sigmoid_f(v); }); break;
    case act::tanh_: map_one(x, y, n, [&](F v) { return tanh_f(v); }); break;
    case act::exp_: map_one(x, y, n, [&](F v) { return exp_f(v); }); break;
    case act::sqrt_: map_one(x, y, n, [&](F v) { return root(v); }); break;
    case act::erf_: map_one(x, y, n, [&](F v) { return erf_f(v); }); break;
    case act::abs_: map_one(x, y, n, [&](F v) { return absolute(v); }); break;
    case act::neg_: map_one(x, y, n, [&](F v) { return -v; }); break;
    case act::log_: map_one(x, y, n, [&](F v) { return log_f(v); }); break;
    case act::reciprocal_: map_one(x, y, n, [&](F v) { return splat(1.0f) / v; }); break;
    case act::softsign_: map_one(x, y, n, [&](F v) { return v / (splat(1.0f) + absolute(v)); }); break;
    case act::ceil_: map_one(x, y, n, [&](F v) { return ceil_f(v); }); break;
    case act::floor_: map_one(x, y, n, [&](F v) { return floor_f(v); }); break;
    case act::round_: map_one(x, y, n, [&](F v) { return round_f(v); }); break;
    case act::sign_: map_one(x, y, n, [&](F v) { return sign_f(v); }); break;
    case act::elu_: map_one(x, y, n, [&](F v) { return select(v < zero, a * expm1_f(select(v < zero, v, zero)), v); }); break;
    case act::selu_:
      map_one(x, y, n, [&](F v) { return b * select(v < zero, a * expm1_f(select(v < zero, v, zero)), v); });
      break;
    case act::celu_:
      map_one(x, y, n, [&](F v) {
        const F s = v / a;
        return select(v < zero, a * select(s < splat(80.0f), expm1_f(s), exp_f(s)), v);
      });
      break;
    case act::gelu_: map_one(x, y, n, [&](F v) { return gelu_f(v); }); break;
    case act::gelu_tanh_: map_one(x, y, n, [&](F v) { return gelu_tanh_f(v); }); break;
    case act::mish_: map_one(x, y, n, [&](F v) { return mish_f(v); }); break;
    case act::hardsigmoid_: map_one(x, y, n, [&](F v) { return clamped(fma(a, v, b), zero, splat(1.0f)); }); break;
    case act::hardswish_:
      map_one(x, y, n, [&](F v) { return v * clamped(fma(v, splat(1.0f / 6.0f), splat(0.5f)), zero, splat(1.0f)); });
      break;
    case act::swish_: map_one(x, y, n, [&](F v) { return v * sigmoid_f(a * v); }); break;
    case act::softplus_: map_one(x, y, n, [&](F v) { return softplus_f(v); }); break;
    case act::affine_: map_one(x, y, n, [&](F v) { return fma(a, v, b); }); break;
    case act::scaled_tanh_: map_one(x, y, n, [&](F v) { return a * tanh_f(b * v); }); break;
    case act::thresholded_relu_: map_one(x, y, n, [&](F v) { return select(v > a, v, zero); }); break;
    case act::shrink_:
      map_one(x, y, n, [&](F v) { return select(v < -a, v + b, select(v > a, v - b, zero)); });
      break;
    case act::square_: map_one(x, y, n, [&](F v) { return v * v; }); break;
    case act::cube_: map_one(x, y, n, [&](F v) { return v * v * v; }); break;
    case act::half_power_:
      map_one(x, y, n, [&](F v) { return select(v == splat(-inf), splat(inf), root(v + zero)); });
      break;
    case act::power_: map_wide(x, y, n, [&](D v) { return pow_wide(v, wide(alpha)); }); break;
    case act::sin_: map_wide(x, y, n, [&](D v) { return sin_wide(v); }); break;
    case act::cos_: map_wide(x, y, n, [&](D v) { return cos_wide(v); }); break;
    case act::tan_: map_wide(x, y, n, [&](D v) { return tan_wide(v); }); break;
    case act::asin_: map_wide(x, y, n, [&](D v) { return asin_wide(v); }); break;
    case act::acos_: map_wide(x, y, n, [&](D v) { return acos_wide(v); }); break;
    case act::atan_: map_wide(x, y, n, [&](D v) { return atan_wide(v); }); break;
    case act::sinh_: map_wide(x, y, n, [&](D v) { return sinh_wide(v); }); break;
    case act::cosh_: map_wide(x, y, n, [&](D v) { return cosh_wide(v); }); break;
    case act::asinh_: map_wide(x, y, n, [&](D v) { return asinh_wide(v); }); break;
    case act::acosh_: map_wide(x, y, n, [&](D v) { return acosh_wide(v); }); break;
    case act::atanh_: map_wide(x, y, n, [&](D v) { return atanh_wide(v); }); break;
  }
}

template <class Fn>
OD_INLINE void map_two(const float* a, int sa, const float* b, int sb, float* y, size_t n, Fn f) {
  const Operand p = Operand::make(a, sa), q = Operand::make(b, sb);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, f(fetch(p, i), fetch(q, i)));
  if (i < n) {
    const int part = static_cast<int>(n - i);
    store_part(y + i, f(fetch_part(p, i, part), fetch_part(q, i, part)), part);
  }
}

static void binary(uint32_t func, const float* a, int sa, const float* b, int sb, float* y, size_t n) {
  namespace fn = params::eltwise_func;
  switch (static_cast<fn::Code>(func)) {
    case fn::add_: map_two(a, sa, b, sb, y, n, [&](F p, F q) { return p + q; }); break;
    case fn::sub_: map_two(a, sa, b, sb, y, n, [&](F p, F q) { return p - q; }); break;
    case fn::mul_: map_two(a, sa, b, sb, y, n, [&](F p, F q) { return p * q; }); break;
    case fn::div_: map_two(a, sa, b, sb, y, n, [&](F p, F q) { return p / q; }); break;
    case fn::max_: map_two(a, sa, b, sb, y, n, [&](F p, F q) { return max_nan(p, q); }); break;
    case fn::min_: map_two(a, sa, b, sb, y, n, [&](F p, F q) { return min_nan(p, q); }); break;
    case fn::pow_: map_two_wide(a, sa, b, sb, y, n, [&](D p, D q) { return pow_wide(p, q); }); break;
    case fn::prelu_: map_two(a, sa, b, sb, y, n, [&](F p, F q) { return select(p < splat(0.0f), q * p, p); }); break;
    case fn::copy_:
    case fn::muladd_:
    case fn::fill_:
    case fn::ipow_: break;  // have functions of their own, or are for integers
  }
}

static void muladd(const float* a, int sa, const float* b, int sb, const float* c, int sc, float* y, size_t n) {
  const Operand p = Operand::make(a, sa), q = Operand::make(b, sb), r = Operand::make(c, sc);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, fma(fetch(p, i), fetch(q, i), fetch(r, i)));
  if (i < n) {
    const int part = static_cast<int>(n - i);
    store_part(y + i, fma(fetch_part(p, i, part), fetch_part(q, i, part), fetch_part(r, i, part)), part);
  }
}

static void add_scaled(const float* a, int sa, float alpha, const float* b, int sb, float beta, float* y, size_t n) {
  const F scale_a = splat(alpha), scale_b = splat(beta);
  map_two(a, sa, b, sb, y, n, [&](F p, F q) { return fma(scale_a, p, scale_b * q); });
}

static void affine(const float* x, float scale, float shift, float* y, size_t n) {
  const F a = splat(scale), b = splat(shift);
  map_one(x, y, n, [&](F v) { return fma(a, v, b); });
}

}  // namespace onedispatch::kernels::OD_LEVEL
