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

template <class Word>
void TopK::run_as(const Call& call) const {
  const int64_t n = tile_[kN], before = std::min<int64_t>(n, call.k_first), step = x_.axes[1].stride;
  const Word* x = reinterpret_cast<const Word*>(x_.in(call)) + place(call);
  auto* values = reinterpret_cast<Word*>(call.out);
  uint8_t* places = call.operand[operand::places];  // 64 bits each, from a word on
  const auto better = [&](const Found<Word>& a, const Found<Word>& b) {
    if (above(a.value, b.value)) return largest_;
    if (above(b.value, a.value)) return !largest_;
    return a.at < b.at;
  };
  std::vector<Found<Word>> line(call.k_count), kept, merged;
  for (int64_t o = 0; o < tile_[kO]; ++o) {
    for (int64_t i = 0; i < tile_[kI]; ++i) {
      const Word* from = x + o * x_.axes[0].stride + i * x_.axes[2].stride;
      for (size_t k = 0; k < line.size(); ++k) line[k] = {from[static_cast<int64_t>(k) * step], static_cast<int32_t>(call.k_first + k)};
      const auto most = line.begin() + std::min<int64_t>(n, call.k_count);
      std::partial_sort(line.begin(), most, line.end(), better);
      const int64_t out = o * n * tile_[kI] + i;
      kept.clear();
      merged.clear();
      for (int64_t m = 0; m < before; ++m) kept.push_back({values[out + m * tile_[kI]], static_cast<int32_t>(index_at<int64_t>(places, out + m * tile_[kI]))});
      std::merge(kept.begin(), kept.end(), line.begin(), most, std::back_inserter(merged), better);
      for (int64_t m = 0; m < std::min<int64_t>(n, static_cast<int64_t>(merged.size())); ++m) {
        values[out + m * tile_[kI]] = merged[static_cast<size_t>(m)].value;
        const int64_t at = merged[static_cast<size_t>(m)].at;
        std::memcpy(places + (out + m * tile_[kI]) * static_cast<int64_t>(sizeof at), &at, sizeof at);
      }
    }
  }
}

}  // namespace

ONEDISPATCH_KERNEL(top_k, make<TopK>)

}  // namespace onedispatch::kernels
