// SPDX-License-Identifier: Apache-2.0
// od::gemm_nbits: C[m][n] = finish(sum_k A[m][k] * (B[k][n] - zero[k / block][n]) * scale[k / block][n]), the
// weights B in 4 or 8 bits.
//
// bfloat16: weights are scaled, rounded to bfloat16 and multiplied. Other floats: weights less their zero points
// are multiplied as they are, and the sums of a block are scaled.
#include <algorithm>

#include "kernel.h"
#include "simd/simd.h"
#include "words.h"

namespace onedispatch::kernels {

namespace {

namespace arg = params::gemm_nbits;
namespace operand = params::gemm_nbits::operand;
namespace func = params::eltwise_func;

constexpr int kFewRows = 8;  // for which weights are made as often as they are multiplied by four rows

class GemmNbits final : public Kernel {
 public:
  explicit GemmNbits(const Setup& setup);

  void check(const Call& call) const override { offsets_of(call); }
  void run(const Call& call) const override;

 private:
  // Offsets into the chunks, in elements, of what one call reads.
  struct ChunkOffsets {
    int64_t a, b, scale, zero, bias;
  };
  ChunkOffsets offsets_of(const Call& call) const;
  void check_lies(const Setup& setup) const;
  PackedWeights weights(const Call& call, const ChunkOffsets& at) const;
  void add_products(const PackedWeights& packed, const float* a, float* sums) const;
  void finish(const Call& call, const ChunkOffsets& at, const Result<float>& result) const;

  uint32_t dim_m_, dim_n_, bits_;
  int m_, n_;
  Operand a_, b_, scale_, zero_, bias_;
  uint32_t out_;  // element type
  int64_t block_, bytes_;
  bool scales_sums_;
  Activation activation_;
};

GemmNbits::GemmNbits(const Setup& setup)
    : dim_m_(setup.roles[0]),
      dim_n_(setup.roles[1]),
      bits_(setup.scalars[arg::scalar::bits]),
      m_(static_cast<int>(setup.tile(0))),
      n_(static_cast<int>(setup.tile(1))),
      a_(setup.operands[operand::a]),
      b_(setup.operands[operand::b]),
      scale_(setup.operands[operand::scale]),
      zero_(setup.operands[operand::zero]),
      bias_(setup.operands[operand::bias]),
      out_(setup.operands[operand::out].dtype),
      block_(a_.axes[2].chunk),
      bytes_(b_.axes[1].chunk),
      scales_sums_(a_.dtype != params::dtype::bf16),
      activation_(setup, arg::scalar::act) {
  if (bits_ != 4 && bits_ != 8) reject(setup, arg::bits, "bits", "weights of 4 or 8 bits are accepted");
  check_lies(setup);
}

// Members of a block lie side by side in a, columns in everything else.
void GemmNbits::check_lies(const Setup& setup) const {
  const auto& a = a_.axes;
  if (a_.present && (a[2].stride != 1 || a[1].stride != block_)) {
    reject(setup, arg::a_k + 2, "a", "accepted: members of a block side by side, block after block");
  }
  if (!b_.present) return;
  if (bytes_ * 8 != block_ * bits_) {
    reject(setup, arg::b_bytes + 1, "bytes of a block of weights", "accepted: " + std::to_string(block_ * bits_ / 8));
  }
  const auto& b = b_.axes;
  if (b[2].stride != 1 || b[2].chunk != n_ || b[1].stride != n_ || b[0].stride != n_ * bytes_) {
    reject(setup, arg::b_n + 2, "b", "accepted: rows of the tile of n, one after the other");
  }
  for (const Operand* x : {&scale_, &zero_}) {
    if (!x->present) continue;
    const auto& axes = x->axes;
    if (axes[1].stride != 1 || axes[0].stride != n_) reject(setup, arg::scale_n + 2, "scales and zero points", "accepted: rows of the tile of n");
  }
  if (bias_.present && bias_.axes[0].stride != 1) reject(setup, arg::bias_n + 2, "bias", "accepted: values side by side");
}

GemmNbits::ChunkOffsets GemmNbits::offsets_of(const Call& call) const {
  const int64_t om = call.origin[dim_m_], on = call.origin[dim_n_], k = call.k_first, count = call.k_count;
  ChunkOffsets at{};
  if (count != 0) {
    at.a = a_.axes[0].local(om, om, m_, "gemm_nbits: a along m") + a_.axes[1].local(k, k, count, "gemm_nbits: a along k");
    at.b = b_.axes[0].local(k, k, count, "gemm_nbits: b along k") + b_.axes[2].local(on, on, n_, "gemm_nbits: b along n");
    at.scale = scale_.axes[0].local(k, k, count, "gemm_nbits: scale along k") + scale_.axes[1].local(on, on, n_, "gemm_nbits: scale along n");
    if (zero_.present) {
      at.zero = zero_.axes[0].local(k, k, count, "gemm_nbits: zero along k") + zero_.axes[1].local(on, on, n_, "gemm_nbits: zero along n");
    }
  }
  if (bias_.present) at.bias = bias_.axes[0].local(on, on, n_, "gemm_nbits: bias");
  return at;
}

void GemmNbits::run(const Call& call) const {
  const ChunkOffsets at = offsets_of(call);
  const Result<float> result(out_, call, static_cast<size_t>(m_) * static_cast<size_t>(n_));
  if (call.k_index == 0) std::fill_n(result.words, static_cast<size_t>(m_) * static_cast<size_t>(n_), 0.0f);
  if (call.k_count != 0) {
    const int64_t reach = (m_ - 1) * a_.axes[0].stride + static_cast<int64_t>(call.k_count) * block_;
    const auto* a = words_in<float>(a_, call, at.a, reach, kScratchWords);
    const PackedWeights packed = weights(call, at);
    if (m_ <= kFewRows) {
      simd().multiply_weights(packed, a, a_.axes[0].stride, m_, result.words);
    } else {
      add_products(packed, a, result.words);
    }
  }
  if (call.k_last) finish(call, at, result);
}

PackedWeights GemmNbits::weights(const Call& call, const ChunkOffsets& at) const {
  const int64_t rows = int64_t{call.k_count} * n_;
  PackedWeights packed{b_.in(call) + at.b, static_cast<int>(call.k_count), static_cast<int>(bytes_), n_, static_cast<int>(bits_), nullptr, nullptr, nullptr, !scales_sums_};
  packed.scale = words_in<float>(scale_, call, at.scale, rows, kScratchRow);
  if (zero_.present && zero_.dtype == params::dtype::u8) {
    packed.zero = zero_.in(call) + at.zero;
  } else if (zero_.present) {
    packed.float_zero = words_in<float>(zero_, call, at.zero, rows, kScratchPlan);
  }
  return packed;
}

// Many rows: weights are widened once for all of them.
void GemmNbits::add_products(const PackedWeights& packed, const float* a, float* sums) const {
  const size_t n = static_cast<size_t>(n_), all = static_cast<size_t>(m_) * n, members = static_cast<size_t>(block_) * n;
  const auto blocks = static_cast<size_t>(packed.blocks);
  auto* widened = static_cast<float*>(scratch(kScratchOtherWords, blocks * members * sizeof(float)));
  simd().widen_weights(packed, widened);
  GemmF32 g{};
  g.a = a;
  g.a_m = a_.axes[0].stride;
  g.a_k = 1;
  g.b = widened;
  g.b_k = g.c_m = n_;
  g.m = m_;
  g.n = n_;
  if (!scales_sums_) {
    g.k = static_cast<int>(static_cast<int64_t>(blocks) * block_);
    g.c = sums;
    g.accumulate = true;
    simd().gemm_f32(g);
    return;
  }
  g.k = static_cast<int>(block_);
  g.c = static_cast<float*>(scratch(kScratchSums, all * sizeof(float)));
  for (size_t i = 0; i < blocks; ++i, g.a += block_, g.b += members) {
    simd().gemm_f32(g);
    const float* scale = packed.scale + i * n;
    for (size_t row = 0; row < all; row += n) simd().muladd(g.c + row, 1, scale, 1, sums + row, 1, sums + row, n);
  }
}

void GemmNbits::finish(const Call& call, const ChunkOffsets& at, const Result<float>& result) const {
  const size_t n = static_cast<size_t>(n_), all = static_cast<size_t>(m_) * n;
  if (bias_.present) {
    const float* bias = bias_.f32_in(call) + at.bias;
    for (size_t at_row = 0; at_row < all; at_row += n) {
      simd().binary(func::add_, result.words + at_row, 1, bias, 1, result.words + at_row, n);
    }
  }
  activation_.apply(result.words, all);
  result.finish();
}

}  // namespace

ONEDISPATCH_KERNEL(gemm_nbits, make<GemmNbits>)

}  // namespace onedispatch::kernels
