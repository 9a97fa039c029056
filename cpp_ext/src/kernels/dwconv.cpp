// SPDX-License-Identifier: Apache-2.0
// DWCONV: every channel with its own window of weights. Out chunk [c][oh][ow].
#include "kernel.h"
#include "simd.h"
#include "window.h"

namespace onedispatch::kernels {

namespace {

namespace arg = params::dwconv;

class DepthwiseConv final : public Kernel {
 public:
  explicit DepthwiseConv(const Setup& setup) : window_(setup, "DWCONV", Window::Channels::kIndex) {
    require_no_reduction(setup);
    w_ = port_at(setup, arg::w, "DWCONV weights", 4, false);
    Axis channels, taps;
    channels.chunk = channels.extent = window_.tile_c;
    channels.stride = taps.chunk = taps.extent = window_.taps();
    taps.stride = 1;
    require_span(w_, {channels, taps}, 4, "DWCONV weights");
    bias_ = port_at(setup, arg::bias, "DWCONV bias", 4, true);
    channels.stride = 1;
    require_span(bias_, {channels}, 4, "DWCONV bias");
    activation_ = activation_at(setup, arg::act);
    const double outputs = static_cast<double>(window_.tile_c) * window_.pixels();
    cycles_ = streaming_cycles(setup.timing,
                               outputs * window_.taps() * setup.timing.words_per_cycle / setup.timing.window_macs_per_cycle,
                               activation_.special() ? outputs : 0.0);
  }

  void check(const Call& call) const override {
    window_.check(call);
    window_.channel(call);
  }
  uint64_t cycles(const Call&) const override { return cycles_; }

  void run(const Call& call) const override {
    const float* x = window_.x.f32_in(call) + window_.channel(call);
    const float* weights = w_.f32_in(call);
    auto* out = reinterpret_cast<float*>(call.out);
    window_.for_channels(call, x, window_.tile_c, 0.0f, [&](int c, Taps taps) {
      taps.out = out + static_cast<ptrdiff_t>(c) * window_.pixels();
      taps.out_row = window_.columns;
      const float bias = bias_.present ? bias_.f32_in(call)[c] : 0.0f;
      simd().taps_mac(taps, weights + static_cast<ptrdiff_t>(c) * window_.taps(), bias);
    });
    activation_.apply(out, static_cast<size_t>(window_.tile_c) * static_cast<size_t>(window_.pixels()));
  }

 private:
  Window window_;
  PortRef w_, bias_;
  Activation activation_;
  uint64_t cycles_ = 0;
};

}  // namespace

std::unique_ptr<const Kernel> prepare_dwconv(const Setup& setup) { return std::make_unique<DepthwiseConv>(setup); }

}  // namespace onedispatch::kernels
