// SPDX-License-Identifier: Apache-2.0
// What the body of a kernel in C++ sees: a tile, which is a box of members of the index space, and its tensors.
//
//   auto x = t.in<float>("x");
//   auto z = t.out<float>("z");
//   t.members([&](const od::Member& m) { z(m) = x(m[0], m[1] - 1) + x(m[0], m[1] + 1); });
//
// Coordinates are global, those of the whole tensor. Reading outside of it gives the pad value (0 where none is
// declared), writing outside of it is dropped. What lies inside of the tensor but outside of what the members
// of the tile were declared to touch is refused: OD_ACCESS, with tensor, coordinate and declared range.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "onedispatch/kernel_cpp.h"
#include "onedispatch/plugin.h"
#include "onedispatch/plugin_place.h"
#include "onedispatch/plugin_print.h"
#include "onedispatch/plugin_types.h"

#pragma GCC visibility push(hidden)  // two libraries may have classes of one name, each its own

namespace od {

// One member of the index space; m[d] is its global coordinate along index dimension d.
struct Member {
  std::array<int64_t, OD_MAX_DIMS> at{};
  int64_t operator[](size_t d) const { return at[d]; }
};

using Coordinate = std::array<int64_t, OD_MAX_AXES>;

namespace detail {

// Where the chunk of a call lies in its tensor, and what the members of the call may touch of it.
struct Reach {
  struct Axis {
    int64_t extent = 1;                 // of the tensor
    int64_t first = 0, stride = 0;      // of the chunk: its first coordinate; elements between coordinates
    int64_t low = 0, high = 0;          // that the members may touch, both included
    int64_t a = 0, den = 1, b = 0;      // member i begins at floor(a*(i - start)/den) + b
    uint32_t along = OD_ALONG_NOTHING;
    int64_t start = 0;
  };
  const char* name = "";
  uint32_t index = 0, rank = 0;
  bool there = false;
  std::array<Axis, OD_MAX_AXES> axes{};
  const od_host* listener = nullptr;

  Reach(const od_setup& setup, const od_call& call, uint32_t operand) : name(setup.spec->operands[operand].name), index(operand) {
    const od_operand& from = setup.operands[operand];
    there = from.present != 0;
    rank = there ? from.n_axes : 0;
    listener = call.host != nullptr && call.host->touched != nullptr ? call.host : nullptr;
    for (uint32_t i = 0; i < rank; ++i) axes[i] = axis_of(call, from.axes[i]);
  }

  // Whether the coordinate is one of the tensor; throws where it is and the members were not to touch it.
  bool holds(const Coordinate& at, bool write) const {
    for (uint32_t i = 0; i < rank; ++i) {
      if (at[i] < 0 || at[i] >= axes[i].extent) return false;
    }
    for (uint32_t i = 0; i < rank; ++i) {
      if (at[i] < axes[i].low || at[i] > axes[i].high) outside(at, write);
    }
    return true;
  }
  int64_t element(const Coordinate& at) const {
    int64_t offset = 0;
    for (uint32_t i = 0; i < rank; ++i) offset += (at[i] - axes[i].first) * axes[i].stride;
    return offset;
  }
  // Where a member's interval begins; 0 of dimensions that it may touch all of.
  Coordinate begins(const Member& m) const {
    Coordinate at{};
    for (uint32_t i = 0; i < rank; ++i) {
      const Axis& axis = axes[i];
      if (axis.along != OD_ALONG_NOTHING) at[i] = od_floor_div(axis.a * (m.at[axis.along] - axis.start), axis.den) + axis.b;
    }
    return at;
  }
  void report_access(const Coordinate& at, int64_t count, bool write) const {
    if (listener != nullptr && count > 0) listener->touched(listener, index, at.data(), static_cast<uint32_t>(count), write ? 1 : 0);
  }
  void need(uint32_t coordinates) const {
    if (!there) fail(OD_INPUT_COUNT, name, ": it is absent in this node; accepted: ask t.has() first");
    if (coordinates != rank) fail(OD_RANK, name, ": given ", coordinates, " coordinates; accepted: ", rank);
  }

 private:
  static Axis axis_of(const od_call& call, const od_axis& from) {
    Axis axis;
    axis.extent = from.extent - from.padding;
    axis.stride = from.stride;
    axis.along = from.along;
    axis.high = axis.extent - 1;
    if (from.along == OD_ALONG_NOTHING) return axis;
    axis.a = from.a;
    axis.den = from.den;
    axis.b = from.b;
    axis.start = static_cast<int64_t>(call.member[from.along]) - call.origin[from.along];
    axis.low = od_member_first(&from, &call, 0);
    axis.high = od_member_first(&from, &call, static_cast<int64_t>(call.count[from.along]) - 1) + from.span - 1;
    axis.first = od_chunk_first(&from, &call);
    return axis;
  }
  [[noreturn]] void outside(const Coordinate& at, bool write) const {
    report_access(at, 1, write);
    std::string given, declared;
    for (uint32_t i = 0; i < rank; ++i) {
      append_listed(given, at[i]);
      append_listed(declared, std::max<int64_t>(axes[i].low, 0), " to ", std::min(axes[i].high, axes[i].extent - 1));
    }
    fail(OD_ACCESS, name, ": ", write ? "wrote" : "read", " element [", given, "]; the members of the tile may touch [", declared, "]");
  }
};

template <class... Is>
Coordinate coordinate(Is... is) {
  static_assert(sizeof...(Is) <= OD_MAX_AXES, "a coordinate per dimension of the tensor");
  return Coordinate{static_cast<int64_t>(is)...};
}

// An element that may be written, or one outside of the tensor, where writes are dropped.
template <class T>
struct Slot {
  T* place;
  template <class U>
  const Slot& operator=(const U& value) const {
    if (place != nullptr) *place = static_cast<T>(value);
    return *this;
  }
  const Slot& operator=(const Slot& other) const { return *this = static_cast<T>(other); }
  Slot(T* at) : place(at) {}  // NOLINT(google-explicit-constructor)
  Slot(const Slot&) = default;
  operator T() const { return place != nullptr ? *place : T{}; }  // NOLINT(google-explicit-constructor)
  template <class U>
  const Slot& operator+=(const U& value) const {
    return *this = static_cast<T>(*this) + value;
  }
};

}  // namespace detail

// Elements that lie one after the other in a core's memory, by the coordinate of the tensor's last dimension:
// from `first` on, `size` of them. Nothing is checked.
template <class T>
struct Row {
  T* data = nullptr;
  int64_t first = 0, size = 0, stride = 1;
  T& operator[](int64_t at) const { return data[(at - first) * stride]; }
  int64_t last() const { return first + size - 1; }
};

template <class T>
struct Span {
  T* data = nullptr;
  int64_t size = 0;
  T& operator[](int64_t i) const { return data[i]; }
  T* begin() const { return data; }
  T* end() const { return data + size; }
};

template <class T>
struct Run {
  T* data = nullptr;
  int64_t stride = 0;
};

// A tensor of which the call has a chunk.
template <class T>
class View {
 public:
  View(const od_setup& setup, const od_call& call, uint32_t operand)
      : reach_(setup, call, operand), data_(reinterpret_cast<T*>(call.operand[operand])) {}

  uint32_t rank() const { return reach_.rank; }
  int64_t size(uint32_t dimension) const { return dimension < reach_.rank ? reach_.axes[dimension].extent : 1; }
  // What the members of the tile may touch of a dimension, inside of the tensor: first and last coordinate.
  int64_t first(uint32_t dimension) const { return std::max<int64_t>(reach_.axes[dimension].low, 0); }
  int64_t last(uint32_t dimension) const { return std::min(reach_.axes[dimension].high, size(dimension) - 1); }
  // Where a member begins along every dimension.
  Coordinate begin(const Member& m) const { return reach_.begins(m); }

  // The raw row at the leading coordinates: what the members of the tile may touch of the last dimension. Empty
  // outside of the tensor.
  template <class... Is>
  Row<T> row(Is... leading) const {
    reach_.need(sizeof...(Is) + 1);
    return row_at(detail::coordinate(leading...));
  }
  // All of the chunk's elements, as they lie.
  T* data() const { return data_; }
  // The elements of `count` members from `m` on along index dimension d, evenly apart; null where they are not, where
  // one is outside of the tensor, and where a listener records accesses.
  Run<T> along(const Member& m, uint32_t d, int64_t count) const {
    const Coordinate at = reach_.begins(m);
    int64_t stride = 0;
    bool even = reach_.there && reach_.listener == nullptr;
    for (uint32_t i = 0; i < reach_.rank; ++i) {
      const auto& axis = reach_.axes[i];
      const int64_t step = axis.along == d ? axis.a : 0, last = at[i] + step * (count - 1);
      even = even && (step == 0 || axis.den == 1) && std::min(at[i], last) >= 0 && std::max(at[i], last) < axis.extent;
      stride += step * axis.stride;
    }
    if (!even || !reach_.holds(at, !std::is_const_v<T>)) return {};
    return {data_ + reach_.element(at), stride};
  }

 protected:
  Row<T> row_at(Coordinate at) const {
    const uint32_t d = reach_.rank - 1;
    at[d] = first(d);
    const int64_t count = last(d) - at[d] + 1;
    if (count <= 0 || !reach_.holds(at, !std::is_const_v<T>)) return {};
    reach_.report_access(at, count, !std::is_const_v<T>);
    return {data_ + reach_.element(at), at[d], count, reach_.axes[d].stride};
  }

  detail::Reach reach_;
  T* data_;
};

template <class T>
class In : public View<const T> {
 public:
  In(const od_setup& setup, const od_call& call, uint32_t operand) : View<const T>(setup, call, operand) {
    const double pad = setup.operands[operand].pad;
    pad_ = detail::element<T>(std::isnan(pad) ? 0.0 : pad);
  }
  // By global coordinate, one number per dimension of the tensor.
  template <class... Is>
  T operator()(Is... at) const {
    this->reach_.need(sizeof...(Is));
    return (*this)(detail::coordinate(at...));
  }
  T operator()(const Coordinate& at) const {
    if (!this->reach_.holds(at, false)) return pad_;
    this->reach_.report_access(at, 1, false);
    return this->data_[this->reach_.element(at)];
  }
  // Where the member's interval begins: its element, where it has one.
  T operator()(const Member& m) const { return (*this)(this->reach_.begins(m)); }
  T pad() const { return pad_; }

 private:
  T pad_;
};

template <class T>
class Out : public View<T> {
 public:
  using View<T>::View;
  template <class... Is>
  detail::Slot<T> operator()(Is... at) const {
    this->reach_.need(sizeof...(Is));
    return (*this)(detail::coordinate(at...));
  }
  detail::Slot<T> operator()(const Coordinate& at) const {
    if (!this->reach_.holds(at, true)) return nullptr;
    this->reach_.report_access(at, 1, true);
    return this->data_ + this->reach_.element(at);
  }
  detail::Slot<T> operator()(const Member& m) const { return (*this)(this->reach_.begins(m)); }
};

// One call: `count` members along every index dimension from `first` on, and their tensors.
class Tile {
 public:
  Tile(const od_setup& setup, const od_call& call) : setup_(setup), call_(call) {
    while (rank_ > 1 && setup.total[rank_ - 1] == 1 && setup.whole[rank_ - 1] == 0) --rank_;
    now(Member{{first(0), first(1), first(2), first(3), first(4)}});
  }

  int64_t first(uint32_t d) const { return call_.member[d]; }   // member, along index dimension d
  int64_t count(uint32_t d) const { return call_.count[d]; }    // of members in this call
  int64_t total(uint32_t d) const { return setup_.total[d]; }  // of members in the index space

  bool has(const char* name) const { return setup_.operands[operand(name)].present != 0; }
  uint32_t dtype(const char* name) const { return setup_.operands[operand(name)].dtype; }  // OD_DTYPE_...

  template <class T>
  In<T> in(const char* name) const {
    return {setup_, call_, typed(name, dtype_of<T>(), false)};
  }
  template <class T>
  Out<T> out(const char* name) const {
    return {setup_, call_, typed(name, dtype_of<T>(), true)};
  }
  // An auxiliary tensor: all of it.
  template <class T>
  In<T> aux(const char* name) const {
    return in<T>(name);
  }

  // Parameters of a layer that are lists, or text: an auxiliary tensor has their length first (`layer build`).
  template <class T>
  std::vector<T> list(const char* name) const {
    const In<T> held = aux<T>(name);
    const int64_t count = std::clamp<int64_t>(static_cast<int64_t>(held(0)), 0, held.size(0) - 1);
    std::vector<T> members(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) members[static_cast<size_t>(i)] = held(i + 1);
    return members;
  }
  std::string text(const char* name) const {
    const In<uint8_t> held = aux<uint8_t>(name);
    uint32_t said = 0;
    for (uint32_t i = 0; i < 4; ++i) said |= static_cast<uint32_t>(held(i)) << (8 * i);
    const int64_t count = std::clamp<int64_t>(said, 0, held.size(0) - 4);
    std::string letters(static_cast<size_t>(count), '\0');
    for (int64_t i = 0; i < count; ++i) letters[static_cast<size_t>(i)] = static_cast<char>(held(i + 4));
    return letters;
  }

  // float, int32_t or uint32_t, as it was declared.
  template <class T>
  T scalar(const char* name) const {
    const uint32_t i = scalar_index(name);
    constexpr uint32_t type = std::is_same_v<T, float> ? OD_SCALAR_F32 : std::is_same_v<T, int32_t> ? OD_SCALAR_I32 : OD_SCALAR_U32;
    static_assert(std::is_same_v<T, float> || std::is_same_v<T, int32_t> || std::is_same_v<T, uint32_t>, "float, int32_t or uint32_t");
    if (setup_.spec->scalars[i].type != type) fail(OD_SCALAR_ARGUMENT, "scalar ", name, ": asked for as another type than it was declared with");
    return detail::bits_to<T>(setup_.scalars[i]);
  }

  // Core memory of this call alone; its contents are undefined.
  template <class T>
  Span<T> scratch(const char* name) const {
    const uint32_t none = setup_.spec->n_scalars;
    uint32_t found = none, end = setup_.scratch_bytes;
    std::string known;
    for (uint32_t i = 0; i < none; ++i) {
      const char* const at = setup_.spec->scalars[i].name;
      if (std::strncmp(at, "at_", 3) != 0) continue;
      if (std::strcmp(at + 3, name) == 0) found = i;
      detail::append_listed(known, at + 3);
    }
    if (found == none) fail(OD_PARAMETER_INVALID, "scratch: given ", name, "; accepted: ", known.empty() ? "none" : known);
    const uint32_t at = setup_.scalars[found];
    for (uint32_t i = 0; i < none; ++i) {
      if (std::strncmp(setup_.spec->scalars[i].name, "at_", 3) == 0 && setup_.scalars[i] > at) end = std::min(end, setup_.scalars[i]);
    }
    return {reinterpret_cast<T*>(call_.scratch + at), static_cast<int64_t>((end - at) / sizeof(T))};
  }

  // Calls body(member) for every member of the tile, the last index dimension innermost.
  template <class Body>
  void members(Body body) const {
    lines(OD_MAX_DIMS, [&](const Member& m) {
      now(m);
      body(m);
    });
  }

  // z(m) = f(x(m), y(m), ...) for every member of the tile.
  template <class F, class T, class... Ts>
  void map(F f, const Out<T>& z, const In<Ts>&... xs) const {
    uint32_t inner = OD_MAX_DIMS - 1;
    while (inner > 0 && count(inner) == 1) --inner;
    lines(inner, [&](Member m) {
      const int64_t n = count(inner);
      const Run<T> to = z.along(m, inner, n);
      if (to.data == nullptr || !mapped(f, n, to, xs.along(m, inner, n)...)) {
        for (int64_t i = 0; i < n; ++i, ++m.at[inner]) z(m) = f(xs(m)...);
      }
    });
  }

  // Calls f(od::Type<T>()) for the one of the types that the operand has.
  template <class... Ts, class F>
  void dispatch(const char* name, F f) const {
    const uint32_t found = dtype(name);
    const bool done = ((dtype_of<Ts>() == found && (f(Type<Ts>()), true)) || ...);
    if (!done) fail(OD_DTYPE, name, ": ", detail::dtype_name(found), ", which t.dispatch() does not name");
  }

  // A line labelled with core and member (in members(), the one at hand): see plugin_print.h for the formats.
  template <class... Ts>
  void print(const char* format, const Ts&... values) const {
    onedispatch::printing::print(call_, *setup_.spec, now_.data(), format, values...);
  }

  const od_setup& setup() const { return setup_; }
  const od_call& call() const { return call_; }

 private:
  uint32_t operand(const char* name) const {
    std::string known;
    for (uint32_t i = 0; i < setup_.spec->n_operands; ++i) {
      if (std::strcmp(setup_.spec->operands[i].name, name) == 0) return i;
      detail::append_listed(known, setup_.spec->operands[i].name);
    }
    fail(OD_PARAMETER_INVALID, "an operand: given ", name, "; accepted: ", known);
  }
  uint32_t typed(const char* name, uint32_t dtype, bool output) const {
    const uint32_t i = operand(name);
    const od_operand& found = setup_.operands[i];
    if (found.present != 0 && found.dtype != dtype) {
      fail(OD_DTYPE, name, ": asked for as ", detail::dtype_name(dtype), ", it has ", detail::dtype_name(found.dtype));
    }
    if ((setup_.spec->operands[i].role == OD_ROLE_OUTPUT) != output) fail(OD_PARAMETER_INVALID, name, output ? ": no output" : ": an output");
    return i;
  }
  uint32_t scalar_index(const char* name) const {
    std::string known;
    for (uint32_t i = 0; i < setup_.spec->n_scalars; ++i) {
      if (std::strcmp(setup_.spec->scalars[i].name, name) == 0) return i;
      if (setup_.spec->scalars[i].hidden == 0) detail::append_listed(known, setup_.spec->scalars[i].name);
    }
    fail(OD_SCALAR_ARGUMENT, "a scalar: given ", name, "; accepted: ", known.empty() ? "none" : known);
  }
  void now(const Member& m) const {
    for (uint32_t d = 0; d < OD_MAX_DIMS; ++d) now_[d] = d < rank_ ? static_cast<uint32_t>(m.at[d]) : OD_NO_MEMBER;
  }
  // The members of the tile, with index dimension `without` at its first one.
  template <class Body>
  void lines(uint32_t without, Body body) const {
    Member m;
    for (uint32_t d = 0; d < OD_MAX_DIMS; ++d) m.at[d] = first(d);
    for (bool more = true; more;) {
      body(static_cast<const Member&>(m));
      more = false;
      for (uint32_t d = OD_MAX_DIMS; d-- > 0 && !more;) {
        if (d == without) continue;
        more = ++m.at[d] < first(d) + count(d);
        if (!more) m.at[d] = first(d);
      }
    }
  }
  template <class F, class T, class... Ts>
  static bool mapped(F& f, int64_t n, Run<T> to, Run<Ts>... from) {
    if (((from.data == nullptr) || ...)) return false;
    for (int64_t i = 0; i < n; ++i) to.data[i * to.stride] = static_cast<T>(f(from.data[i * from.stride]...));
    return true;
  }

  const od_setup& setup_;
  const od_call& call_;
  uint32_t rank_ = OD_MAX_DIMS;  // of the index space, as far as its dimensions have several members
  mutable std::array<uint32_t, OD_MAX_DIMS> now_{};  // the member that a line is printed for
};

}  // namespace od

#pragma GCC visibility pop
