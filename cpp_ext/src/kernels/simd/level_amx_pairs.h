// SPDX-License-Identifier: Apache-2.0
// PairLevel by AMX: tile registers of 16 x 16 sums over blocks of 16 pairs. What the instruction does is said under
// TDPBF16PS in Intel's Software Developer's Manual; vectors give the same bits where rows are few.
namespace onedispatch::kernels::OD_LEVEL {

constexpr int kMostBlocks = 32;  // whose tiles of A and B stay in L2
static_assert(kTile == kPairRows && kTile == kOverrun);

// MT x NT tiles of sums, to which products of so many blocks are added.
template <int MT, int NT>
[[gnu::target("amx-tile,amx-bf16")]] static void add_tiles(const uint32_t* a, ptrdiff_t a_m, const uint32_t* b, ptrdiff_t b_k, int blocks, float* c, ptrdiff_t c_m, bool accumulate) {
  constexpr ptrdiff_t kWord = sizeof(float);
  const ptrdiff_t a_row = a_m * kWord, b_row = b_k * kWord, c_row = c_m * kWord;
  asm volatile("" ::: "memory");  // loads of tiles do not tell the compiler what they read
  if (accumulate) {
    _tile_loadd(0, c, c_row);
    if constexpr (NT > 1) _tile_loadd(1, c + kTile, c_row);
    if constexpr (MT > 1) _tile_loadd(2, c + kTile * c_m, c_row);
    if constexpr (MT > 1 && NT > 1) _tile_loadd(3, c + kTile * c_m + kTile, c_row);
  } else {
    _tile_zero(0);
    if constexpr (NT > 1) _tile_zero(1);
    if constexpr (MT > 1) _tile_zero(2);
    if constexpr (MT > 1 && NT > 1) _tile_zero(3);
  }
  for (int block = 0; block < blocks; ++block, a += kTile, b += kTile * b_k) {
    _tile_loadd(4, a, a_row);
    _tile_loadd(6, b, b_row);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (NT > 1) _tile_loadd(7, b + kTile, b_row);
    if constexpr (NT > 1) _tile_dpbf16ps(1, 4, 7);
    if constexpr (MT > 1) _tile_loadd(5, a + kTile * a_m, a_row);
    if constexpr (MT > 1) _tile_dpbf16ps(2, 5, 6);
    if constexpr (MT > 1 && NT > 1) _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, c_row);
  if constexpr (NT > 1) _tile_stored(1, c + kTile, c_row);
  if constexpr (MT > 1) _tile_stored(2, c + kTile * c_m, c_row);
  if constexpr (MT > 1 && NT > 1) _tile_stored(3, c + kTile * c_m + kTile, c_row);
}

using AddTiles = void (*)(const uint32_t*, ptrdiff_t, const uint32_t*, ptrdiff_t, int, float*, ptrdiff_t, bool);
constexpr AddTiles kAddTiles[2][2] = {{add_tiles<1, 1>, add_tiles<1, 2>}, {add_tiles<2, 1>, add_tiles<2, 2>}};

OD_INLINE void copy_sums(const float* from, ptrdiff_t from_row, float* to, ptrdiff_t to_row, int rows, int columns) {
  for (int m = 0; m < rows; ++m) {
    for (int n = 0; n < columns; n += kLanes) {
      const int part = columns - n < kLanes ? columns - n : kLanes;
      store_part(to + m * to_row + n, load_part(from + m * from_row + n, part), part);
    }
  }
}

// At most kBlock rows and columns of sums: beside C where they end within a tile.
static void add_block(const uint32_t* a, ptrdiff_t a_m, const uint32_t* b, ptrdiff_t b_k, int blocks, float* c, ptrdiff_t c_m, int rows, int columns, bool accumulate) {
  const AddTiles add = kAddTiles[rows > kTile][columns > kTile];
  if (rows % kTile == 0 && columns % kTile == 0) return add(a, a_m, b, b_k, blocks, c, c_m, accumulate);
  alignas(64) float sums[kBlock * kBlock];
  if (accumulate) copy_sums(c, c_m, sums, kBlock, rows, columns);
  add(a, a_m, b, b_k, blocks, sums, kBlock, accumulate);
  copy_sums(sums, kBlock, c, c_m, rows, columns);
}

// Rows of pairs, so far apart that they share few sets of the caches.
static const uint32_t* rows_of_pairs(const GemmF32& g, ptrdiff_t& a_m) {
  const auto* const a = reinterpret_cast<const uint32_t*>(g.a);
  a_m = g.a_m;
  if (g.a_k == 1) return a;
  a_m = g.k + kTile;
  auto* const made = static_cast<uint32_t*>(scratch(kScratchPackA, static_cast<size_t>(a_m * in_whole(g.m, kTile)) * 4));
  transpose(g.a, g.a_k, g.k, g.m, reinterpret_cast<float*>(made), a_m);
  return made;
}

[[gnu::target("amx-tile,amx-bf16")]] static void gemm_tiles(const GemmF32& g) {
  ptrdiff_t a_m = 0;
  const uint32_t* const a = rows_of_pairs(g, a_m);
  const auto* const b = reinterpret_cast<const uint32_t*>(g.b);
  _tile_loadconfig(&kTileConfig);
  const int all = g.k / kTile;
  for (int block = 0; block < all; block += kMostBlocks) {
    const int blocks = all - block < kMostBlocks ? all - block : kMostBlocks;
    for (int m = 0; m < g.m; m += kBlock) {
      const int rows = g.m - m < kBlock ? g.m - m : kBlock;
      for (int n = 0; n < g.n; n += kBlock) {
        const int columns = g.n - n < kBlock ? g.n - n : kBlock;
        add_block(a + m * a_m + block * kTile, a_m, b + block * kTile * g.b_k + n, g.b_k, blocks, g.c + m * g.c_m + n, g.c_m, rows, columns, g.accumulate || block != 0);
      }
    }
  }
  _tile_release();
}

constexpr int kMembersAhead = 64;  // of rows, which come from memory

template <int Vectors>
OD_INLINE void row_in_blocks(const GemmRows& g, const uint32_t* a, const uint16_t* b, float* c, int count) {
  F sums[Vectors];
  const auto part = [count](int v) { return count - v * kLanes < kLanes ? count - v * kLanes : kLanes; };
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) sums[v] = g.accumulate ? load_part(c + v * kLanes, part(v)) : F{};
  for (int block = 0; block < g.k; block += 2 * kTile) {
    const int members = g.k - block < 2 * kTile ? g.k - block : 2 * kTile;
    F first[Vectors]{}, second[Vectors]{};
    for (int k = 0; k < members; k += 2, b += 2 * g.b_k, ++a) {
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) {
        __builtin_prefetch(b + kMembersAhead * g.b_k + v * kLanes);
        __builtin_prefetch(b + (kMembersAhead + 1) * g.b_k + v * kLanes);
      }
      const F upper_half = (F)splat_i(static_cast<int32_t>(*a & 0xFFFF0000u)), lower_half = (F)splat_i(static_cast<int32_t>(*a << 16));
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) {
        first[v] = fma(upper_half, (F)upper(widen_u16(b + v * kLanes, part(v))), first[v]);
        if (k + 1 < members) second[v] = fma(lower_half, (F)upper(widen_u16(b + g.b_k + v * kLanes, part(v))), second[v]);
      }
    }
    const F lacking = splat(members < 2 * kTile - 1 ? 0.0f : -0.0f);  // pairs of zeros decide the sign of a zero
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) sums[v] += (first[v] + lacking) + (second[v] + lacking);
  }
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) store_part(c + v * kLanes, sums[v], part(v));
}

[[gnu::noinline]] static void add_rows_in_blocks(const GemmRows& g) {
  for_rows(g, [&](auto vectors, auto... at) { row_in_blocks<decltype(vectors)::value>(g, at...); });
}

// Tiles count denormals as zeros.
static void gemm_rows_in_blocks(const GemmRows& g) {
  constexpr unsigned kFlush = 0x8040;  // flush to zero, denormals are zeros
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | kFlush);
  add_rows_in_blocks(g);
  _mm_setcsr(before);
}

}  // namespace onedispatch::kernels::OD_LEVEL

namespace onedispatch::kernels {
const SimdLevel& amx_level();
const SimdLevel& amx_level() {
  using namespace OD_LEVEL;
  static constexpr PairLevel pairs{kTile, gemm_tiles, gemm_rows_in_blocks, nullptr, pair_rows, pair_neighbours};
  static const SimdLevel level = [] {
    SimdLevel with_tiles = avx512_level();
    with_tiles.name = "amx";
    with_tiles.gemm_i8 = gemm_i8_amx;
    with_tiles.pairs = &pairs;
    return with_tiles;
  }();
  return level;
}
}  // namespace onedispatch::kernels
