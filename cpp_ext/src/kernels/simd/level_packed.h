// SPDX-License-Identifier: Apache-2.0
// Weights of 4 or 8 bits as floats, and products of few rows with them, for which they never leave the registers.
namespace onedispatch::kernels::OD_LEVEL {

// The lanes of `level` as floats, and those above the lower four bits, as numbers of four bits.
#if OD_LOOKS_UP_FLOATS
OD_INLINE F low_nibbles(I level) { return look_up_floats(level); }
OD_INLINE F high_nibbles(I level) { return look_up_floats((I)((U)level >> 4)); }
#else
OD_INLINE F low_nibbles(I level) { return as_floats(level & splat_i(15)); }
OD_INLINE F high_nibbles(I level) { return as_floats((I)((U)level >> 4)); }
#endif

// A NaN, as one whose lower half is empty, as Bf16::nearest wants it.
OD_INLINE F plain_nan(F x) { return x != x ? (F)splat_as<uint32_t>(0x7FC00000u) : x; }

// What the weights of a block in some columns share. Bytes: weights of 8 bits; Scaled: times their scales, in bf16.
template <bool Bytes, bool Scaled>
struct Shared {
  F zero, scale;

  // load(p): of those columns.
  template <class Load>
  [[gnu::always_inline]] static Shared make(const PackedWeights& w, ptrdiff_t at, Load load) {
    const F zero = w.float_zero != nullptr ? plain_nan(load(w.float_zero + at)) : w.zero != nullptr ? as_floats(load(w.zero + at)) : splat(Bytes ? 128.0f : 8.0f);
    const F scale = load(w.scale + at);
    return {zero, Scaled ? plain_nan(scale) : scale};
  }
  [[gnu::always_inline]] F weight(F level) const {
    const F v = level - zero;
    if constexpr (!Scaled) return v;
    return (F)(Bf16::nearest(v * scale) & 0xFFFF0000u);  // a NaN here is one of plain_nan, or the processor's own
  }
  // Calls use(weights) for each row along k of a row of bytes.
  template <class Use>
  [[gnu::always_inline]] void each(I levels, Use use) const {
    if constexpr (Bytes) {
      use(weight(as_floats(levels)));
    } else {
      use(weight(low_nibbles(levels)));
      use(weight(high_nibbles(levels)));
    }
  }
};

// The first `part` columns from a place on.
struct Columns {
  int part;
  [[gnu::always_inline]] F operator()(const float* p) const { return load_part(p, part); }
  [[gnu::always_inline]] I operator()(const uint8_t* p) const { return part == kLanes ? widen_bytes(p) : widen_few_bytes(p, part); }
};

template <bool Bytes, bool Scaled>
static void widen_columns(const PackedWeights& w, int n, int part, float* y) {
  const Columns load{part};
  const uint8_t* x = w.x + n;
  y += n;
  for (int block = 0; block < w.blocks; ++block) {
    const auto shared = Shared<Bytes, Scaled>::make(w, ptrdiff_t{block} * w.n + n, load);
    for (int row = 0; row < w.rows; ++row, x += w.n) {
      shared.each(load(x), [&](F weight) {
        store_part(y, weight, part);
        y += w.n;
      });
    }
  }
}

// Adds the products of MR rows of a to `part` columns of c. weights(block, use) calls use(weights) for each row along k of a
// block, and returns its scales. Scaled: those are in the weights.
template <bool Scaled, int MR, class Weights>
OD_INLINE void add_products(const PackedWeights& w, const float* a, ptrdiff_t a_m, int part, float* c, Weights weights) {
  F sums[MR];
#pragma GCC unroll 4
  for (int m = 0; m < MR; ++m) sums[m] = load_part(c + m * w.n, part);
  for (int block = 0; block < w.blocks; ++block) {
    F made[MR]{};
    F* to = Scaled ? sums : made;
    const F scale = weights(block, [&](F weight) {
#pragma GCC unroll 4
      for (int m = 0; m < MR; ++m) to[m] = fma(splat(a[m * a_m]), weight, to[m]);
      ++a;
    });
    if constexpr (!Scaled) {
#pragma GCC unroll 4
      for (int m = 0; m < MR; ++m) sums[m] = fma(made[m], scale, sums[m]);
    }
  }
#pragma GCC unroll 4
  for (int m = 0; m < MR; ++m) store_part(c + m * w.n, sums[m], part);
}

// Inlined once for whole vectors: a `part` that is known takes no mask.
template <bool Bytes, bool Scaled, int MR>
OD_INLINE void multiply_columns(const PackedWeights& w, const float* a, ptrdiff_t a_m, int n, int part, float* c) {
  const Columns load{part};
  const uint8_t* x = w.x + n;
  add_products<Scaled, MR>(w, a, a_m, part, c + n, [&](int block, auto use) __attribute__((always_inline)) {
    const auto shared = Shared<Bytes, Scaled>::make(w, ptrdiff_t{block} * w.n + n, load);
    for (int row = 0; row < w.rows; ++row, x += w.n) shared.each(load(x), use);
    return shared.scale;
  });
}

// So few columns that a vector has some rows of bytes, and a block whole vectors of them.
OD_INLINE bool is_narrow(const PackedWeights& w) { return 2 * w.n <= kLanes && kLanes % w.n == 0 && w.rows * w.n % kLanes == 0; }

template <bool Bytes, bool Scaled, int MR>
static void multiply_narrow(const PackedWeights& w, const float* a, ptrdiff_t a_m, float* c) {
  const Columns few{w.n};
  const int rows = kLanes / w.n;
  I row[kLanes];  // the lanes of each
  for (int i = 0; i < rows; ++i) row[i] = (lane_index() & splat_i(w.n - 1)) + splat_i(i * w.n);
  const auto load = [&](auto* p) { return __builtin_shuffle(few(p), row[0]); };
  const uint8_t* x = w.x;
  add_products<Scaled, MR>(w, a, a_m, w.n, c, [&](int block, auto use) __attribute__((always_inline)) {
    const auto shared = Shared<Bytes, Scaled>::make(w, ptrdiff_t{block} * w.n, load);
    for (const uint8_t* end = x + w.rows * w.n; x < end; x += kLanes) {
      F parts[Bytes ? 1 : 2];
      F* part = parts;
      shared.each(widen_bytes(x), [&](F weight) { *part++ = weight; });
      for (int i = 0; i < rows; ++i) {
        for (const F weight : parts) use(__builtin_shuffle(weight, row[i]));
      }
    }
    return shared.scale;
  });
}

template <bool Bytes, bool Scaled, int MR>
static void multiply_rows(const PackedWeights& w, const float* a, ptrdiff_t a_m, float* c) {
  if (is_narrow(w)) return multiply_narrow<Bytes, Scaled, MR>(w, a, a_m, c);
  int n = 0;
  for (; n + kLanes <= w.n; n += kLanes) multiply_columns<Bytes, Scaled, MR>(w, a, a_m, n, kLanes, c);
  if (n < w.n) multiply_columns<Bytes, Scaled, MR>(w, a, a_m, n, w.n - n, c);
}

// Calls use(Bytes, Scaled), both as types.
template <class Use>
OD_INLINE void for_weights(const PackedWeights& w, Use use) {
  const auto with = [&](auto bytes) { w.scaled ? use(bytes, std::true_type{}) : use(bytes, std::false_type{}); };
  w.bits == 8 ? with(std::true_type{}) : with(std::false_type{});
}

static void widen_weights(const PackedWeights& w, float* y) {
  for_weights(w, [&](auto bytes, auto scaled) {
    for (int n = 0; n < w.n; n += kLanes) widen_columns<decltype(bytes)::value, decltype(scaled)::value>(w, n, w.n - n < kLanes ? w.n - n : kLanes, y);
  });
}

static void multiply_weights(const PackedWeights& w, const float* a, ptrdiff_t a_m, int m, float* c) {
  for_weights(w, [&](auto bytes, auto scaled) {
    constexpr bool kBytes = decltype(bytes)::value, kScaled = decltype(scaled)::value;
    for (; m >= 4; m -= 4, a += 4 * a_m, c += ptrdiff_t{4} * w.n) multiply_rows<kBytes, kScaled, 4>(w, a, a_m, c);
    for (; m > 0; --m, a += a_m, c += w.n) multiply_rows<kBytes, kScaled, 1>(w, a, a_m, c);
  });
}

}  // namespace onedispatch::kernels::OD_LEVEL
