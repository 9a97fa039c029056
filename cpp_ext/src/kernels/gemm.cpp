// SPDX-License-Identifier: Apache-2.0
// od::gemm: C[m][n] = act(alpha * sum_k A[m][k] * B[k][n] + bias[n]), accumulated in the out chunk over
// the reduction steps. f32, or bytes to int32 with zero points (bytes of their matrix's sign).
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernel.h"
#include "simd/simd.h"

namespace onedispatch::kernels {

namespace {

namespace operand = params::gemm::operand;
namespace scalar = params::gemm::scalar;

class Gemm final : public Kernel {
 public:
  explicit Gemm(const Setup& setup);

  void check(const Call& call) const override { place(call); }
  void run(const Call& call) const override {
    if (bytes_) {
      run_i8(call);
    } else {
      run_f32(call);
    }
  }

 private:
  // Local positions, in elements, of what one call reads.
  struct Place {
    int64_t a, b, bias, a_zero, b_zero;
  };
  Place place(const Call& call) const;
  void run_f32(const Call& call) const;
  void run_i8(const Call& call) const;
  void finish_f32(const Call& call, const Place& at) const;
  void finish_i8(const Call& call, const Place& at) const;
  void widen(const Call& call, const Operand& zero, int64_t at, int64_t stride, bool is_signed, int n, int32_t* to) const;

  void check_dtypes(const Setup& setup) const;

  bool bytes_, a_signed_ = false, b_signed_ = false;
  uint32_t dim_m_, dim_n_;
  int m_, n_;
  Operand a_, b_, bias_, a_zero_, b_zero_;
  Axis a_m_, a_k_, b_k_, b_n_, bias_n_, a_zero_m_, b_zero_n_;
  Activation activation_;
  float alpha_;
};

Gemm::Gemm(const Setup& setup)
    : bytes_(setup.operands[operand::out].dtype != params::dtype::f32),
      dim_m_(setup.roles[0]),
      dim_n_(setup.roles[1]),
      m_(static_cast<int>(setup.tile(0))),
      n_(static_cast<int>(setup.tile(1))),
      a_(setup.operands[operand::a]),
      b_(setup.operands[operand::b]),
      bias_(setup.operands[operand::bias]),
      a_zero_(setup.operands[operand::a_zero]),
      b_zero_(setup.operands[operand::b_zero]),
      a_m_(a_.axes[0]),
      a_k_(a_.axes[1]),
      b_k_(b_.axes[0]),
      b_n_(b_.axes[1]),
      bias_n_(bias_.axes[0]),
      a_zero_m_(a_zero_.axes[0]),
      b_zero_n_(b_zero_.axes[0]),
      activation_(setup, scalar::act),
      alpha_(setup.f32(scalar::alpha)) {
  check_dtypes(setup);
  a_signed_ = a_.dtype == params::dtype::i8;
  b_signed_ = b_.dtype == params::dtype::i8;
  const uint64_t k = std::min(setup.k_tile, setup.k_extent);
  if (std::max<uint64_t>(setup.tile(0), setup.tile(1)) * k > params::kCoreMemoryBytes) {
    reject(setup, params::header::k_tile, "reduction tile", "its product with a tile side must be at most 65536");
  }
}

// f32 alone, or bytes of either sign to int32 with zero points of their matrix's type.
void Gemm::check_dtypes(const Setup& setup) const {
  namespace dtype = params::dtype;
  if (bias_.present) require_dtype(setup, operand::bias, setup.operands[operand::out].dtype);
  for (const uint32_t i : {operand::a, operand::b}) {
    const Operand& x = setup.operands[i];
    if (!x.present) continue;
    if (!bytes_) require_dtype(setup, i, dtype::f32);
    if (bytes_ && x.dtype == dtype::f32) require_dtype(setup, i, dtype::i8);
  }
  if (!bytes_) {
    for (const uint32_t i : {operand::a_zero, operand::b_zero}) {
      if (setup.operands[i].present) reject(setup, setup.spec->operands[i].at, setup.spec->operands[i].name, "f32 has no zero points");
    }
    return;
  }
  if (a_zero_.present && a_.present) require_dtype(setup, operand::a_zero, a_.dtype);
  if (b_zero_.present && b_.present) require_dtype(setup, operand::b_zero, b_.dtype);
  if (activation_.code != params::activation::none_) {
    reject(setup, params::gemm::act, "act", "bytes to int32 accept none (0)");
  }
}

Gemm::Place Gemm::place(const Call& call) const {
  const int64_t om = call.origin[dim_m_], on = call.origin[dim_n_], k = call.k_first, count = call.k_count;
  Place at{};
  if (count != 0) {
    at.a = a_m_.local(om, om, m_, "gemm: a along m") + a_k_.local(k, k, count, "gemm: a along k");
    at.b = b_k_.local(k, k, count, "gemm: b along k") + b_n_.local(on, on, n_, "gemm: b along n");
    at.a_zero = a_zero_m_.local(om, om, m_, "gemm: a_zero");
    at.b_zero = b_zero_n_.local(on, on, n_, "gemm: b_zero");
  }
  at.bias = bias_n_.local(on, on, n_, "gemm: bias");
  return at;
}

void Gemm::run_f32(const Call& call) const {
  const Place at = place(call);
  const int k = static_cast<int>(call.k_count);
  auto* c = reinterpret_cast<float*>(call.out);
  GemmF32 g{};
  g.m = m_;
  g.n = n_;
  g.k = k;
  g.c = c;
  g.c_m = n_;
  g.accumulate = call.k_index != 0;
  if (k != 0) {
    g.a = a_.f32_in(call) + at.a;
    g.a_m = a_m_.stride;
    g.a_k = a_k_.stride;
    g.b = b_.f32_in(call) + at.b;
    g.b_k = b_k_.stride;
    if (b_n_.stride != 1) {  // B lies column by column: bring rows of n together first
      const ptrdiff_t row = (n_ + 15) / 16 * 16;
      auto* packed = static_cast<float*>(scratch(kScratchPackB, static_cast<size_t>(row) * static_cast<size_t>(k) * 4));
      if (b_k_.stride == 1) {
        simd().transpose(g.b, b_n_.stride, n_, k, packed, row);
      } else {
        for (int i = 0; i < k; ++i) {
          for (int n = 0; n < n_; ++n) packed[i * row + n] = g.b[i * b_k_.stride + n * b_n_.stride];
        }
      }
      g.b = packed;
      g.b_k = row;
    }
  }
  simd().gemm_f32(g);
  if (call.k_last) finish_f32(call, at);
}

void Gemm::finish_f32(const Call& call, const Place& at) const {
  auto* c = reinterpret_cast<float*>(call.out);
  const auto n = static_cast<size_t>(n_);
  if (alpha_ != 1.0f) simd().affine(c, alpha_, 0.0f, c, static_cast<size_t>(m_) * n);
  if (bias_.present) {
    const float* bias = bias_.f32_in(call) + at.bias;
    auto* row = static_cast<float*>(scratch(kScratchRow, n * 4));
    const float* from = bias;
    if (bias_n_.stride > 1) {
      simd().copy_strided(bias, bias_n_.stride, row, n_);
      from = row;
    }
    for (size_t m = 0; m < static_cast<size_t>(m_); ++m) {
      simd().binary(params::eltwise_func::add_, c + m * n, 1, from, bias_n_.stride != 0, c + m * n, n);
    }
  }
  activation_.apply(c, static_cast<size_t>(m_) * n);
}

void Gemm::widen(const Call& call, const Operand& zero, int64_t at, int64_t stride, bool is_signed, int n, int32_t* to) const {
  if (!zero.present) {
    std::fill(to, to + n, 0);
    return;
  }
  const uint8_t* from = zero.in(call) + at;
  for (int i = 0; i < n; ++i) to[i] = is_signed ? static_cast<int8_t>(from[i * stride]) : from[i * stride];
}

void Gemm::run_i8(const Call& call) const {
  const Place at = place(call);
  auto* c = reinterpret_cast<int32_t*>(call.out);
  if (call.k_count == 0) {
    if (call.k_index == 0) std::memset(c, 0, static_cast<size_t>(m_) * static_cast<size_t>(n_) * 4);
  } else {
    auto* zeros = static_cast<int32_t*>(scratch(kScratchSums, static_cast<size_t>(m_ + n_) * 4));
    widen(call, a_zero_, at.a_zero, a_zero_m_.stride, a_signed_, m_, zeros);
    widen(call, b_zero_, at.b_zero, b_zero_n_.stride, b_signed_, n_, zeros + m_);
    GemmI8 g{};
    g.a = a_.in(call) + at.a;
    g.a_m = a_m_.stride;
    g.a_k = a_k_.stride;
    g.b = b_.in(call) + at.b;
    g.b_k = b_k_.stride;
    g.b_n = b_n_.stride;
    g.c = c;
    g.c_m = n_;
    g.m = m_;
    g.n = n_;
    g.k = static_cast<int>(call.k_count);
    g.a_signed = a_signed_;
    g.b_signed = b_signed_;
    g.accumulate = call.k_index != 0;
    g.a_zero = zeros;
    g.b_zero = zeros + m_;
    simd().gemm_i8(g);
  }
  if (call.k_last && bias_.present) finish_i8(call, at);
}

void Gemm::finish_i8(const Call& call, const Place& at) const {
  uint8_t* c = call.out;
  const uint8_t* bias = bias_.in(call) + at.bias * 4;
  for (int64_t m = 0; m < m_; ++m) {
    for (int64_t n = 0; n < n_; ++n) {  // wraps as int32 does on the device
      uint32_t sum, add;
      std::memcpy(&sum, c + (m * n_ + n) * 4, 4);
      std::memcpy(&add, bias + n * bias_n_.stride * 4, 4);
      sum += add;
      std::memcpy(c + (m * n_ + n) * 4, &sum, 4);
    }
  }
}

}  // namespace

ONEDISPATCH_KERNEL(gemm, make<Gemm>)

}  // namespace onedispatch::kernels
