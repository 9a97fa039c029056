// SPDX-License-Identifier: Apache-2.0
// od::softmax_bytes: x and out chunk [T_o][length][T_i] of bytes, the middle dimension whole in the chunk. Powers of e
// are looked up so that a row's maximum has the last; their sum is f32, one member after the other.
#include <algorithm>

#include "kernel.h"

namespace onedispatch::kernels {

namespace {

namespace operand = params::softmax_bytes::operand;
namespace scalar = params::softmax_bytes::scalar;

constexpr int kTogether = 4;  // rows, whose sums do not wait for each other

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
    const int64_t x_row = x_.axes[0].stride, out_row = int64_t{chunk_} * inner_;
    int o = 0;
    for (; inner_ == 1 && o + kTogether <= outer_; o += kTogether) rows<kTogether>(call, x + o * x_row, x_row, out + o * out_row, out_row);
    for (; o < outer_; ++o) {
      for (int i = 0; i < inner_; ++i) rows<1>(call, x + o * x_row + i * x_.axes[2].stride, 0, out + o * out_row + i, 0);
    }
  }

  // Rows that begin so far apart.
  template <int Count, class Byte>
  void rows(const Call& call, const Byte* x, int64_t x_row, Byte* out, int64_t out_row) const {
    const int64_t step = x_.axes[1].stride;
    const auto n = static_cast<size_t>(length_);
    const float* powers[Count];  // of 0
    float* found[Count];
    float sums[Count]{};
    auto* const made = static_cast<float*>(scratch(kScratchRow, Count * n * sizeof(float)));
    for (int row = 0; row < Count; ++row) {
      Byte most = x[row * x_row];
      for (int i = 1; i < length_; ++i) most = std::max(most, x[row * x_row + i * step]);
      powers[row] = powers_.f32_in(call) + (kEntries - 1 - most);
      found[row] = made + static_cast<size_t>(row) * n;
    }
    for (int i = 0; i < length_; ++i) {
      for (int row = 0; row < Count; ++row) sums[row] += found[row][i] = powers[row][x[row * x_row + i * step]];
    }
    auto* const shares = inner_ == 1 ? nullptr : static_cast<Byte*>(scratch(kScratchResult, n));
    for (int row = 0; row < Count; ++row) {
      Byte* const to = out + row * out_row;
      simd().shares(x_.dtype, found[row], factor_, sums[row], zero_, inner_ == 1 ? to : shares, n);
      if (inner_ == 1) std::fill(to + length_, to + chunk_, Byte{});
      for (int i = 0; shares != nullptr && i < length_; ++i) to[int64_t{i} * inner_] = shares[i];
    }
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
