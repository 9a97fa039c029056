// SPDX-License-Identifier: Apache-2.0
// say::formats as tests/ops/test_plugin_print.py has it in Python: a line per member, in every format.
#include "onedispatch/plugin_cpp.h"

namespace {

struct Formats {
  static void declare(od::Declare& d) { d.name("say::formats").in("x").out("z").prints(); }
  static void place(od::Place& n) {
    n.out("z", n.in("x"));
    n.index_space({n.in("x").shape[0]});
    n.access("x", od::dim(0), od::whole()).access("z", od::dim(0), od::whole());
  }
  void run(const od::Tile& t) const {
    const auto x = t.in<float>("x");
    const auto z = t.out<float>("z");
    t.members([&](const od::Member& m) {
      const float v = x(m[0], 0);
      const int i = static_cast<int>(m[0]);
      t.print("%bf %hf %f %hhd %hhu %hd %hu %d %u %x %s %5.1f|%-4d|%%", v, v, v, i - 3, i - 3, i - 300, i - 300, i - 70000,
              i - 70000, i, "row", v, i);
      for (int j = 0; j < 40; ++j) z(m[0], j) = x(m[0], j);
    });
  }
};

}  // namespace

OD_PLUGIN_LIBRARY("say", Formats)
