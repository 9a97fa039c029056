// SPDX-License-Identifier: Apache-2.0
// od::reduce: out[r][i] = reduce over k of x[r][k][i]. Floats are reduced in f32, integers in words, which
// wrap; over several steps in the out chunk, or in scratch where that is narrower.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernel.h"
#include "simd/simd.h"
#include "words.h"

namespace onedispatch::kernels {

namespace {

namespace scalar = params::reduce::scalar;
namespace mode = params::reduce_mode;

constexpr int64_t kWidened = 4096;  // narrow elements, whose words are still in the cache when they are read

class Reduce final : public Kernel {
 public:
  explicit Reduce(const Setup& setup)
      : k_extent_(setup.k_extent),
        mode_(setup.scalars[scalar::mode]),
        out_(setup.operands[params::reduce::operand::out].dtype),
        dim_r_(setup.roles[0]),
        dim_i_(setup.roles[1]),
        rows_(static_cast<int>(setup.tile(0))),
        columns_(static_cast<int>(setup.tile(1))),
        x_(setup.operands[params::reduce::operand::x]),
        x_r_(x_.axes[0]),
        x_k_(x_.axes[1]),
        x_i_(x_.axes[2]),
        adds_columns_(x_i_.lies_together()),
        activation_(setup, scalar::act) {
    if (!is_float(out_) && activation_.code != params::activation::none_) {
      reject(setup, params::reduce::act, "act", "integers accept none (0)");
    }
  }

  void check(const Call& call) const override { place(call, held(call)); }

  void run(const Call& call) const override {
    with_word(out_, [&](auto word) { run_as<decltype(word)>(call); });
  }

 private:
  // Columns to compute: x may lack those that only fill up the words of the output's rows, and where it
  // repeats one, that is all of them.
  int held(const Call& call) const {
    if (x_i_.stride == 0) return 1;
    const int lacked = is_word(out_) ? 0 : static_cast<int>(4 / element_bytes(out_)) - 1;
    const int64_t there = std::max<int64_t>(x_i_.extent - x_i_.first(call.origin[dim_i_]), columns_ - lacked);
    return static_cast<int>(std::min<int64_t>(columns_, there));
  }

  int64_t place(const Call& call, int columns) const {
    if (call.k_count == 0) return 0;
    const int64_t r = call.origin[dim_r_], i = call.origin[dim_i_], k = call.k_first;
    return x_r_.local(r, r, rows_, "reduce: x along r") + x_k_.local(k, k, call.k_count, "reduce: x along k") +
           x_i_.local(i, i, columns, "reduce: x along i");
  }

  template <class Word>
  void run_as(const Call& call) const {
    const int columns = held(call);
    const Result<Word> result(out_, call, static_cast<size_t>(rows_) * static_cast<size_t>(columns_));
    reduce<Word>(call, {mode_, nullptr, x_r_.stride, x_k_.stride, result.words, columns_, rows_, static_cast<int>(call.k_count), columns, call.k_index != 0},
                 place(call, columns));
    if (call.k_last) finish(call, result, columns);
  }

  // From element `first` of the chunk on; narrow members in halves that are small enough to be widened. Neither they nor
  // how many columns there are decide in which order members are added up.
  template <class Word>
  void reduce(const Call& call, Reduction<Word> r, int64_t first) const {
    if (r.count == 0) return simd().of<Word>().reduce_columns(r);
    const int64_t reach = (r.rows - 1) * r.row + (r.count - 1) * r.step + (r.columns - 1) * x_i_.stride + 1;
    const bool narrow = !is_word(x_.dtype), apart = narrow && adds_columns_ && r.step > 2 * r.columns;  // of joined tiles
    const bool fits = apart ? r.rows == 1 && int64_t{r.count} * r.columns <= kWidened : reach <= kWidened;
    Reduction<Word> half = r, rest = r;
    const int64_t further = narrow && !fits ? halve(half, rest) : 0;
    if (further != 0) {
      reduce(call, half, first);
      return reduce(call, rest, first + further);
    }
    if (apart && r.rows == 1) {
      r.x = widened_panels<Word>(x_, call, first, {r.count, r.step, 1, 0, r.columns}, kScratchWords);
      r.step = r.columns;
    } else {
      r.x = words_in<Word>(x_, call, first, reach, kScratchWords);
    }
    if (adds_columns_) {
      simd().of<Word>().reduce_columns(r);
    } else {
      by_rows(r);
    }
  }

  // How much further in x the other half begins; 0 where there is none.
  template <class Word>
  int64_t halve(Reduction<Word>& half, Reduction<Word>& rest) const {
    if (half.rows > 1) {
      rest.rows -= half.rows /= 2;
      rest.out += half.rows * half.out_row;
      return half.rows * half.row;
    }
    if (adds_columns_) {
      rest.count -= half.count /= 2;
      rest.accumulate = true;
      return half.count * half.step;
    }
    rest.columns -= half.columns /= 2;
    rest.out += half.columns;
    return half.columns * x_i_.stride;
  }

  // Every output on its own: contiguous along k, or gathered to be so.
  template <class Word>
  void by_rows(const Reduction<Word>& r) const {
    auto* line = static_cast<float*>(scratch(kScratchRow, static_cast<size_t>(r.count) * 4));
    for (int64_t row = 0; row < r.rows; ++row) {
      for (int64_t i = 0; i < r.columns; ++i) {
        const Word* x = r.x + row * r.row + i * x_i_.stride;
        if (r.step != 1) {  // words of any type
          simd().copy_strided(reinterpret_cast<const float*>(x), r.step, line, r.count);
          x = reinterpret_cast<const Word*>(line);
        }
        Word value = simd().of<Word>().reduce_row(mode_, x, r.count);
        Word* to = r.out + row * r.out_row + i;
        if (r.accumulate) {  // squares and magnitudes are added up as they are
          const bool sums = mode_ == mode::sum_square_ || mode_ == mode::sum_abs_;
          const uint32_t how = sums ? static_cast<uint32_t>(mode::sum_) : mode_;
          simd().of<Word>().reduce_columns({how, &value, 1, 1, to, 1, 1, 1, 1, true});
        } else {
          *to = value;
        }
      }
    }
  }

  template <class Word>
  void finish(const Call& call, const Result<Word>& result, int columns) const {
    const size_t elements = static_cast<size_t>(rows_) * static_cast<size_t>(columns_);
    if (mode_ == mode::mean_) divide(result.words, elements);
    if constexpr (std::is_same_v<Word, float>) activation_.apply(result.words, elements);
    result.finish();
    if (columns < columns_) fill_rows(call.out, columns);
  }

  void divide(float* sums, size_t elements) const {
    const auto count = static_cast<float>(k_extent_);
    simd().binary(params::eltwise_func::div_, sums, 1, &count, 0, sums, elements);
  }
  template <class Word>
  void divide(Word* sums, size_t elements) const {  // towards zero
    for (size_t i = 0; i < elements; ++i) sums[i] = static_cast<Word>(static_cast<int64_t>(sums[i]) / std::max<int64_t>(k_extent_, 1));
  }

  // What x lacks is row padding: zeros. What it repeats is repeated.
  void fill_rows(uint8_t* out, int columns) const {
    const size_t bytes = element_bytes(out_);
    for (int row = 0; row < rows_; ++row) {
      uint8_t* line = out + static_cast<size_t>(row) * static_cast<size_t>(columns_) * bytes;
      for (int i = columns; i < columns_; ++i) {
        uint8_t* to = line + static_cast<size_t>(i) * bytes;
        if (x_i_.stride == 0) {
          std::memcpy(to, line, bytes);
        } else {
          std::memset(to, 0, bytes);
        }
      }
    }
  }

  uint32_t k_extent_, mode_, out_, dim_r_, dim_i_;
  int rows_, columns_;
  Operand x_;
  Axis x_r_, x_k_, x_i_;
  bool adds_columns_;  // each one member after the other, not in the order that is fast along rows
  Activation activation_;
};

}  // namespace

ONEDISPATCH_KERNEL(reduce, make<Reduce>)

}  // namespace onedispatch::kernels
