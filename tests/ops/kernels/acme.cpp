// SPDX-License-Identifier: Apache-2.0
// A library of custom kernels, as its author writes one.
#include <stdexcept>

#include "onedispatch/plugin_cpp.h"

namespace {

struct ScaleAdd {
  static void declare(od::Declare& d) { d.name("acme::scale_add").in("x").in("y").out("z").scalar("a", od::f32); }
  static void place(od::Place& n) {
    n.out("z", n.in("x"));
    n.index_space(n.in("x").shape);
    n.elementwise("x y z");
  }
  void run(const od::Tile& t) const {
    const auto a = t.scalar<float>("a");
    t.map([a](float x, float y) { return a * x + y; }, t.out<float>("z"), t.in<float>("x"), t.in<float>("y"));
  }
};

// |x| of any element type.
struct Absolute {
  using types = od::Types<float, od::bf16, od::f16, int8_t, int16_t, int32_t>;
  static void declare(od::Declare& d) { d.name("acme::absolute").in("x").out("z").work("op", 1); }
  static void place(od::Place& n) { n.out("z", n.in("x")).index_space(n.in("x").shape).elementwise("x z"); }
  template <class T>
  void run(const od::Tile& t) const {
    t.map([](T x) { return x < T(0) ? T(-x) : x; }, t.out<T>("z"), t.in<T>("x"));
  }
};

// x rounded to another floating-point type.
template <class To>
struct Rounded {
  static void declare(od::Declare& d) {
    const bool brain = od::dtype_of<To>() == OD_DTYPE_BF16;
    d.name(brain ? "acme::to_bf16" : "acme::to_f16").in("x").out("z", brain ? "bf16" : "f16");
  }
  static void place(od::Place& n) { n.out("z", n.in("x").shape, od::dtype_of<To>()).index_space(n.in("x").shape).elementwise("x z"); }
  void run(const od::Tile& t) const {
    t.map([](float x) { return To(x); }, t.out<To>("z"), t.in<float>("x"));
  }
};

// The mean of 3 x 3 elements around each, with what the node pads; largest of them as a second output.
struct Box {
  static void declare(od::Declare& d) { d.name("acme::box").in("x").rank(2).pad(-1).out("mean").rank(2).out("largest").rank(2); }
  static void place(od::Place& n) {
    n.out("mean", n.in("x")).out("largest", n.in("x")).index_space(n.in("x").shape);
    n.elementwise("mean largest").access("x", od::dim(0, 1, -1, 1), od::dim(1, 1, -1, 1));
    n.pad("x", n.real("pad", -1));
  }
  void run(const od::Tile& t) const {
    const auto x = t.in<float>("x");
    const auto mean = t.out<float>("mean"), largest = t.out<float>("largest");
    t.members([&](const od::Member& m) {
      float sum = 0, top = x(m);
      for (int64_t i = m[0] - 1; i <= m[0] + 1; ++i) {
        for (int64_t j = m[1] - 1; j <= m[1] + 1; ++j) {
          sum += x(i, j);
          top = std::max(top, x(i, j));
        }
      }
      mean(m) = sum / 9;
      largest(m) = top;
    });
  }
};

// Sums of rows, by raw rows: every member has all of the last dimension.
struct RowSum {
  static void declare(od::Declare& d) { d.name("acme::row_sum").in("x").rank(2).out("z").rank(1); }
  static void place(od::Place& n) {
    n.out("z", {n.in("x").shape[0]}, n.in("x")).index_space({n.in("x").shape[0]});
    n.elementwise("z").access("x", od::dim(0), od::whole());
  }
  void run(const od::Tile& t) const {
    const auto x = t.in<float>("x");
    const auto z = t.out<float>("z");
    t.members([&](const od::Member& m) {
      float sum = 0;
      const auto row = x.row(m[0]);
      for (int64_t j = row.first; j <= row.last(); ++j) sum += row[j];
      z(m) = sum;
    });
  }
};

// A table, scratch, 32 scalars, a pad, a fill, hints: z[2i] = table[x[i]] + sum of scalars + x[i + 1], the rest stays filled.
struct Everything {
  static void declare(od::Declare& d) {
    d.name("acme::everything").in("x").rank(1).out("z").rank(1).fill(7).aux("table").scratch("kept").work("op", 1).work("mul", 1);
    for (int i = 0; i < 32; ++i) d.scalar("s" + std::to_string(i), od::f32, i);
  }
  static void place(od::Place& n) {
    const int64_t size = n.in("x").shape[0];
    n.out("z", {2 * size}, n.in("x")).index_space({size});
    n.access("x", od::dim(0, 1, 0, 1)).access("z", od::dim(0, 2, 0, 0));
    n.aux<float>("table", n.integer("entries", 3000), [](int64_t i) { return static_cast<float>(i) * 0.5f; });
    n.scratch<float>("kept", 32).pad("x", 100).fill("z", -3).work("op", 40).preferred_split(0).in_place("x");
    if (n.scratch_mask() != 2) n.fail(OD_FAILURE, "the mask");
    if (n.text("mode") == "twice") n.scalar("s0", 1000);
  }
  void run(const od::Tile& t) const {
    const auto x = t.in<float>("x"), table = t.aux<float>("table");
    const auto z = t.out<float>("z");
    const auto kept = t.scratch<float>("kept");
    for (int i = 0; i < 32; ++i) kept[i] = t.scalar<float>(("s" + std::to_string(i)).c_str());
    t.members([&](const od::Member& m) {
      float sum = table(static_cast<int64_t>(x(m[0])));
      for (const float s : kept) sum += s;
      z(2 * m[0]) = sum + x(m[0] + 1);
    });
  }
};

// What goes wrong, by attribute: places and bodies that refuse, throw, and reach beyond what they declare.
struct Wrong {
  static void declare(od::Declare& d) { d.name("acme::wrong").in("x").rank(1).in("y").optional().out("z").rank(1).scalar("how", od::i32, 0).bounds(0, 11).device("npu2"); }
  static void place(od::Place& n) {
    n.out("z", n.in("x")).index_space(n.in("x").shape).elementwise("x z");
    if (n.scalar("how") == 1) n.fail(OD_LAYER_CONFIGURATION, "how: given 1; accepted: others");
    if (n.scalar("how") == 2) throw std::runtime_error("thrown by place");
    if (n.scalar("how") == 3) static_cast<void>(n.in("w"));
    if (n.scalar("how") == 9) n.access("y", std::vector<od::Interval>(600, od::dim(0)));
  }
  void run(const od::Tile& t) const {
    const auto how = t.scalar<int32_t>("how");
    const auto x = t.in<float>("x");
    const auto z = t.out<float>("z");
    t.members([&](const od::Member& m) {
      z(m) = x(m);
      if (how == 4) throw std::runtime_error("thrown by run");
      if (how == 5) z(m) = x((m[0] + t.count(0)) % t.total(0));
      if (how == 6) z((m[0] + t.count(0)) % t.total(0)) = 1.0f;
      if (how == 7) static_cast<void>(t.in<od::bf16>("x"));
      if (how == 8) static_cast<void>(t.in<float>("y")(0));
      if (how == 10) static_cast<void>(t.scratch<float>("w"));
      if (how == 11) static_cast<void>(t.scalar<float>("w"));
    });
  }
};

}  // namespace

OD_PLUGIN_LIBRARY("acme", ScaleAdd, Absolute, Rounded<od::bf16>, Rounded<od::f16>, Box, RowSum, Everything, Wrong)
