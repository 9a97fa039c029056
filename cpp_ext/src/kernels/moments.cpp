// SPDX-License-Identifier: Apache-2.0
// od::moments: of every row of the chunk x[T_o][length] its mean, and the squares of the deviations from it. Members
// stand for `count` elements each, whose own squares of deviations are in the chunk within[T_o][length].
#include <cmath>

#include "kernel.h"
#include "simd/simd.h"

namespace onedispatch::kernels {

namespace {

namespace operand = params::moments::operand;
namespace scalar = params::moments::scalar;
namespace mode = params::reduce_mode;

class Moments final : public Kernel {
 public:
  explicit Moments(const Setup& setup)
      : x_(setup.operands[operand::x]),
        within_(setup.operands[operand::within]),
        dim_(setup.roles[0]),
        rows_(setup.tile(0)),
        length_(static_cast<int>(x_.axes[1].chunk)),
        count_(setup.f32(scalar::count)),
        epsilon_(setup.f32(scalar::epsilon)),
        centre_(setup.scalars[scalar::centre] != 0),
        finish_(setup.scalars[scalar::finish] != 0) {
    for (const uint32_t which : {operand::x, operand::within}) {
      const Operand& given = setup.operands[which];
      const Axis& along = given.axes[1];
      if (!given.present || (length_ > 0 && along.chunk == length_ && (along.stride == 1 || length_ == 1))) continue;
      reject(setup, setup.spec->operands[which].at + 1 + params::kAxisWords, setup.spec->operands[which].name, "accepted: rows of one member or more, which are neighbours, as many in x as in within");
    }
  }

  void check(const Call& call) const override {
    place(x_, call);
    if (within_.present) place(within_, call);
  }

  void run(const Call& call) const override {
    const float* x = x_.f32_in(call) + place(x_, call);
    const float* within = within_.present ? within_.f32_in(call) + place(within_, call) : nullptr;
    auto* means = reinterpret_cast<float*>(call.operand[operand::mean]);
    auto* spreads = reinterpret_cast<float*>(call.operand[operand::spread]);
    const float elements = count_ * static_cast<float>(length_);
    for (int64_t o = 0; o < rows_; ++o) {
      const float* row = x + o * x_.axes[0].stride;
      const float mean = centre_ ? simd().mean_of(row, length_) : 0.0f;
      float squares = count_ * squared(row, mean);
      if (within != nullptr) squares += simd().f32.reduce_row(mode::sum_, within + o * within_.axes[0].stride, length_);
      means[o] = mean;
      spreads[o] = finish_ ? 1.0f / std::sqrt(squares / elements + epsilon_) : squares;
    }
  }

 private:
  int64_t place(const Operand& given, const Call& call) const {
    const int64_t o = call.origin[dim_];
    return given.axes[0].local(o, o, rows_, "moments: x or within along o");
  }

  // The squares of the deviations from `mean`, added up.
  float squared(const float* row, float mean) const {
    if (!centre_) return simd().squares_of(row, length_);
    auto* apart = static_cast<float*>(scratch(kScratchRow, static_cast<size_t>(length_) * sizeof(float)));
    simd().affine(row, 1.0f, -mean, apart, static_cast<size_t>(length_));
    return simd().squares_of(apart, length_);
  }

  Operand x_, within_;
  uint32_t dim_;
  int64_t rows_;
  int length_;
  float count_, epsilon_;
  bool centre_, finish_;
};

}  // namespace

ONEDISPATCH_KERNEL(moments, make<Moments>)

}  // namespace onedispatch::kernels
