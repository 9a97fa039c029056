// SPDX-License-Identifier: Apache-2.0
// Included once by every simd_*.cpp after it has defined F, I, kLanes and the operations that
// differ between levels. What follows is the same code compiled for another vector width.
namespace onedispatch::kernels::OD_LEVEL {

using U = uint32_t __attribute__((vector_size(sizeof(F))));

OD_INLINE F load(const float* p) {
  F v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
OD_INLINE void store(float* p, F v) { __builtin_memcpy(p, &v, sizeof v); }
OD_INLINE I load_i(const void* p) {
  I v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
OD_INLINE void store_i(void* p, I v) { __builtin_memcpy(p, &v, sizeof v); }
OD_INLINE I load_part_i(const int32_t* p, int n) { return (I)load_part(reinterpret_cast<const float*>(p), n); }
OD_INLINE void store_part_i(int32_t* p, I v, int n) { store_part(reinterpret_cast<float*>(p), (F)v, n); }
OD_INLINE I add_wrap(I a, I b) { return (I)((U)a + (U)b); }
OD_INLINE I sub_wrap(I a, I b) { return (I)((U)a - (U)b); }
OD_INLINE I mul_wrap(I a, I b) { return (I)((U)a * (U)b); }

OD_INLINE F as_floats(I x) { return __builtin_convertvector(x, F); }
// 1.5 * 2^23: floats of this size have no fractions, so adding it rounds to an integer, half to even.
constexpr float kWhole = 12582912.0f;

OD_INLINE F absolute(F x) { return (F)((I)x & splat_i(0x7FFFFFFF)); }
OD_INLINE F copy_sign(F x, F sign) { return (F)(((I)x & splat_i(0x7FFFFFFF)) | ((I)sign & splat_i(INT32_MIN))); }
OD_INLINE F select(I mask, F a, F b) { return mask ? a : b; }
// Larger and smaller value; a NaN on either side wins.
OD_INLINE F max_nan(F a, F b) { return select((a > b) | (a != a), a, b); }
OD_INLINE F min_nan(F a, F b) { return select((a < b) | (a != a), a, b); }

// y[i] = f(vector of x at i): whole vectors and then one part.
template <class Fn>
OD_INLINE void map_one(const float* x, float* y, size_t n, Fn f) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, f(load(x + i)));
  if (i < n) store_part(y + i, f(load_part(x + i, static_cast<int>(n - i))), static_cast<int>(n - i));
}

// One operand of a map: n values, or one value for all.
struct Operand {
  const float* p;
  bool many;
  F value;
  [[gnu::always_inline]] static Operand make(const float* p, int stride) { return {p, stride != 0, splat(p[0])}; }
};
OD_INLINE F fetch(const Operand& o, size_t i) { return o.many ? load(o.p + i) : o.value; }
OD_INLINE F fetch_part(const Operand& o, size_t i, int n) { return o.many ? load_part(o.p + i, n) : o.value; }

}  // namespace onedispatch::kernels::OD_LEVEL
