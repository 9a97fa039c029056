// SPDX-License-Identifier: Apache-2.0
// od::eltwise: a function of up to three strided inputs over a box of rank 5.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernel.h"
#include "simd/simd.h"

namespace onedispatch::kernels {

namespace {

namespace scalar = params::eltwise::scalar;
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

  void check(const Call& call) const override { base(call); }

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
  std::array<int64_t, kInputs> base(const Call& call) const;
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
  Operand input_[kInputs];
  int64_t tile_[kDims] = {};
  Box box_{};
  int64_t elements_ = 1;
  bool swap_ = false;  // a copy whose two inner dimensions are exchanged
};

Eltwise::Eltwise(const Setup& setup)
    : func_(setup.scalars[scalar::func]),
      n_in_(inputs_of(func_)),
      alpha_(setup.f32(scalar::alpha)),
      beta_(setup.f32(scalar::beta)),
      activation_(setup, scalar::act) {
  for (const Dim& dim : setup.dims) elements_ *= dim.tile;
  const uint32_t dtype = setup.operands[params::eltwise::operand::out].dtype;
  for (int i = 0; i < kInputs; ++i) {
    input_[i] = setup.operands[static_cast<size_t>(i)];
    const uint32_t at = setup.spec->operands[i].at;
    if (input_[i].present != (i < n_in_)) {
      reject(setup, at, setup.spec->operands[i].name, "the function reads " + std::to_string(n_in_) + " inputs");
    }
    if (i < n_in_) require_dtype(setup, static_cast<uint32_t>(i), dtype);
  }
  const bool exact = func_ == fn::copy_ || (func_ == fn::fill_ && alpha_ == 0.0f);  // zero has the same bits in all types
  const bool moves = exact && activation_.code == params::activation::none_;
  if (dtype != params::dtype::f32 && !moves) {
    reject(setup, params::eltwise::func, "function", "types other than f32 are only copied (0), or filled (6) with zeros");
  }
  collapse(setup);
  find_transpose();
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
      const Axis& axis = input_[i].axes[static_cast<size_t>(d)];
      stride[i] = axis.stride * axis.a;  // members are `a` coordinates apart
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
  for (size_t d = 0; d < kDims; ++d) tile_[d] = setup.dims[d].tile;
}

// Where the first member of the tile lies in the chunk of each input.
std::array<int64_t, kInputs> Eltwise::base(const Call& call) const {
  std::array<int64_t, kInputs> at{};
  for (size_t i = 0; i < static_cast<size_t>(n_in_); ++i) {
    for (size_t d = 0; d < kDims; ++d) {
      const Axis& axis = input_[i].axes[d];
      const int64_t reach = axis.a * (tile_[d] - 1) + 1;
      at[i] += axis.local(call.origin[d], axis.first(call.origin[d]), reach, "eltwise input");
    }
  }
  return at;
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
  const auto first = this->base(call);
  for (int i = 0; i < n_in_; ++i) base[i] = input_[i].f32_in(call) + first[static_cast<size_t>(i)];
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
  const float* x = input_[0].f32_in(call) + base(call)[0];
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

ONEDISPATCH_KERNEL(eltwise, make<Eltwise>)

}  // namespace onedispatch::kernels
