// SPDX-License-Identifier: Apache-2.0
#include "bind_gil.h"
#include "bind_plugins.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "onedispatch/kernel_tables.h"
#include "program/plugin_library.h"
#include "program/signal_guard.h"

namespace py = pybind11;
namespace od = onedispatch;

namespace {

constexpr double kSeconds = od::kDefaultLimit / 1000.0;  // that a call of a library may take

// Without the GIL: a library's functions take their time, at most `seconds` each, and a first look at one forks.
template <class Call>
decltype(auto) outside(double seconds, Call call) {
  const Released release;
  const od::BodyLimit limit(static_cast<uint32_t>(1000 * seconds));
  return call();
}

// Texts of libraries may be no UTF-8.
py::str shown(const char* text) {
  return py::reinterpret_steal<py::str>(PyUnicode_DecodeUTF8(text, static_cast<py::ssize_t>(std::char_traits<char>::length(text)), "replace"));
}

py::object number_where(uint32_t there, double value) { return there != 0 ? py::object(py::float_(value)) : py::object(py::none()); }

py::dict work_of(const double (&work)[OD_WORK_TERMS]) {
  py::dict terms;
  const std::string ending = "_cycles";  // of the device constants that price them
  for (uint32_t i = 0; i < OD_WORK_TERMS; ++i) {
    const std::string name = od_work[i];
    if (work[i] != 0) terms[py::str(name.substr(0, name.size() - ending.size()))] = work[i];
  }
  return terms;
}

py::dict to_dict(const od_declared_operand& x) {
  py::dict one;
  py::list dtypes;
  for (uint32_t d = 0; d < OD_DTYPES; ++d) {
    if (x.dtypes >> d & 1) dtypes.append(od_dtypes[d].name);
  }
  one["name"] = shown(x.name);
  one["role"] = x.role == OD_ROLE_INPUT ? "input" : x.role == OD_ROLE_OUTPUT ? "output" : x.scratch != 0 ? "scratch" : "aux";
  one["dtypes"] = dtypes;
  one["rank"] = py::make_tuple(x.min_rank, x.max_rank);
  one["optional"] = x.optional != 0;
  one["quantised"] = x.quantised == OD_QUANTISED_ANY ? py::object(py::none()) : py::object(py::bool_(x.quantised == OD_QUANTISED_ALWAYS));
  one["like"] = x.like == nullptr ? py::str("") : shown(x.like);
  one["value"] = number_where(x.has_value, x.value);
  return one;
}

py::dict to_dict(const od_declared_scalar& s) {
  py::dict one;
  one["name"] = shown(s.name);
  one["type"] = s.type == OD_SCALAR_F32 ? "f32" : s.type == OD_SCALAR_I32 ? "i32" : "u32";
  one["low"] = number_where(s.has_bounds, s.low);
  one["high"] = number_where(s.has_bounds, s.high);
  one["default"] = number_where(s.has_default, s.standard);
  return one;
}

py::dict to_dict(const od_declared& d) {
  py::dict all;
  py::list operands, scalars, devices;
  for (uint32_t i = 0; i < d.n_operands; ++i) operands.append(to_dict(d.operands[i]));
  for (uint32_t i = 0; i < d.n_scalars; ++i) scalars.append(to_dict(d.scalars[i]));
  for (uint32_t i = 0; i < d.n_devices; ++i) devices.append(shown(d.devices[i]));
  all["name"] = shown(d.name);
  all["summary"] = d.summary == nullptr ? py::str("") : shown(d.summary);
  all["operands"] = operands;
  all["scalars"] = scalars;
  all["devices"] = devices;
  all["code_bytes"] = d.code_bytes;
  all["work"] = d.has_work != 0 ? py::object(work_of(d.work)) : py::object(py::none());
  all["deterministic"] = d.varies == 0;
  all["prints"] = d.prints;
  return all;
}

using Given = std::tuple<uint32_t, std::vector<int64_t>, std::optional<std::tuple<uint32_t, double, int64_t>>, std::optional<py::bytes>>;

// (dtype, shape, (kind, scale, zero point) or None, value's bytes or None); None: absent or not known.
od::NodeData::Tensor tensor_of(const std::optional<Given>& given) {
  od::NodeData::Tensor one;
  if (!given.has_value()) return one;
  const auto& [dtype, shape, quantisation, value] = *given;
  if (shape.size() > OD_MAX_RANK) throw py::value_error("a tensor of rank " + std::to_string(shape.size()));
  one.tensor.present = one.tensor.known = 1;
  one.tensor.dtype = dtype;
  one.tensor.rank = static_cast<uint32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), one.tensor.shape);
  if (quantisation.has_value()) std::tie(one.tensor.quantised, one.tensor.scale, one.tensor.zero_point) = *quantisation;
  if (value.has_value()) {
    one.value = std::string(*value);
    one.tensor.value_bytes = one.value.size();
  }
  return one;
}

using AttributeValue = std::variant<std::vector<int64_t>, std::vector<double>, std::string>;

od::NodeData node_of(const py::dict& given) {
  od::NodeData node;
  node.name = given["name"].cast<std::string>();
  node.kernel = given["kernel"].cast<std::string>();
  node.device = given["device"].cast<std::string>();
  node.max_cores = given["max_cores"].cast<uint32_t>();
  for (const auto& one : given["inputs"].cast<std::vector<std::optional<Given>>>()) node.inputs.push_back(tensor_of(one));
  for (const auto& one : given["outputs"].cast<std::vector<std::optional<Given>>>()) node.outputs.push_back(tensor_of(one));
  node.scalars = given["scalars"].cast<std::vector<std::optional<double>>>();
  for (const auto& [name, value] : given["attributes"].cast<std::vector<std::pair<std::string, AttributeValue>>>()) {
    od::NodeData::Attribute one;
    one.name = name;
    one.type = static_cast<uint32_t>(value.index());
    if (value.index() == OD_ATTRIBUTE_INTS) one.ints = std::get<std::vector<int64_t>>(value);
    if (value.index() == OD_ATTRIBUTE_FLOATS) one.floats = std::get<std::vector<double>>(value);
    if (value.index() == OD_ATTRIBUTE_TEXT) one.text = std::get<std::string>(value);
    node.attributes.push_back(std::move(one));
  }
  return node;
}

py::tuple sizes(const int64_t* first, uint32_t count) { return py::cast(std::vector<int64_t>(first, first + count)).cast<py::tuple>(); }

py::dict to_dict(const od::Instance& made) {
  const od_instance& from = made.filled;
  py::dict all;
  py::list outputs, access, values, scalars, aux;
  for (uint32_t i = 0; i < from.n_outputs; ++i) outputs.append(py::make_tuple(from.outputs[i].dtype, sizes(from.outputs[i].shape, from.outputs[i].rank)));
  for (uint32_t i = 0; i < OD_MAX_OPERANDS; ++i) {
    py::list intervals;
    for (const od_interval& x : from.access[i]) intervals.append(py::make_tuple(x.dim, x.a, x.den, x.start, x.end));
    access.append(intervals);
    values.append(number_where(from.value_mask >> i & 1, from.values[i]));
  }
  for (uint32_t i = 0; i < 32; ++i) scalars.append(number_where(from.scalar_mask >> i & 1, from.scalars[i]));
  for (uint32_t i = 0; i < from.n_aux; ++i) {
    const bool scratch = (from.scratch_mask >> i & 1) != 0;
    aux.append(py::make_tuple(sizes(from.aux[i].shape, from.aux[i].rank), from.aux[i].bytes, scratch ? py::object(py::none()) : py::object(py::bytes(made.aux[i]))));
  }
  all["index_space"] = sizes(from.index_space, from.rank);
  all["outputs"] = outputs;
  all["access"] = access;
  all["values"] = values;
  all["scalars"] = scalars;
  all["aux"] = aux;
  all["work"] = from.has_work != 0 ? py::object(work_of(from.work)) : py::object(py::none());
  all["preferred_split"] = from.preferred_split == OD_NO_DIM ? py::object(py::none()) : py::object(py::int_(from.preferred_split));
  all["in_place"] = from.in_place;
  return all;
}

}  // namespace

void bind_plugins(py::module_& m) {
  m.def(
      "load_plugins",
      [](const std::string& path, double seconds) {
        const od_library& library = outside(seconds, [&]() -> const od_library& { return od::open_plugins(path); });
        py::list plugins;
        for (uint32_t i = 0; i < library.n_plugins; ++i) plugins.append(to_dict(*library.plugins[i]->declared));
        return plugins;
      },
      py::arg("path"), py::arg("seconds") = kSeconds);
  m.def(
      "plugin_names",
      [](const std::string& path, const std::string& device, double seconds) { return outside(seconds, [&] { return od::plugin_names(path, device); }); },
      py::arg("path"), py::arg("device"), py::arg("seconds") = kSeconds);
  m.def(
      "instantiate",
      [](const std::string& path, uint32_t number, const py::dict& node, double seconds) {
        const od::NodeData data = node_of(node);
        return to_dict(outside(seconds, [&] { return od::instantiate(path, number, data); }));
      },
      py::arg("path"), py::arg("number"), py::arg("node"), py::arg("seconds") = kSeconds);
}
