// SPDX-License-Identifier: Apache-2.0
// A kernel whose class is in no namespace of its own: other libraries have a class of that name too.
#include "onedispatch/plugin_cpp.h"

struct Kernel {
  static void declare(od::Declare& d) { d.name(VENDOR "::times").in("x").out("z"); }
  static void place(od::Place& n) { n.out("z", n.in("x")).index_space(n.in("x").shape).elementwise("x z"); }
  void run(const od::Tile& t) const {
    t.map([](float x) { return x * FACTOR; }, t.out<float>("z"), t.in<float>("x"));
  }
};

OD_PLUGIN_LIBRARY(VENDOR, Kernel)
