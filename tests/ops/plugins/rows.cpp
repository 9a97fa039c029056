// SPDX-License-Identifier: Apache-2.0
// A member is a row or a column that has to be seen as a whole.
#include "onedispatch/plugin_cpp.h"

namespace {

// exp(x - most) / sum, with what stands above the line in scratch.
template <class X, class Z>
void softmax(int64_t n, od::Span<float> tmp, X x, Z z) {
  float most = x(0), sum = 0;
  for (int64_t k = 1; k < n; ++k) most = std::max<float>(most, x(k));
  for (int64_t k = 0; k < n; ++k) sum += tmp[k] = std::exp(x(k) - most);
  for (int64_t k = 0; k < n; ++k) z(k, tmp[k] / sum);
}
void work(od::Place& n, int64_t size) {
  const auto each = static_cast<double>(size);
  n.scratch<float>("tmp", size).work("exp", each).work("div", each).work("op", 3 * each);
}

struct SoftmaxLast {
  using types = od::Types<float, od::bf16>;
  static void declare(od::Declare& d) { d.name("compiled::softmax_last").in("x").rank(2).scratch("tmp").out("z").work("exp", 1).work("div", 1).work("op", 3); }
  static void place(od::Place& n) {
    n.out("z", n.in("x")).index_space({n.in("x").shape[0]});
    n.access("x", od::dim(0), od::whole()).access("z", od::dim(0), od::whole());
    work(n, n.in("x").shape[1]);
  }
  template <class T>
  void run(const od::Tile& t) const {
    const auto x = t.in<T>("x");
    const auto z = t.out<T>("z");
    t.members([&](const od::Member& m) {
      const auto from = x.row(m[0]);
      const auto to = z.row(m[0]);
      softmax(x.size(1), t.scratch<float>("tmp"), [&](int64_t k) -> float { return from[k]; }, [&](int64_t k, float v) { to[k] = v; });
    });
  }
};

struct SoftmaxFirst {
  static void declare(od::Declare& d) { d.name("compiled::softmax_first").in("x").rank(2).scratch("tmp").out("z").work("exp", 1).work("div", 1).work("op", 3); }
  static void place(od::Place& n) {
    n.out("z", n.in("x")).index_space({n.in("x").shape[1]});
    n.access("x", od::whole(), od::dim(0)).access("z", od::whole(), od::dim(0));
    work(n, n.in("x").shape[0]);
  }
  void run(const od::Tile& t) const {
    const auto x = t.in<float>("x");
    const auto z = t.out<float>("z");
    t.members([&](const od::Member& m) {
      softmax(x.size(0), t.scratch<float>("tmp"), [&](int64_t k) { return x(k, m[0]); }, [&](int64_t k, float v) { z(k, m[0]) = v; });
    });
  }
};

struct RowCumSum {
  using types = od::Types<float, int32_t>;
  static void declare(od::Declare& d) { d.name("compiled::row_cum_sum").in("x").rank(2).out("z"); }
  static void place(od::Place& n) {
    n.out("z", n.in("x")).index_space({n.in("x").shape[0]}).work("op", static_cast<double>(n.in("x").shape[1]));
    n.access("x", od::dim(0), od::whole()).access("z", od::dim(0), od::whole());
  }
  template <class T>
  void run(const od::Tile& t) const {
    const auto x = t.in<T>("x");
    const auto z = t.out<T>("z");
    t.members([&](const od::Member& m) {
      T sum = 0;
      for (int64_t k = 0; k < x.size(1); ++k) z(m[0], k) = sum += x(m[0], k);
    });
  }
};

// A member is 64 elements of a row, as a vector unit takes them; the last one of a row may have fewer.
struct Square64 {
  using types = od::Types<float, od::bf16>;
  static void declare(od::Declare& d) { d.name("compiled::square64").in("x").rank(2).out("z").work("mul", 64); }
  static void place(od::Place& n) {
    n.out("z", n.in("x")).index_space({n.in("x").shape[0], (n.in("x").shape[1] + 63) / 64});
    n.access("x", od::dim(0), od::block(1, 64)).access("z", od::dim(0), od::block(1, 64));
  }
  template <class T>
  void run(const od::Tile& t) const {
    const auto x = t.in<T>("x");
    const auto z = t.out<T>("z");
    t.members([&](const od::Member& m) {
      for (int64_t k = 64 * m[1]; k < 64 * m[1] + 64; ++k) z(m[0], k) = x(m[0], k) * x(m[0], k);
    });
  }
};

}  // namespace

OD_PLUGIN_LIBRARY("compiled rows", SoftmaxLast, SoftmaxFirst, RowCumSum, Square64)
