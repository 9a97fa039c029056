// SPDX-License-Identifier: Apache-2.0
// od::position: out[j] = the sum over n of index[j][n] * factor[n]: where a tuple of indices points in what lies
// behind one another. Each index counts along an axis of bound[n].
#include "indexed.h"

namespace onedispatch::kernels {

namespace {

namespace operand = params::position::operand;

class Position final : public Kernel {
 public:
  explicit Position(const Setup& setup)
      : index_(setup.operands[operand::index]),
        bound_(setup.operands[operand::bound]),
        factor_(setup.operands[operand::factor]),
        dim_(setup.roles[0]),
        tile_(setup.tile(0)) {
    for (const Operand* one : {&bound_, &factor_}) {
      if (one->axes[0].chunk == index_.axes[1].chunk) continue;
      reject(setup, setup.spec->operands[one->index].at + 1, setup.spec->operands[one->index].name, "accepted: as many as a tuple has indices");
    }
  }

  void check(const Call& call) const override { place(call); }

  void run(const Call& call) const override {
    with_index(index_, [&](auto index) { run_as<decltype(index)>(call); });
  }

 private:
  int64_t place(const Call& call) const {
    const int64_t j = call.origin[dim_];
    return index_.axes[0].local(j, j, tile_, "position: index along j");
  }

  template <class Index>
  void run_as(const Call& call) const {
    const int64_t first = place(call), terms = index_.axes[1].chunk;
    const auto* bound = reinterpret_cast<const int32_t*>(bound_.in(call));
    const auto* factor = reinterpret_cast<const int32_t*>(factor_.in(call));
    auto* out = reinterpret_cast<int32_t*>(call.out);
    for (int64_t j = 0; j < tile_; ++j) {
      int64_t at = 0;
      for (int64_t n = 0; n < terms; ++n) {
        const int64_t given = index_at<Index>(index_.in(call), first + j * index_.axes[0].stride + n * index_.axes[1].stride);
        const int64_t index = given < 0 ? given + bound[n] : given;
        if (index < 0 || index >= bound[n]) {
          outside(given, bound[n], " at number " + std::to_string(n) + " of tuple " + std::to_string(call.origin[dim_] + j));
        }
        at += index * factor[n];
      }
      out[j] = static_cast<int32_t>(at);
    }
  }

  Operand index_, bound_, factor_;
  uint32_t dim_;
  int64_t tile_;
};

}  // namespace

ONEDISPATCH_KERNEL(position, make<Position>)

}  // namespace onedispatch::kernels
