// SPDX-License-Identifier: Apache-2.0
// ELTWISE: a function of up to three strided inputs over a box of rank 5.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernel.h"
#include "simd.h"

namespace onedispatch::kernels {

namespace {

namespace arg = params::eltwise;
namespace fn = params::eltwise_func;

constexpr int kInputs = 3;
constexpr int kBlock = 512;  // elements of a strided run that are gathered at a time

struct Box {
  int64_t size[kDims];
  int64_t stride[kInputs][kDims];
};

int inputs_of(uint32_t func) {
  if (func == fn::fill_) return 0;
  if (func == fn::copy_) return 1;
  return func == fn::muladd_ ? 3 : 2;
}

class Eltwise final : public Kernel {
 public:
  explicit Eltwise(const Setup& setup);

  uint64_t cycles(const Call&) const override { return cycles_; }

  void run(const Call& call) const override {
    auto* out = reinterpret_cast<float*>(call.out);
    if (func_ == fn::fill_) {
      std::fill(out, out + elements_, alpha_);
    } else if (swap_) {
      transpose(call, out);
    } else {
      walk(call, out);
    }
    activation_.apply(out, static_cast<size_t>(elements_));
  }

 private:
  void collapse(const Setup& setup);
  void find_transpose();
  void walk(const Call& call, float* out) const;
  void transpose(const Call& call, float* out) const;
  void run_inner(const float* const* x, float* out, int64_t n) const;
  void compute(const float* const* x, const int* strides, float* out, size_t n) const;

  uint32_t func_;
  int n_in_;
  float alpha_, beta_;
  Activation activation_;
  PortRef input_[kInputs];
  Box box_{};
  int64_t elements_ = 1;
  bool swap_ = false;  // a copy whose two inner dimensions are exchanged
  uint64_t cycles_ = 0;
};

Eltwise::Eltwise(const Setup& setup) {
  require_no_reduction(setup);
  func_ = word_in(setup, arg::func, "ELTWISE func", 0, fn::pow_);
  n_in_ = inputs_of(func_);
  const auto n_in = static_cast<uint32_t>(n_in_);
  word_in(setup, arg::n_in, "ELTWISE n_in", n_in, n_in);
  word_in(setup, arg::dtype, "ELTWISE dtype", params::dtype::f32, params::dtype::f32);
  alpha_ = word_f32(setup, arg::alpha);
  beta_ = word_f32(setup, arg::beta);
  activation_ = activation_at(setup, arg::act);
  uint64_t elements = 1;
  for (const Dim& dim : setup.dims) {
    elements *= dim.tile;
    require_out(setup, elements);  // at every step, so that the product stays small
  }
  elements_ = static_cast<int64_t>(elements);
  for (int i = 0; i < n_in_; ++i) {
    const uint32_t at = arg::inputs + 8 * static_cast<uint32_t>(i);
    input_[i] = port_at(setup, at, "ELTWISE input", 4, false);
    Axis axes[kDims];
    for (int d = 0; d < kDims; ++d) {
      axes[d].extent = axes[d].chunk = setup.dims[static_cast<size_t>(d)].tile;
      axes[d].stride = setup.words[at + 1 + static_cast<uint32_t>(d)];
    }
    require_span(input_[i], {axes[0], axes[1], axes[2], axes[3], axes[4]}, 4, "ELTWISE input");
  }
  collapse(setup);
  find_transpose();
  const bool hard = activation_.special() || func_ == fn::div_ || func_ == fn::pow_;
  cycles_ = streaming_cycles(setup.timing, static_cast<double>(elements) * (n_in_ + 1), hard ? static_cast<double>(elements) : 0.0);
}

// Drops dimensions of one and joins neighbours that every input walks in one stride.
void Eltwise::collapse(const Setup& setup) {
  int rank = 0;
  for (int d = 0; d < kDims; ++d) {
    const int64_t size = setup.dims[static_cast<size_t>(d)].tile;
    if (size == 1) continue;
    int64_t stride[kInputs] = {};
    bool joins = rank > 0;
    for (int i = 0; i < n_in_; ++i) {
      stride[i] = setup.words[arg::inputs + 8 * static_cast<uint32_t>(i) + 1 + static_cast<uint32_t>(d)];
      joins = joins && box_.stride[i][rank - 1] == stride[i] * size;
    }
    const int to = joins ? rank - 1 : rank++;
    box_.size[to] = joins ? box_.size[to] * size : size;
    for (int i = 0; i < n_in_; ++i) box_.stride[i][to] = stride[i];
  }
  // Right-aligned: the innermost run is always dimension 4.
  for (int d = kDims - 1, from = rank - 1; d >= 0; --d, --from) {
    box_.size[d] = from >= 0 ? box_.size[from] : 1;
    for (int i = 0; i < n_in_; ++i) box_.stride[i][d] = from >= 0 ? box_.stride[i][from] : 0;
  }
}

void Eltwise::find_transpose() {
  if (func_ != fn::copy_ || box_.stride[0][4] <= 1) return;
  for (int d = 0; d < 4; ++d) {
    if (box_.stride[0][d] == 1 && box_.size[d] >= 4) swap_ = true;
  }
}

void Eltwise::compute(const float* const* x, const int* s, float* out, size_t n) const {
  const SimdLevel& level = simd();
  switch (func_) {
    case fn::copy_:
      if (s[0] == 0) {
        std::fill(out, out + n, x[0][0]);
      } else {
        std::memcpy(out, x[0], n * sizeof *out);
      }
      break;
    case fn::add_:
      if (alpha_ == 1.0f && beta_ == 1.0f) {
        level.binary(func_, x[0], s[0], x[1], s[1], out, n);
      } else {
        level.add_scaled(x[0], s[0], alpha_, x[1], s[1], beta_, out, n);
      }
      break;
    case fn::muladd_: level.muladd(x[0], s[0], x[1], s[1], x[2], s[2], out, n); break;
    case fn::pow_:
      if (s[1] == 0 && x[1][0] == 2.0f) {
        level.binary(fn::mul_, x[0], s[0], x[0], s[0], out, n);
      } else {
        for (size_t i = 0; i < n; ++i) out[i] = std::pow(x[0][s[0] ? i : 0], x[1][s[1] ? i : 0]);
      }
      break;
    default: level.binary(func_, x[0], s[0], x[1], s[1], out, n); break;
  }
}

void Eltwise::run_inner(const float* const* x, float* out, int64_t n) const {
  int kind[kInputs] = {};
  bool plain = true;
  for (int i = 0; i < n_in_; ++i) {
    kind[i] = box_.stride[i][4] != 0;
    plain = plain && box_.stride[i][4] <= 1;
  }
  if (plain) {
    compute(x, kind, out, static_cast<size_t>(n));
    return;
  }
  float gathered[kInputs][kBlock];
  for (int64_t at = 0; at < n; at += kBlock) {
    const int count = static_cast<int>(std::min<int64_t>(kBlock, n - at));
    const float* from[kInputs] = {};
    for (int i = 0; i < n_in_; ++i) {
      const int64_t stride = box_.stride[i][4];
      from[i] = x[i] + at * stride;
      if (stride <= 1) continue;
      simd().copy_strided(from[i], stride, gathered[i], count);
      from[i] = gathered[i];
    }
    compute(from, kind, out + at, static_cast<size_t>(count));
  }
}

void Eltwise::walk(const Call& call, float* out) const {
  const float* base[kInputs] = {};
  for (int i = 0; i < n_in_; ++i) base[i] = input_[i].f32_in(call);
  const auto& size = box_.size;
  int64_t at[4];
  for (at[0] = 0; at[0] < size[0]; ++at[0]) {
    for (at[1] = 0; at[1] < size[1]; ++at[1]) {
      for (at[2] = 0; at[2] < size[2]; ++at[2]) {
        for (at[3] = 0; at[3] < size[3]; ++at[3], out += size[4]) {
          const float* x[kInputs] = {};
          for (int i = 0; i < n_in_; ++i) {
            x[i] = base[i];
            for (int d = 0; d < 4; ++d) x[i] += at[d] * box_.stride[i][d];
          }
          run_inner(x, out, size[4]);
        }
      }
    }
  }
}

// The dimension that is contiguous in the input becomes the column of 2-D transposes.
void Eltwise::transpose(const Call& call, float* out) const {
  const float* x = input_[0].f32_in(call);
  int64_t out_stride[kDims];
  int64_t below = 1;
  int unit = 0;
  for (int d = kDims - 1; d >= 0; --d) {
    out_stride[d] = below;
    below *= box_.size[d];
    if (d < 4 && box_.stride[0][d] == 1 && box_.size[d] >= 4) unit = d;
  }
  int64_t size[4];
  for (int d = 0; d < 4; ++d) size[d] = d == unit ? 1 : box_.size[d];
  int64_t at[4];
  for (at[0] = 0; at[0] < size[0]; ++at[0]) {
    for (at[1] = 0; at[1] < size[1]; ++at[1]) {
      for (at[2] = 0; at[2] < size[2]; ++at[2]) {
        for (at[3] = 0; at[3] < size[3]; ++at[3]) {
          int64_t from = 0, to = 0;
          for (int d = 0; d < 4; ++d) {
            from += at[d] * box_.stride[0][d];
            to += at[d] * out_stride[d];
          }
          simd().transpose(x + from, box_.stride[0][4], static_cast<int>(box_.size[4]),
                           static_cast<int>(box_.size[unit]), out + to, out_stride[unit]);
        }
      }
    }
  }
}

}  // namespace

std::unique_ptr<const Kernel> prepare_eltwise(const Setup& setup) { return std::make_unique<Eltwise>(setup); }

}  // namespace onedispatch::kernels
