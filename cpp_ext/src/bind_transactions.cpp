// SPDX-License-Identifier: Apache-2.0
// The Python module _native of transactions: src/txn over bytes. Knows Python, not the simulator.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <optional>

#include "txn/decode.h"
#include "txn/validate.h"

namespace py = pybind11;
namespace txn = onedispatch::txn;

namespace {

struct ByteView {
  const uint8_t* data;
  uint64_t size;
};

// bytes cannot change, so that the GIL may be released while they are read.
ByteView view(const py::bytes& data) {
  return {reinterpret_cast<const uint8_t*>(PyBytes_AS_STRING(data.ptr())),
          static_cast<uint64_t>(PyBytes_GET_SIZE(data.ptr()))};
}

py::tuple decode(const py::bytes& data) {
  const ByteView file = view(data);
  const uint64_t room = txn::op_limit(file.data, file.size);
  py::array_t<int64_t> offsets(static_cast<py::ssize_t>(room + 1));
  int64_t* const starts = offsets.mutable_data();
  txn::Frame frame;
  {
    py::gil_scoped_release release;
    frame = txn::decode(file.data, file.size, starts, room);
    // Without a fault there are exactly `room` ops.
    starts[room] = static_cast<int64_t>(frame.at);
  }
  return py::make_tuple(static_cast<int>(frame.fault), frame.ops, frame.at, frame.op_size, offsets);
}

// `shape`: generation, rows, columns and BDs of a memory tile of the array.
py::list validate(const py::bytes& data, const std::optional<txn::ArgumentSizes>& sizes,
                  const std::optional<std::array<uint64_t, 4>>& shape) {
  const ByteView file = view(data);
  std::vector<txn::Finding> found;
  txn::ArrayShape array{};
  if (shape) array = {(*shape)[0], (*shape)[1], (*shape)[2], (*shape)[3]};
  {
    py::gil_scoped_release release;
    found = txn::validate(file.data, file.size, sizes ? &*sizes : nullptr, shape ? &array : nullptr);
  }
  py::list all;
  for (const txn::Finding& one : found) {
    const uint64_t* n = one.numbers;
    all.append(py::make_tuple(txn::name_of(one.check), one.op, one.byte_offset, one.untold, n[0], n[1], n[2],
                              n[3]));
  }
  return all;
}

py::tuple patches(const py::bytes& data) {
  const ByteView file = view(data);
  std::vector<txn::Patch> all;
  {
    py::gil_scoped_release release;
    all = txn::patches(file.data, file.size);
  }
  const auto count = static_cast<py::ssize_t>(all.size());
  py::array_t<int64_t> ops(count), bds(count), extents(count);
  for (py::ssize_t i = 0; i < count; ++i) {
    const txn::Patch& patch = all[static_cast<size_t>(i)];
    ops.mutable_at(i) = static_cast<int64_t>(patch.op);
    bds.mutable_at(i) = patch.bd;
    extents.mutable_at(i) = static_cast<int64_t>(patch.extent);
  }
  return py::make_tuple(ops, bds, extents);
}

py::tuple check_names() {
  py::tuple names(txn::kChecks);
  for (int i = 0; i < txn::kChecks; ++i) names[i] = txn::name_of(static_cast<txn::Check>(i));
  return names;
}

}  // namespace

PYBIND11_MODULE(_native, m) {
  m.doc() = "Decoding and validation of transactions; see _native.pyi.";
  m.def("decode", &decode, py::arg("data"));
  m.def("validate", &validate, py::arg("data"), py::arg("sizes") = py::none(),
        py::arg("shape") = py::none());
  m.def("patches", &patches, py::arg("data"));
  m.attr("CHECKS") = check_names();
  m.attr("MOST_FINDINGS") = txn::kMostFindings;
}
