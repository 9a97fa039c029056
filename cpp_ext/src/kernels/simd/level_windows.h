// SPDX-License-Identifier: Apache-2.0
// Window operations over padded planes (window.h): im2col, depthwise products, pooling.
namespace onedispatch::kernels::OD_LEVEL {

// The first n < kLanes lanes, without a masked store: loads that follow soon could not be served
// from one before it has left the store buffer.
template <int Width = kLanes / 2>
OD_INLINE void store_pieces(float* y, F v, int n) {
  if (n & Width) {
    __builtin_memcpy(y, &v, Width * sizeof *y);
    y += Width;
    v = __builtin_shuffle(v, (lane_index() + Width) & (kLanes - 1));
  }
  if constexpr (Width > 1) store_pieces<Width / 2>(y, v, n);
}

// y[i] = x[i * stride]; reads nothing beyond x[(n - 1) * stride].
OD_INLINE void copy_run(const float* x, ptrdiff_t stride, float* y, int n) {
  int i = 0;
  if (stride == 1) {
    for (; i + kLanes <= n; i += kLanes) store(y + i, load(x + i));
    if (i == n) return;
    if (n > kLanes) {
      store(y + n - kLanes, load(x + n - kLanes));
    } else {
      store_pieces(y, load_part(x, n), n);
    }
    return;
  }
  if (stride == 2) {
    for (; i + kLanes < n; i += kLanes) store(y + i, even_lanes(load(x + 2 * i), load(x + 2 * i + kLanes)));
    if (n >= kLanes) i = n - kLanes;
    const int left = 2 * (n - i) - 1;  // the last of these elements is the last that exists
    const F low = left < kLanes ? load_part(x + 2 * i, left) : load(x + 2 * i);
    const F high = left > kLanes ? load_part(x + 2 * i + kLanes, left - kLanes) : F{};
    if (n >= kLanes) {
      store(y + i, even_lanes(low, high));
    } else {
      store_pieces(y, even_lanes(low, high), n);
    }
    return;
  }
  for (; i < n; ++i) y[i] = x[i * stride];
}

static void copy_strided(const float* x, ptrdiff_t stride, float* y, int n) { copy_run(x, stride, y, n); }

static void copy_rows(const float* x, ptrdiff_t x_row, ptrdiff_t stride, float* y, ptrdiff_t y_row, int rows, int n) {
  for (int r = 0; r < rows; ++r) copy_run(x + r * x_row, stride, y + r * y_row, n);
}

// n bytes; where n is no multiple of the pieces, the last two overlap.
template <int Piece>
OD_INLINE void copy_pieces(const uint8_t* x, uint8_t* y, int n) {
  for (int i = 0; i + Piece < n; i += Piece) __builtin_memcpy(y + i, x + i, Piece);
  __builtin_memcpy(y + n - Piece, x + n - Piece, Piece);
}
OD_INLINE void copy_bytes(const uint8_t* x, uint8_t* y, int n) {
  if (n >= 64) return copy_pieces<64>(x, y, n);
  if (n >= 16) return copy_pieces<16>(x, y, n);
  if (n >= 8) return copy_pieces<8>(x, y, n);
  if (n >= 4) return copy_pieces<4>(x, y, n);
  for (int i = 0; i < n; ++i) y[i] = x[i];
}

template <int N>
OD_INLINE void copy_short_rows(const uint8_t* x, ptrdiff_t x_row, uint8_t* y, ptrdiff_t y_row, int rows) {
  for (int r = 0; r < rows; ++r) __builtin_memcpy(y + r * y_row, x + r * x_row, N);
}

static void copy_byte_rows(const uint8_t* x, ptrdiff_t x_row, ptrdiff_t stride, uint8_t* y, ptrdiff_t y_row, int rows, int n) {
  if (stride == 1 && n == 3) return copy_short_rows<3>(x, x_row, y, y_row, rows);
  if (stride == 1 && n == 2) return copy_short_rows<2>(x, x_row, y, y_row, rows);
  if (stride == 1 && n == 1) return copy_short_rows<1>(x, x_row, y, y_row, rows);
  for (int r = 0; r < rows; ++r, x += x_row, y += y_row) {
    if (stride == 1) {
      copy_bytes(x, y, n);
    } else if (stride == 2) {
#pragma omp simd
      for (int i = 0; i < n; ++i) y[i] = x[2 * i];
    } else {
      for (int i = 0; i < n; ++i) y[i] = x[i * stride];
    }
  }
}

// One row of output pixels per tap. Each run is written in whole vectors: what is too much is
// overwritten by the next run, so the buffer needs kOverrun elements of slack at its end.
template <class Element>
OD_INLINE void columns_of(const TapsOf<Element>& t) {
  for (int tap = 0; tap < t.taps; ++tap) {
    const Element* from = t.plane + t.offsets[tap];
    Element* to = t.out + tap * t.out_row;
    for (int r = 0; r < t.rows; ++r, from += t.plane_row, to += t.columns) {
      for (int i = 0; i < t.columns; i += kOverrun) __builtin_memcpy(to + i, from + i, kOverrun * sizeof(Element));
    }
  }
}

static void im2col(const Taps& t) { columns_of(t); }
static void im2col_bytes(const TapsOf<uint8_t>& t) { columns_of(t); }

// acc of Rows output rows x one vector of pixels at a time: independent chains hide the latency. `load` makes words of
// what lies in the plane.
template <int Rows, class Element, class Word, class Load, class Fn>
OD_INLINE void taps_rows(const TapsOf<Element>& t, int row, Vector<Word> start, Word* to, Load load, Fn step) {
  for (int i = 0; i < t.columns; i += kLanes) {
    const Element* base = t.plane + row * t.plane_row + i;
    Vector<Word> acc[Rows];
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) acc[r] = start;
    for (int tap = 0; tap < t.taps; ++tap) {
      const Element* from = base + t.offsets[tap];
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r) acc[r] = step(acc[r], load(from + r * t.plane_row), tap);
    }
    Word* out = to + row * t.out_row + i;
    const int left = t.columns - i;
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
      if (left >= kLanes) {
        store_as(out + r * t.out_row, acc[r]);
      } else {
        store_part_as(out + r * t.out_row, acc[r], left);
      }
    }
  }
}

// Rows in parts of about the same number: one by one, they would wait for each other's sums.
template <class Element, class Word, class Load, class Fn>
OD_INLINE void loaded_taps(const TapsOf<Element>& t, Vector<Word> start, Word* to, Load load, Fn step) {
  for (int row = 0, parts = (t.rows + 3) / 4; parts > 0; --parts) {
    const int rows = (t.rows - row + parts - 1) / parts;
    switch (rows) {
      case 4: taps_rows<4>(t, row, start, to, load, step); break;
      case 3: taps_rows<3>(t, row, start, to, load, step); break;
      case 2: taps_rows<2>(t, row, start, to, load, step); break;
      default: taps_rows<1>(t, row, start, to, load, step);
    }
    row += rows;
  }
}

// Vectors of words of what lies in a plane.
struct WordsOfPlane {
  template <class Word>
  [[gnu::always_inline]] Vector<Word> operator()(const Word* x) const {
    return load_as(x);
  }
};
template <bool Signed>
struct BytesOfPlane {
  [[gnu::always_inline]] I operator()(const uint8_t* x) const {
    const I wide = widen_bytes(x);
    return Signed ? (I)((U)wide << 24) >> 24 : wide;
  }
};

template <class Word, class Fn>
OD_INLINE void all_taps(const TapsOf<Word>& t, Vector<Word> start, Fn step) {
  loaded_taps(t, start, t.out, WordsOfPlane{}, step);
}

static void taps_mac(const Taps& t, const float* weights, float bias) {
  all_taps(t, splat(bias), [&](F acc, F x, int tap) { return fma(splat(weights[tap]), x, acc); });
}

static void taps_mac_i32(const TapsOf<int32_t>& t, const int32_t* weights, int32_t bias) {
  all_taps(t, splat_i(bias), [&](I acc, I x, int tap) { return add_wrap(acc, mul_wrap(splat_i(weights[tap]), x)); });
}

static void taps_mac_bytes(const TapsOf<uint8_t>& t, bool is_signed, const int32_t* weights, int32_t bias, int32_t* out) {
  const auto step = [&](I acc, I x, int tap) { return add_wrap(acc, mul_wrap(splat_i(weights[tap]), x)); };
  if (is_signed) {
    loaded_taps(t, splat_i(bias), out, BytesOfPlane<true>{}, step);
  } else {
    loaded_taps(t, splat_i(bias), out, BytesOfPlane<false>{}, step);
  }
}

// NaN are passed over. The padding is the least value and changes nothing.
template <class Word>
static void taps_max(const TapsOf<Word>& t) {
  all_taps(t, splat_as(least<Word>()), [&](Vector<Word> acc, Vector<Word> x, int) { return x > acc ? x : acc; });
}

template <class Word>
static void taps_sum(const TapsOf<Word>& t) {
  all_taps(t, Vector<Word>{}, [&](Vector<Word> acc, Vector<Word> x, int) { return add_words(acc, x); });
}

template <class Word>
constexpr WordLevel<Word> word_level() {
  return {taps_max<Word>, taps_sum<Word>, reduce_columns<Word>, reduce_row<Word>};
}

}  // namespace onedispatch::kernels::OD_LEVEL
