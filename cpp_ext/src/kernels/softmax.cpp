// SPDX-License-Identifier: Apache-2.0
// SOFTMAX and LRN: x and out chunk [T_o][length][T_i], the middle dimension whole in the chunk.
#include <algorithm>

#include "kernel.h"
#include "simd.h"

namespace onedispatch::kernels {

namespace {

// dim_o, dim_i, length and x are the same words for both kernels.
static_assert(params::softmax::dim_o == params::lrn::dim_o && params::softmax::x == params::lrn::x);
namespace arg = params::softmax;

struct Lines {
  int outer = 1, length = 1, inner = 1;
  PortRef x;

  Lines(const Setup& setup, const char* name) {
    require_no_reduction(setup);
    const auto dims = dims_at<2>(setup, arg::dim_o, name);
    const uint64_t o = setup.dims[dims[0]].tile, i = setup.dims[dims[1]].tile;
    const uint64_t n = word_in(setup, arg::length, name, 1, kCoreMemoryBytes / 4);
    require_out(setup, o);
    require_out(setup, o * i);
    require_out(setup, o * i * n);
    outer = static_cast<int>(o);
    inner = static_cast<int>(i);
    length = static_cast<int>(n);
    x = port_at(setup, arg::x, name, 4, false);
    Axis all;
    all.chunk = all.extent = static_cast<int64_t>(o * i * n);
    all.stride = 1;
    require_span(x, {all}, 4, name);
  }

  double elements() const { return static_cast<double>(outer) * length * inner; }
  int64_t block() const { return int64_t{length} * inner; }
};

class Softmax final : public Kernel {
 public:
  explicit Softmax(const Setup& setup) : lines_(setup, "SOFTMAX") {
    log_ = word_in(setup, arg::log, "SOFTMAX log", 0, 1) != 0;
    // Maximum, exponential and scaling each walk the line; one exponential per element.
    cycles_ = streaming_cycles(setup.timing, 4 * lines_.elements(), lines_.elements());
  }

  uint64_t cycles(const Call&) const override { return cycles_; }

  void run(const Call& call) const override {
    const float* x = lines_.x.f32_in(call);
    auto* out = reinterpret_cast<float*>(call.out);
    for (int o = 0; o < lines_.outer; ++o, x += lines_.block(), out += lines_.block()) {
      if (lines_.inner == 1) {
        simd().softmax_row(log_, x, out, lines_.length);
      } else {
        simd().softmax_columns(log_, x, out, lines_.length, lines_.inner, lines_.inner);
      }
    }
  }

 private:
  Lines lines_;
  bool log_;
  uint64_t cycles_;
};

// y = x / (bias + alpha / size * sum of squares over the window of channels) ^ beta; the window
// reaches floor((size - 1) / 2) before and ceil((size - 1) / 2) after.
class Lrn final : public Kernel {
 public:
  explicit Lrn(const Setup& setup) : lines_(setup, "LRN") {
    const auto size = static_cast<int>(word_in(setup, params::lrn::size, "LRN size", 1, params::limit::lrn_size));
    before_ = (size - 1) / 2;
    after_ = size - 1 - before_;
    scale_ = word_f32(setup, params::lrn::alpha) / static_cast<float>(size);
    beta_ = word_f32(setup, params::lrn::beta);
    bias_ = word_f32(setup, params::lrn::bias);
    cycles_ = streaming_cycles(setup.timing, lines_.elements() * (std::min(size, lines_.length) + 2.0), 2 * lines_.elements());
  }

  uint64_t cycles(const Call&) const override { return cycles_; }

  void run(const Call& call) const override {
    const float* x = lines_.x.f32_in(call);
    auto* out = reinterpret_cast<float*>(call.out);
    const ptrdiff_t n = lines_.inner;
    for (int o = 0; o < lines_.outer; ++o, x += lines_.block(), out += lines_.block()) {
      for (int c = 0; c < lines_.length; ++c) {
        const int first = std::max(0, c - before_), last = std::min(lines_.length - 1, c + after_);
        simd().lrn_row(x + c * n, x + first * n, last - first + 1, n, scale_, bias_, beta_, out + c * n, lines_.inner);
      }
    }
  }

 private:
  Lines lines_;
  int before_, after_;
  float scale_, beta_, bias_;
  uint64_t cycles_;
};

}  // namespace

std::unique_ptr<const Kernel> prepare_softmax(const Setup& setup) { return std::make_unique<Softmax>(setup); }
std::unique_ptr<const Kernel> prepare_lrn(const Setup& setup) { return std::make_unique<Lrn>(setup); }

}  // namespace onedispatch::kernels
