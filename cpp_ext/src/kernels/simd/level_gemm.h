// SPDX-License-Identifier: Apache-2.0
// Matrix products: a register tile of up to kBigM rows x 3 vectors, A read by broadcast straight
// from where it lies, B row by row. Nothing is packed for f32; bytes are packed into dot groups.
namespace onedispatch::kernels::OD_LEVEL {

OD_INLINE F multiply_add(F a, F b, F sum) { return fma(a, b, sum); }
OD_INLINE I multiply_add(I a, I b, I sum) { return add_wrap(mul_wrap(a, b), sum); }

template <class Word, int MR, int NV, bool Part>
static void tile_words(const Product<Word>& g, const Word* a, const Word* b, Word* c, int part) {
  using V = Vector<Word>;
  V acc[MR][NV];
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) {
      const Word* p = c + m * g.c_m + v * kLanes;
      acc[m][v] = !g.accumulate ? V{} : Part && v == NV - 1 ? load_part_as(p, part) : load_as(p);
    }
  }
  const ptrdiff_t a_m = g.a_m, a_k = g.a_k, b_k = g.b_k;
  for (int k = 0; k < g.k; ++k, a += a_k, b += b_k) {
    V row[NV];
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) row[v] = Part && v == NV - 1 ? load_part_as(b + v * kLanes, part) : load_as(b + v * kLanes);
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m) {
      const V factor = splat_as(a[m * a_m]);
#pragma GCC unroll 8
      for (int v = 0; v < NV; ++v) acc[m][v] = multiply_add(factor, row[v], acc[m][v]);
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) {
      Word* p = c + m * g.c_m + v * kLanes;
      if (Part && v == NV - 1) {
        store_part_as(p, acc[m][v], part);
      } else {
        store_as(p, acc[m][v]);
      }
    }
  }
}

template <class Word>
using Tile = void (*)(const Product<Word>&, const Word*, const Word*, Word*, int);
template <class Word, int MR>
struct TilesOfRows {  // [vectors - 1][last vector is a part]
  static constexpr Tile<Word> kTiles[3][2] = {{tile_words<Word, MR, 1, false>, tile_words<Word, MR, 1, true>},
                                              {tile_words<Word, MR, 2, false>, tile_words<Word, MR, 2, true>},
                                              {tile_words<Word, MR, 3, false>, tile_words<Word, MR, 3, true>}};
};

// How many vectors the next panel takes of those that remain: 4 split as 2 + 2, never 3 + 1.
OD_INLINE int panel_vectors(int vectors) { return vectors == 4 ? 2 : vectors < 3 ? vectors : 3; }

template <class Word>
static void product(const Product<Word>& g) {
  constexpr int kRows[4] = {kBigM, 4, 2, 1};
  constexpr const Tile<Word>(*kTiles[4])[2] = {TilesOfRows<Word, kBigM>::kTiles, TilesOfRows<Word, 4>::kTiles,
                                               TilesOfRows<Word, 2>::kTiles, TilesOfRows<Word, 1>::kTiles};
  int n = 0;
  // A single row needs more columns at a time, or it waits for its own sums.
  for (; g.m == 1 && n + 8 * kLanes <= g.n; n += 8 * kLanes) tile_words<Word, 1, 8, false>(g, g.a, g.b + n, g.c + n, kLanes);
  while (n < g.n) {
    const int vectors = panel_vectors((g.n - n + kLanes - 1) / kLanes);
    const int width = vectors * kLanes < g.n - n ? vectors * kLanes : g.n - n;
    const int part = width - (vectors - 1) * kLanes;
    for (int m = 0, step = 0; m < g.m; m += kRows[step]) {
      while (kRows[step] > g.m - m) ++step;
      kTiles[step][vectors - 1][part != kLanes](g, g.a + m * g.a_m, g.b + n, g.c + m * g.c_m + n, part);
    }
    n += width;
  }
}

static void gemm_f32(const GemmF32& g) { product(g); }
static void gemm_i32(const GemmI32& g) { product(g); }

// 32-bit words, so also groups of four bytes. Whole kLanes x kLanes blocks by shuffles.
template <int Step>
OD_INLINE void transpose_step(I (&v)[kLanes]) {
  I low{}, high{};  // shuffle masks: blocks of Step lanes of a and b interleaved
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    const bool odd = (i / Step) % 2 != 0;
    low[i] = odd ? kLanes + i - Step : i;
    high[i] = odd ? kLanes + i : i + Step;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    if ((i / Step) % 2 != 0) continue;
    const I a = v[i], b = v[i + Step];
    v[i] = __builtin_shuffle(a, b, low);
    v[i + Step] = __builtin_shuffle(a, b, high);
  }
}

OD_INLINE void transpose_block(const float* x, ptrdiff_t x_row, float* y, ptrdiff_t y_row) {
  I v[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) v[i] = load_i(x + i * x_row);
  transpose_step<1>(v);
  transpose_step<2>(v);
  if constexpr (kLanes > 4) transpose_step<4>(v);
  if constexpr (kLanes > 8) transpose_step<8>(v);
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) store_i(y + i * y_row, v[i]);
}

static void transpose(const float* x, ptrdiff_t x_row, int rows, int columns, float* y, ptrdiff_t y_row) {
  const int whole_rows = rows / kLanes * kLanes, whole_columns = columns / kLanes * kLanes;
  for (int c = 0; c < whole_columns; c += kLanes) {
    for (int r = 0; r < whole_rows; r += kLanes) transpose_block(x + r * x_row + c, x_row, y + c * y_row + r, y_row);
  }
  for (int r = 0; r < rows; ++r) {
    for (int c = r < whole_rows ? whole_columns : 0; c < columns; ++c) y[c * y_row + r] = x[r * x_row + c];
  }
}

constexpr int kGroup = kVnni ? 4 : 2;           // values of k per 32-bit lane

// The value that the packed operand holds: VNNI wants unsigned A and signed B bytes, so the other
// sign is shifted by 128 and its zero point with it; int16 pairs hold value - zero point.
OD_INLINE uint32_t flip_of(bool is_signed, bool want_signed) { return is_signed != want_signed ? 0x80u : 0u; }
OD_INLINE int32_t widen(uint8_t x, bool is_signed) { return is_signed ? static_cast<int8_t>(x) : x; }

// A as [m][group] words. sums[m] = sum over k of the packed bytes (VNNI only).
static void pack_a(const GemmI8& g, int groups, uint32_t* packed, int32_t* sums) {
  const uint32_t flip = flip_of(g.a_signed, false);
  for (int m = 0; m < g.m; ++m) {
    const uint8_t* row = g.a + m * g.a_m;
    uint32_t* out = packed + static_cast<ptrdiff_t>(m) * groups;
    uint32_t sum = 0;
    for (int q = 0, k = 0; q < groups; ++q) {
      uint32_t word = 0;
      for (int j = 0; j < kGroup && k < g.k; ++j, ++k) {
        if constexpr (kVnni) {
          const uint32_t value = row[k * g.a_k] ^ flip;
          sum += value;
          word |= value << (8 * j);
        } else {
          const int32_t value = widen(row[k * g.a_k], g.a_signed) - g.a_zero[m];
          word |= (static_cast<uint32_t>(value) & 0xFFFFu) << (16 * j);
        }
      }
      out[q] = word;
    }
    sums[m] = static_cast<int32_t>(sum);
  }
}

// As pack_a, for contiguous k and VNNI: the words are already there but for the sign.
OD_INLINE void pack_a_contiguous(const GemmI8& g, int groups, uint32_t* packed, int32_t* sums) {
  const uint32_t flip = flip_of(g.a_signed, false) * 0x01010101u;
  for (int m = 0; m < g.m; ++m) {
    const uint8_t* row = g.a + m * g.a_m;
    uint32_t* out = packed + static_cast<ptrdiff_t>(m) * groups;
    const int whole = g.k / 4;
    int q = 0;
    I sum{};
    if constexpr (kVnni) {
      for (; q < whole; q += kLanes) {
        const int part = whole - q < kLanes ? whole - q : kLanes;
        const I flips = splat_i(static_cast<int32_t>(flip)) & (lane_index() < splat_i(part));
        const I bytes = (I)load_part(reinterpret_cast<const float*>(row + 4 * q), part) ^ flips;
        store_part_i(reinterpret_cast<int32_t*>(out + q), bytes, part);
        sum = dot(sum, bytes, splat_i(0x01010101));
      }
      q = whole;
    }
    uint32_t total = 0;
    for (int i = 0; i < kLanes; ++i) total += static_cast<uint32_t>(sum[i]);
    for (; q < groups; ++q) {
      uint32_t word = 0;
      const int bytes = g.k - 4 * q < 4 ? g.k - 4 * q : 4;
      for (int j = 0; j < bytes; ++j) word |= ((row[4 * q + j] ^ flip) & 0xFFu) << (8 * j);
      out[q] = word;
      total += (word & 0xFF) + (word >> 8 & 0xFF) + (word >> 16 & 0xFF) + (word >> 24);
    }
    sums[m] = static_cast<int32_t>(total);
  }
}

OD_INLINE uint32_t group_of_b(const GemmI8& g, int k, int n, uint32_t flip) {
  uint32_t word = 0;
  for (int j = 0; j < kGroup && k + j < g.k; ++j) {
    const uint8_t byte = g.b[(k + j) * g.b_k + n * g.b_n];
    if constexpr (kVnni) {
      word |= (byte ^ flip) << (8 * j);
    } else {
      word |= (static_cast<uint32_t>(widen(byte, g.b_signed) - g.b_zero[n]) & 0xFFFFu) << (16 * j);
    }
  }
  return word;
}

// kLanes columns of one whole group from contiguous rows.
OD_INLINE I group_vector(const GemmI8& g, int k, int n, uint32_t flip) {
  U rows[kGroup];
#pragma GCC unroll 4
  for (int j = 0; j < kGroup; ++j) {
    rows[j] = (U)widen_bytes(g.b + (k + j) * g.b_k + n);
  }
  if constexpr (kVnni) {
    return (I)((rows[0] | rows[1] << 8 | rows[2] << 16 | rows[3] << 24) ^ (flip * 0x01010101u));
  } else {
    const int shift = g.b_signed ? 24 : 0;
    const I zero = load_i(g.b_zero + n);
    const I first = ((I)(rows[0] << shift) >> shift) - zero, second = ((I)(rows[1] << shift) >> shift) - zero;
    return (first & splat_i(0xFFFF)) | (I)((U)second << 16);
  }
}

// B as [group][columns rounded up to kLanes] words; sums[n] as in pack_a.
static void pack_b(const GemmI8& g, int groups, ptrdiff_t stride, uint32_t* packed, int32_t* sums) {
  const uint32_t flip = flip_of(g.b_signed, true);
  const bool aligned = reinterpret_cast<uintptr_t>(g.b) % 4 == 0;
  const bool words = kVnni && g.b_k == 1 && g.b_n % 4 == 0 && aligned;  // columns hold whole groups
  const int whole = g.k / kGroup;
  if (words) {
    transpose(reinterpret_cast<const float*>(g.b), g.b_n / 4, g.n, whole, reinterpret_cast<float*>(packed), stride);
    if (flip != 0) {
      for (ptrdiff_t i = 0; i < whole * stride; i += kLanes) {
        store_i(packed + i, load_i(packed + i) ^ splat_i(static_cast<int32_t>(flip * 0x01010101u)));
      }
    }
  }
  for (int q = words ? whole : 0; q < groups; ++q) {
    uint32_t* out = packed + q * stride;
    int n = 0;
    if (g.b_n == 1 && q < whole) {
      for (; n + kLanes <= g.n; n += kLanes) store_i(out + n, group_vector(g, q * kGroup, n, flip));
    }
    for (; n < g.n; ++n) out[n] = group_of_b(g, q * kGroup, n, flip);
  }
  for (ptrdiff_t n = 0; n < stride; n += kLanes) {
    I sum{};
    if constexpr (kVnni) {
      for (int q = 0; q < groups; ++q) sum = dot(sum, splat_i(0x01010101), load_i(packed + q * stride + n));
    }
    store_i(sums + n, sum);
  }
}

template <int MR, int NV>
static void tile_i8(const GemmI8& g, int groups, const uint32_t* a, const uint32_t* b, ptrdiff_t b_row, int32_t* c,
                    const int32_t* start, const int32_t* row_start, int part) {
  I acc[MR][NV];
#pragma GCC unroll 8
  for (int v = 0; v < NV; ++v) {
    const I first = load_i(start + v * kLanes);
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m) acc[m][v] = add_wrap(first, splat_i(row_start[m]));
  }
  for (int q = 0; q < groups; ++q, b += b_row) {
    I row[NV];
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) row[v] = load_i(b + v * kLanes);
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m) {
      const I factor = splat_i(static_cast<int32_t>(a[m * groups + q]));
#pragma GCC unroll 8
      for (int v = 0; v < NV; ++v) acc[m][v] = dot(acc[m][v], factor, row[v]);
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) {
      int32_t* p = c + m * g.c_m + v * kLanes;
      const bool whole = v < NV - 1 || part == kLanes;
      if (g.accumulate) acc[m][v] = add_wrap(acc[m][v], whole ? load_i(p) : load_part_i(p, part));
      if (whole) {
        store_i(p, acc[m][v]);
      } else {
        store_part_i(p, acc[m][v], part);
      }
    }
  }
}

using TileI8 = void (*)(const GemmI8&, int, const uint32_t*, const uint32_t*, ptrdiff_t, int32_t*,
                        const int32_t*, const int32_t*, int);
static constexpr TileI8 kTilesI8[4][3] = {
    {tile_i8<kBigM, 1>, tile_i8<kBigM, 2>, tile_i8<kBigM, 3>},
    {tile_i8<4, 1>, tile_i8<4, 2>, tile_i8<4, 3>},
    {tile_i8<2, 1>, tile_i8<2, 2>, tile_i8<2, 3>},
    {tile_i8<1, 1>, tile_i8<1, 2>, tile_i8<1, 3>},
};

// sum (a - az)(b - bz) = sum ab - az * sum b - bz * (sum a - K * az), the last three terms, where
// they are not a constant of the column that the tiles have started from.
OD_INLINE void correct_zero_points(const GemmI8& g, const int32_t* a_sums, const int32_t* b_sums) {
  const int32_t a_shift = g.a_signed ? 128 : 0, b_shift = g.b_signed ? 0 : 128;
  for (int m = 0; m < g.m; ++m) {
    const uint32_t az = static_cast<uint32_t>(g.a_zero[m] + a_shift);
    const I zero = splat_i(static_cast<int32_t>(az));
    const I rest = splat_i(static_cast<int32_t>(static_cast<uint32_t>(a_sums[m]) - static_cast<uint32_t>(g.k) * az));
    int32_t* row = g.c + m * g.c_m;
    for (int n = 0; n < g.n; n += kLanes) {
      const int part = g.n - n < kLanes ? g.n - n : kLanes;
      const I b_zero = load_part_i(g.b_zero + n, part) - splat_i(b_shift);
      const I less = add_wrap(mul_wrap(zero, load_i(b_sums + n)), mul_wrap(rest, b_zero));
      store_part_i(row + n, (I)((U)load_part_i(row + n, part) - (U)less), part);
    }
  }
}

// Fills start[n] and row_start[m], whose sum element [m][n] begins with. True when that corrects all zero
// points: one zero point for all rows of A and one for all columns of B (the usual case).
OD_INLINE bool start_from_zero_points(const GemmI8& g, const int32_t* a_sums, const int32_t* b_sums, ptrdiff_t stride,
                                      int32_t* start, int32_t* row_start) {
  const int32_t a_shift = g.a_signed ? 128 : 0, b_shift = g.b_signed ? 0 : 128;
  bool simple = true;
  for (int n = 1; n < g.n; ++n) simple &= g.b_zero[n] == g.b_zero[0];
  for (int m = 1; m < g.m; ++m) simple &= g.a_zero[m] == g.a_zero[0];
  const bool packed = kVnni && simple;  // other levels have taken the zero points from the values
  const auto az = packed ? static_cast<uint32_t>(g.a_zero[0] + a_shift) : 0u;
  const auto bz = packed ? static_cast<uint32_t>(g.b_zero[0] - b_shift) : 0u;
  const I factor = splat_i(static_cast<int32_t>(0u - az));
  for (ptrdiff_t n = 0; n < stride; n += kLanes) store_i(start + n, mul_wrap(factor, load_i(b_sums + n)));
  for (int m = 0; m < g.m; ++m) row_start[m] = static_cast<int32_t>((static_cast<uint32_t>(g.k) * az - static_cast<uint32_t>(a_sums[m])) * bz);
  return simple;
}

static void gemm_i8(const GemmI8& g) {
  constexpr int kRows[4] = {kBigM, 4, 2, 1};
  const int groups = (g.k + kGroup - 1) / kGroup;
  const ptrdiff_t stride = (g.n + kLanes - 1) / kLanes * kLanes;
  auto* a = static_cast<uint32_t*>(scratch(kScratchPackA, (static_cast<size_t>(g.m) * groups + 2 * g.m + 1) * 4));
  auto* b = static_cast<uint32_t*>(scratch(kScratchPackB, static_cast<size_t>(stride) * (groups + 2) * 4));
  auto* a_sums = reinterpret_cast<int32_t*>(a + static_cast<ptrdiff_t>(g.m) * groups);
  auto* b_sums = reinterpret_cast<int32_t*>(b + stride * groups);
  if (kVnni && g.a_k == 1) {
    pack_a_contiguous(g, groups, a, a_sums);
  } else {
    pack_a(g, groups, a, a_sums);
  }
  pack_b(g, groups, stride, b, b_sums);
  int32_t* start = b_sums + stride;
  int32_t* row_start = a_sums + g.m;
  const bool corrected = start_from_zero_points(g, a_sums, b_sums, stride, start, row_start);
  for (int n = 0; n < g.n;) {
    const int vectors = panel_vectors((g.n - n + kLanes - 1) / kLanes);
    const int width = vectors * kLanes < g.n - n ? vectors * kLanes : g.n - n;
    for (int m = 0, step = 0; m < g.m; m += kRows[step]) {
      while (kRows[step] > g.m - m) ++step;
      kTilesI8[step][vectors - 1](g, groups, a + static_cast<ptrdiff_t>(m) * groups, b + n, stride,
                                  g.c + m * g.c_m + n, start + n, row_start + m, width - (vectors - 1) * kLanes);
    }
    n += width;
  }
  if (kVnni && !corrected) correct_zero_points(g, a_sums, b_sums);
}

// onnxruntime's arithmetic: the sum as f32 times the scale, saturated, rounded half to even.
template <class Type>
static void requantise_as(const Requantise& q) {
  using Element = typename Type::Element;
  using Limits = std::numeric_limits<Element>;
  const F low = splat(static_cast<float>(Limits::min() - q.zero)), high = splat(static_cast<float>(Limits::max() - q.zero));
  const F magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const F one = splat(q.scale[0]);
  for (int m = 0; m < q.m; ++m) {
    const int32_t* x = q.x + m * q.x_m;
    auto* y = static_cast<Element*>(q.y) + m * q.y_m;
    for (int n = 0; n < q.n; n += kLanes) {
      const int part = q.n - n < kLanes ? q.n - n : kLanes;
      const F scale = q.per_column ? load_part(q.scale + n, part) : one;
      F v = __builtin_convertvector(load_part_i(x + n, part), F) * scale;
      v = select(v > low, v, low);
      v = select(v < high, v, high);
      const I rounded = sub_wrap((I)(v + magic), (I)magic) + splat_i(q.zero);
      const auto narrow = Type::narrow(rounded);
      __builtin_memcpy(y + n, &narrow, static_cast<size_t>(part) * sizeof *y);
    }
  }
}

// Too wide for the vectors' rounding: doubles hold every f32 product and every int32.
static void requantise_words(const Requantise& q) {
  for (int m = 0; m < q.m; ++m) {
    for (int n = 0; n < q.n; ++n) {
      const float v = static_cast<float>(q.x[m * q.x_m + n]) * q.scale[q.per_column ? n : 0];
      double r = __builtin_rint(static_cast<double>(v)) + q.zero;
      r = r > INT32_MIN ? r : INT32_MIN;
      static_cast<int32_t*>(q.y)[m * q.y_m + n] = static_cast<int32_t>(r < INT32_MAX ? r : INT32_MAX);
    }
  }
}

static void requantise(const Requantise& q) {
  namespace d = params::dtype;
  switch (q.dtype) {
    case d::i8: requantise_as<Integer<int8_t, int32_t>>(q); break;
    case d::u8: requantise_as<Integer<uint8_t, int32_t>>(q); break;
    case d::i16: requantise_as<Integer<int16_t, int32_t>>(q); break;
    default: requantise_words(q); break;
  }
}

}  // namespace onedispatch::kernels::OD_LEVEL
