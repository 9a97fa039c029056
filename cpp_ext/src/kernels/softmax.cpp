// SPDX-License-Identifier: Apache-2.0
// od::softmax and od::lrn: x and out chunk [T_o][length][T_i], the middle dimension whole in the chunk. Where i has one
// member in all, rows are neighbours; else every member of it is summed in order, for any tile.
// Computed in f32, and rounded once; softmax without a logarithm rounds every step of ONNX's function body to the type
// of its result, which is the precision that Attention asks for. Logarithms would lose the digits that cancel.
#include <algorithm>
#include <cstring>

#include "kernel.h"
#include "simd/simd.h"
#include "words.h"

namespace onedispatch::kernels {

namespace {

struct Lines {
  int outer = 1, length = 1, inner = 1;
  Operand x;
  uint32_t dtype;

  // Both kernels have dimensions (o, i), and x and out along (o, length, i), each chunk in that order.
  explicit Lines(const Setup& setup) : x(setup.operands[0]), dtype(setup.operands[1].dtype) {
    const auto& out = setup.operands[1].axes;
    outer = static_cast<int>(out[0].chunk);
    length = static_cast<int>(out[1].chunk);
    inner = static_cast<int>(out[2].chunk);
    require_chunk(setup, 0, 1, 2);
    if (length == 0) reject(setup, setup.spec->operands[0].at + 1 + params::kAxisWords, "length", "accepted: 1 or more");
  }

  bool rows() const { return x.axes[2].extent == 1; }
  int64_t block() const { return int64_t{length} * inner; }
  int64_t elements() const { return outer * block(); }
  // Those of one member of o, side by side.
  const float* words(const Call& call, int o) const {
    const int64_t first = o * x.axes[0].stride, step = x.axes[1].stride;
    if (step == inner || length == 1) return words_in<float>(x, call, first, block(), kScratchWords);
    auto* words = static_cast<float*>(scratch(kScratchOtherWords, static_cast<size_t>(block()) * 4));
    for (int n = 0; n < length; ++n) std::copy_n(words_in<float>(x, call, first + n * step, inner, kScratchWords), inner, words + int64_t{n} * inner);
    return words;
  }
  Result<float> result(const Call& call) const { return {dtype, call, static_cast<size_t>(elements())}; }
};

class Softmax final : public Kernel {
 public:
  explicit Softmax(const Setup& setup) : lines_(setup), log_(setup.scalars[params::softmax::scalar::log] != 0), steps_(log_ ? params::dtype::f32 : lines_.dtype) {
    const uint32_t given = setup.scalars[params::softmax::scalar::length];
    length_ = given == 0 ? lines_.length : static_cast<int>(given);
    if (given > static_cast<uint32_t>(lines_.length) || (length_ < lines_.length && !lines_.rows())) {
      reject(setup, params::softmax::length, "length", "accepted: 0, or up to the " + std::to_string(lines_.length) + " of the chunk where i has one member");
    }
  }

  void run(const Call& call) const override {
    const Result<float> result = lines_.result(call);
    float* out = result.words;
    for (int o = 0; o < lines_.outer; ++o, out += lines_.block()) {
      const float* x = lines_.words(call, o);
      if (lines_.rows()) {
        simd().softmax_row(steps_, log_, x, out, length_);
        std::fill(out + length_, out + lines_.length, 0.0f);
      } else {
        simd().softmax_columns(steps_, log_, x, out, lines_.length, lines_.inner, lines_.inner);
      }
    }
    result.finish();
  }

 private:
  Lines lines_;
  bool log_;
  uint32_t steps_;  // the type that they are rounded to
  int length_;  // of a row; what its chunk has beyond is row padding
};

// y = x / (bias + alpha / size * sum of squares over the window of channels) ^ beta; the window
// reaches floor((size - 1) / 2) before and ceil((size - 1) / 2) after.
class Lrn final : public Kernel {
 public:
  explicit Lrn(const Setup& setup) : lines_(setup) {
    namespace scalar = params::lrn::scalar;
    const auto size = static_cast<int>(setup.scalars[scalar::size]);
    before_ = (size - 1) / 2;
    after_ = size - 1 - before_;
    scale_ = setup.f32(scalar::alpha) / static_cast<float>(size);
    beta_ = setup.f32(scalar::beta);
    bias_ = setup.f32(scalar::bias);
  }

  void run(const Call& call) const override {
    const Result<float> result = lines_.result(call);
    float* out = result.words;
    const ptrdiff_t n = lines_.inner;
    for (int o = 0; o < lines_.outer; ++o, out += lines_.block()) {
      const float* x = lines_.words(call, o);
      for (int c = 0; c < lines_.length; ++c) {
        const int first = std::max(0, c - before_), last = std::min(lines_.length - 1, c + after_);
        simd().lrn_row(x + c * n, x + first * n, last - first + 1, n, scale_, bias_, beta_, out + c * n, lines_.inner);
      }
    }
    result.finish();
  }

 private:
  Lines lines_;
  int before_, after_;
  float scale_, beta_, bias_;
};

}  // namespace

ONEDISPATCH_KERNEL(softmax, make<Softmax>)
ONEDISPATCH_KERNEL(lrn, make<Lrn>)

}  // namespace onedispatch::kernels
