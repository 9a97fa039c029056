// SPDX-License-Identifier: Apache-2.0
// Comparisons, selections, functions of bits, and those of integers of up to 64 bits. Plain loops; the compiler makes
// vectors of this level's width of them. Elements lie at multiples of their size.
namespace onedispatch::kernels::OD_LEVEL {

// Calls body with a value of the type that elements of `dtype` are compared in.
template <class Body>
OD_INLINE void with_element(uint32_t dtype, Body body) {
  switch (dtype) {
    case params::dtype::f32: body(float{}); break;
    case params::dtype::i64: body(int64_t{}); break;
    case params::dtype::boolean: body(uint8_t{}); break;
    default: with_integer(dtype, body); break;
  }
}

// Where an index counts to: how far behind `first` along the axis, and whether that is outside of it. Wide: the words
// that are counted in; those of the index itself do where the axis ends within them.
template <class Index, class Wide>
struct Counted {
  using Bits = std::make_unsigned_t<Wide>;
  Bits extent, first;
  Counted(int64_t extent, int64_t first) : extent(static_cast<Bits>(extent)), first(static_cast<Bits>(first)) {}
  OD_INLINE Bits member(const uint8_t* indices, size_t i, Bits extent) {
    Index given;
    __builtin_memcpy(&given, indices + i * sizeof given, sizeof given);
    return static_cast<Bits>(given) + (given < 0 ? extent : 0);
  }
};

// Calls use(Counted) for indices of `bytes` along an axis of `extent` members.
template <class Use>
OD_INLINE void with_counted(uint32_t bytes, int64_t extent, int64_t first, Use use) {
  if (bytes == 8) return use(Counted<int64_t, int64_t>(extent, first));
  if (extent > INT32_MAX) return use(Counted<int32_t, int64_t>(extent, first));
  use(Counted<int32_t, int32_t>(extent, first));
}

static uint32_t places(uint32_t bytes, const uint8_t* indices, int64_t extent, int64_t first, int64_t size, int32_t* at, size_t n) {
  int32_t highest = kOutside, lowest = 0;
  with_counted(bytes, extent, first, [&](auto c) {
    using Bits = typename decltype(c)::Bits;
    const auto room = static_cast<Bits>(size);
#pragma omp simd reduction(max : highest) reduction(min : lowest)
    for (size_t i = 0; i < n; ++i) {
      const Bits member = c.member(indices, i, c.extent), behind = member - c.first;
      const int32_t inside = behind < room ? static_cast<int32_t>(behind) : kElsewhere;
      const int32_t place = member < c.extent ? inside : kOutside;
      at[i] = place;
      highest = place > highest ? place : highest;
      lowest = place < lowest ? place : lowest;
    }
  });
  return (highest >= 0 ? kSomeFound : 0u) | (lowest == kOutside ? kSomeOutside : 0u);
}

OD_INLINE bool any(U mask) {
  uint64_t parts[sizeof(U) / 8], all = 0;
  __builtin_memcpy(parts, &mask, sizeof mask);
  for (const uint64_t part : parts) all |= part;
  return all != 0;
}

// Those of 32 bits by vectors, few of which hold one that is found, as a rule. Returns how many were looked at.
static size_t found_words(const uint8_t* indices, Counted<int32_t, int32_t> c, uint32_t room, int32_t* which, int32_t* at, size_t n, size_t* count, bool* outside) {
  constexpr int kGroup = 4;
  const U extent = splat_as<uint32_t>(c.extent), first = splat_as<uint32_t>(c.first), size = splat_as<uint32_t>(room);
  U beyond{};
  size_t found = 0, i = 0;
  for (; i + kGroup * kLanes <= n; i += kGroup * kLanes) {
    U behind[kGroup], hit[kGroup], hits{};
#pragma GCC unroll 4
    for (int g = 0; g < kGroup; ++g) {
      const I given = load_i(indices + 4 * (i + static_cast<size_t>(g * kLanes)));
      const U member = (U)given + (given < 0 ? extent : U{}), wrong = (U)(member >= extent);
      behind[g] = member - first;
      hit[g] = (U)(behind[g] < size) & ~wrong;
      hits |= hit[g];
      beyond |= wrong;
    }
    if (!any(hits)) continue;
    for (int g = 0; g < kGroup; ++g) {
      if (!any(hit[g])) continue;
      for (int l = 0; l < kLanes; ++l) {
        which[found] = static_cast<int32_t>(i) + g * kLanes + l;
        at[found] = static_cast<int32_t>(behind[g][l]);
        found += hit[g][l] & 1;
      }
    }
  }
  *count = found;
  *outside = any(beyond);
  return i;
}

static uint32_t found_places(uint32_t bytes, const uint8_t* indices, int64_t extent, int64_t first, int64_t size, int32_t* which, int32_t* at, size_t n, size_t* count) {
  size_t found = 0;
  bool outside = false;
  with_counted(bytes, extent, first, [&](auto c) {
    using Bits = typename decltype(c)::Bits;
    const auto room = static_cast<Bits>(size);
    size_t i = 0;
    if constexpr (sizeof(Bits) == 4) i = found_words(indices, c, room, which, at, n, &found, &outside);
    for (; i < n; ++i) {
      const Bits member = c.member(indices, i, c.extent), behind = member - c.first;
      which[found] = static_cast<int32_t>(i);
      at[found] = static_cast<int32_t>(behind);
      found += member < c.extent && behind < room ? 1 : 0;
      outside |= member >= c.extent;
    }
  });
  *count = found;
  return (found != 0 ? kSomeFound : 0u) | (outside ? kSomeOutside : 0u);
}

// What floats are, of one operand.
static void classify(uint32_t func, const float* x, int sx, uint8_t* y, size_t n) {
  namespace fn = params::comparison;
  const auto map = [&](auto f) { map_elements<float>(x, sx, x, sx, y, n, [&](float v, float) -> uint8_t { return f(v); }); };
  if (func == fn::isnan_) map([](float v) { return v != v; });
  if (func == fn::isinf_) map([](float v) { return v == kInf || v == -kInf; });
  if (func == fn::isposinf_) map([](float v) { return v == kInf; });
  if (func == fn::isneginf_) map([](float v) { return v == -kInf; });
}

static void compare(uint32_t func, uint32_t dtype, const void* a, int sa, const void* b, int sb, uint8_t* y, size_t n) {
  namespace fn = params::comparison;
  with_element(dtype, [&](auto element) {
    using T = decltype(element);
    const auto map = [&](auto f) { map_elements<T>(a, sa, b, sb, y, n, [&](T p, T q) -> uint8_t { return f(p, q); }); };
    switch (static_cast<fn::Code>(func)) {
      case fn::equal_: map([](T p, T q) { return p == q; }); break;
      case fn::greater_: map([](T p, T q) { return p > q; }); break;
      case fn::greater_or_equal_: map([](T p, T q) { return p >= q; }); break;
      case fn::less_: map([](T p, T q) { return p < q; }); break;
      case fn::less_or_equal_: map([](T p, T q) { return p <= q; }); break;
      case fn::isnan_:
      case fn::isinf_:
      case fn::isposinf_:
      case fn::isneginf_:
        if constexpr (std::is_same_v<T, float>) classify(func, static_cast<const float*>(a), sa, y, n);
        break;
    }
  });
}

template <class T>
static void select_as(const uint8_t* c, int sc, const T* a, int sa, const T* b, int sb, T* y, size_t n) {
  if (n == 0) return;
  if (sc == 0) {  // one side for all
    const T* from = c[0] != 0 ? a : b;
    const int step = c[0] != 0 ? sa : sb;
    if (step != 0) __builtin_memcpy(y, from, n * sizeof *y);
    for (size_t i = 0; step == 0 && i < n; ++i) y[i] = from[0];
    return;
  }
  const T a0 = a[0], b0 = b[0];
  if (sa != 0 && sb != 0) {
#pragma omp simd
    for (size_t i = 0; i < n; ++i) y[i] = c[i] != 0 ? a[i] : b[i];
  } else if (sa != 0) {
#pragma omp simd
    for (size_t i = 0; i < n; ++i) y[i] = c[i] != 0 ? a[i] : b0;
  } else if (sb != 0) {
#pragma omp simd
    for (size_t i = 0; i < n; ++i) y[i] = c[i] != 0 ? a0 : b[i];
  } else {
#pragma omp simd
    for (size_t i = 0; i < n; ++i) y[i] = c[i] != 0 ? a0 : b0;
  }
}

static void select_elements(uint32_t bytes, const uint8_t* c, int sc, const void* a, int sa, const void* b, int sb, void* y, size_t n) {
  const auto as = [&](auto element) {
    using T = decltype(element);
    select_as(c, sc, static_cast<const T*>(a), sa, static_cast<const T*>(b), sb, static_cast<T*>(y), n);
  };
  if (bytes == 1) as(uint8_t{});
  if (bytes == 2) as(uint16_t{});
  if (bytes == 4) as(uint32_t{});
  if (bytes == 8) as(uint64_t{});
}

// The remainder; of what has none, 0. With the sign of the dividend, or of the divisor.
template <class T>
OD_INLINE T remainder_of(T p, T q, bool like_divisor) {
  if (q == 0) return 0;
  if constexpr (static_cast<T>(-1) < 0) {
    if (q == -1) return 0;  // of the least number it would trap
  }
  const T rest = static_cast<T>(p % q);
  return like_divisor && rest != 0 && (rest < 0) != (q < 0) ? static_cast<T>(rest + q) : rest;
}

// With the sign of the divisor, that of a zero too.
OD_INLINE float floor_remainder(float p, float q) {
  const float rest = __builtin_fmodf(p, q);
  if (rest == 0.0f) return __builtin_copysignf(0.0f, q);
  return (rest < 0) != (q < 0) && rest == rest ? rest + q : rest;
}

static void binary_func(uint32_t func, uint32_t dtype, const void* a, int sa, const void* b, int sb, void* y, size_t n) {
  namespace fn = params::binary_func;
  with_element(dtype, [&](auto element) {
    using T = decltype(element);
    if constexpr (std::is_same_v<T, float>) {
      const auto map = [&](auto f) { map_elements<float>(a, sa, b, sb, static_cast<float*>(y), n, f); };
      if (func == fn::float_fmod_) map([](float p, float q) { return __builtin_fmodf(p, q); });
      if (func == fn::float_mod_) map([](float p, float q) { return floor_remainder(p, q); });
    } else {
      using Bits = std::make_unsigned_t<T>;
      constexpr Bits kWidth = 8 * sizeof(T);
      const auto map = [&](auto f) { map_elements<T>(a, sa, b, sb, static_cast<T*>(y), n, f); };
      const auto bits = [&](auto f) {  // they wrap
        map_elements<Bits>(a, sa, b, sb, static_cast<Bits*>(y), n,
                           [&](Bits p, Bits q) { return static_cast<Bits>(f(uint64_t{p}, uint64_t{q})); });
      };
      switch (static_cast<fn::Code>(func)) {
        case fn::and_: bits([](uint64_t p, uint64_t q) { return p & q; }); break;
        case fn::or_: bits([](uint64_t p, uint64_t q) { return p | q; }); break;
        case fn::xor_: bits([](uint64_t p, uint64_t q) { return p ^ q; }); break;
        case fn::not_:
          if (dtype == params::dtype::boolean) {
            map([](T p, T) { return static_cast<T>(p == 0); });
          } else {
            bits([](uint64_t p, uint64_t) { return ~p; });
          }
          break;
        case fn::shift_left_: map([](T p, T q) { return static_cast<T>(static_cast<Bits>(q) < kWidth ? static_cast<uint64_t>(p) << q : 0); }); break;
        case fn::shift_right_: map([](T p, T q) { return static_cast<T>(static_cast<Bits>(q) < kWidth ? static_cast<Bits>(p) >> q : 0); }); break;
        case fn::mod_: map([](T p, T q) { return remainder_of(p, q, true); }); break;
        case fn::fmod_: map([](T p, T q) { return remainder_of(p, q, false); }); break;
        case fn::float_mod_:
        case fn::float_fmod_: break;
        case fn::add_: bits([](uint64_t p, uint64_t q) { return p + q; }); break;
        case fn::sub_: bits([](uint64_t p, uint64_t q) { return p - q; }); break;
        case fn::mul_: bits([](uint64_t p, uint64_t q) { return p * q; }); break;
        case fn::div_:
          if constexpr (sizeof(T) == 8) map([](T p, T q) { return quotient(p, q); });
          break;
        case fn::max_: map([](T p, T q) { return p < q ? q : p; }); break;
        case fn::min_: map([](T p, T q) { return q < p ? q : p; }); break;
        case fn::neg_: bits([](uint64_t p, uint64_t) { return uint64_t{0} - p; }); break;
        case fn::abs_: map([](T p, T) { return p < 0 ? static_cast<T>(Bits{0} - static_cast<Bits>(p)) : p; }); break;
      }
    }
  });
}

}  // namespace onedispatch::kernels::OD_LEVEL
