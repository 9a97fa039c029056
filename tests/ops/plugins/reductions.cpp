// SPDX-License-Identifier: Apache-2.0
// A member makes one element of what a dimension is reduced to; the dimension stays, with size 1.
#include "onedispatch/plugin_cpp.h"

namespace {

using Floats = od::Types<float, od::bf16>;

// x is there whole along one dimension; the outputs have an element for each member.
void reduced(od::Place& n, int64_t dimension) {
  od::Shape left = n.in("x").shape;
  left[static_cast<size_t>(dimension)] = 1;
  std::vector<od::Interval> access;
  for (int64_t d = 0; d < n.in("x").rank(); ++d) access.push_back(d == dimension ? od::whole() : od::dim(static_cast<uint32_t>(d)));
  n.index_space(left).access("x", access).out("z", left, n.in("x")).elementwise("z");
  n.work("op", static_cast<double>(n.in("x").shape[static_cast<size_t>(dimension)]));
}
void rows(od::Place& n) { reduced(n, n.in("x").rank() - 1); }

// f(accumulator, value) along a dimension, from the first value on, in order.
template <class T, class A, class F>
A folded(const od::In<T>& x, const od::Member& m, uint32_t dimension, A from, F f) {
  od::Coordinate at = x.begin(m);
  for (at[dimension] = 0; at[dimension] < x.size(dimension); ++at[dimension]) from = f(from, x(at));
  return from;
}

struct RowSum {
  using types = Floats;
  static void declare(od::Declare& d) { d.name("compiled::row_sum").in("x").rank(1, 5).out("z"); }
  static void place(od::Place& n) { rows(n); }
  template <class T>
  void run(const od::Tile& t) const {
    const auto x = t.in<T>("x");
    const auto z = t.out<T>("z");
    t.members([&](const od::Member& m) { z(m) = folded(x, m, x.rank() - 1, 0.0f, [](float sum, float v) { return sum + v; }); });
  }
};

struct RowMax {
  using types = od::Types<float, od::bf16, int8_t, int32_t>;
  static void declare(od::Declare& d) { d.name("compiled::row_max").in("x").rank(1, 5).out("z"); }
  static void place(od::Place& n) { rows(n); }
  template <class T>
  void run(const od::Tile& t) const {
    const auto x = t.in<T>("x");
    const auto z = t.out<T>("z");
    t.members([&](const od::Member& m) { z(m) = folded(x, m, x.rank() - 1, x(m), [](T most, T v) { return v > most ? v : most; }); });
  }
};

struct MeanFirst {
  static void declare(od::Declare& d) { d.name("compiled::mean_first").in("x").rank(1, 5).out("z").work("op", 1).work("mul", 1); }
  static void place(od::Place& n) { reduced(n, 0), n.work("mul", 1); }
  void run(const od::Tile& t) const {
    const auto x = t.in<float>("x");
    const auto z = t.out<float>("z");
    const float share = 1 / static_cast<float>(x.size(0));
    t.members([&](const od::Member& m) { z(m) = share * folded(x, m, 0, 0.0f, [](float sum, float v) { return sum + v; }); });
  }
};

// The first of the largest.
struct ArgMax {
  using types = Floats;
  static void declare(od::Declare& d) { d.name("compiled::arg_max").in("x").rank(1, 5).out("z", "i32"); }
  static void place(od::Place& n) {
    rows(n);
    n.out("z", n.out("z").shape, OD_DTYPE_I32);
  }
  template <class T>
  void run(const od::Tile& t) const {
    const auto x = t.in<T>("x");
    const auto z = t.out<int32_t>("z");
    t.members([&](const od::Member& m) {
      od::Coordinate at = x.begin(m), best = at;
      int64_t& k = at[x.rank() - 1];
      for (; k < x.size(x.rank() - 1); ++k) best = x(at) > x(best) ? at : best;
      z(m) = best[x.rank() - 1];
    });
  }
};

struct MinMax {
  static void declare(od::Declare& d) { d.name("compiled::min_max").in("x").rank(1, 5).out("z").out("most"); }
  static void place(od::Place& n) {
    rows(n);
    n.out("most", n.out("z")).elementwise("most").work("op", static_cast<double>(n.in("x").shape.back()));
  }
  void run(const od::Tile& t) const {
    const auto x = t.in<float>("x");
    const auto least = t.out<float>("z"), most = t.out<float>("most");
    t.members([&](const od::Member& m) {
      least(m) = folded(x, m, x.rank() - 1, x(m), [](float a, float b) { return std::min(a, b); });
      most(m) = folded(x, m, x.rank() - 1, x(m), [](float a, float b) { return std::max(a, b); });
    });
  }
};

}  // namespace

OD_PLUGIN_LIBRARY("compiled reductions", RowSum, RowMax, MeanFirst, ArgMax, MinMax)
