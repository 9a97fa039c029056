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

// The words of A that the tiles read: rows `row` bytes apart, or [row / kBlockRows][group / kLanes][kBlockRows][kLanes].
struct PackedA {
  static constexpr int kBlockRows = 16;
  const uint8_t* words;
  ptrdiff_t row;
  bool in_blocks = false;

  ptrdiff_t next() const { return (in_blocks ? kBlockRows : 1) * kLanes * 4; }  // bytes from a vector of a row to its next
  ptrdiff_t offset(int m) const { return in_blocks ? m / kBlockRows * kBlockRows * row + m % kBlockRows * kLanes * 4 : m * row; }
  const uint8_t* at(int m) const { return words + offset(m); }
};

// Each panel of k is filled up to whole groups.
OD_INLINE int groups_of(int k) { return (k + kGroup - 1) / kGroup; }
OD_INLINE int panel_of_m(const GemmI8& g) { return g.m_panel == 0 ? g.m : g.m_panel; }
OD_INLINE int panel_of_k(const GemmI8& g) { return g.k_panel == 0 || g.k_panel > g.k ? g.k : g.k_panel; }
OD_INLINE int groups_of(const GemmI8& g) {
  const int panel = panel_of_k(g);
  return panel == 0 ? 0 : g.k / panel * groups_of(panel) + groups_of(g.k % panel);
}

// A panel of A as [m][group] words, rows `row` words apart, byte by byte.
static void pack_a(const GemmI8& g, int row, uint32_t flip, uint32_t* packed) {
  for (int m = 0; m < g.m; ++m, packed += row) {
    const uint8_t* from = g.a + m * g.a_m;
    uint32_t* out = packed;
    for (int k = 0; k < g.k; ++out) {
      uint32_t word = 0;
      for (int j = 0; j < kGroup && k < g.k; ++j, ++k) {
        if constexpr (kVnni) {
          word |= (from[k * g.a_k] ^ flip) << (8 * j);
        } else {
          const int32_t value = widen(from[k * g.a_k], g.a_signed) - g.a_zero[m];
          word |= (static_cast<uint32_t>(value) & 0xFFFFu) << (16 * j);
        }
      }
      *out = word;
    }
  }
}

#if OD_VNNI
// The same for contiguous k: the words are already there but for the sign.
static void pack_a_contiguous(const GemmI8& g, int row, uint32_t flip, uint32_t* packed) {
  constexpr int kBytes = 4 * kLanes;
  I flips = splat_i(static_cast<int32_t>(flip * 0x01010101u)), last = flips;
  if (g.k % kBytes != 0) last = load_bytes(reinterpret_cast<const uint8_t*>(&flips), g.k % kBytes);
  for (int m = 0; m < g.m; ++m, packed += row) {
    const uint8_t* from = g.a + m * g.a_m;
    int k = 0;
    for (; k + kBytes <= g.k; k += kBytes) store_i(packed + k / kGroup, load_i(from + k) ^ flips);
    if (k == g.k) continue;
    const I bytes = load_bytes(from + k, g.k - k) ^ last;
    store_part_i(reinterpret_cast<int32_t*>(packed + k / kGroup), bytes, groups_of(g.k - k));
  }
}
#else
static void pack_a_contiguous(const GemmI8& g, int row, uint32_t flip, uint32_t* packed) { pack_a(g, row, flip, packed); }
#endif

// Where the tiles may read A as it lies, it is not copied.
static PackedA packed_a(const GemmI8& g, int groups, uint32_t flip, uint32_t* room) {
  const int rows = panel_of_m(g);
  int panel = panel_of_k(g);
  if (panel % kGroup == 0 && g.a_k_panel == panel * g.a_k) panel = g.k;
  if (kVnni && rows == g.m && panel == g.k && g.a_k == 1 && flip == 0 && g.k % kGroup == 0) return {g.a, g.a_m};
  GemmI8 part = g;
  part.m = rows;
  auto* const pack = g.a_k == 1 ? pack_a_contiguous : pack_a;
  for (int m = 0; m < g.m; m += rows, part.a_zero += rows) {
    uint32_t* out = room + ptrdiff_t{m} * groups;
    part.a = g.a + m / rows * g.a_m_panel;
    for (int k = 0; k < g.k; k += panel, part.a += g.a_k_panel, out += groups_of(panel)) {
      part.k = g.k - k < panel ? g.k - k : panel;
      pack(part, groups, flip, out);
    }
  }
  return {reinterpret_cast<const uint8_t*>(room), ptrdiff_t{groups} * 4};
}

// sums[m] = sum over k of the packed bytes of A (VNNI).
static void sum_rows(const PackedA& a, int rows, int groups, bool is_signed, int32_t* sums) {
  const I ones = splat_i(0x01010101);
  for (int m = 0; m < rows; ++m) {
    const uint8_t* from = a.at(m);
    I sum{};
    for (int q = 0; q < groups; q += kLanes, from += a.next()) {
      const int part = groups - q < kLanes ? groups - q : kLanes;
      const I bytes = load_part_i(reinterpret_cast<const int32_t*>(from), part);
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
static void pack_b_rows(const GemmI8& g, int groups, ptrdiff_t panel, uint32_t flip, uint32_t* packed) {
  constexpr int kColumns = 4 * kLanes;
  const I flips = splat_i(static_cast<int32_t>(flip * 0x01010101u));
  int q = 0;
#if OD_INTERLEAVES_NEIGHBOURS
  for (const bool few = g.n == kLanes || g.n == 2 * kLanes; few && g.b_k == g.n && q < g.k / kGroup; ++q) {
    I words[2];
    interleave_neighbours(g.b + q * kGroup * g.b_k, g.n, words);
    store_i(packed + q * kLanes, words[0] ^ flips);
    if (g.n > kLanes) store_i(packed + q * kLanes + panel, words[1] ^ flips);
  }
#endif
  for (; q < groups; ++q) {
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
      uint32_t* const out = packed + q * kLanes + n / kLanes * panel;
#pragma GCC unroll 4
      for (int v = 0; v < kGroup; ++v) {
        if (v * kLanes < part) store_i(out + v * panel, words[v]);
      }
    }
  }
}
#else
static void pack_b_rows(const GemmI8& g, int groups, ptrdiff_t panel, uint32_t flip, uint32_t* packed) {
  for (int q = 0; q < groups; ++q, packed += kLanes) {
    int n = 0;
    for (; q < g.k / kGroup && n + kLanes <= g.n; n += kLanes) store_i(packed + n / kLanes * panel, pair_vector(g, q * kGroup, n));
    for (; n < g.n; ++n) packed[n / kLanes * panel + n % kLanes] = group_of_b(g, q * kGroup, n, flip);
  }
}
#endif

// B as [columns / kLanes][group][kLanes] words, the first of those `panel` words apart.
static void pack_b(const GemmI8& g, int groups, ptrdiff_t panel, uint32_t flip, uint32_t* packed) {
  if (g.b_n == 1) return pack_b_rows(g, groups, panel, flip, packed);
  const bool aligned = reinterpret_cast<uintptr_t>(g.b) % 4 == 0;
  const bool words = kVnni && g.b_k == 1 && g.b_n % 4 == 0 && aligned;  // columns hold whole groups
  const int whole = words ? g.k / kGroup : 0;
  const I flips = splat_i(static_cast<int32_t>(flip * 0x01010101u));
  for (int first = 0; first < g.n; first += kLanes, packed += panel) {
    const int columns = g.n - first < kLanes ? g.n - first : kLanes;
    if (words) {
      const uint8_t* const from = g.b + first * g.b_n;
      transpose(reinterpret_cast<const float*>(from), g.b_n / 4, columns, whole, reinterpret_cast<float*>(packed), kLanes);
      for (int q = 0; flip != 0 && q < whole; ++q) store_i(packed + q * kLanes, load_i(packed + q * kLanes) ^ flips);
    }
    for (int q = whole; q < groups; ++q) {
      for (int n = 0; n < columns; ++n) packed[q * kLanes + n] = group_of_b(g, q * kGroup, first + n, flip);
    }
  }
}

// Of each panel of B.
static void pack_panels(const GemmI8& g, ptrdiff_t panel, uint32_t flip, uint32_t* packed) {
  const int depth = panel_of_k(g), width = g.n_panel == 0 ? g.n : g.n_panel;
  GemmI8 part = g;
  for (int k = 0; k < g.k; k += depth, packed += groups_of(depth) * kLanes) {
    for (int n = 0; n < g.n; n += width) {
      part.k = g.k - k < depth ? g.k - k : depth;
      part.n = g.n - n < width ? g.n - n : width;
      part.b = g.b + k / depth * g.b_k_panel + n / width * g.b_n_panel;
      part.b_zero = g.b_zero + n;
      pack_b(part, groups_of(part.k), panel, flip, packed + n / kLanes * panel);
    }
  }
}

// B as the tiles read it (pack_b), and the sums of its columns where zero points need them.
struct PackedB {
  uint32_t* words;
  int groups;
  ptrdiff_t panel;
  int columns;  // rounded up to kLanes
  int32_t* sums;
  bool summed;
};

// The sums over k of the packed bytes (VNNI).
static void sum_columns(PackedB& b, bool is_unsigned) {
  const I ones = splat_i(0x01010101);
  for (int n = 0; n < b.columns; n += kLanes) {
    const uint32_t* from = b.words + n / kLanes * b.panel;
    I sum{};
    for (int q = 0; q < b.groups; ++q) {
      const I bytes = load_i(from + q * kLanes);
      sum = is_unsigned ? dot(sum, bytes, ones) : dot(sum, ones, bytes);
    }
    store_i(b.sums + n, sum);
  }
  b.summed = true;
}

template <int MR, int NV, bool BUnsigned>
static void tile_i8(const GemmI8& g, int groups, PackedA from, const uint32_t* b, ptrdiff_t panel, int32_t* c, const int32_t* start,
                    const int32_t* row_start, int part) {
  const uint8_t* a = from.words;
  const ptrdiff_t a_row = from.row;
  I acc[MR][NV];
#pragma GCC unroll 8
  for (int v = 0; v < NV; ++v) {
    const I first = load_i(start + v * kLanes);
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m) acc[m][v] = add_wrap(first, splat_i(row_start[m]));
  }
  for (int q = 0; q < groups; ++q, a += 4, b += kLanes) {
    I row[NV];
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) row[v] = load_i(b + v * panel);
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

// What the sums of the tiles start from, element [m][n] from start[n] + row_start[m], and the sums of bytes where zero
// points need them. True when that corrects all zero points: one for all rows of A and one for all columns of B (the
// usual case).
OD_INLINE bool start_sums(const GemmI8& g, const Packing& how, const PackedA& a, int32_t* a_sums, int32_t* row_start, PackedB& b, int32_t* start) {
  const size_t rows = static_cast<size_t>(g.m) * 4, columns = static_cast<size_t>(b.columns) * 4;
  __builtin_memset(row_start, 0, rows);
  __builtin_memset(start, 0, columns);
  if (!kVnni) return true;  // zero points are taken from the values
  const bool same = all_same(g.a_zero, g.m) && all_same(g.b_zero, g.n);
  const auto az = static_cast<uint32_t>(g.a_zero[0] + how.a_shift), bz = static_cast<uint32_t>(g.b_zero[0] + how.b_shift);
  if (!b.summed && (!same || az != 0)) sum_columns(b, how.b_unsigned);
  if (!same || bz != 0) sum_rows(a, g.m, b.groups, how.b_unsigned, a_sums);
  if (!same) return false;
  const I factor = splat_i(static_cast<int32_t>(0u - az));
  for (ptrdiff_t n = 0; az != 0 && n < b.columns; n += kLanes) store_i(start + n, mul_wrap(factor, load_i(b.sums + n)));
  for (int m = 0; bz != 0 && m < g.m; ++m) {
    row_start[m] = static_cast<int32_t>((static_cast<uint32_t>(g.k) * az - static_cast<uint32_t>(a_sums[m])) * bz);
  }
  return true;
}

// One way to multiply: how A is packed, and the sums, from start[n] + row_start[m]. Rows and groups are read in blocks of
// so many; where that is more than a row, panels of rows come together.
struct ProductI8 {
  int rows, groups;
  PackedA (*pack)(const GemmI8&, int groups, uint32_t flip, uint32_t* room);
  void (*multiply)(const GemmI8&, const Packing&, PackedA, const PackedB&, const int32_t* start, const int32_t* row_start);
};
OD_INLINE ptrdiff_t in_whole(int n, int block) { return ptrdiff_t{(n + block - 1) / block} * block; }

static void multiply_tiles(const GemmI8& g, const Packing& how, PackedA a, const PackedB& b, const int32_t* start, const int32_t* row_start) {
  constexpr int kRows[4] = {kBigM, 4, 2, 1};
  const auto* tiles = kVnni && how.b_unsigned ? TilesI8<kVnni>::kOf : TilesI8<false>::kOf;
  for (int n = 0; n < g.n;) {
    const int vectors = panel_vectors((g.n - n + kLanes - 1) / kLanes);
    const int width = vectors * kLanes < g.n - n ? vectors * kLanes : g.n - n;
    const uint32_t* const words = b.words + n / kLanes * b.panel;
    for (int m = 0, step = 0; m < g.m; m += kRows[step]) {
      while (kRows[step] > g.m - m) ++step;
      tiles[step][vectors - 1](g, b.groups, {a.at(m), a.row}, words, b.panel, g.c + m * g.c_m + n, start + n,
                               row_start + m, width - (vectors - 1) * kLanes);
    }
    n += width;
  }
}

static void multiply_rows(const GemmI8& g, const Packing& how, PackedB& b, int32_t* start, const ProductI8& by) {
  const ptrdiff_t words = in_whole(g.m, by.rows) * in_whole(b.groups, by.groups);
  auto* a_room = static_cast<uint32_t*>(scratch(kScratchPackA, static_cast<size_t>(words + 2 * g.m + 1) * 4));
  const PackedA a = by.pack(g, b.groups, how.a_flip, a_room);
  auto* a_sums = reinterpret_cast<int32_t*>(a_room + words);
  int32_t* const row_start = a_sums + g.m;
  const bool corrected = start_sums(g, how, a, a_sums, row_start, b, start);
  by.multiply(g, how, a, b, start, row_start);
  if (!corrected) correct_zero_points(g, how, a_sums, b.sums);
}

static void multiply_i8(const GemmI8& g, const ProductI8& by) {
  if (g.m == 0 || g.n == 0) return;
  const Packing how = packing_of(g);
  const int panels = (g.n + kLanes - 1) / kLanes;
  PackedB b{};
  b.groups = groups_of(g);
  b.columns = panels * kLanes;
  const ptrdiff_t held = ptrdiff_t{b.groups} * kLanes, read = in_whole(b.groups, by.groups) * kLanes;
  b.panel = read + kLanes;  // else panels may lie 4 KiB apart
  b.words = static_cast<uint32_t*>(scratch(kScratchPackB, static_cast<size_t>(panels * b.panel + 2 * b.columns) * 4));
  b.sums = reinterpret_cast<int32_t*>(b.words + panels * b.panel);
  pack_panels(g, b.panel, how.b_flip, b.words);
  for (int p = 0; read > held && p < panels; ++p) __builtin_memset(b.words + p * b.panel + held, 0, static_cast<size_t>(read - held) * 4);
  GemmI8 rows = g;
  if (by.rows == 1) {
    rows.m = panel_of_m(g);
    rows.m_panel = 0;
  }
  for (int m = 0; m < g.m; m += rows.m, rows.a += g.a_m_panel, rows.c += rows.m * g.c_m, rows.a_zero += rows.m) {
    multiply_rows(rows, how, b, b.sums + b.columns, by);
  }
}

static void gemm_i8(const GemmI8& g) { multiply_i8(g, {1, 1, packed_a, multiply_tiles}); }

// Floats that become whole numbers of a type, `zero` added: `low` and `high` are what that leaves of the type.
struct Rounding {
  F low, high;
  I zero;
};
template <class Element>
OD_INLINE Rounding rounding_to(int32_t zero) {
  using Limits = std::numeric_limits<Element>;
  return {splat(static_cast<float>(Limits::min() - zero)), splat(static_cast<float>(Limits::max() - zero)), splat_i(zero)};
}
// Saturated, rounded half to even; a NaN becomes the least.
OD_INLINE I rounded(F v, const Rounding& r) {
  const F magic = splat(kWhole);
  v = select(v > r.low, v, r.low);
  v = select(v < r.high, v, r.high);
  return sub_wrap((I)(v + magic), (I)magic) + r.zero;
}

// One vector of a row as onnxruntime computes it: the sum as f32 times the scale.
template <class Type>
OD_INLINE typename Type::Narrow requantised(I sum, F scale, const Rounding& r) {
  return converted<typename Type::Element>(rounded(as_floats(sum) * scale, r));  // fits
}

template <class Type, bool PerColumn>
static void requantise_rows(const Requantise& q) {
  using Element = typename Type::Element;
  const Rounding how = rounding_to<Element>(q.zero);
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
      copy_few<sizeof narrow / 2>(&narrow, y + whole, static_cast<size_t>(part) * sizeof *y);
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
