// SPDX-License-Identifier: Apache-2.0
// od::reduce: out[r][i] = reduce over k of x[r][k][i], accumulated in the out chunk over the steps.
#include <cmath>
#include <limits>

#include "kernel.h"
#include "simd/simd.h"

namespace onedispatch::kernels {

namespace {

namespace scalar = params::reduce::scalar;
namespace mode = params::reduce_mode;

class Reduce final : public Kernel {
 public:
  explicit Reduce(const Setup& setup)
      : k_extent_(setup.k_extent),
        mode_(setup.scalars[scalar::mode]),
        dim_r_(setup.roles[0]),
        dim_i_(setup.roles[1]),
        rows_(static_cast<int>(setup.tile(0))),
        columns_(static_cast<int>(setup.tile(1))),
        x_(setup.operands[params::reduce::operand::x]),
        x_r_(x_.axes[0]),
        x_k_(x_.axes[1]),
        x_i_(x_.axes[2]),
        activation_(setup, scalar::act) {
  }

  void check(const Call& call) const override { place(call); }

  void run(const Call& call) const override {
    auto* out = reinterpret_cast<float*>(call.out);
    if (call.k_count == 0 || (columns_ == 1 ? x_k_.stride != 1 : x_i_.stride == 1)) {
      by_columns(call, out);
    } else {
      by_rows(call, out);
    }
    if (!call.k_last) return;
    const size_t elements = static_cast<size_t>(rows_) * static_cast<size_t>(columns_);
    if (mode_ == mode::mean_) {
      const auto count = static_cast<float>(k_extent_);
      simd().binary(params::eltwise_func::div_, out, 1, &count, 0, out, elements);
    }
    activation_.apply(out, elements);
  }

 private:
  int64_t place(const Call& call) const {
    if (call.k_count == 0) return 0;
    const int64_t r = call.origin[dim_r_], i = call.origin[dim_i_], k = call.k_first;
    return x_r_.local(r, r, rows_, "REDUCE rows") + x_k_.local(k, k, call.k_count, "REDUCE reduction") +
           x_i_.local(i, i, columns_, "REDUCE columns");
  }

  Reduction<float> job(const Call& call, float* out) const {
    Reduction<float> r{};
    r.mode = mode_;
    r.row = x_r_.stride;
    r.step = x_k_.stride;
    r.out = out;
    r.out_row = columns_;
    r.rows = rows_;
    r.columns = columns_;
    r.count = static_cast<int>(call.k_count);
    r.accumulate = call.k_index != 0;
    if (call.k_count != 0) r.x = x_.f32_in(call) + place(call);
    return r;
  }

  void by_columns(const Call& call, float* out) const { simd().f32.reduce_columns(job(call, out)); }

  // Every output on its own: contiguous along k, or gathered to be so.
  void by_rows(const Call& call, float* out) const {
    const Reduction<float> r = job(call, out);
    auto* line = static_cast<float*>(scratch(kScratchRow, static_cast<size_t>(r.count) * 4));
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t i = 0; i < columns_; ++i) {
        const float* x = r.x + row * r.row + i * x_i_.stride;
        if (r.step != 1) {
          simd().copy_strided(x, r.step, line, r.count);
          x = line;
        }
        const float value = simd().f32.reduce_row(mode_, x, r.count);
        float* to = out + row * columns_ + i;
        if (!r.accumulate) {
          *to = value;
        } else {
          combine(to, value);
        }
      }
    }
  }

  void combine(float* to, float value) const {
    namespace fn = params::eltwise_func;
    const uint32_t func = mode_ == mode::max_    ? fn::max_
                          : mode_ == mode::min_  ? fn::min_
                          : mode_ == mode::prod_ ? fn::mul_
                                                : fn::add_;
    simd().binary(func, to, 1, &value, 0, to, 1);
  }

  uint32_t k_extent_, mode_, dim_r_, dim_i_;
  int rows_, columns_;
  Operand x_;
  Axis x_r_, x_k_, x_i_;
  Activation activation_;
};

}  // namespace

ONEDISPATCH_KERNEL(reduce, make<Reduce>)

}  // namespace onedispatch::kernels
