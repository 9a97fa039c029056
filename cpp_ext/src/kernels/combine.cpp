// SPDX-License-Identifier: Apache-2.0
// od::combine: sums and products of two quantised operands, element by element.
#include "mapped.h"
#include "simd/simd.h"

namespace onedispatch::kernels {

namespace {

namespace operand = params::combine::operand;
namespace scalar = params::combine::scalar;

class Combined final : public Kernel {
 public:
  explicit Combined(const Setup& setup)
      : all_{setup.operands[operand::out].dtype,
             setup.scalars[scalar::product] != 0,
             setup.f32(scalar::first),
             setup.f32(scalar::second),
             setup.f32(scalar::shift),
             static_cast<int32_t>(setup.scalars[scalar::zero0]),
             static_cast<int32_t>(setup.scalars[scalar::zero1]),
             nullptr, 0, nullptr, 0, nullptr, 0},
        mapped_(setup, 2, operand::out) {}

  void check(const Call& call) const override { mapped_.check(call); }

  void run(const Call& call) const override {
    mapped_.run(call, [&](const void* const* x, const int* steps, uint8_t* out, size_t n) {
      Combine part = all_;
      part.a = x[0];
      part.step_a = steps[0];
      part.b = x[1];
      part.step_b = steps[1];
      part.y = out;
      part.n = n;
      simd().combine(part);
    });
  }

 private:
  Combine all_;
  Mapped mapped_;
};

}  // namespace

ONEDISPATCH_KERNEL(combine, make<Combined>)

}  // namespace onedispatch::kernels
