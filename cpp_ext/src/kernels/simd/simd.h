// SPDX-License-Identifier: Apache-2.0
// The vector primitives that the kernels are made of, once per SIMD level.
//
// The level is chosen once, at the first use, from what the processor offers. Every level gives
// the same integers. f32 results are the same on every run and every thread of one machine, but
// may differ in the last bits between levels (vector width changes the order of sums, the portable
// level has no fused multiply-add, and sums of bf16 are added up in pairs of channels, or in blocks: PairLevel).
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace onedispatch::kernels {

// C[m][n] (+)= sum_k A[m][k] * B[k][n]; strides in elements, B and C contiguous along n. Integers wrap.
template <class Word>
struct Product {
  const Word* a;
  ptrdiff_t a_m, a_k;
  const Word* b;
  ptrdiff_t b_k;
  Word* c;
  ptrdiff_t c_m;
  int m, n, k;
  bool accumulate;
  // Further panels of k members, each so far behind the one before.
  int more_panels;
  ptrdiff_t a_panel, b_panel;
  // Columns of B in panels of so many, each so far behind the one before. 0: they are neighbours.
  int width = 0;
  ptrdiff_t next = 0;
};
constexpr int kTileColumns = 48;      // that tiles of registers take at once; at every level of SIMD they fill its vectors
constexpr int kLeastCopiedRows = 32;  // that pay for copying the columns they are multiplied with
using GemmF32 = Product<float>;
using GemmI32 = Product<int32_t>;  // of either sign: the low 32 bits are the same

// The same of k members of bf16: in pairs (PairLevel) in the words of A, in rows as they lie in B.
struct GemmRows {
  const float* a;
  ptrdiff_t a_m;
  const uint16_t* b;
  ptrdiff_t b_k;
  float* c;
  ptrdiff_t c_m;
  int m, n, k;
  bool accumulate;
};

// y[output][row][column] (+)= sum over channels and taps of w[channel][tap][output] * x[channel][offsets[tap] + row * x_row
// + column], in this order; rows lie side by side in y. In w outputs do so in panels of `width`, each `next` behind the one
// before; further panels of so many channels lie w_panel behind each other there, and as all channels do in x.
struct ConvF32 {
  const float* x;
  ptrdiff_t x_channel, x_row, x_step;  // x_step: from a pixel to the next; 1 of pairs
  const int32_t* offsets;
  int taps, channels, more_panels;
  const float* w;
  ptrdiff_t w_tap, w_panel;
  int width;
  ptrdiff_t next;
  float* y;
  ptrdiff_t y_output;
  int outputs, rows, columns;
  bool accumulate;
};

// C[m][n] (+)= sum_k A[m][k] * B[k][n] of bytes into int32 (wrapping), with zero points already widened.
struct GemmI8 {
  const uint8_t* a;
  ptrdiff_t a_m, a_k;
  const uint8_t* b;
  ptrdiff_t b_k, b_n;
  int32_t* c;
  ptrdiff_t c_m;
  int m, n, k;
  bool a_signed, b_signed, accumulate;
  const int32_t* a_zero;  // m values
  const int32_t* b_zero;  // n values
  // Panels of so many of the m rows, which they divide, each so far behind the one before; 0: one panel.
  int m_panel;
  ptrdiff_t a_m_panel;
  // k in panels of so many, of a and of b; 0: one panel.
  int k_panel;
  ptrdiff_t a_k_panel, b_k_panel;
  // Panels of so many of b's columns, a multiple of kOverrun; 0: one panel.
  int n_panel;
  ptrdiff_t b_n_panel;
};

// Weights [blocks][members of a block][n], which share zero points and scales [blocks][n]. Rows of n bytes hold weights of
// 8 bits, or two rows of weights of 4 bits each: the earlier one along k in the low halves.
struct PackedWeights {
  const uint8_t* x;
  int blocks, rows, n, bits;  // rows of bytes, of a block
  const uint8_t* zero;        // nullptr: 2^(bits - 1)
  const float* float_zero;    // instead of zero; or nullptr
  const float* scale;
  bool scaled;  // weights are (weight - zero) * scale in bf16; else weight - zero, and scales are for sums of a block
};

// y[m][n] = saturate(round((x[m][n] + bias[m * bias_m]) * scale[m * scale_m + n * scale_n]) + zero), contiguous along
// n; the biased sum wraps. scale_n is 0 or 1; bias: nullptr for none.
struct Requantise {
  const int32_t* x;
  ptrdiff_t x_m;
  const int32_t* bias;
  ptrdiff_t bias_m;
  const float* scale;
  ptrdiff_t scale_m, scale_n;
  int32_t zero;    // fits dtype
  uint32_t dtype;  // of y: i8, u8, i16, i32
  void* y;
  ptrdiff_t y_m;
  int m, n;
};

// y[m][n] = saturate(round(float32(x[m][n] + bias[n]) * scale[n]) + zero), contiguous along n; one bias and one scale
// where not per_column. |x + bias| < 2^51.
struct RequantiseWide {
  const int64_t* x;
  ptrdiff_t x_m;
  const int64_t* bias;
  const float* scale;
  bool per_column;
  int32_t zero;    // fits dtype
  uint32_t dtype;  // of y: i8, u8, i16, u16
  void* y;
  ptrdiff_t y_m;
  int m, n;
};

// Window taps over a padded plane: element i of output row r at tap t is
// plane[r * plane_row + offsets[t] + i]. Rows may be read up to kOverrun elements too far.
template <class Word>
struct TapsOf {
  const Word* plane;
  ptrdiff_t plane_row;
  const int32_t* offsets;
  int taps;
  int rows, columns;
  Word* out;
  ptrdiff_t out_row;  // of im2col: distance between the rows of two taps instead
};
using Taps = TapsOf<float>;

// x[r * row + k * step + i], reduced over k into out[r * out_row + i]. Sums and products of integers wrap.
template <class Word>
struct Reduction {
  uint32_t mode;
  const Word* x;
  ptrdiff_t row, step;
  Word* out;
  ptrdiff_t out_row;
  int rows, count, columns;
  bool accumulate;
};

enum Places : int32_t { kElsewhere = -1, kOutside = -2 };
enum PlacesSeen : uint32_t { kSomeFound = 1, kSomeOutside = 2 };

constexpr int kOverrun = 16;  // widest vector in f32 lanes; bytes move by as many

// What is the same for every type of 32-bit words: float, int32_t, uint32_t.
template <class Word>
struct WordLevel {
  void (*taps_max)(const TapsOf<Word>&);
  void (*taps_sum)(const TapsOf<Word>&);
  void (*reduce_columns)(const Reduction<Word>&);           // contiguous along i, rows of any k stride
  Word (*reduce_row)(uint32_t mode, const Word* x, int n);  // n >= 1, contiguous along k
};

// y = saturate(round to even(fused(a * first + fused(b * second + shift)))), or where it is a product
// saturate(round to even((a - zero_a) * (b - zero_b) * first + shift)), each step rounded. Of 16 bits: saturate(round to
// even(v) + shift), where v is fused((a - zero_a) * first + (b - zero_b) * second), or the product without shift.
// Of n elements, or one where a step is 0.
struct Combine {
  uint32_t dtype;
  bool product;
  float first, second, shift;
  int32_t zero_a, zero_b;
  const void* a;
  int step_a;
  const void* b;
  int step_b;
  void* y;
  size_t n;
};

// y = (x - mean) / sqrt(variance + epsilon) * scale + bias, to the bit of what onnxruntime computes; the mean and its
// difference only where it is to be centred, scale and bias (not without a scale): nullptr for none. y == x allowed.
struct NormalRow {
  bool centre;
  float epsilon;
  const float* scale;
  const float* bias;
  const float* x;
  float* y;
  int n;
};

// Products of bf16 by an instruction that multiplies and adds two: a word holds a pair of members of the reduction, the
// first in its upper half. They are added one after the other, each sum rounded as ever; denormals count as zeros.
inline uint32_t pair_of(uint16_t first, uint16_t second) { return uint32_t{first} << 16 | second; }

// Where a level adds them up in blocks, first and second members of `block` pairs have sums of their own, each a fused
// multiply-add after the other from zero on, and the sum of both is added to that of all.
struct PairLevel {
  int block;  // pairs; 1: no blocks. Products have whole ones, of pairs of zeros where members end
  // Pairs in the words of both operands, without panels. With blocks, words are also read behind the last row of A, up to
  // kPairRows, and behind the last columns of B, up to kOverrun.
  void (*gemm)(const GemmF32&);
  void (*gemm_rows)(const GemmRows&);  // to the same bits; its last block may lack pairs
  void (*conv)(const ConvF32&);  // nullptr: with blocks
  // Row i of words has the pairs of rows 2i and 2i + 1 of x, or `none` for a row that is not there; or the pairs of
  // elements 2i and 2i + 1 of n, with zeros behind them up to `pairs`.
  void (*pair_rows)(const uint16_t* x, ptrdiff_t x_row, int rows, int columns, uint16_t none, uint32_t* words, ptrdiff_t row);
  void (*pair_neighbours)(const uint16_t* x, int n, uint16_t none, uint32_t* words, int pairs);
};
constexpr int kPairRows = 16;

struct SimdLevel {
  const char* name;
  WordLevel<float> f32;
  WordLevel<int32_t> i32;
  WordLevel<uint32_t> u32;
  // Elements of a type of params::dtype as words of the type that kernels compute in (f32 for floats, u32
  // for u32, else i32), and back: floats rounded to nearest even, integers saturated.
  void (*widen)(uint32_t dtype, const void* x, void* words, size_t n);
  void (*narrow)(uint32_t dtype, const void* words, void* y, size_t n);
  void (*gemm_f32)(const GemmF32&);
  void (*conv_f32)(const ConvF32&);
  const PairLevel* pairs;  // nullptr where the processor lacks the instruction
  void (*gemm_i32)(const GemmI32&);
  void (*gemm_i8)(const GemmI8&);
  void (*requantise)(const Requantise&);
  // 16-bit integers as their lower and upper bytes; sums[i] (+)= part[i] * 2^shift; and what becomes of such sums.
  void (*split_bytes)(const void* x, uint8_t* low, uint8_t* high, size_t n);
  void (*add_part)(int64_t* sums, const int32_t* part, int shift, bool accumulate, size_t n);
  void (*requantise_wide)(const RequantiseWide&);
  void (*unary)(uint32_t code, float alpha, float beta, const float* x, float* y, size_t n);  // y == x allowed
  // sa, sb: 0 = one value for all, 1 = n values. func as in params::eltwise_func (binary ones).
  void (*binary)(uint32_t func, const float* a, int sa, const float* b, int sb, float* y, size_t n);
  void (*muladd)(const float* a, int sa, const float* b, int sb, const float* c, int sc, float* y, size_t n);
  void (*add_scaled)(const float* a, int sa, float alpha, const float* b, int sb, float beta, float* y, size_t n);
  void (*affine)(const float* x, float scale, float shift, float* y, size_t n);  // y == x allowed
  // The same for integers, which wrap; dtype as in params::dtype. y == x allowed for the unary ones.
  void (*binary_int)(uint32_t func, uint32_t dtype, const void* a, int sa, const void* b, int sb, void* y, size_t n);
  void (*unary_int)(uint32_t code, float alpha, float beta, uint32_t dtype, const void* x, void* y, size_t n);
  void (*transpose)(const float* x, ptrdiff_t x_row, int rows, int columns, float* y, ptrdiff_t y_row);
  void (*copy_strided)(const float* x, ptrdiff_t stride, float* y, int n);
  void (*copy_rows)(const float* x, ptrdiff_t x_row, ptrdiff_t stride, float* y, ptrdiff_t y_row, int rows, int n);
  void (*copy_byte_rows)(const uint8_t* x, ptrdiff_t x_row, ptrdiff_t stride, uint8_t* y, ptrdiff_t y_row, int rows, int n);
  void (*im2col)(const Taps&);
  void (*im2col_bytes)(const TapsOf<uint8_t>&);
  void (*taps_mac)(const Taps&, const float* weights, float bias);
  void (*taps_mac_i32)(const TapsOf<int32_t>&, const int32_t* weights, int32_t bias);  // wraps
  // The same of bytes into words: `out` instead of the taps' own, whose out_row counts words.
  void (*taps_mac_bytes)(const TapsOf<uint8_t>&, bool is_signed, const int32_t* weights, int32_t bias, int32_t* out);
  // Differences, exponentials and their sums are rounded to `steps`, a float type of params::dtype.
  void (*softmax_row)(uint32_t steps, bool log, const float* x, float* y, int n);
  void (*softmax_columns)(uint32_t steps, bool log, const float* x, float* y, int length, ptrdiff_t stride, int n);
  // y[i] = x[i] / (bias + scale * sum_{t < taps} squares[t * stride + i]^2) ^ beta
  void (*lrn_row)(const float* x, const float* squares, int taps, ptrdiff_t stride, float scale, float bias,
                  float beta, float* y, int n);
  // Pairs of x turned: first * cos - second * sin, then second * cos + first * sin; `half` pairs of elements that lie
  // so far apart, or of neighbours.
  void (*rotate)(const float* x, const float* cos, const float* sin, int half, bool interleaved, float* y);
  // y = saturate(round to even(x / scale) + zero), integers of dtype (i8, u8, i16, u16), and y = (x - zero) * scale of
  // them or of i32. Where a step is 0, one value for all; zero: nullptr for none.
  void (*quantise)(uint32_t dtype, const float* x, int sx, const float* scale, int ss, const void* zero, int sz, void* y, size_t n);
  void (*dequantise)(uint32_t dtype, const void* x, int sx, const float* scale, int ss, const void* zero, int sz, float* y, size_t n);
  // y = saturate(round to even(x * factor / sum) + zero), bytes of dtype; in f64.
  void (*shares)(uint32_t dtype, const float* x, float factor, float sum, int32_t zero, void* y, size_t n);
  void (*widen_weights)(const PackedWeights&, float* y);  // [blocks * members][n]
  // c[m][n] += sum_k a[m][k] * weight[k][n], in the order of k; members of a lie side by side.
  void (*multiply_weights)(const PackedWeights&, const float* a, ptrdiff_t a_m, int m, float* c);
  // Two operands of i8, u8, i16 or u16, each with a scale and a zero point, as a quantised sum or product of them.
  void (*combine)(const Combine&);
  void (*normal_row)(const NormalRow&);
  float (*mean_of)(const float* x, int n);  // n >= 1; as exact as pairs of f32
  float (*squares_of)(const float* x, int n);  // added up, in the order of normal_row
  void (*look_up)(const uint8_t* entries, const uint8_t* x, uint8_t* y, size_t n);  // y[i] = entries[x[i]], of 256; y may be x
  // Truth values of one or two operands (functions of params::comparison; floats as f32).
  void (*compare)(uint32_t func, uint32_t dtype, const void* a, int sa, const void* b, int sb, uint8_t* y, size_t n);
  // y[i] = c[i] ? a[i] : b[i], of elements of 1, 2, 4 or 8 bytes at multiples of their size.
  void (*select_elements)(uint32_t bytes, const uint8_t* c, int sc, const void* a, int sa, const void* b, int sb, void* y, size_t n);
  // Where indices of 4 or 8 bytes, at any address, count to: at[i] is the member behind `first` of `size`, kElsewhere
  // on the axis of `extent`, or kOutside of it. Below zero they count from its end. Returns PlacesSeen.
  uint32_t (*places)(uint32_t bytes, const uint8_t* indices, int64_t extent, int64_t first, int64_t size, int32_t* at, size_t n);
  // The same of those that lie behind `first` alone, `count` of the n: which they are, and where. Both have room for n.
  uint32_t (*found_places)(uint32_t bytes, const uint8_t* indices, int64_t extent, int64_t first, int64_t size, int32_t* which, int32_t* at, size_t n, size_t* count);
  // Functions of params::binary_func; floats as f32.
  void (*binary_func)(uint32_t func, uint32_t dtype, const void* a, int sa, const void* b, int sb, void* y, size_t n);

  template <class Word>
  const WordLevel<Word>& of() const {
    if constexpr (std::is_same_v<Word, float>) return f32;
    if constexpr (std::is_same_v<Word, int32_t>) return i32;
    if constexpr (std::is_same_v<Word, uint32_t>) return u32;
  }
};

constexpr const char* kSimdLevels[] = {"portable", "avx2", "avxvnni", "avx512", "avx512bf16", "amx"};  // lowest first

// The level in use: the highest that the processor has, or the one that ONEDISPATCH_SIMD in the environment names.
const SimdLevel& simd();
// Tests and benchmarks only, while no kernel runs: returns false when the processor lacks the level.
bool use_simd(std::string_view name);

// At least `bytes` of this thread's memory, 64-byte aligned, kept until its next request for the
// same slot. Contents are zero at first and then whatever the slot held before.
void* scratch(int slot, size_t bytes);
enum ScratchSlot { kScratchPlane, kScratchPlan, kScratchColumns, kScratchPackA, kScratchPackB, kScratchSums, kScratchRow, kScratchWords, kScratchOtherWords, kScratchResult, kScratchPart, kScratchTiles, kScratchSlots };

}  // namespace onedispatch::kernels
