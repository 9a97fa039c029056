// SPDX-License-Identifier: Apache-2.0
// od::normalise: x and out chunk [T_b][T_o][length], scale and bias [T_o][sections] or [length], rows whole in
// their chunks; the residual and the total as x. Computed in f32, rounded once; integers become floats row by row, and
// so do floats integers.
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
        read_(stands_for(setup, operand::x, scalar::x_scale, scalar::x_zero, params::normalise::x_scale)),
        written_(stands_for(setup, operand::out, scalar::out_scale, scalar::out_zero, params::normalise::out_scale)),
        dim_o_(setup.roles[1]),
        epsilon_(setup.f32(scalar::epsilon)),
        centre_(setup.scalars[scalar::centre] != 0),
        sections_(static_cast<int>(setup.scalars[scalar::sections])) {
    const auto& out = setup.operands[operand::out].axes;
    batches_ = static_cast<int>(out[0].chunk);
    rows_ = static_cast<int>(out[1].chunk);
    width_ = static_cast<int>(out[2].chunk);
    for (const uint32_t which : {operand::x, operand::residual}) require_chunk(setup, which, operand::out, 2);
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
    if (residual_.present && read_.scale != 0.0f) reject(setup, setup.spec->operands[operand::residual].at, "residual", "accepted: one beside floats");
    exact_ = sections_ == 0 && (read_.scale != 0.0f || is_word(x_.dtype));
  }

  void check(const Call& call) const override {
    place(scale_, call);
    place(bias_, call);
  }

  void run(const Call& call) const override {
    const size_t elements = static_cast<size_t>(batches_) * static_cast<size_t>(rows_) * static_cast<size_t>(width_);
    const bool reads = read_.scale != 0.0f, writes = written_.scale != 0.0f;
    auto* line = reads || writes ? static_cast<float*>(scratch(kScratchRow, static_cast<size_t>(width_) * 4)) : nullptr;
    const Result<float> result(writes ? params::dtype::f32 : out_, call, elements);
    const float* scale = place(scale_, call);
    const float* bias = place(bias_, call);
    for (int b = 0; b < batches_; ++b) {
      for (int o = 0; o < rows_; ++o) {
        const ptrdiff_t at = sections_ == 0 ? 0 : static_cast<ptrdiff_t>(o) * sections_, from = (static_cast<ptrdiff_t>(b) * rows_ + o) * width_;
        const auto n = static_cast<size_t>(width_);
        float* out = writes ? line : result.words + from;
        const float* x = reads ? floats(call, b, o, line) : words_in<float>(x_, call, begin(x_, b, o), width_, kScratchWords);
        if (residual_.present) x = summed(call, x, b, o, from, out);
        row(x, scale == nullptr ? nullptr : scale + at, bias == nullptr ? nullptr : bias + at, out);
        if (writes) simd().quantise(out_, line, 1, &written_.scale, 0, &written_.zero, 0, call.out + from * element_bytes(out_), n);
      }
    }
    if (!writes) result.finish();
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

  // What integers stand for: the lower bytes of `zero` are those of a narrower one.
  struct Scale {
    float scale;
    int32_t zero;
  };

  static Scale stands_for(const Setup& setup, uint32_t which, uint32_t scale, uint32_t zero, uint32_t word) {
    const Scale found{setup.f32(scale), static_cast<int32_t>(setup.scalars[zero])};
    const uint32_t dtype = setup.operands[which].dtype;
    if ((found.scale != 0.0f) == is_float(dtype)) reject(setup, word, "scale", "accepted: 0 for floats, that of integers");
    const int32_t values = 1 << (8 * std::min(element_bytes(dtype), 2u));
    const bool with_sign = dtype == params::dtype::i8 || dtype == params::dtype::i16;
    const int32_t least = is_float(dtype) ? 0 : with_sign ? -values / 2 : 0, most = is_float(dtype) ? 0 : least + values - 1;
    if (found.zero < least || found.zero > most) reject(setup, word + 1, "zero", "accepted: " + std::to_string(least) + " to " + std::to_string(most));
    return found;
  }

  // Where a row begins, in elements.
  static int64_t begin(const Operand& rows, int b, int o) { return b * rows.axes[0].stride + o * rows.axes[1].stride; }

  // A row of x and the residual, rounded to their type, in the total where it is written; from f32 at `out`, or there.
  const float* summed(const Call& call, const float* x, int b, int o, ptrdiff_t from, float* out) const {
    const auto n = static_cast<size_t>(width_);
    const bool wide = is_word(x_.dtype);
    auto* const total = writes_total_ ? call.operand[operand::total] + from * element_bytes(x_.dtype) : nullptr;
    float* const sum = wide && writes_total_ ? reinterpret_cast<float*>(total) : out;
    const float* other = words_in<float>(residual_, call, begin(residual_, b, o), width_, kScratchOtherWords);
    simd().binary(params::eltwise_func::add_, x, 1, other, 1, sum, n);
    if (!wide) {
      void* const rounded = writes_total_ ? static_cast<void*>(total) : scratch(kScratchOtherWords, n * sizeof(float));
      simd().narrow(x_.dtype, sum, rounded, n);
      simd().widen(x_.dtype, rounded, sum, n);
    }
    return sum;
  }

  // What the integers of a row stand for.
  const float* floats(const Call& call, int b, int o, float* line) const {
    const uint8_t* x = x_.in(call) + begin(x_, b, o) * element_bytes(x_.dtype);
    simd().dequantise(x_.dtype, x, 1, &read_.scale, 0, &read_.zero, 0, line, static_cast<size_t>(width_));
    return line;
  }

  const float* place(const Operand& given, const Call& call) const {
    if (!given.present) return nullptr;
    const int64_t o = call.origin[dim_o_];
    const int64_t at = sections_ == 0 ? 0 : given.axes[0].local(o, o, rows_, "normalise: scale or bias along o");
    return given.f32_in(call) + at;
  }

  void row(const float* x, const float* scale, const float* bias, float* out) const {
    if (exact_) {
      simd().normal_row({centre_, epsilon_, scale, bias, x, out, length_});
    } else {
      plain_row(x, scale, bias, out);
    }
    std::fill(out + length_, out + width_, 0.0f);
  }

  // Of narrow floats, and of sections: sums in any order.
  void plain_row(const float* x, const float* scale, const float* bias, float* out) const {
    namespace mode = params::reduce_mode;
    const auto n = static_cast<size_t>(length_);
    const float part = 1.0f / static_cast<float>(length_);
    if (centre_) {
      simd().affine(x, 1.0f, -simd().f32.reduce_row(mode::sum_, x, length_) * part, out, n);
      x = out;
    }
    const float variance = simd().f32.reduce_row(mode::sum_square_, x, length_) * part;
    const float inverse = 1.0f / std::sqrt(variance + epsilon_);
    if (sections_ != 0) {
      const size_t section = n / static_cast<size_t>(sections_);
      for (int j = 0; j < sections_; ++j) {
        const size_t first = static_cast<size_t>(j) * section;
        simd().affine(x + first, scale == nullptr ? inverse : inverse * scale[j], bias == nullptr ? 0.0f : bias[j], out + first, section);
      }
    } else {
      simd().affine(x, inverse, 0.0f, out, n);
      if (bias != nullptr) {
        simd().muladd(out, 1, scale, 1, bias, 1, out, n);
      } else if (scale != nullptr) {
        simd().binary(params::eltwise_func::mul_, out, 1, scale, 1, out, n);
      }
    }
  }

  Operand x_, scale_, bias_, residual_;
  bool writes_total_;
  uint32_t out_;
  Scale read_, written_;
  uint32_t dim_o_;
  float epsilon_;
  bool centre_, exact_ = false;
  int sections_;
  int batches_ = 0, rows_ = 0, width_ = 0, length_ = 0;
};

}  // namespace

ONEDISPATCH_KERNEL(normalise, make<Normalise>)

}  // namespace onedispatch::kernels
