// SPDX-License-Identifier: Apache-2.0
// The Python module _core: pyxrt's names over onedispatch::xrt. No other file of the simulator knows Python.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <tuple>
#include <variant>

#include "bind_constructed.h"
#include "bind_gil.h"
#include "bind_pages.h"
#include "bind_plugins.h"
#include "onedispatch/interrupt.h"
#include "onedispatch/kernel_library.h"
#include "onedispatch/text.h"
#include "onedispatch/xrt.h"
#include "bind_kernels.h"
#include "bind_members.h"
#include "bind_prints.h"
#include "bind_reports.h"
#include "kernels/simd/simd.h"
#include "program/charge.h"
#include "program/signal_guard.h"
#include "program/image.h"

namespace py = pybind11;
namespace od = onedispatch;
namespace xrt = onedispatch::xrt;

namespace {

struct KernelName {
  std::string name;
};

}  // namespace

namespace pybind11::detail {

template <> struct type_caster<xrt::uuid> : constructed_caster<xrt::uuid> {};
template <> struct type_caster<xrt::xclbin> : constructed_caster<xrt::xclbin> {};
template <> struct type_caster<xrt::device> : constructed_caster<xrt::device> {};
template <> struct type_caster<xrt::bo> : constructed_caster<xrt::bo> {};
template <> struct type_caster<xrt::hw_context> : constructed_caster<xrt::hw_context> {};
template <> struct type_caster<xrt::kernel> : constructed_caster<xrt::kernel> {};
template <> struct type_caster<xrt::run> : constructed_caster<xrt::run> {};
template <> struct type_caster<xrt::runlist> : constructed_caster<xrt::runlist> {};
template <> struct type_caster<KernelName> : constructed_caster<KernelName> {};
template <> struct type_caster<xrt::sync_direction> : constructed_caster<xrt::sync_direction> {};
template <> struct type_caster<xrt::bo::flags> : constructed_caster<xrt::bo::flags> {};
template <> struct type_caster<xrt::ert_cmd_state> : constructed_caster<xrt::ert_cmd_state> {};

}  // namespace pybind11::detail

namespace {

using namespace py::literals;

[[noreturn]] void raise_value_error(const std::string& text) {
  PyErr_SetObject(PyExc_ValueError, shown(text).ptr());
  throw py::error_already_set();
}

// Raises `cls` with the parts of `c` and further fields.
void raise(const py::object& cls, const od::Complaint& c, const py::dict& more = py::dict()) {
  const py::object error = cls(shown(c.where), shown(c.given), shown(c.accepted), shown(c.remedy), **more);
  PyErr_SetObject(cls.ptr(), error.ptr());
}

// A class of transactions/base/errors.py; the module is imported when an error is thrown.
void raise(const char* type, const od::Complaint& c, const py::dict& more = py::dict()) {
  raise(py::object(py::module_::import("onedispatch.transactions.base.errors").attr(type)), c, more);
}

// The class of what a kernel or library answered, as `function` of operators/declarations/statuses.py says.
py::object class_of(int32_t status, const char* function) {
  return py::module_::import("onedispatch.operators.declarations.statuses").attr(function)(status);
}

// The thread whose signals Python handles.
std::atomic<unsigned long> main_thread{0};

// Without the GIL, which is taken on the main thread only: others would but wait for it.
void handle_signals() {
  if (PyThread_get_thread_ident() != main_thread.load(std::memory_order_relaxed)) return;
  const py::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() != 0) throw Signal();
}

void find_main_thread() {
  main_thread = py::module_::import("threading").attr("main_thread")().attr("ident").cast<unsigned long>();
}

// What libraries registered before a fork may wait for threads that the child does not have.
void skip_exit_handlers() {
  on_exit(
      [](int status, void*) {
        std::fflush(nullptr);
        _exit(status);
      },
      nullptr);
}

void bind_signals(py::module_& m) {
  m.def("skip_exit_handlers", &skip_exit_handlers);
  find_main_thread();
  // In a forked child the thread that forked is the main one.
  py::module_::import("os").attr("register_at_fork")(
      py::arg("after_in_child") = py::cpp_function([] { main_thread = PyThread_get_thread_ident(); }));
  od::set_interrupt_check(&handle_signals);
}

void translate(std::exception_ptr thrown) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (Signal& signal) {
    signal.raised.restore();
  } catch (const od::SimulationError& error) {
    py::dict more = place(error.op);
    if (error.column >= 0)
      more["tile"] = od::tile_place(error.column, error.row);
    more["register"] = error.register_name;
    if (error.status == 0)
      raise("SimulationError", error.complaint, more);
    else
      raise(class_of(error.status, "run_error_class"), error.complaint, more);
    py::error_already_set set;  // fetches what raise() set, so that a field can be added
    set.value().attr("kind") = error.kind;
    const py::object cause = raised_by(error.cause);
    if (!cause.is_none()) PyException_SetCause(set.value().ptr(), py::object(cause).release().ptr());
    set.restore();
  } catch (const od::TransactionError& error) {
    raise("TransactionError", error.complaint, place(error.op));
  } catch (const od::ContainerError& error) {
    raise("CompiledModelError", error.complaint);
  } catch (const od::DeviceError& error) {
    raise("DeviceError", error.complaint);
  } catch (const od::KernelError& error) {
    py::dict more;
    more["status"] = error.status;
    raise(class_of(error.status, "error_class"), {error.what, "", "", ""}, more);
  } catch (const py::cast_error& error) {
    py::set_error(PyExc_TypeError, error.what());
  } catch (const std::invalid_argument& error) {
    raise("DeviceError", {error.what(), "", "", ""});
  } catch (const std::out_of_range& error) {
    raise("DeviceError", {error.what(), "", "", ""});
  }
}

// A contiguous buffer of any Python object that has one.
class Bytes {
 public:
  Bytes(const py::handle& object, bool writable) {
    if (PyObject_GetBuffer(object.ptr(), &view_, (writable ? PyBUF_WRITABLE : 0) | PyBUF_ANY_CONTIGUOUS) != 0)
      throw py::error_already_set();
  }
  ~Bytes() { PyBuffer_Release(&view_); }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  void* data() const { return view_.buf; }
  size_t size() const { return static_cast<size_t>(view_.len); }

 private:
  Py_buffer view_{};
};

// Python's ints and whatever stands for one, NumPy's scalars and enums too.
uint64_t to_number(const py::handle& value) {
  const auto index = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
  if (!index) throw py::error_already_set();
  return index.cast<uint64_t>();
}

xrt::argument to_argument(const py::handle& value) {
  if (py::isinstance<xrt::bo>(value)) return value.cast<xrt::bo>();
  if (PyIndex_Check(value.ptr()) != 0) return to_number(value);
  throw py::type_error("a run argument is a bo or an int, not " +
                       py::str(py::type::of(value)).cast<std::string>());
}

xrt::run call(const xrt::kernel& kernel, const py::args& args) {
  require_no_kernel_runs("kernel()");
  xrt::run run(kernel);
  for (size_t i = 0; i < args.size(); ++i) run.set_arg(static_cast<uint32_t>(i), to_argument(args[i]));
  const Released release;
  run.start();
  return run;
}

xrt::bo make_bo(const py::object& owner, const py::object& second, const py::object& third, uint32_t group) {
  if (py::isinstance<xrt::bo>(owner))
    return xrt::bo(owner.cast<xrt::bo>(), to_number(second), third.is_none() ? 0 : to_number(third));
  const uint64_t flags = third.is_none() ? uint64_t{xrt::bo::host_only} : to_number(third);
  if (flags > UINT32_MAX) throw py::value_error("flags of a bo have 32 bits");
  return xrt::bo(owner.cast<xrt::device>(), to_number(second), static_cast<uint32_t>(flags), group);
}

// Behind the words in `data` lie bytes that vector loads may touch.
xrt::bo lent_bo(const xrt::device& owner, const py::object& data, const py::object& size, uint32_t flags) {
  auto bytes = std::make_unique<Bytes>(data, false);
  const uint64_t count = to_number(size);
  if (bytes->size() < od::host::VECTOR_BYTES || count > bytes->size() - od::host::VECTOR_BYTES)
    throw py::value_error("bo.lent: data of " + od::counted(bytes->size(), "byte") + " for a size of " + std::to_string(count) + " and " +
                          std::to_string(od::host::VECTOR_BYTES) + " behind them");
  const auto* const first = static_cast<const uint8_t*>(bytes->data());
  const auto release = [kept = bytes.release()](const uint8_t*) {
    const py::gil_scoped_acquire gil;
    delete kept;
  };
  return xrt::bo(owner, std::shared_ptr<const uint8_t>(first, release), count, flags);
}

void bind_device(py::module_& m) {
  py::class_<xrt::uuid>(m, "uuid")
      .def("to_string", &xrt::uuid::to_string)
      .def("__str__", &xrt::uuid::to_string)
      .def("__repr__", [](const xrt::uuid& id) { return "uuid(" + id.to_string() + ")"; })
      .def("__eq__", [](const xrt::uuid& a, const xrt::uuid& b) { return a == b; })
      .def("__hash__", [](const xrt::uuid& id) { return py::hash(py::str(id.to_string())); });
  py::class_<xrt::xclbin> binary(m, "xclbin");
  py::class_<KernelName>(binary, "xclbinkernel").def("get_name", [](const KernelName& k) { return k.name; });
  binary
      .def(py::init([](const py::object& source) {
             if (PyObject_CheckBuffer(source.ptr()) != 0) {
               const Bytes bytes(source, false);
               return xrt::xclbin::from_bytes(static_cast<const uint8_t*>(bytes.data()), bytes.size());
             }
             return xrt::xclbin(py::module_::import("os").attr("fspath")(source).cast<std::string>());
           }),
           py::arg("source"))
      .def("get_kernels",
           [](const xrt::xclbin& x) {
             std::vector<KernelName> kernels;
             for (const std::string& name : x.kernels()) kernels.push_back(KernelName{name});
             return kernels;
           })
      .def("get_uuid", &xrt::xclbin::get_uuid)
      .def("get_xsa_name", &xrt::xclbin::device_name);
  py::class_<xrt::device>(m, "device")
      .def(py::init<uint32_t, std::string_view>(), py::arg("index") = 0, py::arg("name") = "npu2")
      .def(py::init<std::string_view>(), py::arg("name"))
      .def(py::init([](uint32_t index, const py::object& path) {
             return xrt::device(index, py::module_::import("os").attr("fspath")(path).cast<std::string>());
           }),
           py::arg("index"), py::arg("name"))
      .def_static("from_description", &xrt::device::from_description, py::arg("text"))
      .def("register_xclbin", &xrt::device::register_xclbin, py::arg("xclbin"))
      .def("set_constant", &xrt::device::set_constant, py::arg("key"), py::arg("value"))
      .def("set_threads", &xrt::device::set_threads, py::arg("threads"))
      .def("set_record", &xrt::device::set_record, py::arg("mode"))
      .def("set_clock", &xrt::device::set_clock, py::arg("on"))
      .def("set_kernel_seconds", &xrt::device::set_kernel_seconds, py::arg("seconds"))
      .def("set_event_limit", &xrt::device::set_event_limit, py::arg("events"))
      .def("set_print_bytes", &xrt::device::set_print_bytes, py::arg("bytes"))
      .def("set_trace", &xrt::device::set_trace, py::arg("on"), py::arg("calls"))
      .def("set_profile", &xrt::device::set_profile, py::arg("on"))
      .def_property_readonly("name", [](const xrt::device& d) { return d.description().name; })
      .def_property_readonly("xrt_name", [](const xrt::device& d) { return d.description().xrt_name; })
      .def_property_readonly("columns", [](const xrt::device& d) { return d.description().columns; })
      .def_property_readonly("core_rows", [](const xrt::device& d) { return d.description().core_rows; })
      .def_property_readonly("device_generation",
                             [](const xrt::device& d) { return d.description().device_generation; })
      .def_property_readonly("constants", [](const xrt::device& d) { return d.description().constants; });
  m.def("enumerate_devices", &xrt::enumerate_devices);
  const auto described = [](const auto& kernels) {
    std::vector<std::pair<std::string, uint32_t>> rows;
    for (const auto& kernel : kernels) rows.emplace_back(kernel->spec->name, kernel->spec->digest);
    return rows;
  };
  m.def("tell_searched", [](const std::string& text) { od::registry().tell_searched(text); }, py::arg("text"));
  m.def("kernels", [described] { return described(od::registry().all()); });
  m.def(
      "load_kernel_library",
      [described](const std::string& path, std::optional<double> seconds) {
        const auto load = [&] {
          const Released release;  // a first look forks, and waits for kernels that run
          const od::BodyLimit limit(seconds ? static_cast<uint32_t>(1000 * *seconds) : od::host::KERNEL_MILLISECONDS);
          return od::load_library(path);
        };
        return described(load());
      },
      py::arg("path"), py::arg("seconds") = py::none());
  m.def("kernel_seconds", [] { return od::body_limit() / 1000.0; });
  m.def(
      "check_image",
      [](const py::bytes& image, const py::bytes& blocks, size_t most) {
        const auto words = [](std::string_view bytes) {
          std::vector<uint32_t> found(bytes.size() / 4);
          if (!found.empty()) std::memcpy(found.data(), bytes.data(), 4 * found.size());
          return found;
        };
        try {
          od::check_image(words(image), words(blocks), most);
        } catch (const od::ProgramError& error) {
          raise_value_error(error.what);
        }
      },
      py::arg("image"), py::arg("blocks"), py::arg("most"));
  m.def(
      "charged_cycles",
      [](const py::bytes& block, const std::variant<std::string, xrt::device>& device, uint32_t column, uint32_t row,
         size_t most) {
        const std::string_view view = block;
        const auto* const opened = std::get_if<xrt::device>(&device);
        const od::DeviceDescription described = opened ? opened->description() : od::find_device(std::get<std::string>(device));
        try {
          return od::charged_cycles(reinterpret_cast<const uint8_t*>(view.data()), view.size(), described, column, row, most);
        } catch (const od::ProgramError& error) {
          raise_value_error(error.what);
        }
      },
      py::arg("block"), py::arg("device"), py::arg("column") = 0, py::arg("row") = 0, py::arg("most") = 1 << 16);
  m.def(
      "replay",
      [](const xrt::device& device, const py::object& transaction, const py::object& packets,
         uint32_t argument, const std::vector<std::tuple<uint64_t, uint32_t, uint64_t, bool>>& patches,
         const py::object& overlay, uint64_t base) {
        require_no_kernel_runs("replay");
        const Bytes bytes(transaction, false);
        od::ReplayReport report;
        od::ControlPackets control;
        control.argument = argument;
        control.base = base;
        if (!packets.is_none()) {
          const Bytes given(packets, false);
          const auto* first = static_cast<const uint8_t*>(given.data());
          control.bytes.assign(first, first + given.size());
        }
        if (!overlay.is_none()) {
          const Bytes given(overlay, false);
          const auto* first = static_cast<const uint8_t*>(given.data());
          control.overlay.assign(first, first + given.size());
        }
        for (const auto& [offset, of, plus, add] : patches)
          control.patches.push_back(od::PacketPatch{offset, of, plus, add});
        {
          const Released release;
          report = xrt::replay(device, static_cast<const uint8_t*>(bytes.data()), bytes.size(), control);
        }
        return to_dict(report);
      },
      py::arg("device"), py::arg("transaction"), py::arg("packets") = py::none(),
      py::arg("packets_argument") = 4,
      py::arg("patches") = std::vector<std::tuple<uint64_t, uint32_t, uint64_t, bool>>(),
      py::arg("overlay") = py::none(), py::arg("packets_base") = 0);
}

void bind_bo(py::module_& m) {
  py::enum_<xrt::sync_direction>(m, "xclBOSyncDirection")
      .value("XCL_BO_SYNC_BO_TO_DEVICE", xrt::sync_direction::TO_DEVICE)
      .value("XCL_BO_SYNC_BO_FROM_DEVICE", xrt::sync_direction::FROM_DEVICE);
  py::class_<xrt::bo> bo(m, "bo", py::buffer_protocol());
  py::enum_<xrt::bo::flags>(bo, "flags", py::arithmetic())
      .value("normal", xrt::bo::normal)
      .value("cacheable", xrt::bo::cacheable)
      .value("device_only", xrt::bo::device_only)
      .value("host_only", xrt::bo::host_only)
      .value("p2p", xrt::bo::p2p)
      .value("svm", xrt::bo::svm)
      .export_values();
  bo.def(py::init(&make_bo), py::arg("owner"), py::arg("size"), py::arg("flags") = py::none(),
         py::arg("group") = 0)
      .def_buffer([](const xrt::bo& b) {
        return py::buffer_info(b.map(), 1, py::format_descriptor<uint8_t>::format(),
                               static_cast<py::ssize_t>(b.size()));
      });
  refuse_unconstructed_buffers(bo);
  bo.def_static("lent", &lent_bo, py::arg("owner"), py::arg("data"), py::arg("size"), py::arg("flags") = uint32_t{xrt::bo::host_only});
  bo.def("map",
           [](const py::object& self) {
             (void)self.cast<const xrt::bo&>();  // throws for what was never constructed
             // The memoryview holds self, and self holds the memory.
             return py::reinterpret_steal<py::object>(PyMemoryView_FromObject(self.ptr()));
           })
      .def(
          "write",
          [](xrt::bo& b, const py::object& data, size_t seek) {
            const Bytes bytes(data, false);
            b.write(bytes.data(), bytes.size(), seek);
          },
          py::arg("data"), py::arg("seek") = 0)
      .def(
          "read",
          [](const xrt::bo& b, std::optional<size_t> size, size_t skip) {
            const size_t count = size.value_or(b.size() - std::min(skip, b.size()));
            if (count > b.size()) b.read(nullptr, count, skip);  // throws, before memory is asked for
            py::bytearray data(nullptr, 0);
            if (PyByteArray_Resize(data.ptr(), static_cast<py::ssize_t>(count)) != 0)
              throw py::error_already_set();
            b.read(PyByteArray_AsString(data.ptr()), count, skip);
            return data;
          },
          py::arg("size") = py::none(), py::arg("skip") = 0)
      .def(
          "read_into",
          [](const xrt::bo& b, const py::object& target, size_t skip) {
            const Bytes bytes(target, true);
            b.read(bytes.data(), bytes.size(), skip);
          },
          py::arg("target"), py::arg("skip") = 0)
      .def(
          "sync",
          [](xrt::bo& b, xrt::sync_direction direction, std::optional<size_t> size, size_t offset) {
            b.sync(direction, size.value_or(b.size() - std::min(offset, b.size())), offset);
          },
          py::arg("direction"), py::arg("size") = py::none(), py::arg("offset") = 0)
      .def(
          "forget",
          [](xrt::bo& b, std::optional<size_t> size, size_t offset) {
            b.forget(size.value_or(b.size() - std::min(offset, b.size())), offset);
          },
          py::arg("size") = py::none(), py::arg("offset") = 0)
      .def(
          "unwritten",
          [](const xrt::bo& b, std::optional<size_t> size, size_t offset) {
            return b.unwritten(size.value_or(b.size() - std::min(offset, b.size())), offset);
          },
          py::arg("size") = py::none(), py::arg("offset") = 0)
      .def("size", &xrt::bo::size)
      .def("address", &xrt::bo::address)
      .def("get_flags", &xrt::bo::get_flags);
}

// The caller keeps the memory behind the address: no method of bo, which programs call.
void bind_attach(py::module_& m) {
  m.def(
      "attach",
      [](xrt::bo& b, uintptr_t address, size_t size, bool written) {
        return b.attach(reinterpret_cast<uint8_t*>(address), size, written);
      },
      py::arg("bo"), py::arg("address"), py::arg("size"), py::arg("written"));
}

// The caller keeps the memory behind both addresses.
void bind_copy_rows(py::module_& m) {
  m.def(
      "copy_rows",
      [](uintptr_t to, ptrdiff_t to_pitch, uintptr_t from, ptrdiff_t from_pitch, int size, int rows) {
        const Released release;
        onedispatch::kernels::simd().copy_byte_rows(reinterpret_cast<const uint8_t*>(from), from_pitch, 1, reinterpret_cast<uint8_t*>(to), to_pitch, rows, size);
      },
      py::arg("to"), py::arg("to_pitch"), py::arg("source"), py::arg("source_pitch"), py::arg("size"), py::arg("rows"));
}

void bind_run(py::module_& m) {
  using State = xrt::ert_cmd_state;
  py::enum_<State>(m, "ert_cmd_state")
      .value("ERT_CMD_STATE_NEW", State::NEW)
      .value("ERT_CMD_STATE_QUEUED", State::QUEUED)
      .value("ERT_CMD_STATE_RUNNING", State::RUNNING)
      .value("ERT_CMD_STATE_COMPLETED", State::COMPLETED)
      .value("ERT_CMD_STATE_ERROR", State::ERROR)
      .value("ERT_CMD_STATE_ABORT", State::ABORT)
      .value("ERT_CMD_STATE_SUBMITTED", State::SUBMITTED)
      .value("ERT_CMD_STATE_TIMEOUT", State::TIMEOUT)
      .value("ERT_CMD_STATE_NORESPONSE", State::NORESPONSE)
      .value("ERT_CMD_STATE_SKERROR", State::SKERROR)
      .value("ERT_CMD_STATE_SKCRASHED", State::SKCRASHED);
  py::class_<xrt::hw_context>(m, "hw_context")
      .def(py::init<const xrt::device&, const xrt::uuid&>(), py::arg("device"), py::arg("uuid"),
           py::call_guard<Released>());
  py::class_<xrt::run>(m, "run")
      .def(py::init<const xrt::kernel&>(), py::arg("kernel"))
      .def(
          "set_arg",
          [](xrt::run& r, uint32_t index, const py::object& value) { r.set_arg(index, to_argument(value)); },
          py::arg("index"), py::arg("value"))
      .def("start",
           [](xrt::run& r) {
             require_no_kernel_runs("run.start");
             const Released release;
             r.start();
           })
      .def("wait", &xrt::run::wait, py::arg("timeout_ms") = 0, py::call_guard<Released>())
      .def("wait2", [](xrt::run& r) { r.wait(); }, py::call_guard<Released>())
      .def("state", &xrt::run::state)
      .def("report", [](const xrt::run& r) { return to_dict(r.report()); })
      .def("prints", [](const xrt::run& r) { return prints_of(r.prints()); });
  m.attr("PRINT_BYTES") = od::kPrintBytes;
  m.attr("MOST_PRINT_BYTES") = od::kMostPrintBytes;
  m.attr("MOST_TRACED_CALLS") = od::kMostTracedCalls;
  py::class_<xrt::kernel>(m, "kernel")
      .def(py::init<const xrt::hw_context&, const std::string&>(), py::arg("context"), py::arg("name"))
      .def("group_id", &xrt::kernel::group_id, py::arg("index"))
      .def("__call__", &call);
  py::class_<xrt::runlist>(m, "runlist")
      .def(py::init<const xrt::hw_context&>(), py::arg("context"))
      .def("add", &xrt::runlist::add, py::arg("run"))
      .def("execute",
           [](xrt::runlist& list) {
             require_no_kernel_runs("runlist.execute");
             const Released release;
             list.execute();
           })
      .def("wait", &xrt::runlist::wait, py::arg("timeout_ms") = 0, py::call_guard<Released>())
      .def("reset", &xrt::runlist::reset);
}

}  // namespace

PYBIND11_MODULE(_core, m) {
  m.doc() = "A simulated AMD XDNA array behind pyxrt's names.";
  py::register_exception_translator(&translate);
  bind_signals(m);
  bind_kernels(m);
  bind_members(m);
  bind_device(m);
  bind_bo(m);
  bind_attach(m);
  bind_copy_rows(m);
  bind_pages(m);
  bind_plugins(m);
  bind_run(m);
  bind_prints(m);
  answer_pickling(m);
}
