// SPDX-License-Identifier: Apache-2.0
// od::normalise: x and out chunk [T_b][T_o][length], scale and bias [T_o][sections] or [length], rows whole in
// their chunks; the residual and the total as x. Computed in f32, rounded once.
#include <algorithm>
#include <cmath>
#include <string>

#include "kernel.h"
#include "simd/simd.h"
#include "words.h"

namespace onedispatch::kernels {

namespace {

namespace operand = params::normalise::operand;
namespace scalar = params::normalise::scalar;

class Normalise final : public Kernel {
 public:
  explicit Normalise(const Setup& setup)
      : x_(setup.operands[operand::x]),
        scale_(setup.operands[operand::scale]),
        bias_(setup.operands[operand::bias]),
        residual_(setup.operands[operand::residual]),
        writes_total_(setup.operands[operand::total].present != 0),
        out_(setup.operands[operand::out].dtype),
        dim_o_(setup.roles[1]),
        epsilon_(setup.f32(scalar::epsilon)),
        centre_(setup.scalars[scalar::centre] != 0),
        sections_(static_cast<int>(setup.scalars[scalar::sections])) {
    const auto& out = setup.operands[operand::out].axes;
    batches_ = static_cast<int>(out[0].chunk);
    rows_ = static_cast<int>(out[1].chunk);
    width_ = static_cast<int>(out[2].chunk);
    for (const uint32_t which : {operand::x, operand::residual}) require_chunk(setup, which, operand::out);
    const uint32_t given = setup.scalars[scalar::length];
    length_ = given == 0 ? width_ : static_cast<int>(given);
    if (given > static_cast<uint32_t>(width_) || width_ == 0) {
      reject(setup, params::normalise::length, "length", "accepted: 0, or up to the " + std::to_string(width_) + " of the chunk, which are 1 or more");
    }
    if (sections_ != 0 && (sections_ < 0 || length_ % sections_ != 0)) {
      reject(setup, params::normalise::sections, "sections", "accepted: 0, or what the length " + std::to_string(length_) + " is a multiple of");
    }
    if (writes_total_ && !residual_.present) reject(setup, setup.spec->operands[operand::total].at, "total", "accepted: one beside a residual");
    if (bias_.present && !scale_.present) reject(setup, setup.spec->operands[operand::bias].at, "bias", "accepted: one beside a scale");
    for (const uint32_t which : {operand::scale, operand::bias}) check_parameter(setup, which);
  }

  void check(const Call& call) const override {
    place(scale_, call);
    place(bias_, call);
  }

  void run(const Call& call) const override {
    const size_t elements = static_cast<size_t>(batches_) * static_cast<size_t>(rows_) * static_cast<size_t>(width_);
    const float* x = words_in<float>(x_, call, 0, static_cast<int64_t>(elements), kScratchWords);
    const Result<float> result(out_, call, elements);
    if (residual_.present) {
      float* total = writes_total_ ? reinterpret_cast<float*>(call.operand[operand::total]) : result.words;
      simd().binary(params::eltwise_func::add_, x, 1, residual_.f32_in(call), 1, total, elements);
      x = total;
    }
    const float* scale = place(scale_, call);
    const float* bias = place(bias_, call);
    float* out = result.words;
    for (int b = 0; b < batches_; ++b) {
      for (int o = 0; o < rows_; ++o, x += width_, out += width_) {
        const ptrdiff_t at = sections_ == 0 ? 0 : static_cast<ptrdiff_t>(o) * sections_;
        row(x, scale == nullptr ? nullptr : scale + at, bias == nullptr ? nullptr : bias + at, out);
      }
    }
    result.finish();
  }

 private:
  // A value for every element of a row, or for every section of each row.
  void check_parameter(const Setup& setup, uint32_t which) const {
    const Operand& given = setup.operands[which];
    if (!given.present) return;
    const Axis& inner = given.axes[1];
    const int64_t wanted = sections_ == 0 ? length_ : sections_;
    if (inner.chunk != wanted || (inner.stride != 1 && wanted != 1)) {
      reject(setup, setup.spec->operands[which].at + 1 + params::kAxisWords, setup.spec->operands[which].name,
             "accepted: neighbours, as many as a row has elements, or sections");
    }
    if (sections_ != 0 && given.axes[0].stride != sections_ && rows_ != 1) {
      reject(setup, setup.spec->operands[which].at + 1, setup.spec->operands[which].name, "accepted: rows one after the other");
    }
  }

  const float* place(const Operand& given, const Call& call) const {
    if (!given.present) return nullptr;
    const int64_t o = call.origin[dim_o_];
    const int64_t at = sections_ == 0 ? 0 : given.axes[0].local(o, o, rows_, "normalise: scale or bias along o");
    return given.f32_in(call) + at;
  }

  void row(const float* x, const float* scale, const float* bias, float* out) const {
    namespace mode = params::reduce_mode;
    const auto n = static_cast<size_t>(length_);
    const auto count = static_cast<float>(length_);
    if (centre_) {
      simd().affine(x, 1.0f, -simd().f32.reduce_row(mode::sum_, x, length_) / count, out, n);
      x = out;
    }
    const float variance = simd().f32.reduce_row(mode::sum_square_, x, length_) / count;
    const float inverse = 1.0f / std::sqrt(variance + epsilon_);
    if (sections_ != 0) {
      const size_t part = n / static_cast<size_t>(sections_);
      for (int j = 0; j < sections_; ++j) {
        const size_t first = static_cast<size_t>(j) * part;
        simd().affine(x + first, scale == nullptr ? inverse : inverse * scale[j], bias == nullptr ? 0.0f : bias[j], out + first, part);
      }
    } else {
      simd().affine(x, inverse, 0.0f, out, n);
      if (bias != nullptr) {
        simd().muladd(out, 1, scale, 1, bias, 1, out, n);
      } else if (scale != nullptr) {
        simd().binary(params::eltwise_func::mul_, out, 1, scale, 1, out, n);
      }
    }
    std::fill(out + length_, out + width_, 0.0f);
  }

  Operand x_, scale_, bias_, residual_;
  bool writes_total_;
  uint32_t out_, dim_o_;
  float epsilon_;
  bool centre_;
  int sections_;
  int batches_ = 0, rows_ = 0, width_ = 0, length_ = 0;
};

}  // namespace

ONEDISPATCH_KERNEL(normalise, make<Normalise>)

}  // namespace onedispatch::kernels
