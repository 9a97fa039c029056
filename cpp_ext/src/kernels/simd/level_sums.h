// SPDX-License-Identifier: Apache-2.0
// Sums of 64 bits, of products of 16-bit integers: these are two bytes each, whose products are those of bytes.
// Plain loops; the compiler makes vectors of this level's width of them.
namespace onedispatch::kernels::OD_LEVEL {

static void split_bytes(const void* x, uint8_t* low, uint8_t* high, size_t n) {
  const auto* from = static_cast<const uint16_t*>(x);
#pragma omp simd
  for (size_t i = 0; i < n; ++i) low[i] = static_cast<uint8_t>(from[i] & 0xFFu);
#pragma omp simd
  for (size_t i = 0; i < n; ++i) high[i] = static_cast<uint8_t>(from[i] >> 8);
}

// sums[i] (+)= part[i] * 2^shift
static void add_part(int64_t* sums, const int32_t* part, int shift, bool accumulate, size_t n) {
  if (accumulate) {
#pragma omp simd
    for (size_t i = 0; i < n; ++i) sums[i] += static_cast<int64_t>(static_cast<uint64_t>(int64_t{part[i]}) << shift);
  } else {
#pragma omp simd
    for (size_t i = 0; i < n; ++i) sums[i] = static_cast<int64_t>(static_cast<uint64_t>(int64_t{part[i]}) << shift);
  }
}

// The float32 that is nearest to x, |x| < 2^51: one rounding, for the double is x itself.
OD_INLINE float nearest_float(int64_t x) {
  constexpr uint64_t kBits = 0x4338000000000000u;  // those of 1.5 x 2^52, whose last bit is 1
  const uint64_t bits = kBits + static_cast<uint64_t>(x);
  double whole;
  __builtin_memcpy(&whole, &bits, sizeof whole);
  return static_cast<float>(whole - 6755399441055744.0);
}

template <class T>
static void requantise_wide_as(const RequantiseWide& q) {
  const Placed<T> place{q.zero};
  const auto n = static_cast<size_t>(q.n);
  for (int m = 0; m < q.m; ++m) {
    const int64_t* x = q.x + m * q.x_m;
    T* y = static_cast<T*>(q.y) + m * q.y_m;
    const int64_t* bias = q.bias;
    const float* scale = q.scale;
    if (q.per_column) {
#pragma omp simd
      for (size_t i = 0; i < n; ++i) y[i] = place(nearest_float(x[i] + bias[i]) * scale[i]);
    } else {
      const int64_t added = bias[0];
      const float one = scale[0];
#pragma omp simd
      for (size_t i = 0; i < n; ++i) y[i] = place(nearest_float(x[i] + added) * one);
    }
  }
}

static void requantise_wide(const RequantiseWide& q) {
  with_integer(q.dtype, [&](auto element) {
    if constexpr (sizeof(element) < 4) requantise_wide_as<decltype(element)>(q);
  });
}

}  // namespace onedispatch::kernels::OD_LEVEL
