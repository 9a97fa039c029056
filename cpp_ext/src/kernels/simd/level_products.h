// SPDX-License-Identifier: Apache-2.0
// Products of bytes: a register tile of up to kBigM rows x 3 vectors over groups of k that one instruction
// multiplies and adds, and what becomes of their sums.
namespace onedispatch::kernels::OD_LEVEL {

constexpr int kGroup = kVnni ? 4 : 2;  // values of k per 32-bit lane

// What the packed operands hold. VNNI multiplies unsigned by signed bytes: where A is signed and B is not, B is the
// unsigned one; else an operand of the other sign is shifted by 128, and its zero point with it. int16 pairs hold
// value - zero point.
struct Packing {
  bool b_unsigned;
  uint32_t a_flip, b_flip;   // of every byte
  int32_t a_shift, b_shift;  // what that adds to values
};
OD_INLINE Packing packing_of(const GemmI8& g) {
  if (!kVnni || (g.a_signed && !g.b_signed)) return {kVnni, 0, 0, 0, 0};
  return {false, g.a_signed ? 0x80u : 0u, g.b_signed ? 0u : 0x80u, g.a_signed ? 128 : 0, g.b_signed ? 0 : -128};
}

OD_INLINE int32_t widen(uint8_t x, bool is_signed) { return is_signed ? static_cast<int8_t>(x) : x; }
OD_INLINE int32_t load_word(const uint8_t* p) {
  int32_t word;
  __builtin_memcpy(&word, p, sizeof word);
  return word;
}
// Whether all n values are the same.
OD_INLINE bool all_same(const int32_t* x, int n) {
  return n < 2 || __builtin_memcmp(x, x + 1, static_cast<size_t>(n - 1) * sizeof *x) == 0;
}
OD_INLINE bool all_zero(const int32_t* x, int n) { return n == 0 || (x[0] == 0 && all_same(x, n)); }

// The words of A that the tiles read: row m begins `row` bytes behind row m - 1.
struct PackedA {
  const uint8_t* words;
  ptrdiff_t row;
};

// A as [m][group] words, byte by byte.
static void pack_a(const GemmI8& g, int groups, uint32_t flip, uint32_t* packed) {
  for (int m = 0; m < g.m; ++m) {
    const uint8_t* row = g.a + m * g.a_m;
    uint32_t* out = packed + static_cast<ptrdiff_t>(m) * groups;
    for (int q = 0, k = 0; q < groups; ++q) {
      uint32_t word = 0;
      for (int j = 0; j < kGroup && k < g.k; ++j, ++k) {
        if constexpr (kVnni) {
          word |= (row[k * g.a_k] ^ flip) << (8 * j);
        } else {
          const int32_t value = widen(row[k * g.a_k], g.a_signed) - g.a_zero[m];
          word |= (static_cast<uint32_t>(value) & 0xFFFFu) << (16 * j);
        }
      }
      out[q] = word;
    }
  }
}

// The same for contiguous k and VNNI: the words are already there but for the sign.
static void pack_a_contiguous(const GemmI8& g, int groups, uint32_t flip, uint32_t* packed) {
  const int whole = g.k / 4, rest = g.k % 4;
  const I flips = splat_i(static_cast<int32_t>(flip * 0x01010101u));
  for (int m = 0; m < g.m; ++m) {
    const uint8_t* row = g.a + m * g.a_m;
    uint32_t* out = packed + static_cast<ptrdiff_t>(m) * groups;
    for (int q = 0; q < whole; q += kLanes) {
      const int part = whole - q < kLanes ? whole - q : kLanes;
      const I bytes = (I)load_part(reinterpret_cast<const float*>(row + 4 * q), part) ^ flips;
      store_part_i(reinterpret_cast<int32_t*>(out + q), bytes, part);
    }
    if (rest == 0) continue;
    uint32_t word = 0;
    for (int j = 0; j < rest; ++j) word |= (row[4 * whole + j] ^ flip) << (8 * j);
    out[whole] = word;
  }
}

// Where the tiles may read A as it lies, it is not copied.
static PackedA packed_a(const GemmI8& g, int groups, uint32_t flip, uint32_t* room) {
  if (kVnni && g.a_k == 1 && flip == 0 && g.k % kGroup == 0) return {g.a, g.a_m};
  if (kVnni && g.a_k == 1) {
    pack_a_contiguous(g, groups, flip, room);
  } else {
    pack_a(g, groups, flip, room);
  }
  return {reinterpret_cast<const uint8_t*>(room), ptrdiff_t{groups} * 4};
}

// sums[m] = sum over k of the packed bytes of A (VNNI).
static void sum_rows(const PackedA& a, int rows, int groups, bool is_signed, int32_t* sums) {
  const I ones = splat_i(0x01010101);
  for (int m = 0; m < rows; ++m) {
    const uint8_t* row = a.words + m * a.row;
    I sum{};
    for (int q = 0; q < groups; q += kLanes) {
      const int part = groups - q < kLanes ? groups - q : kLanes;
      const I bytes = load_part_i(reinterpret_cast<const int32_t*>(row + 4 * q), part);
      sum = is_signed ? dot(sum, ones, bytes) : dot(sum, bytes, ones);
    }
    alignas(64) int32_t lanes[kLanes];
    store_i(lanes, sum);
    uint32_t total = 0;
    for (int i = 0; i < kLanes; ++i) total += static_cast<uint32_t>(lanes[i]);
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

// kLanes columns of one whole pair from contiguous rows.
OD_INLINE I pair_vector(const GemmI8& g, int k, int n) {
  const int shift = g.b_signed ? 24 : 0;
  const I zero = load_i(g.b_zero + n);
  const I first = ((widen_bytes(g.b + k * g.b_k + n) << shift) >> shift) - zero;
  const I second = ((widen_bytes(g.b + (k + 1) * g.b_k + n) << shift) >> shift) - zero;
  return (first & splat_i(0xFFFF)) | (I)((U)second << 16);
}

#if OD_VNNI
// Contiguous rows: four columns a word, a vector of bytes of each of four rows at a time.
static void pack_b_rows(const GemmI8& g, int groups, ptrdiff_t stride, uint32_t flip, uint32_t* packed) {
  constexpr int kColumns = 4 * kLanes;
  const I flips = splat_i(static_cast<int32_t>(flip * 0x01010101u));
  for (int q = 0; q < groups; ++q) {
    const uint8_t* row = g.b + q * kGroup * g.b_k;
    const int there = g.k - q * kGroup;
    for (int n = 0; n < g.n; n += kColumns) {
      const int part = g.n - n < kColumns ? g.n - n : kColumns;
      I rows[kGroup]{}, words[kGroup];
#pragma GCC unroll 4
      for (int j = 0; j < kGroup; ++j) {
        if (j < there) rows[j] = load_bytes(row + j * g.b_k + n, part) ^ flips;
      }
      interleave_bytes(rows, words);
      int32_t* out = reinterpret_cast<int32_t*>(packed + q * stride + n);
#pragma GCC unroll 4
      for (int v = 0; v < kGroup; ++v) {
        if (v * kLanes < part) store_i(out + v * kLanes, words[v]);
      }
    }
  }
}
#else
static void pack_b_rows(const GemmI8& g, int groups, ptrdiff_t stride, uint32_t flip, uint32_t* packed) {
  for (int q = 0; q < groups; ++q) {
    uint32_t* out = packed + q * stride;
    int n = 0;
    for (; q < g.k / kGroup && n + kLanes <= g.n; n += kLanes) store_i(out + n, pair_vector(g, q * kGroup, n));
    for (; n < g.n; ++n) out[n] = group_of_b(g, q * kGroup, n, flip);
  }
}
#endif

// B as [group][columns rounded up to kLanes] words.
static void pack_b(const GemmI8& g, int groups, ptrdiff_t stride, uint32_t flip, uint32_t* packed) {
  if (g.b_n == 1) return pack_b_rows(g, groups, stride, flip, packed);
  const bool aligned = reinterpret_cast<uintptr_t>(g.b) % 4 == 0;
  const bool words = kVnni && g.b_k == 1 && g.b_n % 4 == 0 && aligned;  // columns hold whole groups
  const int whole = words ? g.k / kGroup : 0;
  if (words) {
    transpose(reinterpret_cast<const float*>(g.b), g.b_n / 4, g.n, whole, reinterpret_cast<float*>(packed), stride);
    const I flips = splat_i(static_cast<int32_t>(flip * 0x01010101u));
    for (ptrdiff_t i = 0; flip != 0 && i < whole * stride; i += kLanes) store_i(packed + i, load_i(packed + i) ^ flips);
  }
  for (int q = whole; q < groups; ++q) {
    for (int n = 0; n < g.n; ++n) packed[q * stride + n] = group_of_b(g, q * kGroup, n, flip);
  }
}

// Of each panel of B.
static void pack_panels(const GemmI8& g, ptrdiff_t stride, uint32_t flip, uint32_t* packed) {
  const int depth = g.b_panel_rows == 0 ? g.k : g.b_panel_rows, width = g.b_panel_columns == 0 ? g.n : g.b_panel_columns;
  GemmI8 panel = g;
  for (int k = 0; k < g.k; k += depth) {
    for (int n = 0; n < g.n; n += width) {
      panel.k = g.k - k < depth ? g.k - k : depth;
      panel.n = g.n - n < width ? g.n - n : width;
      panel.b = g.b + k / depth * g.b_k_panel + n / width * g.b_n_panel;
      panel.b_zero = g.b_zero + n;
      pack_b(panel, (panel.k + kGroup - 1) / kGroup, stride, flip, packed + k / kGroup * stride + n);
    }
  }
}

// sums[n] = sum over k of the packed bytes of B (VNNI).
static void sum_columns(const uint32_t* packed, int groups, ptrdiff_t stride, bool is_unsigned, int32_t* sums) {
  const I ones = splat_i(0x01010101);
  for (ptrdiff_t n = 0; n < stride; n += kLanes) {
    I sum{};
    for (int q = 0; q < groups; ++q) {
      const I bytes = load_i(packed + q * stride + n);
      sum = is_unsigned ? dot(sum, bytes, ones) : dot(sum, ones, bytes);
    }
    store_i(sums + n, sum);
  }
}

template <int MR, int NV, bool BUnsigned>
static void tile_i8(const GemmI8& g, int groups, PackedA from, const uint32_t* b, ptrdiff_t b_row, int32_t* c,
                    const int32_t* start, const int32_t* row_start, int part) {
  const uint8_t* a = from.words;
  const ptrdiff_t a_row = from.row;
  I acc[MR][NV];
#pragma GCC unroll 8
  for (int v = 0; v < NV; ++v) {
    const I first = load_i(start + v * kLanes);
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m) acc[m][v] = add_wrap(first, splat_i(row_start[m]));
  }
  for (int q = 0; q < groups; ++q, a += 4, b += b_row) {
    I row[NV];
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) row[v] = load_i(b + v * kLanes);
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m) {
      const I factor = splat_i(load_word(a + m * a_row));
#pragma GCC unroll 8
      for (int v = 0; v < NV; ++v) acc[m][v] = BUnsigned ? dot(acc[m][v], row[v], factor) : dot(acc[m][v], factor, row[v]);
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

using TileI8 = void (*)(const GemmI8&, int, PackedA, const uint32_t*, ptrdiff_t, int32_t*, const int32_t*, const int32_t*, int);
template <bool BUnsigned>
struct TilesI8 {
  static constexpr TileI8 kOf[4][3] = {
      {tile_i8<kBigM, 1, BUnsigned>, tile_i8<kBigM, 2, BUnsigned>, tile_i8<kBigM, 3, BUnsigned>},
      {tile_i8<4, 1, BUnsigned>, tile_i8<4, 2, BUnsigned>, tile_i8<4, 3, BUnsigned>},
      {tile_i8<2, 1, BUnsigned>, tile_i8<2, 2, BUnsigned>, tile_i8<2, 3, BUnsigned>},
      {tile_i8<1, 1, BUnsigned>, tile_i8<1, 2, BUnsigned>, tile_i8<1, 3, BUnsigned>},
  };
};

// sum (a - az)(b - bz) = sum ab - az * sum b - bz * (sum a - K * az), with zero points and sums of what is packed: the
// last three terms, where zero points differ from row to row or column to column.
OD_INLINE void correct_zero_points(const GemmI8& g, const Packing& how, const int32_t* a_sums, const int32_t* b_sums) {
  for (int m = 0; m < g.m; ++m) {
    const uint32_t az = static_cast<uint32_t>(g.a_zero[m] + how.a_shift);
    const I zero = splat_i(static_cast<int32_t>(az));
    const I rest = splat_i(static_cast<int32_t>(static_cast<uint32_t>(a_sums[m]) - static_cast<uint32_t>(g.k) * az));
    int32_t* row = g.c + m * g.c_m;
    for (int n = 0; n < g.n; n += kLanes) {
      const int part = g.n - n < kLanes ? g.n - n : kLanes;
      const I b_zero = load_part_i(g.b_zero + n, part) + splat_i(how.b_shift);
      const I less = add_wrap(mul_wrap(zero, load_i(b_sums + n)), mul_wrap(rest, b_zero));
      store_part_i(row + n, sub_wrap(load_part_i(row + n, part), less), part);
    }
  }
}

// B as the tiles read it, and the sums of its columns where zero points need them.
struct PackedB {
  uint32_t* words;
  int groups;
  ptrdiff_t stride;
  int32_t* sums;
  bool summed;
};

// What the sums of the tiles start from, element [m][n] from start[n] + row_start[m], and the sums of bytes where zero
// points need them. True when that corrects all zero points: one for all rows of A and one for all columns of B (the
// usual case).
OD_INLINE bool start_sums(const GemmI8& g, const Packing& how, const PackedA& a, int32_t* a_sums, int32_t* row_start, PackedB& b, int32_t* start) {
  const size_t rows = static_cast<size_t>(g.m) * 4, columns = static_cast<size_t>(b.stride) * 4;
  __builtin_memset(row_start, 0, rows);
  __builtin_memset(start, 0, columns);
  if (!kVnni) return true;  // zero points are taken from the values
  const bool same = all_same(g.a_zero, g.m) && all_same(g.b_zero, g.n);
  const auto az = static_cast<uint32_t>(g.a_zero[0] + how.a_shift), bz = static_cast<uint32_t>(g.b_zero[0] + how.b_shift);
  if (!b.summed && (!same || az != 0)) {
    sum_columns(b.words, b.groups, b.stride, how.b_unsigned, b.sums);
    b.summed = true;
  }
  if (!same || bz != 0) sum_rows(a, g.m, b.groups, how.b_unsigned, a_sums);
  if (!same) return false;
  const I factor = splat_i(static_cast<int32_t>(0u - az));
  for (ptrdiff_t n = 0; az != 0 && n < b.stride; n += kLanes) store_i(start + n, mul_wrap(factor, load_i(b.sums + n)));
  for (int m = 0; bz != 0 && m < g.m; ++m) {
    row_start[m] = static_cast<int32_t>((static_cast<uint32_t>(g.k) * az - static_cast<uint32_t>(a_sums[m])) * bz);
  }
  return true;
}

// Rows of A that lie side by side, with all of B.
static void multiply_rows(const GemmI8& g, const Packing& how, PackedB& b, int32_t* start) {
  constexpr int kRows[4] = {kBigM, 4, 2, 1};
  auto* a_room = static_cast<uint32_t*>(scratch(kScratchPackA, (static_cast<size_t>(g.m) * b.groups + 2 * g.m + 1) * 4));
  const PackedA a = packed_a(g, b.groups, how.a_flip, a_room);
  auto* a_sums = reinterpret_cast<int32_t*>(a_room + static_cast<ptrdiff_t>(g.m) * b.groups);
  int32_t* const row_start = a_sums + g.m;
  const bool corrected = start_sums(g, how, a, a_sums, row_start, b, start);
  const auto* tiles = kVnni && how.b_unsigned ? TilesI8<kVnni>::kOf : TilesI8<false>::kOf;
  for (int n = 0; n < g.n;) {
    const int vectors = panel_vectors((g.n - n + kLanes - 1) / kLanes);
    const int width = vectors * kLanes < g.n - n ? vectors * kLanes : g.n - n;
    for (int m = 0, step = 0; m < g.m; m += kRows[step]) {
      while (kRows[step] > g.m - m) ++step;
      tiles[step][vectors - 1](g, b.groups, {a.words + m * a.row, a.row}, b.words + n, b.stride, g.c + m * g.c_m + n, start + n,
                               row_start + m, width - (vectors - 1) * kLanes);
    }
    n += width;
  }
  if (!corrected) correct_zero_points(g, how, a_sums, b.sums);
}

static void gemm_i8(const GemmI8& g) {
  if (g.m == 0 || g.n == 0) return;
  const Packing how = packing_of(g);
  PackedB b{};
  b.groups = (g.k + kGroup - 1) / kGroup;
  b.stride = (g.n + kLanes - 1) / kLanes * kLanes;
  b.words = static_cast<uint32_t*>(scratch(kScratchPackB, static_cast<size_t>(b.stride) * (b.groups + 2) * 4));
  b.sums = reinterpret_cast<int32_t*>(b.words + b.stride * b.groups);
  pack_panels(g, b.stride, how.b_flip, b.words);
  GemmI8 rows = g;
  rows.m = g.a_panel_rows == 0 ? g.m : g.a_panel_rows;
  for (int m = 0; m < g.m; m += rows.m, rows.a += g.a_panel, rows.c += rows.m * g.c_m, rows.a_zero += rows.m) {
    multiply_rows(rows, how, b, b.sums + b.stride);
  }
}

// One vector of a row as onnxruntime computes it: the sum as f32 times the scale, saturated, rounded half to even.
// `low` and `high` are what `zero` leaves of the type.
struct Rounding {
  F low, high;
  I zero;
};
template <class Type>
OD_INLINE typename Type::Narrow requantised(I sum, F scale, const Rounding& r) {
  const F magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  F v = __builtin_convertvector(sum, F) * scale;
  v = select(v > r.low, v, r.low);
  v = select(v < r.high, v, r.high);
  return __builtin_convertvector(sub_wrap((I)(v + magic), (I)magic) + r.zero, typename Type::Narrow);  // fits
}

template <class Type, bool PerColumn>
static void requantise_rows(const Requantise& q) {
  using Element = typename Type::Element;
  using Limits = std::numeric_limits<Element>;
  const Rounding how{splat(static_cast<float>(Limits::min() - q.zero)), splat(static_cast<float>(Limits::max() - q.zero)), splat_i(q.zero)};
  const int whole = q.n / kLanes * kLanes, part = q.n - whole;
  const ptrdiff_t end = (q.m - 1) * q.y_m + q.n;
  for (int m = 0; m < q.m; ++m) {
    const int32_t* x = q.x + m * q.x_m;
    const float* scale = q.scale + m * q.scale_m;
    auto* y = static_cast<Element*>(q.y) + m * q.y_m;
    const F one = splat(scale[0]);
    const I bias = splat_i(q.bias == nullptr ? 0 : q.bias[m * q.bias_m]);
    for (int n = 0; n < whole; n += kLanes) {
      const auto narrow = requantised<Type>(add_wrap(load_i(x + n), bias), PerColumn ? load(scale + n) : one, how);
      __builtin_memcpy(y + n, &narrow, sizeof narrow);
    }
    if (part == 0) continue;
    const F last = PerColumn ? load_part(scale + whole, part) : one;
    const auto narrow = requantised<Type>(add_wrap(load_part_i(x + whole, part), bias), last, how);
    // What the next row overwrites may be written too.
    const bool room = q.y_m == q.n && m * q.y_m + whole + kLanes <= end;
    if (room) {
      __builtin_memcpy(y + whole, &narrow, sizeof narrow);
    } else {
      __builtin_memcpy(y + whole, &narrow, static_cast<size_t>(part) * sizeof *y);
    }
  }
}

template <class Type>
static void requantise_as(const Requantise& q) {
  if (q.scale_n != 0) {
    requantise_rows<Type, true>(q);
  } else {
    requantise_rows<Type, false>(q);
  }
}

// Too wide for the vectors' rounding: doubles hold every f32 product and every int32.
static void requantise_words(const Requantise& q) {
  for (int m = 0; m < q.m; ++m) {
    const uint32_t bias = q.bias == nullptr ? 0u : static_cast<uint32_t>(q.bias[m * q.bias_m]);
    for (int n = 0; n < q.n; ++n) {
      const auto sum = static_cast<int32_t>(static_cast<uint32_t>(q.x[m * q.x_m + n]) + bias);
      const float v = static_cast<float>(sum) * q.scale[m * q.scale_m + n * q.scale_n];
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
