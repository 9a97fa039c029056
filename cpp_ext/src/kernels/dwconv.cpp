// SPDX-License-Identifier: Apache-2.0
// od::dwconv: every channel with its own window of weights. Out chunk [c][oh][ow].
#include "kernel.h"
#include "simd/simd.h"
#include "window.h"

namespace onedispatch::kernels {

namespace {

namespace operand = params::dwconv::operand;
namespace scalar = params::dwconv::scalar;

class DepthwiseConv final : public Kernel {
 public:
  explicit DepthwiseConv(const Setup& setup)
      : window_(setup, scalar::kh),
        w_(setup.operands[operand::w]),
        bias_(setup.operands[operand::bias]),
        activation_(setup, scalar::act) {
    const Axis& channels = w_.axes[0];
    const Axis& taps = w_.axes[1];
    if (taps.chunk != window_.taps() || taps.stride != 1 || channels.stride != taps.chunk || channels.chunk != window_.tile_c) {
      reject(setup, params::dwconv::w_c, "weights", "accepted: [tile of c][kh * kw], row-major");
    }
  }

  void check(const Call& call) const override {
    window_.check(call);
    window_.channel(call);
  }

  void run(const Call& call) const override {
    const float* x = window_.x.f32_in(call) + window_.channel(call);
    const float* weights = w_.f32_in(call);
    auto* out = reinterpret_cast<float*>(call.out);
    window_.for_channels(call, x, window_.tile_c, 0.0f, [&](int c, Taps taps) {
      taps.out = out + static_cast<ptrdiff_t>(c) * window_.pixels();
      taps.out_row = window_.columns;
      const float bias = bias_.present ? bias_.f32_in(call)[c * bias_.axes[0].stride] : 0.0f;
      simd().taps_mac(taps, weights + static_cast<ptrdiff_t>(c) * window_.taps(), bias);
    });
    activation_.apply(out, static_cast<size_t>(window_.tile_c) * static_cast<size_t>(window_.pixels()));
  }

 private:
  Window window_;
  Operand w_, bias_;
  Activation activation_;
};

}  // namespace

ONEDISPATCH_KERNEL(dwconv, make<DepthwiseConv>)

}  // namespace onedispatch::kernels
