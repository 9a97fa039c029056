// SPDX-License-Identifier: Apache-2.0
// od::rotate: out chunk [T_batch][T_head][T_place][size] of rows whose first 2 * half elements are turned in pairs
// by the angles [T_batch][T_place][half] of their place.
#include <algorithm>
#include <string>

#include "kernel.h"
#include "simd/simd.h"

namespace onedispatch::kernels {

namespace {

namespace operand = params::rotate::operand;
namespace scalar = params::rotate::scalar;

class Rotate final : public Kernel {
 public:
  explicit Rotate(const Setup& setup)
      : x_(setup.operands[operand::x]),
        cos_(setup.operands[operand::cos]),
        sin_(setup.operands[operand::sin]),
        interleaved_(setup.scalars[scalar::interleaved] != 0) {
    for (uint32_t d = 0; d < 3; ++d) {
      dims_[d] = setup.roles[d];
      tiles_[d] = setup.tile(d);
    }
    const Axis &row = x_.axes[3], &half = cos_.axes[2];
    size_ = row.chunk;
    half_ = half.chunk;
    if (row.stride != 1 && size_ != 1) reject(setup, at(setup, operand::x, 3), "x", "accepted: rows whose elements are neighbours");
    if (2 * half_ > size_) reject(setup, at(setup, operand::cos, 2), "cos", "accepted: up to half of the " + std::to_string(size_) + " elements of a row");
    for (const uint32_t which : {operand::cos, operand::sin}) {
      const Axis& along = setup.operands[which].axes[2];
      const bool same = along.chunk == half_ && (along.stride == 1 || half_ == 1);
      if (!same) reject(setup, at(setup, which, 2), setup.spec->operands[which].name, "accepted: neighbours, as many of cosines as of sines");
    }
  }

  void check(const Call& call) const override { offsets_of(call); }

  void run(const Call& call) const override {
    const ChunkOffsets first = offsets_of(call);
    const float *x = x_.f32_in(call) + first.x, *cos = cos_.f32_in(call) + first.cos, *sin = sin_.f32_in(call) + first.sin;
    auto* out = reinterpret_cast<float*>(call.out);
    for (int64_t batch = 0; batch < tiles_[0]; ++batch) {
      for (int64_t head = 0; head < tiles_[1]; ++head) {
        for (int64_t place = 0; place < tiles_[2]; ++place, out += size_) {
          row(x + batch * x_.axes[0].stride + head * x_.axes[1].stride + place * x_.axes[2].stride,
              cos + batch * cos_.axes[0].stride + place * cos_.axes[1].stride,
              sin + batch * sin_.axes[0].stride + place * sin_.axes[1].stride, out);
        }
      }
    }
  }

 private:
  // Offsets into the chunks, in elements.
  struct ChunkOffsets {
    int64_t x, cos, sin;
  };

  static uint32_t at(const Setup& setup, uint32_t which, uint32_t axis) { return setup.spec->operands[which].at + 1 + params::kAxisWords * axis; }

  ChunkOffsets offsets_of(const Call& call) const {
    const int64_t batch = call.origin[dims_[0]], head = call.origin[dims_[1]], place = call.origin[dims_[2]];
    ChunkOffsets found{x_.axes[0].local(batch, batch, tiles_[0], "rotate: x along batch") +
                    x_.axes[1].local(head, head, tiles_[1], "rotate: x along head") +
                    x_.axes[2].local(place, place, tiles_[2], "rotate: x along place"),
                0, 0};
    found.cos = cos_.axes[0].local(batch, batch, tiles_[0], "rotate: cos along batch") + cos_.axes[1].local(place, place, tiles_[2], "rotate: cos along place");
    found.sin = sin_.axes[0].local(batch, batch, tiles_[0], "rotate: sin along batch") + sin_.axes[1].local(place, place, tiles_[2], "rotate: sin along place");
    return found;
  }

  void row(const float* x, const float* cos, const float* sin, float* out) const {
    simd().rotate(x, cos, sin, static_cast<int>(half_), interleaved_, out);
    std::copy(x + 2 * half_, x + size_, out + 2 * half_);
  }

  Operand x_, cos_, sin_;
  bool interleaved_;
  uint32_t dims_[3];
  int64_t tiles_[3];
  int64_t size_ = 0, half_ = 0;
};

}  // namespace

ONEDISPATCH_KERNEL(rotate, make<Rotate>)

}  // namespace onedispatch::kernels
