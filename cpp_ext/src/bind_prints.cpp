// SPDX-License-Identifier: Apache-2.0
// Kernels in Python print by the formatter that kernels in C++ have.
#include "bind_prints.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <string_view>

#include "onedispatch/kernel_library.h"
#include "onedispatch/plugin_print.h"

namespace py = pybind11;
namespace od = onedispatch;
namespace printing = onedispatch::printing;

namespace {

std::string kernel_name(uint32_t digest) {
  const od::KernelPtr kernel = digest == 0 ? nullptr : od::registry().find(digest);
  return kernel == nullptr ? "" : kernel->spec->name;
}

// Texts that values point to stay in `kept`.
printing::Value value_of(const py::handle& given, std::vector<std::string>& kept) {
  const auto other = [&](std::string what) {
    kept.push_back(std::move(what));
    return printing::Value::other(kept.back());
  };
  if (py::isinstance<py::str>(given)) {
    const py::object bytes = py::reinterpret_steal<py::object>(PyUnicode_AsEncodedString(given.ptr(), "utf-8", "backslashreplace"));
    if (!bytes) throw py::error_already_set();
    kept.push_back(bytes.cast<std::string>());
    return printing::value_of(std::string_view(kept.back()));
  }
  if (py::isinstance<py::float_>(given)) return printing::value_of(given.cast<double>());
  if (py::isinstance<py::int_>(given)) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(given.ptr(), &overflow);
    if (overflow == 0) return printing::value_of(number);
    const unsigned long long large = overflow > 0 ? PyLong_AsUnsignedLongLong(given.ptr()) : 0;
    if (overflow > 0 && PyErr_Occurred() == nullptr) return printing::value_of(large);
    PyErr_Clear();
    return other("an integer of more than 64 bits");
  }
  return other(py::type::of(given).attr("__name__").cast<std::string>());
}

}  // namespace

py::str shown(const std::string& text) {
  return py::reinterpret_steal<py::str>(PyUnicode_DecodeUTF8(text.data(), static_cast<py::ssize_t>(text.size()), "replace"));
}

namespace {

py::tuple row_of(const od::TracedSpan& span) {
  const bool tile = span.place.channel == od::TracedPlace::kTile;
  return py::make_tuple(span.place.column, span.place.row, tile ? "" : span.place.mm2s ? "MM2S" : "S2MM", tile ? 0 : span.place.channel,
                        span.start, span.cycles, span.bytes, span.detail, span.packets);
}

py::dict spans_of(const od::RunReport& report) {
  py::dict all;
  for (size_t kind = 0; kind < od::kTracedKinds; ++kind) {
    py::list kept;
    for (const od::TracedSpan& span : report.spans[kind].kept) kept.append(row_of(span));
    all[od::kTracedNames[kind]] = py::make_tuple(report.spans[kind].count, report.spans[kind].cycles, kept);
  }
  return all;
}

}  // namespace

py::dict trace_of(const od::RunReport& report) {
  py::list calls, kernels;
  for (const auto& c : report.calls)
    calls.append(py::make_tuple(c.column, c.row, shown(kernel_name(c.kernel)), c.start, c.cycles, c.nanoseconds));
  for (const auto& [digest, k] : report.kernels)
    kernels.append(py::make_tuple(shown(kernel_name(digest)), k.calls, k.cycles, k.span, k.nanoseconds));
  py::dict all;
  all["calls"] = calls;
  all["kernels"] = kernels;
  all["spans"] = spans_of(report);
  return all;
}

py::tuple row_of(const od::PrintRing& ring) {
  py::list lines;
  for (const auto& line : ring.lines) {
    const auto end = std::find(line.member.begin(), line.member.end(), OD_NO_MEMBER);
    lines.append(py::make_tuple(py::tuple(py::cast(std::vector<uint32_t>(line.member.begin(), end))), shown(line.text)));
  }
  return py::make_tuple(shown(kernel_name(ring.kernel)), ring.lost, lines);
}

py::list prints_of(const std::vector<od::PrintReport>& prints) {
  py::list all;
  for (const auto& one : prints) all.append(py::make_tuple(one.column, one.row, one.since, row_of(one.ring)));
  return all;
}

std::string printed(const std::string& format, const py::sequence& values) {
  std::vector<std::string> kept;
  kept.reserve(py::len(values));  // values point into it
  std::vector<printing::Value> all;
  for (const py::handle& value : values) all.push_back(value_of(value, kept));
  return printing::format_values(format.c_str(), all.data(), all.size());
}

void bind_prints(py::module_& m) {
  m.def(
      "format_print",
      [](const std::string& format, const py::sequence& values) { return shown(printed(format, values)); },
      py::arg("format"), py::arg("values"));
}
