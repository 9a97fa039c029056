// SPDX-License-Identifier: Apache-2.0
// od::cumulative: out[o][n][i] = sum or product of before[o][i] and x[o][0..n][i], rows whole in their chunks. Floats are
// computed in f32 and rounded once per element, integers in words, or pairs of them, which wrap.
#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>

#include "kernel.h"
#include "simd/simd.h"
#include "words.h"

namespace onedispatch::kernels {

namespace {

namespace operand = params::cumulative::operand;
namespace scalar = params::cumulative::scalar;

class Cumulative final : public Kernel {
 public:
  explicit Cumulative(const Setup& setup)
      : x_(setup.operands[operand::x]),
        before_(setup.operands[operand::before]),
        out_(setup.operands[operand::out].dtype),
        product_(setup.scalars[scalar::product] != 0),
        exclusive_(setup.scalars[scalar::exclusive] != 0),
        reverse_(setup.scalars[scalar::reverse] != 0) {
    const auto& out = setup.operands[operand::out].axes;
    outer_ = out[0].chunk;
    width_ = out[1].chunk;
    inner_ = out[2].chunk;
    require_chunk(setup, operand::x, operand::out, 2);
    const bool fits = before_.axes[0].chunk == outer_ && before_.axes[1].chunk == inner_ && (before_.axes[1].stride == 1 || inner_ == 1);
    if (before_.present && (exclusive_ || !fits)) {
      reject(setup, setup.spec->operands[operand::before].at + 1, "before", "accepted: a line for each of o, of sums that are not exclusive");
    }
    const uint32_t given = setup.scalars[scalar::length];
    length_ = given == 0 ? width_ : given;
    if (length_ > width_ || width_ == 0 || (length_ < width_ && inner_ != 1)) {
      reject(setup, params::cumulative::length, "length", "accepted: 0, or up to the " + std::to_string(width_) + " of the chunk where i has one member");
    }
  }

  void run(const Call& call) const override {
    if (out_ == params::dtype::i64) return run_wide(call);
    with_word(out_, [&](auto word) { run_as<decltype(word)>(call); });
  }

 private:
  template <class Word>
  void run_as(const Call& call) const {
    const Word* before = before_.present ? words_in<Word>(before_, call, 0, lines_before(), kScratchOtherWords) : nullptr;
    const Result<Word> result(out_, call, static_cast<size_t>(outer_ * block()));
    accumulate(call, before, result.words);
    result.finish();
  }

  // In memory of their own: chunks begin at any word.
  void run_wide(const Call& call) const {
    const auto elements = static_cast<size_t>(outer_ * block());
    const int64_t* const before = before_.present ? longs_in(before_, call, 0, lines_before(), kScratchOtherWords) : nullptr;
    auto* const made = static_cast<int64_t*>(scratch(kScratchResult, elements * sizeof(int64_t)));
    accumulate(call, before, made);
    std::memcpy(call.out, made, elements * sizeof *made);
  }

  static const int64_t* longs_in(const Operand& from, const Call& call, int64_t first, int64_t count, ScratchSlot slot) {
    const auto bytes = static_cast<size_t>(count) * sizeof(int64_t);
    return static_cast<const int64_t*>(std::memcpy(scratch(slot, bytes), from.in(call) + first * static_cast<int64_t>(sizeof(int64_t)), bytes));
  }

  int64_t block() const { return width_ * inner_; }
  int64_t lines_before() const { return (outer_ - 1) * before_.axes[0].stride + inner_; }

  // Line n of a member of o.
  template <class Word>
  const Word* line(const Call& call, int64_t o, int64_t n, int64_t lines) const {
    const int64_t first = o * x_.axes[0].stride + n * x_.axes[1].stride;
    if constexpr (sizeof(Word) == 8) {
      return longs_in(x_, call, first, lines * inner_, kScratchWords);
    } else {
      return words_in<Word>(x_, call, first, lines * inner_, kScratchWords);
    }
  }

  // All lines of a member of o, one behind the other.
  template <class Word>
  const Word* lines_of(const Call& call, int64_t o) const {
    if (x_.axes[1].stride == inner_ || width_ == 1) return line<Word>(call, o, 0, width_);
    auto* const words = static_cast<Word*>(scratch(kScratchColumns, static_cast<size_t>(block()) * sizeof(Word)));
    for (int64_t n = 0; n < width_; ++n) std::copy_n(line<Word>(call, o, n, 1), inner_, words + n * inner_);
    return words;
  }

  template <class Word>
  void accumulate(const Call& call, const Word* before, Word* made) const {
    for (int64_t o = 0; o < outer_; ++o, made += block()) {
      const Word* line = before == nullptr ? nullptr : before + o * before_.axes[0].stride;
      if (product_) {
        lines(lines_of<Word>(call, o), line, made, Word{1}, [](Word a, Word b) { return times(a, b); });
      } else {
        lines(lines_of<Word>(call, o), line, made, Word{0}, [](Word a, Word b) { return plus(a, b); });
      }
      std::fill(made + length_ * inner_, made + block(), Word{0});
    }
  }

  // One line after the other from whichever end; the line `before` is what came together so far.
  template <class Word, class Combine>
  void lines(const Word* x, const Word* before, Word* out, Word neutral, Combine combine) const {
    const int64_t step = reverse_ ? -inner_ : inner_;
    if (reverse_) {
      x += (length_ - 1) * inner_;
      out += (length_ - 1) * inner_;
    }
    for (int64_t n = 0; n < length_; ++n, x += step, out += step) {
      const Word* added = exclusive_ ? (n == 0 ? nullptr : x - step) : x;
      if (added == nullptr) {
        std::fill_n(out, inner_, neutral);
      } else if (before == nullptr) {
        std::copy_n(added, inner_, out);
      } else {
        for (int64_t i = 0; i < inner_; ++i) out[i] = combine(before[i], added[i]);
      }
      before = out;
    }
  }

  static float plus(float a, float b) { return a + b; }
  static float times(float a, float b) { return a * b; }
  template <class Integer>
  static Integer plus(Integer a, Integer b) {
    using Unsigned = std::make_unsigned_t<Integer>;
    return static_cast<Integer>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  }
  template <class Integer>
  static Integer times(Integer a, Integer b) {
    using Unsigned = std::make_unsigned_t<Integer>;
    return static_cast<Integer>(static_cast<Unsigned>(a) * static_cast<Unsigned>(b));
  }

  Operand x_, before_;
  uint32_t out_;
  bool product_, exclusive_, reverse_;
  int64_t outer_ = 0, width_ = 0, inner_ = 0, length_ = 0;
};

}  // namespace

ONEDISPATCH_KERNEL(cumulative, make<Cumulative>)

}  // namespace onedispatch::kernels
