// SPDX-License-Identifier: Apache-2.0
// od::dwconv: every channel with its own window of weights. Out chunk [c][oh][ow]. Floats, computed in f32; integers: conv_integer.cpp.
#include "conv_integer.h"
#include "kernel.h"
#include "simd/simd.h"
#include "window.h"
#include "words.h"

namespace onedispatch::kernels {

namespace {

namespace operand = params::dwconv::operand;
namespace scalar = params::dwconv::scalar;

class DepthwiseConv final : public Kernel {
 public:
  explicit DepthwiseConv(const Setup& setup)
      : window_(setup, scalar::kh),
        out_(setup.operands[operand::out].dtype),
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
    const int64_t channels = window_.tile_c, stride = bias_.axes[0].stride;
    const auto pixels = static_cast<size_t>(window_.pixels()), all = static_cast<size_t>(channels) * pixels;
    const float* x = words_in<float>(window_.x, call, window_.channel(call), window_.channels_reach(channels), kScratchWords);
    const float* weights = words_in<float>(w_, call, 0, channels * window_.taps(), kScratchOtherWords);
    const float* bias = bias_.present ? words_in<float>(bias_, call, 0, (channels - 1) * stride + 1, kScratchRow) : nullptr;
    const Result<float> result(out_, call, all);
    window_.for_channels(call, x, window_.x_c.stride, window_.tile_c, 0.0f, [&](int c, Taps taps) {
      taps.out = result.words + static_cast<size_t>(c) * pixels;
      taps.out_row = window_.columns;
      simd().taps_mac(taps, weights + static_cast<ptrdiff_t>(c) * window_.taps(), bias == nullptr ? 0.0f : bias[c * stride]);
    });
    activation_.apply(result.words, all);
    result.finish();
  }

 private:
  Window window_;
  uint32_t out_;  // element type
  Operand w_, bias_;
  Activation activation_;
};

std::unique_ptr<const Kernel> make_by_type(const Setup& setup) {
  return is_float(setup.operands[operand::out].dtype) ? make<DepthwiseConv>(setup) : make_integer_depthwise_conv(setup);
}

}  // namespace

ONEDISPATCH_KERNEL(dwconv, make_by_type)

}  // namespace onedispatch::kernels
