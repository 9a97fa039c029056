// SPDX-License-Identifier: Apache-2.0
// Window operations over padded planes (window.h): im2col, depthwise products, pooling.
namespace onedispatch::kernels::OD_LEVEL {

// y[i] = x[i * stride]; reads nothing beyond x[(n - 1) * stride].
static void copy_strided(const float* x, ptrdiff_t stride, float* y, int n) {
  int i = 0;
  if (stride == 2) {
    for (; i + kLanes < n; i += kLanes) store(y + i, even_lanes(load(x + 2 * i), load(x + 2 * i + kLanes)));
  }
  for (; i < n; ++i) y[i] = x[i * stride];
}

// One row of output pixels per tap. Each run is written in whole vectors: what is too much is
// overwritten by the next run, so the buffer needs kOverrun elements of slack at its end.
static void im2col(const Taps& t) {
  for (int tap = 0; tap < t.taps; ++tap) {
    const float* from = t.plane + t.offsets[tap];
    float* to = t.out + tap * t.out_row;
    for (int r = 0; r < t.rows; ++r, from += t.plane_row, to += t.columns) {
      for (int i = 0; i < t.columns; i += kLanes) store(to + i, load(from + i));
    }
  }
}

// acc of Rows output rows x one vector of pixels at a time: independent chains hide the latency.
template <int Rows, class Fn, class Last>
OD_INLINE void taps_rows(const Taps& t, int row, F start, Fn step, Last last) {
  for (int i = 0; i < t.columns; i += kLanes) {
    const float* base = t.plane + row * t.plane_row + i;
    F acc[Rows];
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) acc[r] = start;
    for (int tap = 0; tap < t.taps; ++tap) {
      const float* from = base + t.offsets[tap];
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r) acc[r] = step(acc[r], load(from + r * t.plane_row), tap);
    }
    float* out = t.out + row * t.out_row + i;
    const int left = t.columns - i;
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
      if (left >= kLanes) {
        store(out + r * t.out_row, last(acc[r]));
      } else {
        store_part(out + r * t.out_row, last(acc[r]), left);
      }
    }
  }
}

template <class Fn>
OD_INLINE void all_taps(const Taps& t, F start, Fn step) {
  const auto same = [&](F v) { return v; };
  int row = 0;
  for (; row + 4 <= t.rows; row += 4) taps_rows<4>(t, row, start, step, same);
  for (; row < t.rows; ++row) taps_rows<1>(t, row, start, step, same);
}

static void taps_mac(const Taps& t, const float* weights, float bias) {
  all_taps(t, splat(bias), [&](F acc, F x, int tap) { return fma(splat(weights[tap]), x, acc); });
}

// As onnxruntime: starts at the lowest finite value, a later value replaces a NaN. The padding is
// -infinity and changes nothing, not even a NaN.
static void taps_max(const Taps& t) {
  const F padding = splat(-kInf);
  all_taps(t, splat(std::numeric_limits<float>::lowest()),
           [&](F acc, F x, int) { return select((acc > x) | (x == padding), acc, x); });
}

static void taps_sum(const Taps& t) {
  all_taps(t, F{}, [&](F acc, F x, int) { return acc + x; });
}

}  // namespace onedispatch::kernels::OD_LEVEL
