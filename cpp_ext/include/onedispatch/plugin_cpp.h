// SPDX-License-Identifier: Apache-2.0
// Custom kernels in C++: a class each over the C interface of plugin.h. Header-only, C++17.
//
//   struct ScaleAdd {
//     static void declare(od::Declare& d) { d.name("acme::scale_add").in("x").in("y").out("z").scalar("a", od::f32); }
//     static void place(od::Place& n) {
//       n.out("z", n.in("x"));
//       n.index_space(n.in("x").shape);
//       n.elementwise("x y z");
//     }
//     void run(const od::Tile& t) const {
//       const auto a = t.scalar<float>("a");
//       t.map([a](float x, float y) { return a * x + y; }, t.out<float>("z"), t.in<float>("x"), t.in<float>("y"));
//     }
//   };
//   OD_PLUGIN_LIBRARY("acme", ScaleAdd)
//
// Built by: g++ -O2 -std=c++17 -shared -fPIC -I$(onedispatch kernel include) acme.cpp -o libacme.so
//
// A kernel for several element types names them, `using types = od::Types<float, od::bf16>;`, and has a
// `template <class T> void run(const od::Tile& t) const`. Operands that say nothing of their element types then
// have these, all of them the same one. Whatever is thrown becomes a status and a text at the border.
//
// `run` returns nothing, or an int: 0 and more is well, OD_NOT_SUPPORTED (-1) and OD_PARAMETER_INVALID (-2) say what
// is wrong, OD_RUNTIME_FAILURE (-3) and everything below that the call failed.
#pragma once
#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <type_traits>

#include "onedispatch/plugin_place.h"
#include "onedispatch/plugin_tile.h"

#pragma GCC visibility push(hidden)  // two libraries may have classes of one name, each its own

namespace od {

namespace detail {

template <class... Ts>
constexpr uint32_t mask_of(Types<Ts...>) {
  return ((1u << dtype_of<Ts>()) | ...);
}

template <class Kernel>
const Declare& declared();

// Runs `body`; throws where it answers that something is wrong.
template <class Body>
void answered(Body body) {
  using Answer = decltype(body());
  if constexpr (std::is_void_v<Answer>) {
    body();
  } else {
    static_assert(std::is_same_v<Answer, int>, "run(const od::Tile&) returns nothing, or an int");
    const int answer = body();
    if (answer < 0) fail(static_cast<od_status>(std::max<int>(answer, OD_RUNTIME_FAILURE)), "run: answered ", answer, "; accepted: 0 and more, or nothing, where all is well");
  }
}

template <class Kernel, class = void>
struct Runs {
  static constexpr uint32_t kTypes = 0;
  static void run(const Kernel& kernel, const Tile& tile) {
    answered([&] { return kernel.run(tile); });
  }
};

// Of a kernel for several types: that of its first operand with such a type decides.
template <class Kernel>
struct Runs<Kernel, std::void_t<typename Kernel::types>> {
  static constexpr uint32_t kTypes = mask_of(typename Kernel::types());
  static void run(const Kernel& kernel, const Tile& tile) { run(kernel, tile, typename Kernel::types()); }
  template <class... Ts>
  static void run(const Kernel& kernel, const Tile& tile, Types<Ts...>) {
    tile.dispatch<Ts...>(declared<Kernel>().typed().c_str(), [&](auto type) { answered([&] { return kernel.template run<typename decltype(type)::type>(tile); }); });
  }
};

// The declaration of a kernel, made once.
template <class Kernel>
const Declare& declared() {
  static const std::unique_ptr<const Declare> made = [] {
    auto declare = std::make_unique<Declare>(Runs<Kernel>::kTypes);
    Kernel::declare(*declare);
    declare->finish();
    return declare;
  }();
  return *made;
}

template <class Kernel>
struct Border {
  struct Plan {
    od_setup setup;
    Kernel kernel;
  };
  static od_status instantiate(const od_node* node, od_instance* instance, od_error* error) {
    if (node == nullptr || instance == nullptr) return OD_NULL_POINTER;
    bool too_small = false;
    const od_status status = onedispatch::kernels::border::guarded(error, [&] {
      Place place(declared<Kernel>(), *node, *instance);
      Kernel::place(place);
      too_small = place.aux_too_small();
    });
    if (status != OD_OK || !too_small) return status;
    return onedispatch::kernels::border::say(error, OD_AUX_BUFFER_TOO_SMALL, "auxiliary tensors: see od_aux.bytes");
  }
  static od_status prepare(const od_setup* setup, void** plan, od_error* error) {
    return onedispatch::kernels::border::guarded(error, [&] { *plan = new Plan{*setup, Kernel()}; });
  }
  static od_status run(const void* plan, const od_call* call, od_error* error) {
    const Plan& made = *static_cast<const Plan*>(plan);
    return onedispatch::kernels::border::guarded(error, [&] { Runs<Kernel>::run(made.kernel, Tile(made.setup, *call)); });
  }
  static void release(void* plan) { delete static_cast<Plan*>(plan); }
};

template <class Kernel>
const od_plugin* plugin_of() {
  using B = Border<Kernel>;
  static const od_plugin plugin = {OD_PLUGIN_HEAD, declared<Kernel>().c(), &B::instantiate, &B::prepare, nullptr, &B::run, &B::release};
  return &plugin;
}

template <class... Kernels>
const od_library* library_of(const char* name) noexcept {
  try {
    static const od_plugin* const plugins[] = {plugin_of<Kernels>()...};
    static const od_library library = {OD_LIBRARY_HEAD, name, nullptr, 0, plugins, static_cast<uint32_t>(sizeof...(Kernels))};
    return &library;
  } catch (...) {
    od_error error{};
    onedispatch::kernels::border::thrown(&error);
    static std::string text;
    text = std::string(name) + ": a declare() threw: " + error.text;
    static const od_library broken = {OD_LIBRARY_HEAD, text.c_str(), nullptr, 0, nullptr, 1};
    return &broken;
  }
}

}  // namespace detail

}  // namespace od

#pragma GCC visibility pop

// What comes behind, the kernels themselves, computes as it is written: a*x + y rounds twice, as NumPy does,
// also where the target has fused multiply-adds.
#if defined(__FAST_MATH__)
#error "kernels give the same bits everywhere: compile without -ffast-math"
#endif
#if defined(__clang__)
#pragma clang fp contract(off)
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
// Kernels are seen by more than what is hidden above; g++ would say so of each lambda that holds a tensor or a tile.
#pragma GCC diagnostic ignored "-Wattributes"
#endif

// Defines what a shared object with the given kernels exports; once per library.
#define OD_PLUGIN_LIBRARY(library_name, ...)                                                                                         \
  extern "C" OD_EXPORT const od_library* od_kernel_library(void) { return ::od::detail::library_of<__VA_ARGS__>(library_name); }      \
  extern "C" OD_EXPORT od_status od_kernel_names(const char* device, char (*names)[OD_NAME_BYTES], uint32_t* count) {                \
    return od_list_names(od_kernel_library(), device, names, count);                                                                 \
  }
