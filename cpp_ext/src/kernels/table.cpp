// SPDX-License-Identifier: Apache-2.0
// od::table: out = x1[x0], one of 256 elements for every byte.
#include "mapped.h"
#include "simd/simd.h"

namespace onedispatch::kernels {

namespace {

namespace operand = params::table::operand;

class Table final : public Kernel {
 public:
  explicit Table(const Setup& setup) : entries_(setup.operands[operand::x1]), mapped_(setup, 1, operand::out) {
    if (is_table(entries_)) return;
    reject(setup, setup.spec->operands[operand::x1].at + 1, "x1", "accepted: 256 entries side by side, one for every byte");
  }

  void check(const Call& call) const override { mapped_.check(call); }

  void run(const Call& call) const override {
    const uint8_t* entries = entries_.in(call);
    mapped_.run(call, [&](const void* const* x, const int* steps, uint8_t* out, size_t n) {
      const auto* from = static_cast<const uint8_t*>(x[0]);
      if (steps[0] == 0) {
        std::memset(out, entries[from[0]], n);
      } else {
        simd().look_up(entries, from, out, n);
      }
    });
  }

 private:
  Operand entries_;
  Mapped mapped_;
};

}  // namespace

ONEDISPATCH_KERNEL(table, make<Table>)

}  // namespace onedispatch::kernels
