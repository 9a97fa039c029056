// SPDX-License-Identifier: Apache-2.0
#include "bind_reports.h"

#include <pybind11/stl.h>

#include "bind_prints.h"

namespace py = pybind11;
namespace od = onedispatch;
using namespace py::literals;

py::dict place(const od::OpRef& op) {
  py::dict more;
  if (op.index >= 0) {
    more["op_index"] = op.index;
    more["byte_offset"] = op.byte_offset;
  }
  return more;
}

namespace {

template <typename Items, typename Convert>
py::list list_of(const Items& items, Convert convert) {
  py::list all;
  for (const auto& item : items) all.append(convert(item));
  return all;
}

py::dict profile_of(const od::ProfileReport& profile) {
  py::dict all;
  all["parts"] = list_of(od::kPartNames, [](const char* name) { return py::str(name); });
  all["windows"] = list_of(profile.windows, [](const od::ProfileWindow& w) {
    return py::dict("timer"_a = w.timer == od::ProfileWindow::kEnd ? -1 : static_cast<int64_t>(w.timer),
                    "cycles"_a = w.cycles, "parts"_a = w.parts, "busy"_a = w.busy, "read"_a = w.read,
                    "written"_a = w.written, "bursts"_a = w.bursts);
  });
  all["bin_cycles"] = profile.bin_cycles;
  all["bins"] = list_of(profile.bins, [](const auto& column) {
    return py::dict("busy"_a = column[0], "read"_a = column[1], "written"_a = column[2]);
  });
  return all;
}

}  // namespace

py::dict to_dict(const od::RunReport& report) {
  py::dict all;
  all["cycles"] = report.cycles;
  all["seconds"] = report.seconds;
  all["operations"] = report.operations;
  all["events"] = report.events;
  all["kernel_calls"] = report.kernel_calls;
  all["calls_made"] = report.calls_made;
  all["kept_bytes"] = report.kept_bytes;
  all["timers"] = report.timers;
  all["ddr_bytes_read"] = report.ddr_read;
  all["ddr_bytes_written"] = report.ddr_written;
  all["ddr_burst_bytes"] = report.ddr_burst_bytes;
  all["recorded"] = report.recorded;
  all["registers"] = report.registers;
  all["channels"] = list_of(report.channels, [](const auto& c) {
    py::dict one("column"_a = c.column, "row"_a = c.row, "direction"_a = c.mm2s ? "MM2S" : "S2MM",
                 "channel"_a = c.channel, "bytes"_a = c.bytes, "busy"_a = c.busy, "stall"_a = c.stall, "lock"_a = c.lock);
    if (c.open) one["open"] = true;
    return one;
  });
  all["cores"] = list_of(report.cores, [](const auto& c) {
    return py::dict("column"_a = c.column, "row"_a = c.row, "busy"_a = c.busy, "calls"_a = c.calls, "lock"_a = c.lock);
  });
  if (report.profiled) all["profile"] = profile_of(report.profile);
  if (report.traced) all["trace"] = trace_of(report);
  return all;
}

py::dict to_dict(const od::ReplayReport& report) {
  py::dict all = to_dict(report.run);
  for (const char* name : {"registers", "kernel_calls", "calls_made", "kept_bytes", "cores", "recorded"}) all.attr("pop")(name);
  for (const char* name : {"ddr_bytes_read", "ddr_bytes_written"}) all.attr("pop")(name);
  all["finished"] = report.finished;
  all["executed"] = report.executed;
  all["settled_cycles"] = report.settled_cycles;
  all["packets"] = report.packets;
  all["handshakes"] = report.handshakes;
  all["assumed_tokens"] = report.assumed_tokens;
  all["packet_tokens"] = report.packet_tokens;
  all["skipped"] = report.skipped;
  all["stop"] = py::none();
  if (!report.stop_kind.empty()) {
    py::dict stop = place(report.stop_op);
    stop["kind"] = report.stop_kind;
    stop["text"] = shown(report.stop);
    all["stop"] = stop;
  }
  all["arguments"] = list_of(report.arguments, [](const auto& a) {
    return py::dict("argument"_a = a.argument, "first"_a = a.first, "end"_a = a.end, "read"_a = a.read,
                    "written"_a = a.written);
  });
  all["assumed"] = list_of(report.assumed, [](const auto& a) {
    return py::dict("column"_a = a.column, "row"_a = a.row, "lock"_a = a.lock, "times"_a = a.times, "set"_a = a.set);
  });
  all["absent_bds"] = list_of(report.absent_bds, [](const auto& a) {
    return py::dict("column"_a = a.column, "row"_a = a.row, "bd"_a = a.bd, "times"_a = a.times);
  });
  all["unfinished"] = list_of(report.unfinished, [](const auto& u) {
    return py::dict("column"_a = u.column, "row"_a = u.row, "direction"_a = u.mm2s ? "MM2S" : "S2MM",
                    "channel"_a = u.channel, "words_left"_a = u.words_left, "moving"_a = u.moving, "why"_a = shown(u.why));
  });
  return all;
}
