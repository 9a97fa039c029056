// SPDX-License-Identifier: Apache-2.0
// od::softmax_bytes: x and out chunk [T_o][length][T_i] of bytes, the middle dimension whole in the chunk. Powers of e
// are looked up so that a row's maximum has the last; their sum is f32, one member after the other.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernel.h"

namespace onedispatch::kernels {

namespace {

namespace operand = params::softmax_bytes::operand;
namespace scalar = params::softmax_bytes::scalar;

template <class Byte>
struct Line {
  const Byte* x;
  Byte* out;
  int length;                // members
  int64_t x_step, out_step;  // from one to the next
};

class SoftmaxBytes final : public Kernel {
 public:
  explicit SoftmaxBytes(const Setup& setup)
      : x_(setup.operands[operand::x]), powers_(setup.operands[operand::powers]), factor_(setup.f32(scalar::factor)), zero_(static_cast<int32_t>(setup.scalars[scalar::zero])) {
    require_chunk(setup, operand::x, operand::out, 3);
    const auto& out = setup.operands[operand::out].axes;
    outer_ = static_cast<int>(out[0].chunk);
    chunk_ = static_cast<int>(out[1].chunk);
    inner_ = static_cast<int>(out[2].chunk);
    if (chunk_ == 0) reject(setup, setup.spec->operands[operand::x].at + 1 + params::kAxisWords, "length", "accepted: 1 or more");
    const uint32_t given = setup.scalars[scalar::length];
    length_ = given == 0 ? chunk_ : static_cast<int>(given);
    if (!is_table(powers_)) reject(setup, setup.spec->operands[operand::powers].at + 1, "powers", "accepted: 256 entries side by side, one for every byte");
    if (given > static_cast<uint32_t>(chunk_) || (length_ < chunk_ && inner_ != 1)) {
      reject(setup, params::softmax_bytes::length, "length", "accepted: 0, or up to the " + std::to_string(chunk_) + " of the chunk where i has one member");
    }
  }

  void run(const Call& call) const override {
    if (x_.dtype == params::dtype::i8) {
      run_as<int8_t>(call);
    } else {
      run_as<uint8_t>(call);
    }
  }

 private:
  template <class Byte>
  void run_as(const Call& call) const {
    const auto* x = reinterpret_cast<const Byte*>(x_.in(call));
    auto* out = reinterpret_cast<Byte*>(call.out);
    for (int o = 0; o < outer_; ++o, x += x_.axes[0].stride, out += int64_t{chunk_} * inner_) {
      for (int i = 0; i < inner_; ++i) row<Byte>({x + i * x_.axes[2].stride, out + i, length_, x_.axes[1].stride, inner_}, powers_.f32_in(call));
      if (inner_ == 1) std::fill(out + length_, out + chunk_, Byte{});
    }
  }

  template <class Byte>
  void row(const Line<Byte>& line, const float* powers) const {
    Byte most = line.x[0];
    for (int n = 1; n < line.length; ++n) most = std::max(most, line.x[n * line.x_step]);
    const int shift = kEntries - 1 - most;
    float sum = 0.0f;
    for (int n = 0; n < line.length; ++n) sum += powers[shift + line.x[n * line.x_step]];
    if (line.length <= kEntries) {
      for (int n = 0; n < line.length; ++n) line.out[n * line.out_step] = result<Byte>(powers[shift + line.x[n * line.x_step]], sum);
      return;
    }
    // A long row has every result several times.
    constexpr int kLeast = std::numeric_limits<Byte>::min();
    Byte results[kEntries];
    for (int value = kLeast; value <= most; ++value) results[value - kLeast] = result<Byte>(powers[shift + value], sum);
    for (int n = 0; n < line.length; ++n) line.out[n * line.out_step] = results[line.x[n * line.x_step] - kLeast];
  }

  // The product of two f32 is a double, and no quotient that is not half an odd number becomes one when it is rounded.
  template <class Byte>
  Byte result(float power, float sum) const {
    const double found = std::nearbyint(double{power} * double{factor_} / double{sum}) + zero_;
    using Ends = std::numeric_limits<Byte>;
    return static_cast<Byte>(std::fmin(std::fmax(found, Ends::min()), Ends::max()));
  }

  Operand x_, powers_;
  float factor_;
  int32_t zero_;
  int outer_ = 1, chunk_ = 1, inner_ = 1;
  int length_ = 1;  // of a row; what its chunk has beyond is row padding
};

}  // namespace

ONEDISPATCH_KERNEL(softmax_bytes, make<SoftmaxBytes>)

}  // namespace onedispatch::kernels
