// SPDX-License-Identifier: Apache-2.0
// Bodies that answer a status: an int of a plain run and of a template, and none.
#include "onedispatch/plugin_cpp.h"

namespace {

struct Copies {
  static void place(od::Place& n) { n.out("z", n.in("x")).index_space(n.in("x").shape).elementwise("x z"); }
};

struct Answers : Copies {
  static void declare(od::Declare& d) { d.name("acme::answers").in("x").out("z").scalar("status", od::i32, 0); }
  int run(const od::Tile& t) const {
    t.map([](float x) { return x; }, t.out<float>("z"), t.in<float>("x"));
    return t.scalar<int32_t>("status");
  }
};

struct Typed : Copies {
  using types = od::Types<float, int8_t>;
  static void declare(od::Declare& d) { d.name("acme::typed").in("x").out("z").scalar("status", od::i32, 0); }
  template <class T>
  int run(const od::Tile& t) const {
    t.map([](T x) { return x; }, t.out<T>("z"), t.in<T>("x"));
    return t.scalar<int32_t>("status");
  }
};

struct Silent : Copies {
  static void declare(od::Declare& d) { d.name("acme::silent").in("x").out("z"); }
  void run(const od::Tile& t) const { t.map([](float x) { return x; }, t.out<float>("z"), t.in<float>("x")); }
};

}  // namespace

OD_PLUGIN_LIBRARY("answers", Answers, Typed, Silent)
