// SPDX-License-Identifier: Apache-2.0
// od::arg: out[r][i] = the k of the largest, or smallest, x[r][k][i]. Values are compared in words; over
// several steps the best one so far and its place wait in scratch.
#include <algorithm>
#include <cstring>

#include "kernel.h"
#include "simd/simd.h"
#include "words.h"

namespace onedispatch::kernels {

namespace {

namespace operand = params::arg::operand;
namespace scalar = params::arg::scalar;

class Arg final : public Kernel {
 public:
  explicit Arg(const Setup& setup)
      : least_(setup.scalars[scalar::least] != 0),
        last_(setup.scalars[scalar::last] != 0),
        dim_r_(setup.roles[0]),
        dim_i_(setup.roles[1]),
        rows_(setup.tile(0)),
        columns_(setup.tile(1)),
        x_(setup.operands[operand::x]),
        out_(setup.operands[operand::out]),
        x_r_(x_.axes[0]),
        x_k_(x_.axes[1]),
        x_i_(x_.axes[2]) {}

  void check(const Call& call) const override { place(call); }

  void run(const Call& call) const override {
    with_word(x_.dtype, [&](auto word) {
      using Word = decltype(word);
      if (least_) {
        last_ ? run_as<Word>(call, [](Word a, Word b) { return a <= b; }) : run_as<Word>(call, [](Word a, Word b) { return a < b; });
      } else {
        last_ ? run_as<Word>(call, [](Word a, Word b) { return a >= b; }) : run_as<Word>(call, [](Word a, Word b) { return a > b; });
      }
    });
  }

 private:
  int64_t place(const Call& call) const {
    const int64_t r = call.origin[dim_r_], i = call.origin[dim_i_], k = call.k_first;
    return x_r_.local(r, r, rows_, "arg: x along r") + x_k_.local(k, k, call.k_count, "arg: x along k") +
           x_i_.local(i, i, columns_, "arg: x along i");
  }

  // `better(value, best)`: comparisons with a NaN are false, so that one wins only where it comes first.
  template <class Word, class Better>
  void run_as(const Call& call, Better better) const {
    const int64_t results = int64_t{rows_} * columns_, count = call.k_count;
    auto* best = reinterpret_cast<Word*>(call.scratch);
    auto* at = reinterpret_cast<int32_t*>(call.scratch + results * 4);
    const int64_t reach = (rows_ - 1) * x_r_.stride + (count - 1) * x_k_.stride + (columns_ - 1) * x_i_.stride + 1;
    const Word* x = words_in<Word>(x_, call, place(call), reach, kScratchWords);
    for (int64_t r = 0; r < rows_; ++r, x += x_r_.stride) {
      Word* values = best + r * columns_;
      int32_t* places = at + r * columns_;
      int64_t k = 0;
      if (call.k_index == 0) {
        for (int64_t i = 0; i < columns_; ++i) values[i] = x[i * x_i_.stride], places[i] = 0;
        k = 1;
      }
      if (columns_ == 1) {
        along(x, k, count, call.k_first, better, *values, *places);
      } else {
        for (; k < count; ++k) across(x + k * x_k_.stride, static_cast<int32_t>(call.k_first + k), better, values, places);
      }
    }
    if (call.k_last) put(at, results, call.out);
  }

  // Results are two words each, and chunks begin at any word.
  static void put(const int32_t* at, int64_t count, uint8_t* out) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t wide = at[i];
      std::memcpy(out + i * static_cast<int64_t>(sizeof wide), &wide, sizeof wide);
    }
  }

  template <class Word, class Better>
  void along(const Word* x, int64_t k, int64_t count, int64_t first, Better better, Word& value, int32_t& place) const {
    Word best = value;
    int64_t found = -1;
    for (; k < count; ++k) {
      const Word own = x[k * x_k_.stride];
      if (better(own, best)) {
        best = own;
        found = k;
      }
    }
    if (found >= 0) {
      value = best;
      place = static_cast<int32_t>(first + found);
    }
  }

  template <class Word, class Better>
  void across(const Word* x, int32_t k, Better better, Word* values, int32_t* places) const {
    const int64_t step = x_i_.stride;
    for (int64_t i = 0; i < columns_; ++i) {
      const Word own = x[i * step];
      const bool wins = better(own, values[i]);
      values[i] = wins ? own : values[i];
      places[i] = wins ? k : places[i];
    }
  }

  bool least_, last_;
  uint32_t dim_r_, dim_i_, rows_, columns_;
  Operand x_, out_;
  Axis x_r_, x_k_, x_i_;
};

}  // namespace

ONEDISPATCH_KERNEL(arg, make<Arg>)

}  // namespace onedispatch::kernels
