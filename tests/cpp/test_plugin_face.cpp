// SPDX-License-Identifier: Apache-2.0
// The C++ face of plug-ins without an engine: accessors, members, scratch, placing, names.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "onedispatch/plugin_cpp.h"

namespace {

// ---- element types -------------------------------------------------------------------------------------

float nearest(float value, int bits, int least) {
  if (value == 0 || !std::isfinite(value)) return value;
  int exponent = 0;
  std::frexp(value, &exponent);
  const int unit = std::max(exponent - bits, least);
  return static_cast<float>(std::ldexp(std::nearbyint(std::ldexp(static_cast<double>(value), -unit)), unit));
}

TEST(PluginTypes, FloatsOf16BitsRoundToNearestEven) {
  for (uint32_t i = 0; i < (1u << 20); ++i) {
    const float value = od::detail::bits_to<float>(i * 4093u);
    if (!std::isfinite(value)) continue;
    const float half = nearest(value, 11, -24), brain = nearest(value, 8, -133);
    EXPECT_EQ(static_cast<float>(od::f16(value)), std::fabs(half) > 65504 ? std::copysign(HUGE_VALF, value) : half) << value;
    const float held = static_cast<float>(od::bf16(value));
    EXPECT_TRUE(held == brain || (std::isinf(held) && std::fabs(value) > 3.3e38f)) << value;
  }
}

TEST(PluginTypes, EveryHalfComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    od::f16 half;
    half.bits = static_cast<uint16_t>(bits);
    const float value = half;
    if (std::isnan(value)) EXPECT_TRUE(std::isnan(static_cast<float>(od::f16(value))));
    else EXPECT_EQ(od::f16(value).bits, bits);
  }
}

TEST(PluginTypes, SaturateHoldsInsideTheType) {
  EXPECT_EQ(od::saturate<int8_t>(126.5), 126);
  EXPECT_EQ(od::saturate<int8_t>(1000), 127);
  EXPECT_EQ(od::saturate<uint8_t>(-3), 0);
  EXPECT_EQ(od::saturate<uint8_t>(std::nan("")), 0);
}

// ---- a call by hand ------------------------------------------------------------------------------------------

// x [4, 10] in chunks, a member (i, j) touches row i and columns 2j-1 to 2j+1; z [4, 5], an element each.
struct ByHand {
  std::vector<od_operand_spec> operands{2};
  std::vector<od_scalar_spec> scalars{2};
  od_kernel_spec spec{};
  od_setup setup{};
  od_call call{};
  std::vector<float> x, z;

  ByHand() {
    operands[0].name = "x";
    operands[1].name = "z";
    operands[1].role = OD_ROLE_OUTPUT;
    scalars[0].name = "a";
    scalars[0].type = OD_SCALAR_F32;
    scalars[1].name = "at_tmp";
    spec.operands = operands.data();
    spec.n_operands = 2;
    spec.scalars = scalars.data();
    spec.n_scalars = 2;
    setup.spec = &spec;
    for (uint32_t d = 0; d < OD_MAX_DIMS; ++d) setup.total[d] = call.count[d] = 1;
    setup.total[0] = 4;
    setup.total[1] = 5;
    setup.first[1] = 0;
    // Members (1..2, 3..4): rows 1 to 2, columns 5 to 9 of x.
    call.origin[0] = call.member[0] = 1;
    call.origin[1] = call.member[1] = 3;
    call.count[0] = call.count[1] = 2;
    setup.operands[0] = operand({{4, 2, 5, 1, 1, 1, 0, 1, 0, 0}, {10, 5, 1, 2, 1, 1, -1, 3, 1, 0}}, -7.5);
    setup.operands[1] = operand({{4, 2, 2, 1, 1, 1, 0, 1, 0, 0}, {5, 2, 1, 1, 1, 1, 0, 1, 1, 0}}, std::nan(""));
    for (int row = 1; row <= 2; ++row) {
      for (int column = 5; column <= 9; ++column) x.push_back(static_cast<float>(10 * row + column));
    }
    z.assign(4, 0);
    call.operand[0] = reinterpret_cast<uint8_t*>(x.data());
    call.operand[1] = reinterpret_cast<uint8_t*>(z.data());
    setup.scalars[0] = od::detail::bits_to<uint32_t>(2.5f);
  }
  static od_operand operand(std::vector<od_axis> axes, double pad) {
    od_operand made{};
    made.present = 1;
    made.n_axes = static_cast<uint32_t>(axes.size());
    made.pad = pad;
    made.fill = std::nan("");
    std::copy(axes.begin(), axes.end(), made.axes);
    return made;
  }
  od::Tile tile() const { return {setup, call}; }
};

std::string refused(const std::function<void()>& body, od_status status) {
  try {
    body();
  } catch (const od::Refusal& refusal) {
    EXPECT_EQ(refusal.status, status) << refusal.what;
    return refusal.what;
  }
  return "nothing refused";
}

TEST(PluginTile, CoordinatesAreGlobal) {
  const ByHand hand;
  const auto x = hand.tile().in<float>("x");
  EXPECT_EQ(x(1, 5), 15);
  EXPECT_EQ(x(2, 9), 29);
  EXPECT_EQ(x(2, 10), -7.5f);   // outside of the tensor: the pad
  EXPECT_EQ(x(-1, 0), -7.5f);
  EXPECT_EQ(x(4, 0), -7.5f);
  EXPECT_EQ(x.size(0), 4);
  EXPECT_EQ(x.first(1), 5);
  EXPECT_EQ(x.last(1), 9);
}

TEST(PluginTile, WhatTheMembersWereNotToTouchIsRefused) {
  const ByHand hand;
  const auto x = hand.tile().in<float>("x");
  EXPECT_EQ(refused([&] { x(1, 4); }, OD_ACCESS), "x: read element [1, 4]; the members of the tile may touch [1 to 2, 5 to 9]");
  const auto z = hand.tile().out<float>("z");
  EXPECT_EQ(refused([&] { z(0, 3) = 1.0f; }, OD_ACCESS), "z: wrote element [0, 3]; the members of the tile may touch [1 to 2, 3 to 4]");
  EXPECT_EQ(refused([&] { x(1); }, OD_RANK), "x: given 1 coordinates; accepted: 2");
  EXPECT_NE(refused([&] { static_cast<void>(hand.tile().in<od::bf16>("x")); }, OD_DTYPE).find("x: asked for"), std::string::npos);
  EXPECT_EQ(refused([&] { static_cast<void>(hand.tile().in<float>("w")); }, OD_PARAMETER_INVALID), "an operand: given w; accepted: x, z");
}

TEST(PluginTile, WritesOutsideOfTheTensorAreDropped) {
  const ByHand hand;
  const auto z = hand.tile().out<float>("z");
  z(1, 5) = 9.0f;
  z(4, 3) = 9.0f;
  z(2, 3) = 4.0f;
  z(2, 3) += 1.0f;
  EXPECT_EQ(hand.z, (std::vector<float>{0, 0, 5, 0}));
}

TEST(PluginTile, MembersComeInOrderAndFindTheirElements) {
  const ByHand hand;
  const od::Tile t = hand.tile();
  const auto x = t.in<float>("x");
  const auto z = t.out<float>("z");
  std::vector<int64_t> seen;
  t.members([&](const od::Member& m) {
    seen.push_back(10 * m[0] + m[1]);
    EXPECT_EQ(x(m), static_cast<float>(10 * m[0] + 2 * m[1] - 1));
    z(m) = x(m) + x(m[0], 2 * m[1] + 1);
  });
  EXPECT_EQ(seen, (std::vector<int64_t>{13, 14, 23, 24}));
  EXPECT_EQ(hand.z, (std::vector<float>{15 + 17, 17 + 19, 25 + 27, 27 + 29}));
  EXPECT_EQ(t.scalar<float>("a"), 2.5f);
  EXPECT_NE(refused([&] { t.scalar<int32_t>("a"); }, OD_SCALAR_ARGUMENT).find("scalar a"), std::string::npos);
}

TEST(PluginTile, RowsAreRaw) {
  const ByHand hand;
  const auto row = hand.tile().in<float>("x").row(2);
  EXPECT_EQ(row.first, 5);
  EXPECT_EQ(row.size, 5);
  EXPECT_EQ(row[7], 27);
  EXPECT_EQ(hand.tile().in<float>("x").row(7).size, 0);
}

TEST(PluginTile, ScratchEndsWhereTheNextBegins) {
  ByHand hand;
  std::array<uint32_t, 16> memory{};
  hand.call.scratch = reinterpret_cast<uint8_t*>(memory.data());
  hand.setup.scratch_bytes = 64;
  hand.setup.scalars[1] = 16;
  const auto tmp = hand.tile().scratch<float>("tmp");
  EXPECT_EQ(tmp.size, 12);
  tmp[0] = 1.5f;
  EXPECT_EQ(memory[4], od::detail::bits_to<uint32_t>(1.5f));
}

struct Touches : od_host {
  mutable std::vector<std::array<int64_t, 5>> seen;  // operand, coordinates, count, write
  Touches() : od_host{nullptr, &touch} {}
  static void touch(const od_host* host, uint32_t operand, const int64_t* at, uint32_t count, uint32_t write) {
    static_cast<const Touches*>(host)->seen.push_back({operand, at[0], at[1], count, write});
  }
};

TEST(PluginTile, TellsWhoListensWhatItTouches) {
  ByHand hand;
  const Touches host;
  hand.call.host = &host;
  static_cast<void>(hand.tile().in<float>("x")(1, 6));
  hand.tile().out<float>("z")(2, 4) = 1.0f;
  static_cast<void>(hand.tile().in<float>("x").row(1));
  EXPECT_EQ(host.seen, (std::vector<std::array<int64_t, 5>>{{0, 1, 6, 1, 0}, {1, 2, 4, 1, 1}, {0, 1, 5, 5, 0}}));
}

// ---- placing ---------------------------------------------------------------------------------------------------

struct Twice {
  using types = od::Types<float, od::bf16>;
  static void declare(od::Declare& d) { d.name("face::twice").out("z").in("x").aux("table").scalar("n", od::u32, 3).bounds(1, 9).device("npu2"); }
  static void place(od::Place& n) {
    n.out("z", n.in("x"));
    n.index_space(n.in("x").shape).elementwise("x z");
    n.aux<float>("table", 5000, [](int64_t i) { return static_cast<float>(i); });
    if (n.integer("odd", 0) != 0) n.fail(OD_LAYER_CONFIGURATION, "odd");
  }
  template <class T>
  void run(const od::Tile& t) const {
    t.map([](float x) { return 2 * x; }, t.out<T>("z"), t.in<T>("x"));
  }
};

struct Other {
  static void declare(od::Declare& d) { d.name("face::other@3").in("x", "i8").pad(1).out("z", "i8"); }
  static void place(od::Place&) {}
  void run(const od::Tile&) const {}
};

const od_library& library() { return *od::detail::library_of<Twice, Other>("face"); }

struct Refuses {
  static void declare(od::Declare& d) { d.name("acme::refuses").in("x", "f23"); }
  static void place(od::Place&) {}
  void run(const od::Tile&) const {}
};

TEST(PluginFace, ADeclarationThatRefusesIsALibraryWithoutPlugIns) {
  const od_library* const library = od::detail::library_of<Refuses>("acme");
  EXPECT_EQ(library->plugins, nullptr);
  EXPECT_NE(std::string(library->name).find("acme: a declare() threw: element types: given f23"), std::string::npos) << library->name;
}

std::string refusal_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const od::Refusal& refusal) {
    return std::to_string(refusal.status) + " " + refusal.what;
  }
  return "";
}

TEST(PluginFace, MessagesAreMadeOfTextsAndWholeNumbers) {
  const std::string rank = std::to_string(OD_RANK) + " ", name = "x";
  EXPECT_EQ(refusal_of([] { od::fail(OD_RANK, "why"); }), rank + "why");
  EXPECT_EQ(refusal_of([&] { od::fail(OD_RANK, "rank of ", name, ": given ", int64_t{-3}, "; accepted: ", 2u); }), rank + "rank of x: given -3; accepted: 2");
  const char* const nothing = nullptr;
  EXPECT_EQ(refusal_of([&] { od::fail(OD_RANK, ~uint64_t{0}, " ", std::numeric_limits<int64_t>::min(), " ", nothing); }), rank + "18446744073709551615 -9223372036854775808 (null)");
  EXPECT_EQ(refusal_of([&] { od::Declare(0).in(nothing); }), std::to_string(OD_NULL_POINTER) + " a name: given a null pointer; accepted: text");
  EXPECT_EQ(od::detail::text_of({}), "[]");
  EXPECT_EQ(od::detail::text_of({2, 1, 30}), "[2 x 1 x 30]");
}

TEST(PluginFace, DeclaresInOrder) {
  const od_declared& d = *library().plugins[0]->declared;
  ASSERT_EQ(d.n_operands, 3u);
  EXPECT_STREQ(d.operands[0].name, "x");
  EXPECT_STREQ(d.operands[1].name, "table");
  EXPECT_STREQ(d.operands[2].name, "z");
  EXPECT_STREQ(d.operands[2].like, "x");
  EXPECT_EQ(d.operands[0].dtypes, 1u << OD_DTYPE_F32 | 1u << OD_DTYPE_BF16);
  EXPECT_EQ(d.scalars[0].standard, 3);
}

TEST(PluginFace, NamesAreCopiedWhereAllFit) {
  const auto ask = [](const char* device, uint32_t capacity) {
    std::vector<std::array<char, OD_NAME_BYTES>> room(3, std::array<char, OD_NAME_BYTES>{'-', 0});
    uint32_t count = capacity;
    EXPECT_EQ(od_list_names(&library(), device, reinterpret_cast<char(*)[OD_NAME_BYTES]>(room.data()), &count), OD_OK);
    return std::to_string(count) + " " + room[0].data() + " " + room[1].data() + " " + room[2].data();
  };
  EXPECT_EQ(ask("npu2", 0), "2 - - -");
  EXPECT_EQ(ask("npu2", 1), "2 - - -");
  EXPECT_EQ(ask("npu2", 2), "2 face::twice face::other@3 -");
  EXPECT_EQ(ask("npu2", 3), "2 face::twice face::other@3 -");
  EXPECT_EQ(ask("npu1", 1), "1 face::other@3 - -");
  uint32_t count = 1;
  EXPECT_EQ(od_list_names(&library(), "npu2", nullptr, &count), OD_NULL_POINTER);
  EXPECT_EQ(od_list_names(&library(), nullptr, nullptr, &count), OD_NULL_POINTER);
}

struct Asked {
  od_node_tensor x{};
  od_node node{};
  od_instance instance{};
  od_error error{};
  std::vector<float> table;

  Asked() : table(5000) {
    x.present = 1;
    x.rank = 2;
    x.shape[0] = 3;
    x.shape[1] = 7;
    node.inputs = &x;
    node.n_inputs = 1;
    instance.n_outputs = instance.n_aux = 1;
    instance.aux[0].data = table.data();
    instance.aux[0].capacity = table.size() * sizeof(float);
  }
  od_status ask() { return library().plugins[0]->instantiate(&node, &instance, &error); }
};

TEST(PluginFace, PlacesANode) {
  Asked asked;
  ASSERT_EQ(asked.ask(), OD_OK) << asked.error.text;
  EXPECT_EQ(asked.instance.rank, 2u);
  EXPECT_EQ(asked.instance.index_space[1], 7);
  EXPECT_EQ(asked.instance.outputs[0].shape[0], 3);
  EXPECT_EQ(asked.instance.access[1][1].dim, 1u);
  EXPECT_EQ(asked.instance.scalars[0], 3);
  EXPECT_EQ(asked.table[4999], 4999);
}

TEST(PluginFace, AsksForLargerBuffers) {
  Asked asked;
  asked.instance.aux[0].capacity = 4096;
  EXPECT_EQ(asked.ask(), OD_AUX_BUFFER_TOO_SMALL);
  EXPECT_EQ(asked.instance.aux[0].bytes, 20000u);
  EXPECT_EQ(asked.table[0], 0);
}

TEST(PluginFace, JudgesNodesByTheDeclaration) {
  const auto said = [](const std::function<void(Asked&)>& change, od_status status) {
    Asked asked;
    change(asked);
    EXPECT_EQ(asked.ask(), status) << asked.error.text;
    return std::string(asked.error.text);
  };
  EXPECT_EQ(said([](Asked& a) { a.node.n_inputs = 0; }, OD_INPUT_COUNT), "input x: given nothing; accepted: a tensor");
  EXPECT_EQ(said([](Asked& a) { a.node.n_inputs = 2; }, OD_INPUT_COUNT), "inputs: given 2; accepted: 1");
  EXPECT_EQ(said([](Asked& a) { a.node.n_outputs = 2; }, OD_OUTPUT_COUNT), "outputs: given 2; accepted: 1");
  EXPECT_EQ(said([](Asked& a) { a.x.dtype = OD_DTYPE_I8; }, OD_DTYPE), "input x: given i8; accepted: f32, bf16");
  EXPECT_EQ(said([](Asked& a) { a.x.rank = 6; }, OD_RANK), "rank of input x: given 6; accepted: 0 to 5");
  const od_attribute odd{"odd", OD_ATTRIBUTE_FLOATS, 1, nullptr, nullptr, nullptr};
  EXPECT_EQ(said([&](Asked& a) { a.node.attributes = &odd, a.node.n_attributes = 1; }, OD_PARAMETER_INVALID), "attribute odd: given numbers; accepted: whole numbers");
  EXPECT_EQ(said([](Asked& a) { a.instance.scalars[0] = 12, a.instance.scalar_mask = 1; }, OD_SCALAR_ARGUMENT).substr(0, 8), "scalar n");
}

}  // namespace
