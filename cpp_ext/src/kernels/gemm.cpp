// SPDX-License-Identifier: Apache-2.0
// od::gemm: C[m][n] = finish(sum_k (A - a_zero)[m][k] * (B - b_zero)[k][n]).
//
// Floats are summed in f32 and finished as act(alpha * sum + bias); integers in int32, which wraps, and
// finished as sum + bias, times a scale where the result is to be narrow; as floats they are act(sum * scale +
// bias). Narrow results of 16-bit integers have sums of 64 bits. Sums of several steps stay in the out chunk, or in scratch where they are wider; with a shift they wait in the
// type of the results: each step loads what is there, adds its product, and stores what is rounded and saturated.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "bf16_pairs.h"
#include "byte_parts.h"
#include "byte_zeros.h"
#include "kernel.h"
#include "simd/simd.h"
#include "words.h"

namespace onedispatch::kernels {

namespace {

namespace operand = params::gemm::operand;
namespace scalar = params::gemm::scalar;

constexpr int kFewRows = 2;
constexpr size_t kFinished = 2 * 1024;  // elements of results at a time

void multiply(const GemmF32& g) { simd().gemm_f32(g); }
void multiply(const GemmI32& g) { simd().gemm_i32(g); }

// Elements from the first to the last of a matrix.
int64_t reach(const Axis& rows, int64_t n_rows, const Axis& columns, int64_t n_columns) {
  return (n_rows - 1) * rows.stride + (n_columns - 1) * columns.stride + 1;
}

class Gemm final : public Kernel {
 public:
  explicit Gemm(const Setup& setup);

  void check(const Call& call) const override { offsets_of(call); }
  void run(const Call& call) const override;

 private:
  // Offsets into the chunks, in elements, of what one call reads, and the columns that are there.
  struct ChunkOffsets {
    int64_t a, b, bias, a_zero, b_zero, scale, out_zero;
    int n;
  };
  ChunkOffsets offsets_of(const Call& call) const;
  int64_t held(const Axis& axis, int64_t origin) const;
  template <class Word>
  void run_as(const Call& call, const ChunkOffsets& at) const;
  template <class Word>
  void run_narrow(const Call& call, const ChunkOffsets& at) const;
  template <class Word>
  void add(const Call& call, const ChunkOffsets& at, Word* sums, bool accumulate) const;
  void load(const Call& call, const ChunkOffsets& at, float* sums) const;
  void load(const Call& call, const ChunkOffsets& at, int32_t* sums) const;
  void store(const Call& call, const ChunkOffsets& at, float* sums) const;
  void store(const Call& call, const ChunkOffsets& at, int32_t* sums) const;
  template <class Word>
  void add_words(const Call& call, const ChunkOffsets& at, Word* sums, bool accumulate) const;
  template <class Word>
  void read_b(const Call& call, const ChunkOffsets& at, Product<Word>& g) const;
  template <class Word>
  void widen_panels(const Call& call, int64_t first, Product<Word>& g) const;
  void add_pairs(const Call& call, const ChunkOffsets& at, float* sums, bool accumulate) const;
  void pair_a(const uint16_t* a, const PairSteps& steps, GemmF32& g) const;
  template <class Word>
  void multiply_panels(Product<Word>& g, int64_t next) const;
  template <class Word>
  void multiply_copied(Product<Word>& g, const Panels::Run& run, int64_t next) const;
  void add_bytes(const Call& call, const ChunkOffsets& at, int32_t* sums, bool accumulate) const;
  void run_wide(const Call& call, const ChunkOffsets& at) const;
  void add_wide(const Call& call, const ChunkOffsets& at, int64_t* sums) const;
  void narrow(const Call& call, const ChunkOffsets& at, const int64_t* sums) const;
  void less_zeros(const Call& call, const ChunkOffsets& at, int k, int32_t* a) const;
  void less_zeros(const Call& call, const ChunkOffsets& at, int k, int32_t* b, int64_t b_k, int64_t b_n) const;
  void finish(const Call& call, const ChunkOffsets& at, float* sums) const;
  void finish(const Call& call, const ChunkOffsets& at, int32_t* sums) const;
  void add_bias(const Call& call, const ChunkOffsets& at, int32_t* sums) const;
  void narrow(const Call& call, const ChunkOffsets& at, int32_t* sums) const;
  const float* scales(const Call& call, const ChunkOffsets& at) const;
  void clear_padding(const Call& call, int n) const;
  bool takes_panels() const;
  void check_finish(const Setup& setup) const;

  uint32_t out_;  // element type
  bool floats_, bf16_, bytes_, wide_;
  uint32_t dim_m_, dim_n_;
  int m_, n_;
  int step_;  // members of a step, of which a call of a joined operation has several
  int64_t out_m_, c_m_;  // elements from a row of results to the next, and of sums
  Operand a_, b_, bias_, a_zero_, b_zero_, scale_, out_zero_;
  Axis a_m_, a_k_, b_k_, b_n_;
  Panels b_k_panels_, b_n_panels_, bias_panels_, scale_panels_, out_zero_panels_;
  ByteZeros zeros_;
  Activation activation_;
  float alpha_;
  int shift_;  // below 0: sums keep all their bits
};

Gemm::Gemm(const Setup& setup)
    : out_(setup.operands[operand::out].dtype),
      floats_(is_float(setup.operands[operand::a].dtype)),
      bf16_(setup.operands[operand::a].dtype == params::dtype::bf16 && setup.operands[operand::b].dtype == params::dtype::bf16),
      bytes_(element_bytes(setup.operands[operand::a].dtype) == 1 && element_bytes(setup.operands[operand::b].dtype) == 1),
      wide_(!floats_ && element_bytes(setup.operands[operand::a].dtype) == 2 && element_bytes(out_) < 4),
      dim_m_(setup.roles[0]),
      dim_n_(setup.roles[1]),
      m_(static_cast<int>(setup.tile(0))),
      n_(static_cast<int>(setup.tile(1))),
      step_(step_of(setup)),
      out_m_(m_ > 1 ? setup.operands[operand::out].axes[0].stride : n_),
      c_m_(is_word(out_) ? out_m_ : n_),
      a_(setup.operands[operand::a]),
      b_(setup.operands[operand::b]),
      bias_(setup.operands[operand::bias]),
      a_zero_(setup.operands[operand::a_zero]),
      b_zero_(setup.operands[operand::b_zero]),
      scale_(setup.operands[operand::scale]),
      out_zero_(setup.operands[operand::out_zero]),
      a_m_(a_.axes[0]),
      a_k_(a_.axes[1]),
      b_k_(b_.axes[0]),
      b_n_(b_.axes[1]),
      b_k_panels_(setup, b_, 0),
      b_n_panels_(setup, b_, 1),
      bias_panels_(setup, bias_, 0),
      scale_panels_(setup, scale_, 0),
      out_zero_panels_(setup, out_zero_, 0),
      zeros_(setup, a_zero_, b_zero_, b_n_panels_, b_k_panels_),
      activation_(setup, scalar::act),
      alpha_(setup.f32(scalar::alpha)),
      shift_(static_cast<int>(setup.scalars[scalar::narrow_sums]) - 1) {
  check_finish(setup);
  if (is_word(out_) ? !floats_ : shift_ >= 0) require_whole(setup, operand::out);
  if (n_ > 1 && setup.operands[operand::out].axes[1].stride != 1) reject("gemm: out; accepted: rows whose elements are neighbours");
  if ((b_k_panels_ || b_n_panels_) && !takes_panels()) reject("gemm: panels of b; accepted: of floats whose columns are neighbours, of bytes in whole vectors");
  if (wide_ && scale_panels_) reject("gemm: scale of products of 16 bits; accepted: no panels");
  const uint64_t k = std::min(setup.k_tile, setup.k_extent);
  const bool in_core = a_.bytes <= params::kCoreMemoryBytes;  // else operands lie anywhere
  if (in_core && std::max<uint64_t>(setup.tile(0), setup.tile(1)) * k > params::kCoreMemoryBytes) {
    reject(setup, params::header::k_tile, "reduction tile", "its product with a tile side must be at most 65536");
  }
}

bool Gemm::takes_panels() const {
  if (floats_) return b_n_.stride == 1;
  return bytes_ && b_k_panels_.length % 4 == 0;
}

// What the element types ask of the scalars.
void Gemm::check_finish(const Setup& setup) const {
  if (shift_ > 0 && (floats_ || is_word(out_))) reject(setup, params::gemm::narrow_sums, "narrow_sums", "floats and words accept 0 and 1: no bits below results");
  if (shift_ >= 0 && wide_) reject(setup, params::gemm::narrow_sums, "narrow_sums", "narrow results of 16-bit integers accept 0: all bits");
  if (floats_) return;
  if (!is_float(out_) && activation_.code != params::activation::none_) reject(setup, params::gemm::act, "act", "integers accept none (0)");
  if (alpha_ != 1.0f) reject(setup, params::gemm::alpha, "alpha", "integers accept 1.0; they have a scale");
  if (shift_ >= 0 && scale_.present) reject(setup, params::gemm::scale, "scale", "sums that are shifted have none");
  if (!is_word(out_) && !scale_.present && shift_ < 0) reject(setup, params::gemm::scale, "scale", "sums need one to become narrow");
  if (out_zero_.present && !scale_.present && shift_ < 0) reject(setup, params::gemm::out_zero, "out_zero", "accepted beside a scale, or for sums that are shifted");
  if (out_zero_.axes[0].stride != 0) reject(setup, params::gemm::out_zero_n + 2, "out_zero along n: stride", "accepted: 0, one for all columns");
}

// Columns that an operand has. The last few of the tile may only fill up the words of the output's rows.
int64_t Gemm::held(const Axis& axis, int64_t origin) const {
  const int64_t lacked = is_word(out_) ? 0 : 4 / element_bytes(out_) - 1;
  if (axis.stride == 0) return n_;
  return std::min<int64_t>(n_, std::max(axis.extent - axis.first(origin), n_ - lacked));
}

Gemm::ChunkOffsets Gemm::offsets_of(const Call& call) const {
  const int64_t om = call.origin[dim_m_], on = call.origin[dim_n_], k = call.k_first, count = call.k_count;
  int64_t n = n_;
  for (const Axis* axis : {&b_n_, &bias_.axes[0], &b_zero_.axes[0], &scale_.axes[0]}) n = std::min(n, held(*axis, on));
  ChunkOffsets at{};
  at.n = static_cast<int>(n);
  if (count != 0) {
    at.a = a_m_.local(om, om, m_, "gemm: a along m") + a_k_.local(k, k, count, "gemm: a along k");
    at.b = local(b_k_, b_k_panels_, k, count, "gemm: b along k") + local(b_n_, b_n_panels_, on, n, "gemm: b along n");
    at.a_zero = a_zero_.axes[0].local(om, om, m_, "gemm: a_zero");
    at.b_zero = local(b_zero_.axes[0], zeros_.panels_of_b(), on, n, "gemm: b_zero");
  }
  at.bias = local(bias_.axes[0], bias_panels_, on, n, "gemm: bias");
  at.scale = local(scale_.axes[0], scale_panels_, on, n, "gemm: scale");
  at.out_zero = local(out_zero_.axes[0], out_zero_panels_, on, n, "gemm: out_zero");
  return at;
}

void Gemm::run(const Call& call) const {
  const ChunkOffsets at = offsets_of(call);
  if (floats_) {
    run_as<float>(call, at);
  } else if (wide_) {
    run_wide(call, at);
  } else {
    run_as<int32_t>(call, at);
  }
}

template <class Word>
void Gemm::run_as(const Call& call, const ChunkOffsets& at) const {
  if (shift_ >= 0 && !is_word(out_)) return run_narrow<Word>(call, at);
  const Result<Word> result(out_, call, static_cast<size_t>(m_), static_cast<size_t>(n_), static_cast<size_t>(out_m_));
  add(call, at, result.words, call.k_index != 0);
  if (!call.k_last) return;
  finish(call, at, result.words);
  if (at.n < n_) clear_padding(call, at.n);
}

template <class Word>
void Gemm::run_narrow(const Call& call, const ChunkOffsets& at) const {
  auto* sums = static_cast<Word*>(scratch(kScratchResult, static_cast<size_t>(m_) * static_cast<size_t>(n_) * sizeof(Word)));
  load(call, at, sums);
  add(call, at, sums, true);
  store(call, at, sums);
  if (call.k_last && at.n < n_) clear_padding(call, at.n);
}

template <class Word>
void Gemm::add(const Call& call, const ChunkOffsets& at, Word* sums, bool accumulate) const {
  if constexpr (std::is_same_v<Word, int32_t>) {
    if (bytes_ && call.k_count != 0) return add_bytes(call, at, sums, accumulate);
  } else {
    if (bf16_ && call.k_count != 0 && simd().pairs != nullptr) return add_pairs(call, at, sums, accumulate);
  }
  add_words(call, at, sums, accumulate);
}

void Gemm::load(const Call& call, const ChunkOffsets&, float* sums) const {
  const size_t all = static_cast<size_t>(m_) * static_cast<size_t>(n_);
  if (call.k_index == 0) {
    std::fill_n(sums, all, 0.0f);
  } else {
    simd().widen(out_, call.out, sums, all);
  }
}

// The first step begins with the zero point and the bias.
void Gemm::load(const Call& call, const ChunkOffsets& at, int32_t* sums) const {
  const size_t all = static_cast<size_t>(m_) * static_cast<size_t>(n_);
  const bool first = call.k_index == 0;
  int32_t zero = 0;
  if (first) {
    zero_points(out_zero_, call, at.out_zero, 1, &zero);
    std::fill_n(sums, all, zero);
  } else {
    simd().widen(out_, call.out, sums, all);
  }
  for (size_t i = 0; i < all; ++i) sums[i] = static_cast<int32_t>(static_cast<uint32_t>(sums[i]) << shift_);
  if (first) add_bias(call, at, sums);
}

void Gemm::store(const Call& call, const ChunkOffsets& at, float* sums) const {
  if (call.k_last) return finish(call, at, sums);
  simd().narrow(out_, sums, call.out, static_cast<size_t>(m_) * static_cast<size_t>(n_));
}

// Shifted to the right, rounded half to even, and saturated.
void Gemm::store(const Call& call, const ChunkOffsets&, int32_t* sums) const {
  const size_t all = static_cast<size_t>(m_) * static_cast<size_t>(n_);
  const int32_t half = shift_ == 0 ? 0 : int32_t{1} << (shift_ - 1), rest = (int32_t{1} << shift_) - 1;
  for (size_t i = 0; shift_ != 0 && i < all; ++i) {
    const int32_t whole = sums[i] >> shift_, left = sums[i] & rest;
    sums[i] = whole + (left > half || (left == half && (whole & 1) != 0) ? 1 : 0);
  }
  simd().narrow(out_, sums, call.out, all);
}

template <class Word>
void Gemm::add_words(const Call& call, const ChunkOffsets& at, Word* sums, bool accumulate) const {
  Product<Word> g{};
  g.m = m_;
  g.n = at.n;
  g.k = static_cast<int>(call.k_count);
  g.c = sums;
  g.c_m = c_m_;
  g.accumulate = accumulate;
  if (g.k != 0) {
    g.a = words_in<Word>(a_, call, at.a, reach(a_m_, m_, a_k_, g.k), kScratchWords);
    g.a_m = a_m_.stride;
    g.a_k = a_k_.stride;
    if constexpr (std::is_same_v<Word, int32_t>) {
      if (a_zero_.present) less_zeros(call, at, g.k, const_cast<int32_t*>(g.a));  // narrow, so g.a is scratch
    }
    if ((b_k_panels_ || b_n_panels_) && !is_word(b_.dtype)) return widen_panels(call, at.b, g);
    read_b(call, at, g);
    g.b_panel = b_k_panels_.stride;
  }
  multiply_panels(g, b_n_panels_.stride);
}

// Panels of narrow elements from `first` on, widened into scratch.
template <class Word>
void Gemm::widen_panels(const Call& call, int64_t first, Product<Word>& g) const {
  const int64_t depth = b_k_panels_.run(0, g.k).members, width = b_n_panels_ ? b_n_panels_.length : g.n;
  const int64_t rows = (g.n + width - 1) / width, panels = (g.k + depth - 1) / depth, elements = reach(b_k_, depth, b_n_, width);
  g.b = widened_panels<Word>(b_, call, first, {rows, b_n_panels_.stride, panels, b_k_panels_.stride, elements}, kScratchOtherWords);
  g.b_k = b_k_.stride;
  g.b_panel = elements;
  multiply_panels(g, panels * elements);
}

void Gemm::add_pairs(const Call& call, const ChunkOffsets& at, float* sums, bool accumulate) const {
  const auto* a = reinterpret_cast<const uint16_t*>(a_.in(call)) + at.a;
  const auto* b = reinterpret_cast<const uint16_t*>(b_.in(call)) + at.b;
  const Bf16Matrix rows{b, b_k_.stride, b_n_.stride, b_k_panels_, b_n_panels_, static_cast<int>(call.k_count), at.n};
  const PairSteps steps(rows.k, step_);
  GemmF32 g{};
  g.m = m_;
  g.n = at.n;
  g.k = steps.rows();
  g.c = sums;
  g.c_m = c_m_;
  g.accumulate = accumulate;
  pair_a(a, steps, g);
  if (m_ <= kFewRows && g.a_k == 1 && b_n_.stride == 1) return multiply_rows({g.a, g.a_m, nullptr, 0, g.c, g.c_m, g.m, 0, 0, accumulate}, rows, steps);
  g.b_k = pair_pitch(g.n);
  auto* made = static_cast<uint32_t*>(scratch(kScratchOtherWords, static_cast<size_t>(g.b_k) * static_cast<size_t>(g.k) * 4));
  pair_members(rows, steps, 0, made, g.b_k);
  g.b = reinterpret_cast<const float*>(made);
  simd().pairs->gemm(g);
}

void Gemm::pair_a(const uint16_t* a, const PairSteps& steps, GemmF32& g) const {
  const bool turned = a_k_.stride != 1;
  const ptrdiff_t row = pair_pitch(turned ? m_ : g.k), rows = turned ? g.k : (m_ + kPairRows - 1) / kPairRows * kPairRows;
  auto* made = static_cast<uint32_t*>(scratch(kScratchWords, static_cast<size_t>(rows * row) * 4));
  g.a = reinterpret_cast<const float*>(made);
  g.a_m = turned ? 1 : row;
  g.a_k = turned ? row : 1;
  if (turned) return pair_members({a, a_k_.stride, a_m_.stride, {}, {}, steps.members(), m_}, steps, kNegativeZero, made, row);
  for (int m = 0; m < m_; ++m) pair_neighbours(a + m * a_m_.stride, steps, kNegativeZero, made + m * row);
}

// Of each panel of columns, the `next` one so far behind, whose members along k may lie in panels, too.
template <class Word>
void Gemm::multiply_panels(Product<Word>& g, int64_t next) const {
  const int columns = g.n, width = b_n_panels_ ? static_cast<int>(b_n_panels_.length) : columns;
  const Panels::Run run = b_k_panels_.run(0, g.k);
  if (columns > width && g.m >= kLeastCopiedRows && width % kTileColumns != 0 && width % (2 * kOverrun) != 0) return multiply_copied(g, run, next);
  g.k = run.members;
  g.more_panels = run.more;
  g.a_panel = run.members * g.a_k;
  g.width = width;
  g.next = next;
  multiply(g);
}

// Columns of panels that would leave lanes idle, brought together.
template <class Word>
void Gemm::multiply_copied(Product<Word>& g, const Panels::Run& run, int64_t next) const {
  const auto width = static_cast<int>(b_n_panels_.length), columns = g.n;
  const auto* const b = reinterpret_cast<const float*>(g.b);  // words of any type
  const ptrdiff_t b_k = g.b_k;
  g.k = run.all();
  auto* const made = static_cast<float*>(scratch(kScratchPackB, (static_cast<size_t>(kTileColumns) * static_cast<size_t>(g.k) + kOverrun) * sizeof(float)));
  g.b = reinterpret_cast<const Word*>(made);
  g.b_k = kTileColumns;
  for (int first = 0; first < columns; first += kTileColumns, g.c += kTileColumns) {
    g.n = std::min(kTileColumns, columns - first);
    for (int n = first, there; n < first + g.n; n += there) {
      there = std::min(width - n % width, first + g.n - n);
      const float* from = b + n / width * next + n % width;
      float* to = made + n - first;
      for (int panel = 0; panel <= run.more; ++panel, from += g.b_panel, to += ptrdiff_t{run.members} * kTileColumns)
        simd().copy_rows(from, b_k, 1, to, kTileColumns, run.members, there);
    }
    multiply(g);
  }
}

template <class Word>
void Gemm::read_b(const Call& call, const ChunkOffsets& at, Product<Word>& g) const {
  g.b = words_in<Word>(b_, call, at.b, reach(b_k_, g.k, b_n_, g.n), kScratchOtherWords);
  g.b_k = b_k_.stride;
  if constexpr (std::is_same_v<Word, int32_t>) {
    if (b_zero_.present) less_zeros(call, at, g.k, const_cast<int32_t*>(g.b), b_k_.stride, b_n_.stride);
  }
  if (b_n_.stride == 1) return;
  // B lies column by column: bring rows of n together first.
  const ptrdiff_t row = (g.n + 15) / 16 * 16;
  auto* packed = static_cast<Word*>(scratch(kScratchPackB, static_cast<size_t>(row) * static_cast<size_t>(g.k) * sizeof(Word)));
  if (b_k_.stride == 1) {  // words of any type
    simd().transpose(reinterpret_cast<const float*>(g.b), b_n_.stride, g.n, g.k, reinterpret_cast<float*>(packed), row);
  } else {
    for (int i = 0; i < g.k; ++i) {
      for (int n = 0; n < g.n; ++n) packed[i * row + n] = g.b[i * b_k_.stride + n * b_n_.stride];
    }
  }
  g.b = packed;
  g.b_k = row;
}

void Gemm::less_zeros(const Call& call, const ChunkOffsets& at, int k, int32_t* a) const {
  auto* zeros = static_cast<int32_t*>(scratch(kScratchSums, static_cast<size_t>(m_) * 4));
  zero_points(a_zero_, call, at.a_zero, m_, zeros);
  for (int m = 0; m < m_; ++m) {
    for (int i = 0; i < k; ++i) a[m * a_m_.stride + i * a_k_.stride] -= zeros[m];
  }
}

void Gemm::less_zeros(const Call& call, const ChunkOffsets& at, int k, int32_t* b, int64_t b_k, int64_t b_n) const {
  auto* zeros = static_cast<int32_t*>(scratch(kScratchSums, static_cast<size_t>(at.n) * 4));
  zero_points(b_zero_, call, at.b_zero, at.n, zeros);
  for (int i = 0; i < k; ++i) {
    for (int n = 0; n < at.n; ++n) b[i * b_k + n * b_n] -= zeros[n];
  }
}

void Gemm::add_bytes(const Call& call, const ChunkOffsets& at, int32_t* sums, bool accumulate) const {
  GemmI8 g{};
  g.a = a_.in(call) + at.a;
  g.a_m = a_m_.stride;
  g.a_k = a_k_.stride;
  g.b = b_.in(call) + at.b;
  g.b_k = b_k_.stride;
  g.b_n = b_n_.stride;
  g.c = sums;
  g.c_m = n_;
  g.m = m_;
  g.n = at.n;
  g.k = static_cast<int>(call.k_count);
  g.a_signed = a_.dtype == params::dtype::i8;
  g.b_signed = b_.dtype == params::dtype::i8;
  g.accumulate = accumulate;
  zeros_.multiply(call, at.a_zero, at.b_zero, g);
}

void Gemm::run_wide(const Call& call, const ChunkOffsets& at) const {
  const size_t all = static_cast<size_t>(m_) * static_cast<size_t>(n_);
  const Result<int64_t> result(out_, call, all);
  if (call.k_count != 0) {
    add_wide(call, at, result.words);
  } else if (call.k_index == 0) {
    std::fill_n(result.words, all, 0);
  }
  if (!call.k_last) return;
  narrow(call, at, result.words);
  if (at.n < n_) clear_padding(call, at.n);
}

// Every pair of byte parts is a product of bytes, whose sums of one step int32 holds.
void Gemm::add_wide(const Call& call, const ChunkOffsets& at, int64_t* sums) const {
  const auto rows = static_cast<size_t>(m_), columns = static_cast<size_t>(at.n), all = rows * static_cast<size_t>(n_);
  auto* zeros = static_cast<int32_t*>(scratch(kScratchSums, 2 * (rows + columns) * 4));
  int32_t *a_zeros = zeros, *b_zeros = a_zeros + rows, *a_part = b_zeros + columns, *b_part = a_part + rows;
  zero_points(a_zero_, call, at.a_zero, m_, a_zeros);
  zero_points(b_zero_, call, at.b_zero, at.n, b_zeros);
  GemmI8 g{};
  g.m = m_;
  g.n = at.n;
  g.k = static_cast<int>(call.k_count);
  g.a_m = a_m_.stride;
  g.a_k = a_k_.stride;
  g.b_k = b_k_.stride;
  g.b_n = b_n_.stride;
  g.c = static_cast<int32_t*>(scratch(kScratchPart, all * 4));
  g.c_m = n_;
  g.a_zero = a_part;
  g.b_zero = b_part;
  const ByteParts a = byte_parts(a_, call, at.a, reach(a_m_, m_, a_k_, g.k), kScratchWords);
  const ByteParts b = byte_parts(b_, call, at.b, reach(b_k_, g.k, b_n_, g.n), kScratchOtherWords);
  bool accumulate = call.k_index != 0;
  for (const BytePart& one : a) {
    g.a = one.data;
    g.a_signed = one.is_signed;
    for (size_t m = 0; m < rows; ++m) a_part[m] = one.zero(a_zeros[m]);
    for (const BytePart& other : b) {
      g.b = other.data;
      g.b_signed = other.is_signed;
      for (size_t n = 0; n < columns; ++n) b_part[n] = other.zero(b_zeros[n]);
      simd().gemm_i8(g);
      simd().add_part(sums, g.c, one.shift + other.shift, accumulate, all);
      accumulate = true;
    }
  }
}

// Row by row where rows lie apart, else some at a time, while they are in L1.
void Gemm::finish(const Call& call, const ChunkOffsets& at, float* c) const {
  const int each = static_cast<int>(neighbour_step(bias_, bias_panels_));
  const auto n = static_cast<size_t>(n_), rows = static_cast<size_t>(m_);
  const size_t block = out_m_ != n_ ? 1 : std::max<size_t>(1, kFinished / n);
  const float* bias = bias_.present ? neighbours(bias_, bias_panels_, call, at.bias, at.n) : nullptr;
  for (size_t first = 0, some; first < rows; first += some) {
    some = std::min(block, rows - first);
    float* words = c + static_cast<int64_t>(first) * c_m_;
    if (alpha_ != 1.0f) simd().affine(words, alpha_, 0.0f, words, some * n);
    for (float* row = words; bias != nullptr && row != words + some * n; row += n) {
      simd().binary(params::eltwise_func::add_, row, 1, bias, each, row, static_cast<size_t>(at.n));
    }
    activation_.apply(words, some * n);
    if (!is_word(out_)) simd().narrow(out_, words, call.out + first * static_cast<size_t>(out_m_) * element_bytes(out_), some * n);
  }
}

void Gemm::finish(const Call& call, const ChunkOffsets& at, int32_t* c) const {
  if (!is_float(out_)) return narrow(call, at, c);
  const size_t row = static_cast<size_t>(n_);
  const float one = 1.0f, *scale = scale_.present ? scales(call, at) : &one;
  auto* line = static_cast<float*>(scratch(kScratchWords, row * 4));
  for (size_t m = 0; m < static_cast<size_t>(m_); ++m) {
    simd().dequantise(params::dtype::i32, c + m * row, 1, scale, scale_.present ? static_cast<int>(neighbour_step(scale_, scale_panels_)) : 0, nullptr, 0, line, static_cast<size_t>(at.n));
    std::memcpy(c + m * row, line, static_cast<size_t>(at.n) * 4);
  }
  finish(call, at, reinterpret_cast<float*>(call.out));  // where words are summed
}

const float* Gemm::scales(const Call& call, const ChunkOffsets& at) const { return neighbours(scale_, scale_panels_, call, at.scale, at.n, kScratchOtherWords); }

void Gemm::add_bias(const Call& call, const ChunkOffsets& at, int32_t* c) const {
  const auto* bias = bias_.present ? reinterpret_cast<const int32_t*>(neighbours(bias_, bias_panels_, call, at.bias, at.n)) : nullptr;
  for (int64_t m = 0; bias != nullptr && m < m_; ++m) {  // wraps as int32 does on the device
    simd().binary_int(params::eltwise_func::add_, params::dtype::i32, c + m * n_, 1, bias, static_cast<int>(neighbour_step(bias_, bias_panels_)), c + m * n_, static_cast<size_t>(at.n));
  }
}

// Sums as integers: with their bias, and where there is a scale made narrow.
void Gemm::narrow(const Call& call, const ChunkOffsets& at, int32_t* c) const {
  add_bias(call, at, c);
  if (!scale_.present) return;
  const float* scale = scales(call, at);
  const int64_t step = neighbour_step(scale_, scale_panels_);
  const auto zero_at = [&](int64_t panel) {
    int32_t zero;
    zero_points(out_zero_, call, at.out_zero + panel * out_zero_panels_.stride, 1, &zero);
    return zero;
  };
  for (int n = 0, end; n < at.n; n = end) {  // panels that have the same zero point at once
    const auto width = out_zero_panels_ ? static_cast<int>(out_zero_panels_.length) : at.n;
    const int32_t zero = zero_at(n / width);
    for (end = n + width; end < at.n && zero_at(end / width) == zero;) end += width;
    end = std::min(end, at.n);
    simd().requantise({c + n, n_, nullptr, 0, scale + n * step, 0, step != 0, zero, out_, call.out + n * int64_t{element_bytes(out_)}, out_m_, m_, end - n});
  }
}

// The same of wide sums.
void Gemm::narrow(const Call& call, const ChunkOffsets& at, const int64_t* c) const {
  const auto n = static_cast<size_t>(at.n);
  auto* bias = static_cast<int64_t*>(scratch(kScratchWords, n * sizeof(int64_t)));
  auto* scale = static_cast<float*>(scratch(kScratchOtherWords, n * sizeof(float)));
  for (size_t i = 0; i < n; ++i) {
    int32_t added = 0;
    if (bias_.present) std::memcpy(&added, bias_.in(call) + (at.bias + static_cast<int64_t>(i) * bias_.axes[0].stride) * 4, 4);
    bias[i] = added;
    scale[i] = scale_.f32_in(call)[at.scale + static_cast<int64_t>(i) * scale_.axes[0].stride];
  }
  int32_t zero;
  zero_points(out_zero_, call, at.out_zero, 1, &zero);
  simd().requantise_wide({c, n_, bias, scale, true, zero, out_, call.out, out_m_, m_, at.n});
}

// The columns behind the last are row padding: zeros.
void Gemm::clear_padding(const Call& call, int n) const {
  const size_t bytes = element_bytes(out_), row = static_cast<size_t>(out_m_) * bytes, used = static_cast<size_t>(n) * bytes;
  for (size_t m = 0; m < static_cast<size_t>(m_); ++m) std::memset(call.out + m * row + used, 0, static_cast<size_t>(n_) * bytes - used);
}

}  // namespace

ONEDISPATCH_KERNEL(gemm, make<Gemm>)

}  // namespace onedispatch::kernels
