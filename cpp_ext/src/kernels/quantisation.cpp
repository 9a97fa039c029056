// SPDX-License-Identifier: Apache-2.0
// od::extremes, od::quantisation: the smallest and the greatest of what a tensor holds, and the scale and the zero
// point of unsigned bytes that reach from one to the other.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernel.h"
#include "simd/simd.h"

namespace onedispatch::kernels {

namespace {

constexpr float kSteps = 255.0f;

struct Ends {
  float low, high;
};

Ends ends_of(const float* x, int64_t n) {
  const auto& words = simd().of<float>();
  const auto count = static_cast<int>(n);
  return {words.reduce_row(params::reduce_mode::min_, x, count), words.reduce_row(params::reduce_mode::max_, x, count)};
}

class Extremes final : public Kernel {
 public:
  explicit Extremes(const Setup& setup) : x_(setup.operands[params::extremes::operand::x]), dim_(setup.roles[0]), rows_(setup.tile(0)) {}

  void check(const Call& call) const override { place(call); }

  void run(const Call& call) const override {
    const float* x = reinterpret_cast<const float*>(x_.in(call)) + place(call);
    auto* out = reinterpret_cast<float*>(call.out);
    for (int64_t r = 0; r < rows_; ++r) {
      const Ends ends = ends_of(x + r * x_.axes[0].stride, x_.axes[1].chunk);
      out[2 * r] = ends.low;
      out[2 * r + 1] = ends.high;
    }
  }

 private:
  int64_t place(const Call& call) const {
    const int64_t r = call.origin[dim_];
    return x_.axes[0].local(r, r, rows_, "extremes: x along r");
  }

  Operand x_;
  uint32_t dim_;
  int64_t rows_;
};

class Quantisation final : public Kernel {
 public:
  explicit Quantisation(const Setup& setup)
      : x_(setup.operands[params::quantisation::operand::x]), narrow_(setup.operands[params::quantisation::operand::out].dtype == params::dtype::u8), count_(setup.tile(0)) {}

  void run(const Call& call) const override {
    const Ends ends = ends_of(reinterpret_cast<const float*>(x_.in(call)), x_.axes[0].chunk);
    const float low = ends.low > 0.0f ? 0.0f : ends.low, high = ends.high < 0.0f ? 0.0f : ends.high;
    const float scale = low == high ? 1.0f : (high - low) / kSteps;
    if (!narrow_) {
      for (int64_t j = 0; j < count_; ++j) std::memcpy(call.out + j * 4, &scale, sizeof scale);
      return;
    }
    const float at = 0.0f - low / scale, bounded = at > 0.0f ? std::min(at, kSteps) : 0.0f;  // NaN: 0
    std::memset(call.out, static_cast<int>(std::nearbyint(bounded)), static_cast<size_t>(count_));
  }

 private:
  Operand x_;
  bool narrow_;
  int64_t count_;
};

}  // namespace

ONEDISPATCH_KERNEL(extremes, make<Extremes>)
ONEDISPATCH_KERNEL(quantisation, make<Quantisation>)

}  // namespace onedispatch::kernels
