// SPDX-License-Identifier: Apache-2.0
// od::layer_norm: x and out chunk [T_o][length], scale and bias [length], rows whole in their chunks.
#include <cmath>

#include "kernel.h"
#include "simd/simd.h"

namespace onedispatch::kernels {

namespace {

enum { kX, kScale, kBias, kOut };  // operands as declared

class LayerNorm final : public Kernel {
 public:
  explicit LayerNorm(const Setup& setup)
      : x_(setup.operands[kX]),
        scale_(setup.operands[kScale]),
        bias_(setup.operands[kBias]),
        epsilon_(setup.f32(params::layer_norm::scalar::epsilon)) {
    const auto& out = setup.operands[kOut].axes;
    rows_ = static_cast<int>(out[0].chunk);
    length_ = static_cast<int>(out[1].chunk);
    expect(setup, kX, 0, out[0].chunk, out[0].stride);
    expect(setup, kX, 1, out[1].chunk, out[1].stride);
    expect(setup, kScale, 0, out[1].chunk, out[1].stride);
    if (bias_.present) expect(setup, kBias, 0, out[1].chunk, out[1].stride);
    if (length_ == 0) reject(setup, setup.spec->operands[kX].at + 1 + params::kAxisWords, "length", "accepted: 1 or more");
  }

  void run(const Call& call) const override {
    namespace mode = params::reduce_mode;
    const float* x = x_.f32_in(call);
    const float* scale = scale_.f32_in(call);
    auto* out = reinterpret_cast<float*>(call.out);
    const auto n = static_cast<size_t>(length_);
    for (int row = 0; row < rows_; ++row, x += n, out += n) {
      const float mean = simd().f32.reduce_row(mode::sum_, x, length_) / static_cast<float>(length_);
      simd().affine(x, 1.0f, -mean, out, n);
      const float variance = simd().f32.reduce_row(mode::sum_square_, out, length_) / static_cast<float>(length_);
      simd().affine(out, 1.0f / std::sqrt(variance + epsilon_), 0.0f, out, n);
      if (bias_.present) {
        simd().muladd(out, 1, scale, 1, bias_.f32_in(call), 1, out, n);
      } else {
        simd().binary(params::eltwise_func::mul_, out, 1, scale, 1, out, n);
      }
    }
  }

 private:
  // The axis lies in its chunk as the output's does.
  static void expect(const Setup& setup, uint32_t operand, uint32_t axis, int64_t chunk, int64_t stride) {
    const Axis& given = setup.operands[operand].axes[axis];
    if (given.chunk == chunk && (given.stride == stride || chunk == 1)) return;
    reject(setup, setup.spec->operands[operand].at + 1 + params::kAxisWords * axis, setup.spec->operands[operand].name,
           "accepted: the same chunk as out has");
  }

  Operand x_, scale_, bias_;
  float epsilon_;
  int rows_ = 0, length_ = 0;
};

}  // namespace

ONEDISPATCH_KERNEL(layer_norm, make<LayerNorm>)

}  // namespace onedispatch::kernels
