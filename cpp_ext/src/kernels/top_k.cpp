// SPDX-License-Identifier: Apache-2.0
// od::top_k: the n largest, or smallest, of x[o][k][i] over k, best first, and where they lie. Each step merges what
// its part of the axis has into what the out chunks hold; equals keep the order of the axis. A NaN is the largest.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <vector>

#include "indexed.h"
#include "kernel.h"
#include "words.h"

namespace onedispatch::kernels {

namespace {

namespace operand = params::top_k::operand;
namespace scalar = params::top_k::scalar;

enum Dimension : uint32_t { kO, kN, kI };

template <class Word>
struct Found {
  Word value;
  int32_t at;
};

template <class Word>
bool above(Word a, Word b) {
  if constexpr (std::is_same_v<Word, float>) {
    if (a != a || b != b) return a != a && b == b;
  }
  return a > b;
}

class TopK final : public Kernel {
 public:
  explicit TopK(const Setup& setup)
      : x_(setup.operands[operand::x]), largest_(setup.scalars[scalar::largest] != 0), roles_(setup.roles) {
    for (uint32_t d = 0; d < 3; ++d) tile_[d] = setup.tile(d);
    if (tile_[kN] > setup.k_extent) reject(setup, params::top_k::dim_n, "n", "accepted: at most the members of the reduction");
    if (tile_[kN] != setup.dims[roles_[kN]].extent) reject(setup, params::top_k::dim_n, "n", "accepted: a dimension that is whole in a tile");
  }

  void check(const Call& call) const override { place(call); }

  void run(const Call& call) const override {
    with_word(x_.dtype, [&](auto word) { run_as<decltype(word)>(call); });
  }

 private:
  int64_t place(const Call& call) const {
    const int64_t o = call.origin[roles_[kO]], i = call.origin[roles_[kI]], k = call.k_first;
    return x_.axes[0].local(o, o, tile_[kO], "top_k: x along o") + x_.axes[1].local(k, k, call.k_count, "top_k: x along k") +
           x_.axes[2].local(i, i, tile_[kI], "top_k: x along i");
  }

  template <class Word>
  void run_as(const Call& call) const;

  Operand x_;
  bool largest_;
  std::array<uint32_t, kDims> roles_;
  std::array<int64_t, 3> tile_{};
};

// The best n of all elements that were offered. Those in hand grow to twice as many before the worse half goes.
template <class Word>
class Best {
 public:
  Best(size_t n, bool largest) : n_(n), better_{largest} { found_.reserve(2 * n); }

  void clear() {
    found_.clear();
    full_ = false;
  }
  void add(Word value, int32_t at) {
    found_.push_back({value, at});
    if (found_.size() == 2 * n_) cut();
  }
  // Elements that follow all others, `step` apart.
  void add(const Word* x, int64_t step, int32_t first, int64_t count) {
    Word together[kBlock];
    for (int64_t k = 0; k < count; k += kBlock) {
      const int64_t n = std::min<int64_t>(kBlock, count - k);
      const Word* own = x + k * step;
      if (step != 1) {
        for (int64_t i = 0; i < n; ++i) together[i] = own[i * step];
        own = together;
      }
      if (full_ && !any_passes(own, n)) continue;
      for (int64_t i = 0; i < n; ++i)
        if (!full_ || passes(own[i])) add(own[i], first + static_cast<int32_t>(k + i));
    }
  }
  // Best first.
  const std::vector<Found<Word>>& sorted() {
    if (found_.size() > n_) cut();
    std::sort(found_.begin(), found_.end(), better_);
    return found_;
  }

 private:
  static constexpr int64_t kBlock = 64;

  // Whether an element that follows all others is better than the worst of the best.
  bool passes(Word value) const { return better_.largest ? above(value, worst_) : above(worst_, value); }
  // The same of some, as the compiler can make vectors of it.
  bool any_passes(const Word* x, int64_t n) const {
    const Word worst = worst_;
    uint32_t any = 0;
    if (worst != worst) {
      if (better_.largest) return false;
      for (int64_t i = 0; i < n; ++i) any |= x[i] == x[i] ? 1 : 0;
    } else if (better_.largest) {
      for (int64_t i = 0; i < n; ++i) any |= x[i] <= worst ? 0 : 1;  // a NaN, too
    } else {
      for (int64_t i = 0; i < n; ++i) any |= x[i] < worst ? 1 : 0;
    }
    return any != 0;
  }
  void cut() {
    std::nth_element(found_.begin(), found_.begin() + static_cast<int64_t>(n_) - 1, found_.end(), better_);
    found_.resize(n_);
    worst_ = found_.back().value;
    full_ = true;
  }

  struct Better {
    bool largest;
    bool operator()(const Found<Word>& a, const Found<Word>& b) const {
      if (above(a.value, b.value)) return largest;
      if (above(b.value, a.value)) return !largest;
      return a.at < b.at;
    }
  };

  size_t n_;
  Better better_;
  std::vector<Found<Word>> found_;
  bool full_ = false;
  Word worst_{};
};

template <class Word>
void TopK::run_as(const Call& call) const {
  const int64_t n = tile_[kN], before = std::min<int64_t>(n, call.k_first), step = x_.axes[1].stride;
  if (n == 0) return;
  const Word* x = reinterpret_cast<const Word*>(x_.in(call)) + place(call);
  auto* values = reinterpret_cast<Word*>(call.out);
  uint8_t* places = call.operand[operand::places];  // 64 bits each, from a word on
  Best<Word> best(static_cast<size_t>(n), largest_);
  for (int64_t o = 0; o < tile_[kO]; ++o) {
    for (int64_t i = 0; i < tile_[kI]; ++i) {
      int64_t out = o * n * tile_[kI] + i;
      best.clear();
      for (int64_t m = 0; m < before; ++m) best.add(values[out + m * tile_[kI]], static_cast<int32_t>(index_at<int64_t>(places, out + m * tile_[kI])));
      best.add(x + o * x_.axes[0].stride + i * x_.axes[2].stride, step, static_cast<int32_t>(call.k_first), call.k_count);
      for (const auto& [value, at] : best.sorted()) {
        values[out] = value;
        const int64_t wide = at;
        std::memcpy(places + out * static_cast<int64_t>(sizeof wide), &wide, sizeof wide);
        out += tile_[kI];
      }
    }
  }
}

}  // namespace

ONEDISPATCH_KERNEL(top_k, make<TopK>)

}  // namespace onedispatch::kernels
