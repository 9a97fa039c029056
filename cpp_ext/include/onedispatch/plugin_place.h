// SPDX-License-Identifier: Apache-2.0
// What a kernel in C++ declares, and how it places a node: outputs, index space, access, tables, scratch.
#pragma once
#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "onedispatch/kernel_cpp.h"
#include "onedispatch/plugin.h"
#include "onedispatch/plugin_print.h"
#include "onedispatch/plugin_types.h"

#pragma GCC visibility push(hidden)  // two libraries may have classes of one name, each its own

namespace od {

using Refusal = onedispatch::kernels::Refusal;
using Shape = std::vector<int64_t>;

namespace detail {

// Here and not where a message is made: each would be as much code as the kernel that it is about.
[[gnu::cold, gnu::noinline]] inline void append_values(std::string& text, std::initializer_list<onedispatch::printing::Value> values) {
  using onedispatch::printing::Value;
  for (const Value& value : values) text += value.kind == Value::Kind::kText ? std::string(value.text) : onedispatch::printing::detail::shown(value);
}
[[noreturn, gnu::cold, gnu::noinline]] inline void refuse(od_status status, std::initializer_list<onedispatch::printing::Value> values) {
  Refusal refusal{status, {}};
  append_values(refusal.what, values);
  throw refusal;
}

template <class... Values>
void append(std::string& text, const Values&... values) {
  append_values(text, {onedispatch::printing::value_of(values)...});
}
// One more of several, which commas part.
template <class... Values>
void append_listed(std::string& list, const Values&... values) {
  append(list, list.empty() ? "" : ", ", values...);
}

}  // namespace detail

// Refuses; the message is made of texts and numbers, one after the other.
template <class... Values>
[[noreturn]] void fail(od_status status, Values... values) {
  detail::refuse(status, {onedispatch::printing::value_of(values)...});
}

// The name of an operand, a scalar or an attribute, or several with spaces between.
struct Name : std::string_view {
  Name(const char* given) : std::string_view(given == nullptr ? std::string_view() : given) {  // NOLINT(google-explicit-constructor)
    if (given == nullptr) fail(OD_NULL_POINTER, "a name: given a null pointer; accepted: text");
  }
  Name(const std::string& given) : std::string_view(given) {}  // NOLINT(google-explicit-constructor)
  Name(std::string_view given) : std::string_view(given) {}    // NOLINT(google-explicit-constructor)
};

// Types of scalars.
enum class ScalarType : uint32_t { u32 = OD_SCALAR_U32, i32 = OD_SCALAR_I32, f32 = OD_SCALAR_F32 };
inline constexpr ScalarType u32 = ScalarType::u32, i32 = ScalarType::i32, f32 = ScalarType::f32;

namespace detail {

inline constexpr const char* kDtypeNames[] = {"f32", "bf16", "f16", "i8", "u8", "i16", "u16", "i32", "u32", "bool"};
static_assert(sizeof kDtypeNames / sizeof *kDtypeNames == OD_DTYPES, "a name for every element type");
inline constexpr uint32_t kDtypeBytes[] = {4, 2, 2, 1, 1, 2, 2, 4, 4, 1};
inline constexpr const char* kWorkNames[] = {"op", "mul", "div", "exp", "log", "tanh", "erf", "sqrt", "move", "compare", "sum", "sin", "tan", "atan"};
static_assert(sizeof kWorkNames / sizeof *kWorkNames == OD_WORK_TERMS, "a name for every term of work");

inline const char* dtype_name(uint32_t dtype) { return dtype < OD_DTYPES ? kDtypeNames[dtype] : "unknown"; }

inline std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> found;
  for (size_t at = 0; (at = text.find_first_not_of(" ,|", at)) != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(" ,|", at), text.size());
    found.push_back(text.substr(at, end - at));
    at = end;
  }
  return found;
}

template <size_t N>
uint32_t code(const char* const (&names)[N], std::string_view name, const char* what) {
  std::string known;
  for (uint32_t i = 0; i < N; ++i) {
    if (name == names[i]) return i;
    append_listed(known, names[i]);
  }
  fail(OD_DECLARATION_INVALID, what, ": given ", name, "; accepted: ", known);
}

inline uint32_t dtype_mask(std::string_view dtypes) {
  uint32_t mask = 0;
  for (const std::string_view name : words(dtypes)) mask |= 1u << code(kDtypeNames, name, "element types");
  return mask;
}

inline std::string text_of(const Shape& shape) {
  std::string text;
  for (const int64_t size : shape) append(text, text.empty() ? "[" : " x ", size);
  return text.empty() ? "[]" : text + "]";
}

}  // namespace detail

// ---- Declarations ----------------------------------------------------------------------------------------

// d.name("acme::scale_add").in("x", "f32 bf16").pad(0).in("y").like("x").out("z").like("x").scalar("a", od::f32, 1.0)
// Words behind in(), out() and aux() are about that operand, bounds() about the scalar before it.
class Declare {
 public:
  explicit Declare(uint32_t types) : types_(types) {}  // a bit per OD_DTYPE_...; 0: f32
  Declare(const Declare&) = delete;
  Declare& operator=(const Declare&) = delete;

  Declare& name(Name full) { return c_.name = keep(full), *this; }
  Declare& summary(Name text) { return c_.summary = keep(text), *this; }
  // `dtypes`: one or more, with spaces between; none: those of the kernel's `types`, or f32.
  Declare& in(Name name, Name dtypes = "") { return operand(name, OD_ROLE_INPUT, dtypes); }
  Declare& out(Name name, Name dtypes = "") { return operand(name, OD_ROLE_OUTPUT, dtypes); }
  // A constant tensor of the kernel's own; place() gives its values.
  Declare& aux(Name name, Name dtype = "f32") { return operand(name, OD_ROLE_AUX, dtype); }
  // Memory of the core; place() says how much.
  Declare& scratch(Name name) {
    operand(name, OD_ROLE_AUX, "u8");
    last().scratch = 1;
    return *this;
  }
  Declare& rank(uint32_t least, uint32_t most) { return last().min_rank = least, last().max_rank = most, *this; }
  Declare& rank(uint32_t only) { return rank(only, only); }
  Declare& pad(double value) { return last().has_value = 1, last().value = value, *this; }
  Declare& fill(double value) { return pad(value); }
  Declare& optional() { return last().optional = 1, *this; }
  Declare& like(Name name) { return last().like = keep(name), *this; }
  Declare& quantised(bool must = true) { return last().quantised = must ? OD_QUANTISED_ALWAYS : OD_QUANTISED_NEVER, *this; }

  Declare& scalar(Name name, ScalarType type) {
    scalars_.push_back({keep(name), static_cast<uint32_t>(type), 0, 0, 0, 0, 0});
    return *this;
  }
  Declare& scalar(Name name, ScalarType type, double standard) {
    scalar(name, type);
    scalars_.back().has_default = 1;
    scalars_.back().standard = standard;
    return *this;
  }
  Declare& bounds(double low, double high) {
    if (scalars_.empty()) fail(OD_DECLARATION_INVALID, "bounds() before any scalar()");
    scalars_.back().has_bounds = 1;
    scalars_.back().low = low;
    scalars_.back().high = high;
    return *this;
  }

  Declare& device(Name name) { return devices_.push_back(keep(name)), *this; }
  Declare& code_bytes(uint32_t bytes) { return c_.code_bytes = bytes, *this; }
  // Element operations that a member takes: op, mul, div, exp, log, tanh, erf, sqrt, move, compare, sum, sin (cos too), tan, atan.
  Declare& work(Name term, double times) {
    c_.has_work = 1;
    c_.work[detail::code(detail::kWorkNames, term, "work")] += times;
    return *this;
  }
  Declare& varies() { return c_.varies = 1, *this; }
  // run() prints: OD_PRINT_ONE: at most one value in a line.
  Declare& prints(uint32_t how = OD_PRINT_YES) { return c_.prints = how, *this; }

  // ---- for the border
  void finish() {
    std::vector<od_declared_operand> sorted;
    for (uint32_t group = 0; sorted.size() < operands_.size(); ++group) {
      for (const od_declared_operand& x : operands_) {
        if (2 * x.role + x.scratch == group) sorted.push_back(x);
      }
    }
    operands_.swap(sorted);
    for (od_declared_operand& x : operands_) {
      if (x.dtypes != 0) continue;
      x.dtypes = types_ == 0 ? 1u << OD_DTYPE_F32 : types_;
      if (typed_.empty()) typed_ = x.name;
      else if (x.like == nullptr) x.like = keep(typed_);
    }
    c_.operands = operands_.data();
    c_.n_operands = static_cast<uint32_t>(operands_.size());
    c_.scalars = scalars_.data();
    c_.n_scalars = static_cast<uint32_t>(scalars_.size());
    c_.devices = devices_.data();
    c_.n_devices = static_cast<uint32_t>(devices_.size());
  }
  const od_declared* c() const { return &c_; }
  const std::vector<od_declared_operand>& operands() const { return operands_; }
  const std::vector<od_declared_scalar>& scalars() const { return scalars_; }
  const std::string& typed() const { return typed_; }  // the operand whose element type decides

 private:
  const char* keep(Name text) { return texts_.emplace_back(text).c_str(); }
  Declare& operand(Name name, uint32_t role, Name dtypes) {
    od_declared_operand x{};
    x.name = keep(name);
    x.role = role;
    x.dtypes = detail::dtype_mask(dtypes);
    x.max_rank = OD_MAX_RANK;
    operands_.push_back(x);
    return *this;
  }
  od_declared_operand& last() {
    if (operands_.empty()) fail(OD_DECLARATION_INVALID, "a property before any in(), out() or aux()");
    return operands_.back();
  }

  uint32_t types_;
  std::string typed_;
  od_declared c_{};
  std::deque<std::string> texts_;
  std::vector<od_declared_operand> operands_;
  std::vector<od_declared_scalar> scalars_;
  std::vector<const char*> devices_;
};

// ---- Placing a node ----------------------------------------------------------------------------------------

using Interval = od_interval;

// Member i of index dimension d touches [floor(a*i/den) + start, floor(a*i/den) + end].
inline Interval dim(uint32_t d, int64_t a = 1, int64_t start = 0, int64_t end = 0, int64_t den = 1) { return {d, a, den, start, end}; }
// `size` elements of its own for each member.
inline Interval block(uint32_t d, int64_t size) { return {d, size, 1, 0, size - 1}; }
// Any member may touch anything.
inline Interval whole() { return {OD_WHOLE, 1, 1, 0, 0}; }

struct Tensor {
  bool present = false;
  uint32_t dtype = 0;  // OD_DTYPE_...
  Shape shape;
  bool quantised = false;
  double scale = 1;
  int64_t zero_point = 0;
  const void* value = nullptr;  // elements of a constant input
  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  int64_t size() const {
    int64_t product = 1;
    for (const int64_t n : shape) product *= n;
    return product;
  }
};

class Place {
 public:
  // Judges the node by the declaration, also for those who call the library without a host.
  Place(const Declare& declare, const od_node& node, od_instance& instance) : declare_(declare), node_(node), instance_(instance) {
    for (const od_declared_operand& x : declare.operands()) {
      if (x.role != OD_ROLE_AUX) tensors_.push_back(&x);
      else aux_.push_back(&x);
    }
    check_counts();
    for (size_t i = 0; i < tensors_.size(); ++i) found_.push_back(tensors_[i]->role == OD_ROLE_INPUT ? input(i) : Tensor{});
    for (size_t i = 0; i < declare.scalars().size(); ++i) check_scalar(static_cast<uint32_t>(i));
  }

  std::string name() const { return node_.name == nullptr ? "" : node_.name; }
  std::string device() const { return node_.device == nullptr ? "" : node_.device; }
  uint32_t max_cores() const { return node_.max_cores; }
  template <class... Values>
  [[noreturn]] void fail(od_status status, Values... values) const {
    od::fail(status, values...);
  }

  const Tensor& in(Name name) const { return found_[index(name)]; }
  const Tensor& out(Name name) const { return found_[index(name)]; }

  // An output of that shape and element type.
  Place& out(Name name, const Tensor& like) { return out(name, like.shape, like.dtype); }
  Place& out(Name name, const Shape& shape, const Tensor& like) { return out(name, shape, like.dtype); }
  Place& out(Name name, const Shape& shape, uint32_t dtype) {
    const size_t i = index(name), first = tensors_.size() - n_outputs();
    if (i < first) fail(OD_PARAMETER_INVALID, "out(\"", name, "\"): an input; accepted: outputs");
    most(shape, OD_MAX_RANK, "dimensions of ", name);
    od_result& result = instance_.outputs[i - first];
    result.dtype = dtype;
    result.rank = static_cast<uint32_t>(shape.size());
    std::copy(shape.begin(), shape.end(), result.shape);
    found_[i] = Tensor{true, dtype, shape, false, 1, 0, nullptr};
    return *this;
  }

  Place& index_space(const Shape& sizes) {
    most(sizes, OD_MAX_DIMS, "dimensions of the index space");
    instance_.rank = static_cast<uint32_t>(sizes.size());
    std::copy(sizes.begin(), sizes.end(), instance_.index_space);
    return *this;
  }

  // Member i touches element i of these operands; dimensions are matched from the last one on, as NumPy broadcasts.
  Place& elementwise(Name names) {
    for (const std::string_view name : detail::words(names)) {
      const size_t i = index(name);
      const Shape& shape = found_[i].shape;
      const size_t rank = instance_.rank;
      for (size_t t = 0; t < shape.size() && found_[i].present; ++t) {
        const bool inside = rank + t >= shape.size();
        const size_t d = inside ? rank + t - shape.size() : 0;
        const int64_t members = inside ? instance_.index_space[d] : 1;
        if (shape[t] != 1 && shape[t] != members) {
          fail(OD_BROADCAST, "shape of ", name, ": given ", detail::text_of(shape), "; accepted: sizes of the index space ", space(), ", or 1");
        }
        instance_.access[i][t] = inside && shape[t] == members ? dim(static_cast<uint32_t>(d)) : whole();
      }
    }
    return *this;
  }
  // What members touch: an interval per dimension of the tensor.
  template <class... Intervals>
  Place& access(Name name, const Intervals&... intervals) {
    return access(name, std::vector<Interval>{intervals...});
  }
  Place& access(Name name, const std::vector<Interval>& intervals) {
    const size_t i = index(name);
    if (found_[i].present && intervals.size() != found_[i].shape.size()) {
      fail(OD_RANK, "access of ", name, ": given ", intervals.size(), " intervals; accepted: ", found_[i].shape.size(), ", one per dimension");
    }
    if (intervals.size() > OD_MAX_RANK) {  // of an operand that is absent
      fail(OD_RANK, "access of ", name, ": given ", intervals.size(), " intervals; accepted: at most ", OD_MAX_RANK);
    }
    std::copy(intervals.begin(), intervals.end(), instance_.access[i]);
    return *this;
  }

  // The values of an auxiliary tensor.
  template <class T>
  Place& aux(Name name, const std::vector<T>& values, const Shape& shape = {}) {
    od_aux& to = aux_of(name, false, 1u << dtype_of<T>());
    const Shape given = shape.empty() ? Shape{static_cast<int64_t>(values.size())} : shape;
    most(given, OD_MAX_RANK, "dimensions of ", name);
    to.rank = static_cast<uint32_t>(given.size());
    std::copy(given.begin(), given.end(), to.shape);
    to.bytes = values.size() * sizeof(T);
    if (to.bytes > to.capacity) return too_small_ = true, *this;
    auto* place = static_cast<T*>(to.data);
    for (size_t i = 0; i < values.size(); ++i) place[i] = values[i];
    return *this;
  }
  // The same, with value(i) for each of `count` elements.
  template <class T, class Value, class = std::enable_if_t<std::is_invocable_v<Value, int64_t>>>
  Place& aux(Name name, int64_t count, Value value) {
    if (count < 0) fail(OD_PARAMETER_INVALID, "elements of auxiliary tensor ", name, ": given ", count, "; accepted: 0 or more");
    std::vector<T> values(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = value(i);
    return aux<T>(name, values);
  }
  // Elements of scratch that a call has.
  template <class T>
  Place& scratch(Name name, int64_t count) {
    aux_of(name, true, ~0u).bytes = static_cast<uint64_t>(std::max<int64_t>(count, 0)) * sizeof(T);
    return *this;
  }
  uint32_t scratch_mask() const { return instance_.scratch_mask; }

  double scalar(Name name) const { return instance_.scalars[scalar_index(name)]; }
  Place& scalar(Name name, double value) {
    const uint32_t i = scalar_index(name);
    instance_.scalars[i] = value;
    instance_.scalar_mask |= 1u << i;
    return *this;
  }

  // Attributes of the node.
  Shape ints(Name name, const Shape& otherwise = {}) const {
    const od_attribute* found = attribute(name, OD_ATTRIBUTE_INTS);
    return found == nullptr ? otherwise : Shape(found->ints, found->ints + found->count);
  }
  int64_t integer(Name name, int64_t otherwise) const {
    const od_attribute* found = attribute(name, OD_ATTRIBUTE_INTS);
    return found == nullptr || found->count == 0 ? otherwise : found->ints[0];
  }
  double real(Name name, double otherwise) const {
    const od_attribute* found = attribute(name, OD_ATTRIBUTE_FLOATS);
    return found == nullptr || found->count == 0 ? otherwise : found->floats[0];
  }
  std::string text(Name name, Name otherwise = "") const {
    const od_attribute* found = attribute(name, OD_ATTRIBUTE_TEXT);
    return std::string(found == nullptr ? otherwise : std::string_view(found->text, found->count));
  }

  // What is read outside of an input; what elements of an output hold that no member writes.
  Place& pad(Name name, double value) {
    const size_t i = index(name);
    instance_.values[i] = value;
    instance_.value_mask |= 1u << i;
    return *this;
  }
  Place& fill(Name name, double value) { return pad(name, value); }
  // Element operations that a member takes; replaces those of the declaration.
  Place& work(Name term, double times) {
    instance_.has_work = 1;
    instance_.work[detail::code(detail::kWorkNames, term, "work")] += times;
    return *this;
  }
  Place& preferred_split(uint32_t d) { return instance_.preferred_split = d, *this; }
  Place& in_place(Name input) { return instance_.in_place |= 1u << index(input), *this; }

  bool aux_too_small() const { return too_small_; }

 private:
  size_t n_outputs() const {
    return static_cast<size_t>(std::count_if(tensors_.begin(), tensors_.end(), [](const auto* x) { return x->role == OD_ROLE_OUTPUT; }));
  }
  std::string space() const { return detail::text_of(Shape(instance_.index_space, instance_.index_space + instance_.rank)); }
  void most(const Shape& given, size_t accepted, std::string_view what, Name name = "") const {
    if (given.size() > accepted) fail(OD_RANK, what, name, ": given ", given.size(), "; accepted: at most ", accepted);
  }
  template <class List>
  size_t named(const List& list, Name name, const char* what) const {
    std::string known;
    for (size_t i = 0; i < list.size(); ++i) {
      if (name == list[i]->name) return i;
      detail::append_listed(known, list[i]->name);
    }
    fail(OD_PARAMETER_INVALID, what, ": given ", name, "; accepted: ", known.empty() ? "none" : known);
  }
  size_t index(Name name) const { return named(tensors_, name, "an operand"); }
  uint32_t scalar_index(Name name) const {
    std::vector<const od_declared_scalar*> all;
    for (const od_declared_scalar& s : declare_.scalars()) all.push_back(&s);
    return static_cast<uint32_t>(named(all, name, "a scalar"));
  }
  od_aux& aux_of(Name name, bool scratch, uint32_t dtypes) {
    const size_t i = named(aux_, name, "an auxiliary tensor");
    if ((aux_[i]->scratch != 0) != scratch) fail(OD_PARAMETER_INVALID, name, scratch ? ": declared with values, not as scratch" : ": declared as scratch, which has no values");
    if ((aux_[i]->dtypes & dtypes) == 0) fail(OD_DTYPE, "auxiliary tensor ", name, ": values of another element type than it was declared with");
    return instance_.aux[i];
  }
  const od_attribute* attribute(Name name, uint32_t type) const {
    static const char* const kinds[] = {"whole numbers", "numbers", "text"};
    for (uint32_t i = 0; i < node_.n_attributes; ++i) {
      const od_attribute& found = node_.attributes[i];
      if (name != found.name) continue;
      if (found.type != type) fail(OD_PARAMETER_INVALID, "attribute ", name, ": given ", kinds[std::min(found.type, 2u)], "; accepted: ", kinds[type]);
      return &found;
    }
    return nullptr;
  }

  void check_counts() const {
    const size_t outputs = n_outputs(), inputs = tensors_.size() - outputs;
    if (node_.n_inputs > inputs) fail(OD_INPUT_COUNT, "inputs: given ", node_.n_inputs, "; accepted: ", inputs);
    if (node_.n_outputs > outputs) fail(OD_OUTPUT_COUNT, "outputs: given ", node_.n_outputs, "; accepted: ", outputs);
    if (instance_.n_outputs != outputs || instance_.n_aux != aux_.size()) {
      fail(OD_SIZE_MISMATCH, "instance for ", instance_.n_outputs, " outputs and ", instance_.n_aux, " auxiliary tensors; declared: ", outputs, " and ", aux_.size());
    }
  }
  Tensor input(size_t i) const {
    const od_declared_operand& x = *tensors_[i];
    const std::string name = std::string("input ") + x.name;
    const od_node_tensor* given = i < node_.n_inputs && node_.inputs[i].present != 0 ? node_.inputs + i : nullptr;
    if (given == nullptr) {
      if (x.optional == 0) fail(OD_INPUT_COUNT, name, ": given nothing; accepted: a tensor");
      return {};
    }
    if (given->dtype >= OD_DTYPES || (x.dtypes >> given->dtype & 1) == 0) fail(OD_DTYPE, name, ": given ", detail::dtype_name(given->dtype), "; accepted: ", accepted_dtypes(x));
    const uint32_t most = x.max_rank == 0 && x.min_rank == 0 ? OD_MAX_RANK : x.max_rank;
    if (given->rank < x.min_rank || given->rank > most) {
      fail(OD_RANK, "rank of ", name, ": given ", given->rank, "; accepted: ", x.min_rank, " to ", most);
    }
    if (x.quantised != OD_QUANTISED_ANY && (x.quantised == OD_QUANTISED_ALWAYS) != (given->quantised != 0)) {
      fail(OD_QUANTISATION, name, ": given ", given->quantised != 0 ? "scale and zero point" : "none", "; accepted: ", given->quantised != 0 ? "none" : "scale and zero point");
    }
    for (size_t j = 0; x.like != nullptr && j < i; ++j) {
      if (std::strcmp(tensors_[j]->name, x.like) == 0 && found_[j].present && found_[j].dtype != given->dtype) {
        fail(OD_DTYPE, name, ": given ", detail::dtype_name(given->dtype), "; accepted: ", detail::dtype_name(found_[j].dtype), ", that of ", x.like);
      }
    }
    return {true, given->dtype, Shape(given->shape, given->shape + given->rank), given->quantised != 0, given->scale, given->zero_point, given->value};
  }
  std::string accepted_dtypes(const od_declared_operand& x) const {
    std::string names;
    for (uint32_t d = 0; d < OD_DTYPES; ++d) {
      if (x.dtypes >> d & 1) detail::append_listed(names, detail::kDtypeNames[d]);
    }
    return names;
  }
  void check_scalar(uint32_t i) {
    const od_declared_scalar& s = declare_.scalars()[i];
    if ((instance_.scalar_mask >> i & 1) == 0 && s.has_default != 0) scalar(s.name, s.standard);
    const double value = instance_.scalars[i];
    if ((instance_.scalar_mask >> i & 1) != 0 && s.has_bounds != 0 && !(value >= s.low && value <= s.high)) {
      fail(OD_SCALAR_ARGUMENT, "scalar ", s.name, ": given ", std::to_string(value), "; accepted: ", std::to_string(s.low), " to ", std::to_string(s.high));
    }
  }

  const Declare& declare_;
  const od_node& node_;
  od_instance& instance_;
  std::vector<const od_declared_operand*> tensors_, aux_;
  std::vector<Tensor> found_;
  bool too_small_ = false;
};

}  // namespace od

#pragma GCC visibility pop
