// SPDX-License-Identifier: Apache-2.0
// Products of matrices, x [m, k] * y [k, n]: a member is an element of the result.
#include "onedispatch/plugin_cpp.h"

namespace {

void product(od::Place& n, uint32_t dtype) {
  const od::Tensor &x = n.in("x"), &y = n.in("y");
  if (x.shape[1] != y.shape[0]) n.fail(OD_INPUT_SIZE, "columns of x: given " + std::to_string(x.shape[1]) + "; accepted: the rows of y, " + std::to_string(y.shape[0]));
  n.out("z", {x.shape[0], y.shape[1]}, dtype).index_space(n.out("z").shape).elementwise("z");
  n.access("x", od::dim(0), od::whole()).access("y", od::whole(), od::dim(1));
  n.work("mul", static_cast<double>(x.shape[1])).work("op", static_cast<double>(x.shape[1]));
}

template <class T, class Sum, class Z>
void multiply(const od::Tile& t) {
  const auto x = t.in<T>("x"), y = t.in<T>("y");
  const auto z = t.out<Z>("z");
  t.members([&](const od::Member& m) {
    Sum sum = 0;
    for (int64_t k = 0; k < x.size(1); ++k) sum += static_cast<Sum>(x(m[0], k)) * static_cast<Sum>(y(k, m[1]));
    z(m) = sum;
  });
}

struct MatMul {
  using types = od::Types<float, od::bf16>;
  static void declare(od::Declare& d) { d.name("compiled::mat_mul").in("x").rank(2).in("y").rank(2).out("z").work("mul", 1).work("op", 1); }
  static void place(od::Place& n) { product(n, n.in("x").dtype); }
  template <class T>
  void run(const od::Tile& t) const {
    multiply<T, float, T>(t);
  }
};

struct MatMulI8 {
  static void declare(od::Declare& d) { d.name("compiled::mat_mul_i8").in("x", "i8").rank(2).in("y", "i8").rank(2).out("z", "i32").work("mul", 1).work("op", 1); }
  static void place(od::Place& n) { product(n, OD_DTYPE_I32); }
  void run(const od::Tile& t) const { multiply<int8_t, int32_t, int32_t>(t); }
};

}  // namespace

OD_PLUGIN_LIBRARY("compiled products", MatMul, MatMulI8)
