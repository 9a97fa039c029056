// SPDX-License-Identifier: Apache-2.0
// Elements that only change their place.
#include "onedispatch/plugin_cpp.h"

namespace {

using Any = od::Types<float, od::bf16, int8_t, int32_t>;

struct Transpose2 {
  using types = Any;
  static void declare(od::Declare& d) { d.name("compiled::transpose2").in("x").rank(2).out("z").work("move", 1); }
  static void place(od::Place& n) {
    n.out("z", {n.in("x").shape[1], n.in("x").shape[0]}, n.in("x")).index_space(n.out("z").shape);
    n.elementwise("z").access("x", od::dim(1), od::dim(0));
  }
  template <class T>
  void run(const od::Tile& t) const {
    t.map([](T x) { return x; }, t.out<T>("z"), t.in<T>("x"));
  }
};

// z[i, ...] = table[index[i], ...]; an index outside of the table gives the pad.
struct Gather {
  static void declare(od::Declare& d) { d.name("compiled::gather").in("table").rank(2).pad(-1).in("index", "i32").rank(1).out("z").work("move", 1); }
  static void place(od::Place& n) {
    n.out("z", {n.in("index").shape[0], n.in("table").shape[1]}, n.in("table")).index_space(n.out("z").shape);
    n.elementwise("z").access("table", od::whole(), od::dim(1)).access("index", od::dim(0));
  }
  void run(const od::Tile& t) const {
    const auto table = t.in<float>("table");
    const auto index = t.in<int32_t>("index");
    const auto z = t.out<float>("z");
    t.members([&](const od::Member& m) { z(m) = table(index(m[0]), m[1]); });
  }
};

// A row for each index: `off` (the fill of what no member writes), and `on` in its column.
struct OneHot {
  static void declare(od::Declare& d) {
    d.name("compiled::one_hot").in("x", "i32").rank(1).out("z", "f32").fill(0);
    d.scalar("depth", od::i32).bounds(1, 4096).scalar("on", od::f32, 1).scalar("off", od::f32, 0).work("move", 1);
  }
  static void place(od::Place& n) {
    n.out("z", {n.in("x").shape[0], static_cast<int64_t>(n.scalar("depth"))}, OD_DTYPE_F32).fill("z", n.scalar("off"));
    n.index_space(n.in("x").shape).elementwise("x").access("z", od::dim(0), od::whole());
  }
  void run(const od::Tile& t) const {
    const auto x = t.in<int32_t>("x");
    const auto z = t.out<float>("z");
    t.members([&](const od::Member& m) { z(m[0], x(m)) = t.scalar<float>("on"); });
  }
};

}  // namespace

OD_PLUGIN_LIBRARY("compiled movement", Transpose2, Gather, OneHot)
