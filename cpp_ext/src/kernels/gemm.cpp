// SPDX-License-Identifier: Apache-2.0
// GEMM: C[m][n] = act(alpha * sum_k A[m][k] * B[k][n] + bias[n]), accumulated in the out chunk over
// the reduction steps. f32, or bytes to int32 with zero points (bytes of their matrix's sign).
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernel.h"
#include "simd.h"

namespace onedispatch::kernels {

namespace {

namespace arg = params::gemm;

class Gemm final : public Kernel {
 public:
  explicit Gemm(const Setup& setup);

  void check(const Call& call) const override { place(call); }
  uint64_t cycles(const Call& call) const override;
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
  void widen(const Call& call, const PortRef& zero, int64_t at, int64_t stride, bool is_signed, int n, int32_t* to) const;

  bool bytes_, a_signed_, b_signed_;
  uint32_t dim_m_, dim_n_;
  int m_, n_;
  PortRef a_, b_, bias_, a_zero_, b_zero_;
  Axis a_m_, a_k_, b_k_, b_n_, bias_n_, a_zero_m_, b_zero_n_;
  Activation activation_;
  float alpha_;
  Timing timing_;
};

Gemm::Gemm(const Setup& setup) : timing_(setup.timing) {
  bytes_ = word_in(setup, arg::dtype, "GEMM dtype", params::dtype::f32, params::dtype::i8i32) == params::dtype::i8i32;
  const uint32_t signs = word_in(setup, arg::signed_bits, "GEMM signed_bits", 0, 3);
  a_signed_ = signs & 1;
  b_signed_ = signs & 2;
  const auto dims = dims_at<2>(setup, arg::dim_m, "GEMM dimension");
  dim_m_ = dims[0];
  dim_n_ = dims[1];
  const uint64_t m = setup.dims[dim_m_].tile, n = setup.dims[dim_n_].tile;
  require_out(setup, m);
  require_out(setup, m * n);
  m_ = static_cast<int>(m);
  n_ = static_cast<int>(n);
  const uint64_t k = std::min(setup.k_tile, setup.k_extent);
  if (std::max(m, n) * k > kCoreMemoryBytes) {
    reject(setup, params::header::k_tile, "GEMM reduction tile", "its product with a tile side must be at most 65536");
  }
  const uint32_t element = bytes_ ? 1 : 4;
  const bool no_k = setup.k_extent == 0;  // an empty sum reads neither matrix
  a_ = port_at(setup, arg::a, "GEMM A", element, no_k);
  b_ = port_at(setup, arg::b, "GEMM B", element, no_k);
  a_m_ = axis_at(setup, arg::a_m, "GEMM A along m");
  a_k_ = axis_at(setup, arg::a_k, "GEMM A along k");
  b_k_ = axis_at(setup, arg::b_k, "GEMM B along k");
  b_n_ = axis_at(setup, arg::b_n, "GEMM B along n");
  require_span(a_, {a_m_, a_k_}, element, "GEMM A");
  require_span(b_, {b_k_, b_n_}, element, "GEMM B");
  bias_ = port_at(setup, arg::bias, "GEMM bias", 4, true);
  if (bias_.present) bias_n_ = axis_at(setup, arg::bias_n, "GEMM bias");
  require_span(bias_, {bias_n_}, 4, "GEMM bias");
  activation_ = activation_at(setup, arg::act);
  alpha_ = word_f32(setup, arg::alpha);
  if (!bytes_) return;
  if (activation_.code != params::activation::none_) {
    reject(setup, arg::act, "GEMM activation", "bytes to int32 accept none (0)");
  }
  a_zero_ = port_at(setup, arg::a_zero, "GEMM zero point of A", 1, true);
  b_zero_ = port_at(setup, arg::b_zero, "GEMM zero point of B", 1, true);
  if (a_zero_.present) a_zero_m_ = axis_at(setup, arg::a_zero_m, "GEMM zero point of A");
  if (b_zero_.present) b_zero_n_ = axis_at(setup, arg::b_zero_n, "GEMM zero point of B");
  require_span(a_zero_, {a_zero_m_}, 1, "GEMM zero point of A");
  require_span(b_zero_, {b_zero_n_}, 1, "GEMM zero point of B");
}

Gemm::Place Gemm::place(const Call& call) const {
  const int64_t om = call.origin[dim_m_], on = call.origin[dim_n_], k = call.k_first, count = call.k_count;
  Place at{};
  if (count != 0) {
    at.a = a_m_.local(om, om, m_, "GEMM A along m") + a_k_.local(k, k, count, "GEMM A along k");
    at.b = b_k_.local(k, k, count, "GEMM B along k") + b_n_.local(on, on, n_, "GEMM B along n");
    at.a_zero = a_zero_m_.local(om, om, m_, "GEMM zero point of A");
    at.b_zero = b_zero_n_.local(on, on, n_, "GEMM zero point of B");
  }
  at.bias = bias_n_.local(on, on, n_, "GEMM bias");
  return at;
}

uint64_t Gemm::cycles(const Call& call) const {
  const double outputs = static_cast<double>(m_) * n_, macs = outputs * call.k_count;
  const Timing& t = timing_;
  double total = bytes_ ? t.i8_call_cycles + outputs * t.i8_output_cycles + macs / t.i8_macs_per_cycle
                        : t.f32_call_cycles + outputs * t.f32_output_cycles + macs / t.f32_macs_per_cycle;
  if (call.k_last && activation_.special()) total += outputs * t.special_cycles_per_element;
  return static_cast<uint64_t>(std::ceil(total));
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

void Gemm::widen(const Call& call, const PortRef& zero, int64_t at, int64_t stride, bool is_signed, int n, int32_t* to) const {
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

std::unique_ptr<const Kernel> prepare_gemm(const Setup& setup) { return std::make_unique<Gemm>(setup); }

}  // namespace onedispatch::kernels
