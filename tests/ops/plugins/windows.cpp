// SPDX-License-Identifier: Apache-2.0
// Images [rows, columns]: a member is an element of the result, and reads some around its place.
#include "onedispatch/plugin_cpp.h"

namespace {

// z of other size than x; members of both dimensions read [floor(a*i/den) + start, floor(a*i/den) + end].
void image(od::Place& n, const od::Shape& size, int64_t a, int64_t start, int64_t end, int64_t den = 1) {
  n.out("z", size, n.in("x")).index_space(size).elementwise("z");
  n.access("x", od::dim(0, a, start, end, den), od::dim(1, a, start, end, den));
}

// The mean of 3 x 3, with zeros around the image.
struct Box3 {
  using types = od::Types<float, od::bf16>;
  static void declare(od::Declare& d) { d.name("compiled::box3").in("x").rank(2).pad(0).out("z").work("op", 9).work("mul", 1); }
  static void place(od::Place& n) { image(n, n.in("x").shape, 1, -1, 1); }
  template <class T>
  void run(const od::Tile& t) const {
    const auto x = t.in<T>("x");
    const auto z = t.out<T>("z");
    t.members([&](const od::Member& m) {
      float sum = 0;
      for (int64_t i = -1; i <= 1; ++i) {
        for (int64_t j = -1; j <= 1; ++j) sum += x(m[0] + i, m[1] + j);
      }
      z(m) = sum * (1.0f / 9);
    });
  }
};

struct Median3 {
  using types = od::Types<float, int8_t>;
  static void declare(od::Declare& d) { d.name("compiled::median3").in("x").rank(2).pad(0).out("z").work("compare", 30); }
  static void place(od::Place& n) { image(n, n.in("x").shape, 1, -1, 1); }
  template <class T>
  void run(const od::Tile& t) const {
    const auto x = t.in<T>("x");
    const auto z = t.out<T>("z");
    t.members([&](const od::Member& m) {
      T seen[9];
      for (int64_t k = 0; k < 9; ++k) seen[k] = x(m[0] + k / 3 - 1, m[1] + k % 3 - 1);
      std::nth_element(seen, seen + 4, seen + 9);
      z(m) = seen[4];
    });
  }
};

// The mean of 2 x 2; rows and columns without a partner are left out.
struct Down2 {
  static void declare(od::Declare& d) { d.name("compiled::down2").in("x").rank(2).out("z").work("op", 4).work("mul", 1); }
  static void place(od::Place& n) { image(n, {n.in("x").shape[0] / 2, n.in("x").shape[1] / 2}, 2, 0, 1); }
  void run(const od::Tile& t) const {
    const auto x = t.in<float>("x");
    const auto z = t.out<float>("z");
    t.members([&](const od::Member& m) {
      const int64_t i = 2 * m[0], j = 2 * m[1];
      z(m) = 0.25f * (x(i, j) + x(i, j + 1) + x(i + 1, j) + x(i + 1, j + 1));
    });
  }
};

// Each element four times.
struct Up2 {
  using types = od::Types<float, od::bf16, int8_t>;
  static void declare(od::Declare& d) { d.name("compiled::up2").in("x").rank(2).out("z").work("move", 1); }
  static void place(od::Place& n) { image(n, {n.in("x").shape[0] * 2, n.in("x").shape[1] * 2}, 1, 0, 0, 2); }
  template <class T>
  void run(const od::Tile& t) const {
    t.map([](T x) { return x; }, t.out<T>("z"), t.in<T>("x"));
  }
};

}  // namespace

OD_PLUGIN_LIBRARY("compiled windows", Box3, Median3, Down2, Up2)
