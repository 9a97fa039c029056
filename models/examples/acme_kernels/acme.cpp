// SPDX-License-Identifier: Apache-2.0
// Kernels of acme for images [rows, columns]. Built by:
//   g++ -O2 -std=c++17 -shared -fPIC -I"$(onedispatch kernel include)" acme.cpp -o acme_kernels/libacme.so
#include "onedispatch/plugin_cpp.h"

namespace {

// Mean, and largest less least, of the 3 x 3 elements around each; `edge` is what lies around the image.
struct Blur {
  static void declare(od::Declare& d) {
    d.name("acme::blur").summary("mean and contrast of 3 x 3 elements").scalar("edge", od::f32, 0);
    d.in("x").rank(2).out("mean").out("contrast").work("op", 10).work("compare", 18).work("mul", 1);
  }
  static void place(od::Place& n) {
    n.out("mean", n.in("x")).out("contrast", n.in("x")).index_space(n.in("x").shape);
    n.elementwise("mean contrast").access("x", od::dim(0, 1, -1, 1), od::dim(1, 1, -1, 1));
    n.pad("x", n.scalar("edge"));
  }
  void run(const od::Tile& t) const {
    const auto x = t.in<float>("x");
    const auto mean = t.out<float>("mean"), contrast = t.out<float>("contrast");
    t.members([&](const od::Member& m) {
      float sum = 0, least = x(m[0], m[1]), most = least;
      for (int64_t i = m[0] - 1; i <= m[0] + 1; ++i) {
        for (int64_t j = m[1] - 1; j <= m[1] + 1; ++j) {
          sum += x(i, j);
          least = std::min(least, x(i, j));
          most = std::max(most, x(i, j));
        }
      }
      mean(m) = sum * (1.0f / 9);
      contrast(m) = most - least;
    });
  }
};

// x^gamma of x from 0 to 1, from a table of 257 numbers with the line between two of them.
struct Tone {
  static void declare(od::Declare& d) {
    d.name("acme::tone").summary("x to the power of gamma, by table").scalar("gamma", od::f32).bounds(0.1, 10);
    d.in("x").aux("table").out("z").work("op", 5).work("mul", 2);
  }
  static void place(od::Place& n) {
    n.out("z", n.in("x")).index_space(n.in("x").shape).elementwise("x z");
    const double gamma = n.scalar("gamma");
    n.aux<float>("table", 257, [=](int64_t i) { return static_cast<float>(std::pow(static_cast<double>(i) / 256, gamma)); });
  }
  void run(const od::Tile& t) const {
    const auto table = t.aux<float>("table").row();
    t.map([&](float x) {
      const float at = std::clamp(x * 256, 0.0f, 255.99f);
      const auto i = static_cast<int64_t>(at);
      return table[i] + (at - static_cast<float>(i)) * (table[i + 1] - table[i]);
    }, t.out<float>("z"), t.in<float>("x"));
  }
};

// (x - mean) / deviation of each row; of a flat row zeros, which it tells of.
struct NormaliseRows {
  static void declare(od::Declare& d) {
    d.name("acme::normalise_rows").summary("rows of mean 0 and deviation 1").prints();
    d.in("x").rank(2).scratch("centred").out("z").work("op", 3).work("mul", 2).work("div", 1).work("sqrt", 1);
  }
  static void place(od::Place& n) {
    const int64_t columns = n.in("x").shape[1];
    const auto each = static_cast<double>(columns);
    n.out("z", n.in("x")).index_space({n.in("x").shape[0]});
    n.access("x", od::dim(0), od::whole()).access("z", od::dim(0), od::whole());
    n.scratch<float>("centred", columns).work("op", 3 * each).work("mul", 2 * each).work("div", 1).work("sqrt", 1);
  }
  void run(const od::Tile& t) const {
    const auto centred = t.scratch<float>("centred");
    const auto x = t.in<float>("x");
    const auto z = t.out<float>("z");
    t.members([&](const od::Member& m) {
      const auto from = x.row(m[0]);
      const auto to = z.row(m[0]);
      const float share = 1 / static_cast<float>(from.size);
      float sum = 0, squares = 0;
      for (int64_t j = 0; j < from.size; ++j) sum += from[j];
      for (int64_t j = 0; j < from.size; ++j) {
        centred[j] = from[j] - sum * share;
        squares += centred[j] * centred[j];
      }
      const bool flat = squares * share < 1e-10f;
      if (flat) t.print("flat row of %g", from[0]);
      const float factor = flat ? 0 : 1 / std::sqrt(squares * share);
      for (int64_t j = 0; j < from.size; ++j) to[j] = centred[j] * factor;
    });
  }
};

}  // namespace

OD_PLUGIN_LIBRARY("acme", Blur, Tone, NormaliseRows)
