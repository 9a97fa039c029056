// SPDX-License-Identifier: Apache-2.0
// A kernel whose class is in no namespace of its own: other libraries have a class of that name too.
#include "onedispatch/plugin_cpp.h"

struct Kernel {
  static void declare(od::Declare& d) { d.name(VENDOR "::times").in("x").out("z"); }
  static void place(od::Place& n) { n.out("z", n.in("x")).index_space(n.in("x").shape).elementwise("x z"); }
  void run(const od::Tile& t) const {
    const auto x = t.in<float>("x");
    const auto z = t.out<float>("z");
    t.members([&](const od::Member& m) { z(m) = x(m) * FACTOR; });  // held by reference: no warning of it
  }
};

OD_PLUGIN_LIBRARY(VENDOR, Kernel)
