// SPDX-License-Identifier: Apache-2.0
// Reductions, softmax, LRN and rotations over rows (contiguous along the reduced dimension) and columns.
namespace onedispatch::kernels::OD_LEVEL {

constexpr float kInf = std::numeric_limits<float>::infinity();

// The values that change no maximum, no minimum.
template <class Word>
constexpr Word least() {
  using Limits = std::numeric_limits<Word>;
  return Limits::has_infinity ? -Limits::infinity() : Limits::min();
}
template <class Word>
constexpr Word most() {
  using Limits = std::numeric_limits<Word>;
  return Limits::has_infinity ? Limits::infinity() : Limits::max();
}

OD_INLINE F add_words(F a, F b) { return a + b; }
OD_INLINE I add_words(I a, I b) { return add_wrap(a, b); }
OD_INLINE U add_words(U a, U b) { return a + b; }
OD_INLINE F mul_words(F a, F b) { return a * b; }
OD_INLINE I mul_words(I a, I b) { return mul_wrap(a, b); }
OD_INLINE U mul_words(U a, U b) { return a * b; }
OD_INLINE F magnitudes(F x) { return absolute(x); }
OD_INLINE I magnitudes(I x) { return x < 0 ? sub_wrap(I{}, x) : x; }
OD_INLINE U magnitudes(U x) { return x; }
// Larger and smaller value; a NaN on either side wins.
template <class V>
OD_INLINE V max_words(V a, V b) {
  return (a > b) | (a != a) ? a : b;
}
template <class V>
OD_INLINE V min_words(V a, V b) {
  return (a < b) | (a != a) ? a : b;
}

template <uint32_t Mode, class Word>
OD_INLINE Vector<Word> identity() {
  namespace mode = params::reduce_mode;
  return splat_as<Word>(Mode == mode::max_ ? least<Word>() : Mode == mode::min_ ? most<Word>() : Mode == mode::prod_ ? Word{1} : Word{0});
}
template <uint32_t Mode, class V>
OD_INLINE V enter(V x) {  // what a value contributes
  namespace mode = params::reduce_mode;
  if constexpr (Mode == mode::sum_square_) return mul_words(x, x);
  if constexpr (Mode == mode::sum_abs_) return magnitudes(x);
  return x;
}
template <uint32_t Mode, class V>
OD_INLINE V combine(V a, V b) {
  namespace mode = params::reduce_mode;
  if constexpr (Mode == mode::max_) return max_words(a, b);
  if constexpr (Mode == mode::min_) return min_words(a, b);
  if constexpr (Mode == mode::prod_) return mul_words(a, b);
  return add_words(a, b);
}

// All lanes combined, by halves.
template <uint32_t Mode, int Width = kLanes / 2, class V>
OD_INLINE auto across(V v) {
  const V other = __builtin_shuffle(v, (lane_index() + Width) & (kLanes - 1));
  const V both = combine<Mode>(v, other);
  if constexpr (Width > 1) {
    return across<Mode, Width / 2>(both);
  } else {
    return both[0];
  }
}

template <uint32_t Mode, class Word>
static Word reduce_row_as(const Word* x, int n) {
  using V = Vector<Word>;
  const V start = identity<Mode, Word>();
  V acc[4] = {start, start, start, start};
  int i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) acc[j] = combine<Mode>(acc[j], enter<Mode>(load_as(x + i + j * kLanes)));
  }
  for (; i + kLanes <= n; i += kLanes) acc[0] = combine<Mode>(acc[0], enter<Mode>(load_as(x + i)));
  if (i < n) {
    const V tail = enter<Mode>(load_part_as(x + i, n - i));
    acc[1] = combine<Mode>(acc[1], lane_index() < splat_i(n - i) ? tail : start);
  }
  const V all = combine<Mode>(combine<Mode>(acc[0], acc[1]), combine<Mode>(acc[2], acc[3]));
  return across<Mode>(all);
}

// Several vectors side by side: none waits for the sum of another.
template <uint32_t Mode, int Count, class Word>
OD_INLINE void reduce_vectors(const Word* x, ptrdiff_t step, int count, bool accumulate, Word* out) {
  Vector<Word> acc[Count];
#pragma GCC unroll 4
  for (int j = 0; j < Count; ++j) acc[j] = accumulate ? load_as(out + j * kLanes) : identity<Mode, Word>();
  for (int k = 0; k < count; ++k, x += step) {
#pragma GCC unroll 4
    for (int j = 0; j < Count; ++j) acc[j] = combine<Mode>(acc[j], enter<Mode>(load_as(x + j * kLanes)));
  }
#pragma GCC unroll 4
  for (int j = 0; j < Count; ++j) store_as(out + j * kLanes, acc[j]);
}

template <uint32_t Mode, class Word>
static void reduce_columns_as(const Reduction<Word>& r) {
  for (int row = 0; row < r.rows; ++row) {
    const Word* x = r.x + row * r.row;
    Word* out = r.out + row * r.out_row;
    int i = 0;
    for (; i + 4 * kLanes <= r.columns; i += 4 * kLanes) reduce_vectors<Mode, 4>(x + i, r.step, r.count, r.accumulate, out + i);
    for (; i + kLanes <= r.columns; i += kLanes) reduce_vectors<Mode, 1>(x + i, r.step, r.count, r.accumulate, out + i);
    if (i == r.columns) continue;
    const int part = r.columns - i;
    Vector<Word> acc = r.accumulate ? load_part_as(out + i, part) : identity<Mode, Word>();
    x += i;
    for (int k = 0; k < r.count; ++k, x += r.step) acc = combine<Mode>(acc, enter<Mode>(load_part_as(x, part)));
    store_part_as(out + i, acc, part);
  }
}

template <class Word>
static void reduce_columns(const Reduction<Word>& r) {
  namespace mode = params::reduce_mode;
  switch (static_cast<mode::Code>(r.mode)) {
    case mode::max_: reduce_columns_as<mode::max_>(r); break;
    case mode::min_: reduce_columns_as<mode::min_>(r); break;
    case mode::prod_: reduce_columns_as<mode::prod_>(r); break;
    case mode::sum_square_: reduce_columns_as<mode::sum_square_>(r); break;
    case mode::sum_abs_: reduce_columns_as<mode::sum_abs_>(r); break;
    case mode::sum_:
    case mode::mean_: reduce_columns_as<mode::sum_>(r); break;
  }
}

template <class Word>
static Word reduce_row(uint32_t m, const Word* x, int n) {
  namespace mode = params::reduce_mode;
  switch (static_cast<mode::Code>(m)) {
    case mode::max_: return reduce_row_as<mode::max_>(x, n);
    case mode::min_: return reduce_row_as<mode::min_>(x, n);
    case mode::prod_: return reduce_row_as<mode::prod_>(x, n);
    case mode::sum_square_: return reduce_row_as<mode::sum_square_>(x, n);
    case mode::sum_abs_: return reduce_row_as<mode::sum_abs_>(x, n);
    case mode::sum_:
    case mode::mean_: break;
  }
  return reduce_row_as<mode::sum_>(x, n);
}

// What steps of a softmax give, as tensors of their type hold it; words of f32 hold all of it.
struct Kept {
  OD_INLINE F step(F x) { return x; }
};
template <class Type>
struct Rounded {
  OD_INLINE F step(F x) { return Type::rounded(x); }
};

template <class Use>
OD_INLINE void for_steps(uint32_t dtype, Use use) {
  switch (dtype) {
    case params::dtype::bf16: use(Rounded<Bf16>{}); break;
    case params::dtype::f16: use(Rounded<F16>{}); break;
    default: use(Kept{});
  }
}

template <class Steps>
static void softmax_row_as(bool log, const float* x, float* y, int n) {
  const float top = reduce_row_as<params::reduce_mode::max_>(x, n);
  const F shift = splat(top);
  F sums{};
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const F e = Steps::step(exp_f(Steps::step(load(x + i) - shift)));
    sums = sums + e;
    store(y + i, e);
  }
  if (i < n) {
    const F e = Steps::step(exp_f(Steps::step(load_part(x + i, n - i) - shift)));
    store_part(y + i, e, n - i);
    sums = sums + select(lane_index() < splat_i(n - i), e, F{});
  }
  const F total = Steps::step(splat(across<params::reduce_mode::sum_>(sums)));
  if (log) {
    const F log_total = log_f(total);
    map_one(x, y, static_cast<size_t>(n), [&](F v) { return (v - shift) - log_total; });
  } else {
    const F scale = splat(1.0f) / total;
    map_one(y, y, static_cast<size_t>(n), [&](F v) { return v * scale; });
  }
}

static void softmax_row(uint32_t dtype, bool log, const float* x, float* y, int n) {
  for_steps(dtype, [&](auto steps) { softmax_row_as<decltype(steps)>(log, x, y, n); });
}

template <class Steps>
static void softmax_columns_as(bool log, const float* x, float* y, int length, ptrdiff_t stride, int n) {
  for (int i = 0; i < n; i += kLanes) {
    const int part = n - i < kLanes ? n - i : kLanes;
    F top = splat(-kInf), sum{};
    for (int k = 0; k < length; ++k) top = max_nan(top, load_part(x + k * stride + i, part));
    for (int k = 0; k < length; ++k) {
      const F e = Steps::step(exp_f(Steps::step(load_part(x + k * stride + i, part) - top)));
      sum = sum + e;
      store_part(y + k * stride + i, e, part);
    }
    sum = Steps::step(sum);
    const F rest = log ? log_f(sum) : splat(1.0f) / sum;
    for (int k = 0; k < length; ++k) {
      float* to = y + k * stride + i;
      store_part(to, log ? (load_part(x + k * stride + i, part) - top) - rest : load_part(to, part) * rest, part);
    }
  }
}

static void softmax_columns(uint32_t dtype, bool log, const float* x, float* y, int length, ptrdiff_t stride, int n) {
  for_steps(dtype, [&](auto steps) { softmax_columns_as<decltype(steps)>(log, x, y, length, stride, n); });
}

// s^-beta; the exponents that networks use need no logarithm.
OD_INLINE F negative_power(F s, float beta) {
  if (beta == 0.75f) return splat(1.0f) / (root(s) * root(root(s)));
  if (beta == 0.5f) return splat(1.0f) / root(s);
  if (beta == 1.0f) return splat(1.0f) / s;
  return exp_f(splat(-beta) * log_f(s));
}

static void lrn_row(const float* x, const float* squares, int taps, ptrdiff_t stride, float scale, float bias,
                    float beta, float* y, int n) {
  for (int i = 0; i < n; i += kLanes) {
    const int part = n - i < kLanes ? n - i : kLanes;
    F sum{};
    for (int t = 0; t < taps; ++t) {
      const F v = load_part(squares + t * stride + i, part);
      sum = fma(v, v, sum);
    }
    const F s = fma(sum, splat(scale), splat(bias));
    store_part(y + i, load_part(x + i, part) * negative_power(s, beta), part);
  }
}

OD_INLINE void turn(F a, F b, F c, F s, F& first, F& second) {
  first = fma(a, c, -(b * s));
  second = fma(b, c, a * s);
}

// Pairs half a row apart.
static void rotate_halves(const float* x, const float* cos, const float* sin, int half, float* y) {
  F first, second;
  for (int i = 0; i < half; i += kLanes) {
    const int part = half - i < kLanes ? half - i : kLanes;
    turn(load_part(x + i, part), load_part(x + half + i, part), load_part(cos + i, part), load_part(sin + i, part), first, second);
    store_part(y + i, first, part);
    store_part(y + half + i, second, part);
  }
}

// Pairs of neighbours, taken apart and put together again in two vectors.
static void rotate_neighbours(const float* x, const float* cos, const float* sin, int half, float* y) {
  const I lane = lane_index(), low = lane / 2 + (lane % 2) * kLanes;
  F first, second;
  for (int i = 0; i < half; i += kLanes) {
    const int part = half - i < kLanes ? half - i : kLanes;
    const int here = 2 * part < kLanes ? 2 * part : kLanes, more = 2 * part - here;
    const F v = load_part(x + 2 * i, here), w = more > 0 ? load_part(x + 2 * i + kLanes, more) : F{};
    turn(__builtin_shuffle(v, w, lane * 2), __builtin_shuffle(v, w, lane * 2 + 1), load_part(cos + i, part), load_part(sin + i, part), first, second);
    store_part(y + 2 * i, __builtin_shuffle(first, second, low), here);
    if (more > 0) store_part(y + 2 * i + kLanes, __builtin_shuffle(first, second, low + kLanes / 2), more);
  }
}

static void rotate(const float* x, const float* cos, const float* sin, int half, bool interleaved, float* y) {
  interleaved ? rotate_neighbours(x, cos, sin, half, y) : rotate_halves(x, cos, sin, half, y);
}

}  // namespace onedispatch::kernels::OD_LEVEL
