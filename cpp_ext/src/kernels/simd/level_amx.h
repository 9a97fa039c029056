// SPDX-License-Identifier: Apache-2.0
// Products of bytes by AMX: tile registers of 16 x 16 sums over 64 of k. B is read as level_products.h packs it, A is packed
// tile by tile: rows that lie far apart take turns in few sets of the cache. Integers wrap, so sums have the same bits in
// any order.
namespace onedispatch::kernels::OD_LEVEL {

constexpr int kTile = PackedA::kBlockRows;  // rows, and words in a row
constexpr int kTileWords = kTile * kTile;
constexpr int kBlock = 2 * kTile;  // rows and columns of sums at a time: four of the eight registers
constexpr int64_t kLeastProducts = 32 * 1024;  // fewer are done sooner without

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr TileConfig kTileConfig;

// n <= 16 words of a row of A, from group q of it on; what is behind the end of a tile begins the row of the next.
OD_INLINE void store_words(uint32_t* row, int q, I words, int n) {
  const int lane = q % kTile, room = kTile - lane;
  uint32_t* const out = row + q / kTile * kTileWords;
  _mm512_mask_storeu_epi32(out + lane, lane_mask(n < room ? n : room), (__m512i)words);
  if (n <= room) return;
  _mm512_mask_storeu_epi32(out + kTileWords - room, static_cast<__mmask16>(lane_mask(n) & ~lane_mask(room)), (__m512i)words);
}

// A panel of A, whose k is contiguous: its rows are `first` and on of `packed`, its groups `q` and on.
static void pack_tiles_of(const GemmI8& g, uint32_t flip, uint32_t* room, const PackedA& packed, int first, int q) {
  constexpr int kBytes = kGroup * kTile;
  const ptrdiff_t ahead = g.k_panel == 0 ? 8 * g.a_m : g.a_k_panel;  // weights come from memory
  const I flips = splat_i(static_cast<int32_t>(flip * 0x01010101u));
  for (int m = 0; m < g.m; ++m) {
    const uint8_t* const from = g.a + m * g.a_m;
    uint32_t* const row = room + packed.offset(first + m) / 4;
    for (int k = 0; k < g.k; k += kBytes) {
      const int n = g.k - k < kBytes ? g.k - k : kBytes;
      I words = load_bytes(from + k, n);
      __builtin_prefetch(from + k + ahead);
      if (flip != 0) words ^= load_bytes(reinterpret_cast<const uint8_t*>(&flips), n);
      store_words(row, q + k / kGroup, words, groups_of(n));
    }
  }
}

// A in tiles, with zeros behind the last group.
static PackedA pack_tiles(const GemmI8& g, int groups, uint32_t flip, uint32_t* room) {
  const PackedA packed{reinterpret_cast<const uint8_t*>(room), in_whole(groups, kTile) * 4, true};
  for (int m = 0; groups % kTile != 0 && m < g.m; m += kTile) {
    __builtin_memset(room + (packed.offset(m + kTile) / 4 - kTileWords), 0, kTileWords * 4);  // the last tile of the block
  }
  GemmI8 part = g;
  if (g.a_k != 1) {
    auto* words = static_cast<uint32_t*>(scratch(kScratchTiles, static_cast<size_t>(g.m) * static_cast<size_t>(groups) * 4));
    const PackedA plain = packed_a(g, groups, flip, words);
    part.a = plain.words;
    part.a_m = plain.row;
    part.k = groups * kGroup;
    pack_tiles_of(part, 0, room, packed, 0, 0);
    return packed;
  }
  part.m = panel_of_m(g);
  const int depth = panel_of_k(g);
  for (int m = 0; m < g.m; m += part.m) {
    part.a = g.a + m / part.m * g.a_m_panel;
    for (int k = 0, q = 0; k < g.k; k += depth, q += groups_of(depth), part.a += g.a_k_panel) {
      part.k = g.k - k < depth ? g.k - k : depth;
      pack_tiles_of(part, flip, room, packed, m, q);
    }
  }
  return packed;
}

// MT x NT tiles of sums over all of k.
template <int MT, int NT, bool BUnsigned>
[[gnu::target("amx-tile,amx-int8")]] static void tile_sums(const uint32_t* a, const uint32_t* b, ptrdiff_t panel, int steps, int32_t* sums) {
  asm volatile("" ::: "memory");  // loads of tiles do not tell the compiler what they read
  _tile_zero(0);
  if constexpr (NT > 1) _tile_zero(1);
  if constexpr (MT > 1) _tile_zero(2);
  if constexpr (MT > 1 && NT > 1) _tile_zero(3);
  const ptrdiff_t a_block = ptrdiff_t{steps} * kTileWords;
  for (int step = 0; step < steps; ++step, a += kTileWords, b += kTileWords) {
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    if constexpr (NT > 1) _tile_loadd(7, b + panel, 64);
    if constexpr (MT > 1) _tile_loadd(5, a + a_block, 64);
    if constexpr (BUnsigned) {
      _tile_dpbsud(0, 4, 6);
      if constexpr (NT > 1) _tile_dpbsud(1, 4, 7);
      if constexpr (MT > 1) _tile_dpbsud(2, 5, 6);
      if constexpr (MT > 1 && NT > 1) _tile_dpbsud(3, 5, 7);
    } else {
      _tile_dpbusd(0, 4, 6);
      if constexpr (NT > 1) _tile_dpbusd(1, 4, 7);
      if constexpr (MT > 1) _tile_dpbusd(2, 5, 6);
      if constexpr (MT > 1 && NT > 1) _tile_dpbusd(3, 5, 7);
    }
  }
  _tile_stored(0, sums, kBlock * 4);
  if constexpr (NT > 1) _tile_stored(1, sums + kTile, kBlock * 4);
  if constexpr (MT > 1) _tile_stored(2, sums + kTile * kBlock, kBlock * 4);
  if constexpr (MT > 1 && NT > 1) _tile_stored(3, sums + kTile * kBlock + kTile, kBlock * 4);
}

using TileSums = void (*)(const uint32_t*, const uint32_t*, ptrdiff_t, int, int32_t*);
template <bool BUnsigned>
constexpr TileSums kTileSums[2][2] = {{tile_sums<1, 1, BUnsigned>, tile_sums<1, 2, BUnsigned>}, {tile_sums<2, 1, BUnsigned>, tile_sums<2, 2, BUnsigned>}};

// A block of C from its sums.
OD_INLINE void finish_block(const int32_t* sums, int rows, int columns, const int32_t* start, const int32_t* row_start, bool accumulate, int32_t* c, ptrdiff_t c_row) {
  for (int m = 0; m < rows; ++m, sums += kBlock, c += c_row) {
    const I row = splat_i(row_start[m]);
    for (int n = 0; n < columns; n += kLanes) {
      const int part = columns - n < kLanes ? columns - n : kLanes;
      const I first = add_wrap(load_i(start + n), row), sum = add_wrap(load_i(sums + n), first);
      store_part_i(c + n, accumulate ? add_wrap(load_part_i(c + n, part), sum) : sum, part);
    }
  }
}

[[gnu::target("amx-tile,amx-int8")]] static void multiply_amx(const GemmI8& g, const Packing& how, PackedA a, const PackedB& b, const int32_t* start, const int32_t* row_start) {
  const auto& products = how.b_unsigned ? kTileSums<true> : kTileSums<false>;
  const int steps = static_cast<int>(in_whole(b.groups, kTile)) / kTile;
  alignas(64) int32_t sums[kBlock * kBlock];
  _tile_loadconfig(&kTileConfig);
  for (int m = 0; m < g.m; m += kBlock) {
    const int rows = g.m - m < kBlock ? g.m - m : kBlock;
    const auto* tiles = reinterpret_cast<const uint32_t*>(a.at(m));
    for (int n = 0; n < g.n; n += kBlock) {
      const int columns = g.n - n < kBlock ? g.n - n : kBlock;
      products[rows > kTile][columns > kTile](tiles, b.words + n / kLanes * b.panel, b.panel, steps, sums);
      finish_block(sums, rows, columns, start + n, row_start + m, g.accumulate, g.c + m * g.c_m + n, g.c_m);
    }
  }
  _tile_release();
}

static void gemm_i8_amx(const GemmI8& g) {
  if (int64_t{g.m} * g.n * g.k < kLeastProducts) return gemm_i8(g);
  multiply_i8(g, {kTile, kTile, pack_tiles, multiply_amx});
}

}  // namespace onedispatch::kernels::OD_LEVEL
