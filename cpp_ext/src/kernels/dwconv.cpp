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
        out_apart_(window_.channels_apart(setup.operands[operand::out])),
        w_panels_(setup, w_, 0),
        bias_panels_(setup, bias_, 0),
        activation_(setup, scalar::act) {
    const Axis& taps = w_.axes[1];
    if (taps.chunk != window_.taps() || taps.stride != 1 || (!w_panels_ && w_.axes[0].chunk != window_.tile_c)) {
      reject(setup, params::dwconv::w_c, "weights", "accepted: [tile of c][kh * kw], those of a channel side by side");
    }
  }

  void check(const Call& call) const override {
    window_.check(call);
    window_.channel(call);
  }

  void run(const Call& call) const override {
    const auto pixels = static_cast<size_t>(window_.pixels());
    // One by one: they may lie far apart, as may weights.
    const int64_t first = window_.channel(call), reach = window_.channels_reach(1);
    const auto channel = [&](int c) { return words_in<float>(window_.x, call, first + c * window_.x_c.stride, reach, kScratchWords); };
    const Result<float> result(out_, call, static_cast<size_t>(window_.tile_c), pixels, out_apart_);
    window_.for_each_channel(call, window_.tile_c, 0.0f, channel, [&](int c, Taps taps) {
      taps.out = result.words + static_cast<size_t>(c) * result.pitch;
      taps.out_row = window_.columns;
      const float* weights = words_in<float>(w_, call, member(w_.axes[0], w_panels_, c), window_.taps(), kScratchOtherWords);
      const float bias = bias_.present ? *words_in<float>(bias_, call, member(bias_.axes[0], bias_panels_, c), 1, kScratchRow) : 0.0f;
      simd().taps_mac(taps, weights, bias);
      activation_.apply(taps.out, pixels);
      result.finish(static_cast<size_t>(c), 1);
    });
  }

 private:
  Window window_;
  uint32_t out_;  // element type
  Operand w_, bias_;
  size_t out_apart_;
  Panels w_panels_, bias_panels_;
  Activation activation_;
};

std::unique_ptr<const Kernel> make_by_type(const Setup& setup) {
  return is_float(setup.operands[operand::out].dtype) ? make<DepthwiseConv>(setup) : make_integer_depthwise_conv(setup);
}

}  // namespace

ONEDISPATCH_KERNEL(dwconv, make_by_type)

}  // namespace onedispatch::kernels
