// SPDX-License-Identifier: Apache-2.0
// Element by element: a member is one element.
#include "onedispatch/plugin_cpp.h"

namespace {

using Floats = od::Types<float, od::bf16>;

// z as x, of as many operands as there are.
void alike(od::Place& n, const char* operands = "x z") { n.out("z", n.in("x")).index_space(n.in("x").shape).elementwise(operands); }

struct Abs {
  using types = od::Types<float, od::bf16, int8_t, int32_t>;
  static void declare(od::Declare& d) { d.name("compiled::abs").in("x").out("z"); }
  static void place(od::Place& n) { alike(n); }
  template <class T>
  void run(const od::Tile& t) const {
    t.map([](T x) { return x < T(0) ? T(-x) : x; }, t.out<T>("z"), t.in<T>("x"));
  }
};

struct Relu6 {
  using types = Floats;
  static void declare(od::Declare& d) { d.name("compiled::relu6").in("x").out("z"); }
  static void place(od::Place& n) { alike(n); }
  template <class T>
  void run(const od::Tile& t) const {
    t.map([](float x) { return std::min(std::max(x, 0.0f), 6.0f); }, t.out<T>("z"), t.in<T>("x"));
  }
};

struct Clip {
  using types = Floats;
  static void declare(od::Declare& d) { d.name("compiled::clip").in("x").out("z").scalar("low", od::f32, -1).scalar("high", od::f32, 1).work("compare", 2); }
  static void place(od::Place& n) {
    if (n.scalar("low") > n.scalar("high")) n.fail(OD_LAYER_CONFIGURATION, "low above high");
    alike(n);
  }
  template <class T>
  void run(const od::Tile& t) const {
    const auto low = t.scalar<float>("low"), high = t.scalar<float>("high");
    t.map([=](float x) { return std::min(std::max(x, low), high); }, t.out<T>("z"), t.in<T>("x"));
  }
};

struct LeakyRelu {
  using types = Floats;
  static void declare(od::Declare& d) { d.name("compiled::leaky_relu").in("x").out("z").scalar("alpha", od::f32, 0.01).bounds(0, 1).work("mul", 1).work("compare", 1); }
  static void place(od::Place& n) { alike(n); }
  template <class T>
  void run(const od::Tile& t) const {
    t.map([a = t.scalar<float>("alpha")](float x) { return x < 0 ? a * x : x; }, t.out<T>("z"), t.in<T>("x"));
  }
};

// The one of the example; y is broadcast.
struct ScaleAdd {
  static void declare(od::Declare& d) { d.name("compiled::scale_add").in("x").in("y").out("z").scalar("a", od::f32).work("mul", 1).work("op", 1); }
  static void place(od::Place& n) { alike(n, "x y z"); }
  void run(const od::Tile& t) const {
    t.map([a = t.scalar<float>("a")](float x, float y) { return a * x + y; }, t.out<float>("z"), t.in<float>("x"), t.in<float>("y"));
  }
};

struct ScaleBf16 {
  static void declare(od::Declare& d) { d.name("compiled::scale_bf16").in("x", "bf16").out("z", "bf16").scalar("a", od::f32).work("mul", 1); }
  static void place(od::Place& n) { alike(n); }
  void run(const od::Tile& t) const {
    t.map([a = t.scalar<float>("a")](float x) { return a * x; }, t.out<od::bf16>("z"), t.in<od::bf16>("x"));
  }
};

struct SaturatingAdd {
  static void declare(od::Declare& d) { d.name("compiled::saturating_add").in("x", "i8").in("y", "i8").out("z", "i8"); }
  static void place(od::Place& n) { alike(n, "x y z"); }
  void run(const od::Tile& t) const {
    t.map([](int x, int y) { return std::clamp(x + y, -128, 127); }, t.out<int8_t>("z"), t.in<int8_t>("x"), t.in<int8_t>("y"));
  }
};

struct CastBf16 {
  static void declare(od::Declare& d) { d.name("compiled::cast_bf16").in("x", "f32").out("z", "bf16").work("move", 1); }
  static void place(od::Place& n) { n.out("z", n.in("x").shape, OD_DTYPE_BF16).index_space(n.in("x").shape).elementwise("x z"); }
  void run(const od::Tile& t) const {
    t.map([](float x) { return x; }, t.out<od::bf16>("z"), t.in<float>("x"));
  }
};

// x / (1 + |x|) of numbers held inside [-8, 8], from a table of 1025 with the line between two of them.
struct SoftsignTable {
  static void declare(od::Declare& d) { d.name("compiled::softsign_table").in("x").aux("table").out("z").work("op", 6).work("mul", 2); }
  static void place(od::Place& n) {
    alike(n);
    n.aux<float>("table", 1025, [](int64_t i) {
      const float x = static_cast<float>(i - 512) / 64;
      return x / (1 + std::fabs(x));
    });
  }
  void run(const od::Tile& t) const {
    const auto table = t.aux<float>("table").row();
    t.map([&](float x) {
      const float at = std::clamp(x * 64 + 512, 0.0f, 1023.99f);
      const auto i = static_cast<int64_t>(at);
      return table[i] + (at - static_cast<float>(i)) * (table[i + 1] - table[i]);
    }, t.out<float>("z"), t.in<float>("x"));
  }
};

}  // namespace

OD_PLUGIN_LIBRARY("compiled elementwise", Abs, Relu6, Clip, LeakyRelu, ScaleAdd, ScaleBf16, SaturatingAdd, CastBf16, SoftsignTable)
