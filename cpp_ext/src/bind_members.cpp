// SPDX-License-Identifier: Apache-2.0
// _core.run_members: boxes of members on memory of their own, for check mode.
#include "bind_gil.h"
#include "bind_members.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <tuple>

#include "onedispatch/txn_format.h"
#include "program/signal_guard.h"
#include "program/member_run.h"

namespace py = pybind11;
namespace od = onedispatch;

namespace {

using Numbers = std::array<uint32_t, OD_MAX_DIMS>;
using AxisRow = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, uint32_t, int, uint32_t>;
using Bytes = py::array_t<uint8_t, py::array::c_style>;

od::MemberMemory memory_of(const py::handle& row) {
  auto array = py::cast<Bytes>(row["memory"]);
  const auto at = row["at"].cast<size_t>();
  const auto size = static_cast<size_t>(array.size());
  if (at > size) throw py::value_error("a chunk that begins behind the end of its memory");
  return {array.mutable_data(), size, at};
}

void read_operand(const py::handle& row, od::MemberRun& run, od_operand& operand) {
  std::array<int64_t, OD_MAX_DIMS> low{}, high{};
  if (row.is_none()) {
    run.memory.emplace_back();
  } else {
    run.memory.push_back(memory_of(row));
    operand.present = 1;
    operand.dtype = row["dtype"].cast<uint32_t>();
    operand.bytes = static_cast<uint32_t>(run.memory.back().bytes - run.memory.back().at);
    operand.pad = row["pad"].cast<double>();
    operand.fill = row["fill"].cast<double>();
    const auto axes = row["axes"].cast<std::vector<AxisRow>>();
    const auto lows = row["low"].cast<std::vector<int64_t>>(), highs = row["high"].cast<std::vector<int64_t>>();
    if (axes.size() > OD_MAX_DIMS || lows.size() != axes.size() || highs.size() != axes.size()) throw py::value_error("an operand with axes that do not fit");
    operand.n_axes = static_cast<uint32_t>(axes.size());
    for (size_t i = 0; i < axes.size(); ++i) {
      const auto& [extent, chunk, stride, a, den, align, b, span, along, padding] = axes[i];
      operand.axes[i] = {extent, chunk, stride, a, den, align, b, span, static_cast<uint16_t>(along < 0 ? OD_ALONG_NOTHING : along), static_cast<uint16_t>(padding)};
    }
    std::copy(lows.begin(), lows.end(), low.begin());
    std::copy(highs.begin(), highs.end(), high.begin());
  }
  run.low.push_back(low);
  run.high.push_back(high);
}

py::object access_of(const od::MemberTouched& one, size_t rank) {
  if (!one.any) return py::none();
  const auto numbers = [&](const auto& from) { return std::vector<int64_t>(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(rank)); };
  py::dict seen;
  seen["low"] = numbers(one.low);
  seen["high"] = numbers(one.high);
  seen["outside"] = one.outside ? py::cast(numbers(one.where)) : py::none();
  seen["written"] = one.outside_written;
  return std::move(seen);
}

py::dict run_members(uint32_t digest, const py::dict& setup, const py::list& operands, bool guarded, bool at_end, double seconds) {
  const od::KernelPtr kernel = od::registry().find(digest);
  if (kernel == nullptr) throw py::value_error("no kernel has the digest " + od::digest_text(digest));
  if (operands.size() != kernel->spec->n_operands) throw py::value_error("as many operands as the kernel has");
  od::MemberRun run;
  const auto first = setup["first"].cast<Numbers>(), count = setup["count"].cast<Numbers>(), total = setup["total"].cast<Numbers>();
  for (uint32_t d = 0; d < OD_MAX_DIMS; ++d) {
    run.setup.dims[d] = {count[d], count[d]};
    run.setup.roles[d] = d;
    run.setup.first[d] = run.call.member[d] = first[d];
    run.setup.total[d] = total[d];
    run.call.count[d] = count[d];
  }
  run.setup.k_tile = run.setup.inner_steps = run.call.k_last = 1;
  const auto scalars = setup["scalars"].cast<std::vector<uint32_t>>();
  if (scalars.size() > OD_MAX_SCALARS) throw py::value_error("too many scalars");
  std::copy(scalars.begin(), scalars.end(), run.setup.scalars);
  for (size_t i = 0; i < operands.size(); ++i) read_operand(operands[i], run, run.setup.operands[i]);
  const py::object scratch = setup["scratch"];
  run.memory.push_back(scratch.is_none() ? od::MemberMemory{} : memory_of(scratch));
  run.setup.scratch_bytes = static_cast<uint32_t>(run.memory.back().bytes - run.memory.back().at);
  {
    const Released release;
    const od::BodyLimit limit(static_cast<uint32_t>(1000 * seconds));
    od::run_members(kernel, run, guarded, at_end);
  }
  py::list touched;
  for (size_t i = 0; i < operands.size(); ++i) touched.append(access_of(run.touched[i], run.setup.operands[i].n_axes));
  py::dict result;
  result["touched"] = touched;
  result["left"] = run.left;
  result["fault"] = run.fault.there ? py::object(py::make_tuple(run.fault.operand, run.fault.byte, run.fault.wrote)) : py::object(py::none());
  return result;
}

}  // namespace

void bind_members(py::module_& m) {
  m.def("run_members", &run_members, py::arg("kernel"), py::arg("setup"), py::arg("operands"), py::arg("guarded"), py::arg("at_end"),
        py::arg("seconds") = od::host::KERNEL_MILLISECONDS / 1000.0);
}
