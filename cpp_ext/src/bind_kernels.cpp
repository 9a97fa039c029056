// SPDX-License-Identifier: Apache-2.0
// Python functions as kernels. They run on any thread, with the interpreter lock, which no thread waits for
// while others need it to go on: who waits for a kernel call gives the lock back (interrupt.h), and objects
// that end without it wait until another thread has it.
#include "bind_constructed.h"
#include "bind_gil.h"
#include "bind_kernels.h"
#include "bind_prints.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "onedispatch/errors.h"
#include "onedispatch/interrupt.h"
#include "onedispatch/kernel_library.h"
#include "program/signal_guard.h"
#include "program/plugin_library.h"
#include "program/owned_kernel.h"
#include "sim/engine/workers.h"
#include "program/host_call.h"

namespace py = pybind11;
namespace od = onedispatch;

namespace {

// ---- Objects that may end on any thread ------------------------------------------------------------------

std::mutex pending_mutex;
std::vector<PyObject*>* const pending = new std::vector<PyObject*>;  // references to give back

void give_back_pending() {
  std::vector<PyObject*> gone;
  {
    const std::lock_guard<std::mutex> hold(pending_mutex);
    gone.swap(*pending);
  }
  for (PyObject* object : gone) Py_DECREF(object);
}

// A reference. Ending it never waits for the interpreter lock.
class Kept {
 public:
  explicit Kept(const py::object& object) : object_(object.inc_ref().ptr()) {}
  ~Kept() {
    if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) {
      Py_DECREF(object_);
      return;
    }
    const std::lock_guard<std::mutex> hold(pending_mutex);
    pending->push_back(object_);
  }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;
  py::handle get() const { return object_; }

 private:
  PyObject* object_;
};

// ---- The end of the interpreter ---------------------------------------------------------------------------

// Threads inside Python functions. When the interpreter ends, those that are there leave before; one that comes
// then stops for good, with the process: if it waited for the interpreter lock, the interpreter would end it in
// the midst of functions that nothing may unwind.
class Entrance {
 public:
  void enter() {
    if (closed_.load() && PyGILState_Check() == 0) stop_if_ending();
    const std::lock_guard<std::mutex> hold(mutex_);
    ++inside_;
  }
  void leave() {
    const std::lock_guard<std::mutex> hold(mutex_);
    --inside_;
    left_.notify_all();
  }
  // Waits for those inside, but not for ever: one may loop.
  void close() {
    std::unique_lock<std::mutex> hold(mutex_);
    closed_ = true;
    left_.wait_for(hold, std::chrono::seconds(5), [this] { return inside_ == 0; });
  }

 private:
  // The end is near, unless what else was registered for it runs kernels first: that takes a little longer.
  static void stop_if_ending() {
    for (int i = 0; i < 200; ++i) {
      while (is_ending()) std::this_thread::sleep_for(std::chrono::seconds(1));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  static bool is_ending() {
#if PY_VERSION_HEX >= 0x030D0000
    return Py_IsInitialized() == 0 || Py_IsFinalizing() != 0;
#else
    return Py_IsInitialized() == 0 || _Py_IsFinalizing() != 0;
#endif
  }

  std::mutex mutex_;
  std::condition_variable left_;
  unsigned inside_ = 0;
  std::atomic<bool> closed_{false};
};

Entrance* entrance = new Entrance;  // a child of a fork has one of its own

[[noreturn]] void fail(od_status status, const std::string& text, std::shared_ptr<void> cause = nullptr) {
  throw od::KernelError{status, text, std::move(cause)};
}

std::string statement_of(const py::error_already_set& error) {
  try {
    const py::object statement = py::module_::import("onedispatch.transactions.base.errors").attr("statement_of");
    return statement(error.value()).cast<std::string>();
  } catch (const py::error_already_set&) {
    return "(which cannot be printed)";
  } catch (const py::cast_error&) {
    return "(which cannot be printed)";
  }
}

// The same with the exception's type in front.
std::string text_of(const py::error_already_set& error) {
  const std::string type = py::str(error.type().attr("__name__"));
  const std::string text = statement_of(error);
  return text == type ? type : type + ": " + text;
}

// The status that an error of ours says, or "the call failed".
od_status status_of(const py::error_already_set& error) {
  if (!error.matches(py::module_::import("onedispatch.transactions.base.errors").attr("KernelError"))) return OD_RUNTIME_FAILURE;
  const py::object status = error.value().attr("status");
  return py::isinstance<py::int_>(status) ? status.cast<od_status>() : OD_RUNTIME_FAILURE;
}

// Whether a signal handler of Python raised it: that is the caller's.
bool is_signal(const py::error_already_set& error) {
  if (error.matches(PyExc_KeyboardInterrupt)) return true;
  if (error.trace()) PyException_SetTraceback(error.value().ptr(), error.trace().ptr());  // before Python 3.12 it is apart
  return !py::module_::import("onedispatch.transactions.base.handlers").attr("from_handler")(error.value()).is_none();
}

// What ends bodies that do not end.
py::object watchdog(const char* name) { return py::module_::import("onedispatch.operators.plugin.watchdog").attr(name); }

class Inside {
 public:
  Inside() { entrance->enter(); }
  ~Inside() { entrance->leave(); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

thread_local unsigned functions_running = 0;  // of kernels, on this thread

class Running {
 public:
  Running() { ++functions_running; }
  ~Running() { --functions_running; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};

// Runs `body` with the interpreter lock; what Python raises becomes KernelError.
template <class Body>
auto in_python(const std::string& kernel, Body body) {
  const Inside inside;
  const py::gil_scoped_acquire acquire;
  give_back_pending();
  try {
    const Running running;
    return body();
  } catch (py::error_already_set& error) {
    if (is_signal(error)) throw Signal(std::move(error));
    if (error.matches(watchdog("BodyInterrupt"))) throw od::CallInterrupted{kernel + ": its body was left on Ctrl-C"};
    const od_status status = status_of(error);
    const bool typed = error.matches(py::module_::import("onedispatch.transactions.base.errors").attr("KernelError"));
    const std::string text = typed ? statement_of(error) : "it raised " + text_of(error);
    fail(status, kernel + ": " + text, std::make_shared<Kept>(error.value()));
  } catch (const py::builtin_exception& error) {
    fail(OD_RUNTIME_FAILURE, kernel + ": " + error.what());
  }
}

// ---- A setup and a call as Python sees them ---------------------------------------------------------------

template <class Numbers>
py::tuple tuple_of(const Numbers& numbers) {
  py::tuple all(std::size(numbers));
  size_t i = 0;
  for (const auto number : numbers) all[i++] = py::int_(number);
  return all;
}

py::object operand_of(const od_operand& operand) {
  if (operand.present == 0) return py::none();
  py::dict one;
  one["dtype"] = operand.dtype;
  one["bytes"] = operand.bytes;
  one["pad"] = operand.pad;
  one["fill"] = operand.fill;
  py::tuple axes(operand.n_axes);
  for (uint32_t i = 0; i < operand.n_axes; ++i) {
    const od_axis& axis = operand.axes[i];
    axes[i] = py::make_tuple(axis.extent, axis.chunk, axis.stride, axis.a, axis.den, axis.align, axis.b, axis.span,
                             axis.along == OD_ALONG_NOTHING ? -1 : int{axis.along}, axis.padding);
  }
  one["axes"] = axes;
  return one;
}

py::dict setup_of(const od_setup& setup) {
  py::dict all;
  py::tuple dims(OD_MAX_DIMS), operands(setup.spec->n_operands), scalars(setup.spec->n_scalars);
  for (uint32_t d = 0; d < OD_MAX_DIMS; ++d) dims[d] = py::make_tuple(setup.dims[d].extent, setup.dims[d].tile);
  for (uint32_t i = 0; i < setup.spec->n_operands; ++i) operands[i] = operand_of(setup.operands[i]);
  for (uint32_t i = 0; i < setup.spec->n_scalars; ++i) scalars[i] = py::int_(setup.scalars[i]);
  all["kernel"] = setup.spec->name;
  all["dims"] = dims;
  all["first"] = tuple_of(setup.first);
  all["total"] = tuple_of(setup.total);
  all["whole"] = tuple_of(setup.whole);
  all["scratch_bytes"] = setup.scratch_bytes;
  all["scalars"] = scalars;
  all["operands"] = operands;
  return all;
}

// Bytes of a core's memory for the length of a call.
py::object bytes_at(uint8_t* data, uint32_t bytes, bool writable) {
  if (data == nullptr) return py::none();
  const auto lies = static_cast<py::ssize_t>(bytes);
  py::array_t<uint8_t> array({lies}, {py::ssize_t{1}}, data, py::none());
  if (!writable) py::detail::array_proxy(array.ptr())->flags &= ~py::detail::npy_api::NPY_ARRAY_WRITEABLE_;
  return std::move(array);
}

// What a call may tell; it says nothing once the call is over.
struct Host {
  const od_host* host = nullptr;

  // The text is made only for a listener.
  void print(const std::vector<uint32_t>& member, const std::string& format, const py::sequence& values) const {
    if (host == nullptr || host->print == nullptr) return;
    std::array<uint32_t, OD_MAX_DIMS> all;
    all.fill(OD_NO_MEMBER);
    std::copy_n(member.begin(), std::min<size_t>(member.size(), all.size()), all.begin());
    host->print(host, all.data(), printed(format, values).c_str());
  }
  void touched(uint32_t operand, const std::vector<int64_t>& coordinate, uint32_t count, bool write) const {
    if (host != nullptr && host->touched != nullptr) host->touched(host, operand, coordinate.data(), count, write ? 1 : 0);
  }
};

}  // namespace

namespace pybind11::detail {

template <> struct type_caster<Host> : constructed_caster<Host> {};

}  // namespace pybind11::detail

namespace {

// ---- Functions of a kernel -----------------------------------------------------------------------------------

class PythonPlan final : public od::BodyPlan {
 public:
  PythonPlan(const od_setup& setup, std::shared_ptr<const Kept> function) : setup_(setup), name_(setup.spec->name), function_(std::move(function)) {}

  void run(const od_call& call) const override {
    in_python(name_, [&] {
      py::tuple chunks(setup_.spec->n_operands);
      for (uint32_t i = 0; i < setup_.spec->n_operands; ++i) {
        chunks[i] = bytes_at(call.operand[i], setup_.operands[i].bytes, setup_.spec->operands[i].role == OD_ROLE_OUTPUT);
      }
      const auto host = call.host == nullptr ? nullptr : std::make_shared<Host>(Host{call.host});
      const py::object listener = host == nullptr ? py::object(py::none()) : py::cast(host);
      struct Over {
        const std::shared_ptr<Host>& host;
        ~Over() {
          if (host != nullptr) host->host = nullptr;
        }
      } const over{host};
      const od::CrashLabel naming(name_.c_str());
      const py::object interrupts = py::module_::import("onedispatch.cpp_ext._core").attr("interrupts");
      watchdog("watched")(function_->get(), od::body_limit() / 1000.0, tuple_of(call.origin), tuple_of(call.member), tuple_of(call.count),
                          chunks, bytes_at(call.scratch, setup_.scratch_bytes, true), listener, py::arg("interrupts") = interrupts);
    });
  }

 private:
  od_setup setup_;  // what is handed over may end before the last call does
  std::string name_;
  std::shared_ptr<const Kept> function_;
};

class PythonBody final : public od::KernelBody {
 public:
  explicit PythonBody(const py::object& prepare) : prepare_(prepare) {}

  // All cores of a nest have the same block: what is made of it is made once.
  std::unique_ptr<const od::BodyPlan> prepare(const od_setup& setup) const override {
    std::vector<uint32_t> words(setup.words, setup.words + setup.spec->words);
    words.push_back(setup.scratch_bytes);
    std::shared_ptr<const Kept> function = known(words);
    if (function == nullptr) {
      function = in_python(setup.spec->name, [&] {
        const py::object made = prepare_.get()(setup_of(setup));
        if (PyCallable_Check(made.ptr()) == 0) throw py::type_error("prepare() returned " + py::repr(made).cast<std::string>() + "; accepted: a function of a call");
        return std::make_shared<const Kept>(made);
      });
      const std::lock_guard<std::mutex> hold(mutex_);
      last_words_ = std::move(words);
      last_ = function;
    }
    return std::make_unique<const PythonPlan>(setup, std::move(function));
  }

 private:
  std::shared_ptr<const Kept> known(const std::vector<uint32_t>& words) const {
    const std::lock_guard<std::mutex> hold(mutex_);
    return words == last_words_ ? last_ : nullptr;
  }

  Kept prepare_;
  mutable std::mutex mutex_;
  mutable std::vector<uint32_t> last_words_;
  mutable std::shared_ptr<const Kept> last_;
};

// ---- Declarations as plain data --------------------------------------------------------------------------------

template <class T>
T field(const py::handle& row, const char* name) {
  const py::object value = row[name];
  if constexpr (std::is_same_v<T, uint32_t>) {
    return static_cast<uint32_t>(py::int_(value).cast<uint64_t>());
  } else {
    return value.cast<T>();
  }
}

std::vector<od_step> steps_of(const py::handle& rows) {
  std::vector<od_step> steps;
  for (const py::handle row : rows) {
    const auto [op, a, b, c, value] = row.cast<std::tuple<uint32_t, uint16_t, uint16_t, uint16_t, double>>();
    steps.push_back({op, a, b, c, value});
  }
  return steps;
}

od::KernelData::Operand operand_data(const py::handle& row) {
  od::KernelData::Operand one;
  one.name = field<std::string>(row, "name");
  one.axes = field<std::vector<std::pair<std::string, uint32_t>>>(row, "axes");
  one.spec.at = field<uint32_t>(row, "at");
  one.spec.dtypes = field<uint32_t>(row, "dtypes");
  one.spec.role = field<uint32_t>(row, "role");
  one.spec.optional = field<uint32_t>(row, "optional");
  one.spec.pad = field<double>(row, "pad");
  one.spec.fill = field<double>(row, "fill");
  one.spec.pad_scalar = field<uint32_t>(row, "pad_scalar");
  one.spec.fill_scalar = field<uint32_t>(row, "fill_scalar");
  one.spec.walk = field<uint32_t>(row, "walk");
  one.spec.like = field<uint32_t>(row, "like");
  one.spec.least_rank = field<uint32_t>(row, "least_rank");
  return one;
}

od::KernelData data_of(const py::dict& spec) {
  od::KernelData data;
  data.name = field<std::string>(spec, "name");
  data.dims = field<std::vector<std::string>>(spec, "dims");
  data.constants = field<std::vector<std::string>>(spec, "constants");
  data.types = field<std::vector<uint32_t>>(spec, "types");
  data.cost = steps_of(spec["cost"]);
  data.scratch = steps_of(spec["scratch"]);
  for (const py::handle row : py::list(spec["operands"])) data.operands.push_back(operand_data(row));
  for (const py::handle row : py::list(spec["scalars"])) {
    od::KernelData::Scalar one;
    one.name = field<std::string>(row, "name");
    one.spec.at = field<uint32_t>(row, "at");
    one.spec.type = field<uint32_t>(row, "type");
    one.spec.low = field<double>(row, "low");
    one.spec.high = field<double>(row, "high");
    one.spec.of = field<uint32_t>(row, "of");
    one.spec.hidden = field<uint32_t>(row, "hidden");
    data.scalars.push_back(std::move(one));
  }
  data.spec.digest = field<uint32_t>(spec, "digest");
  data.spec.reduces = field<uint32_t>(spec, "reduces");
  data.spec.members = field<uint32_t>(spec, "members");
  data.spec.keeps_scratch = field<uint32_t>(spec, "keeps_scratch");
  data.spec.words = field<uint32_t>(spec, "words");
  data.spec.block_words = field<uint32_t>(spec, "block_words");
  data.spec.code_bytes = field<uint32_t>(spec, "code_bytes");
  data.spec.prints = field<uint32_t>(spec, "prints");
  data.spec.joins = field<uint32_t>(spec, "joins");
  return data;
}

std::shared_ptr<const od::KernelBody> body_of(const py::dict& functions) {
  if (functions.contains("prepare")) return std::make_shared<const PythonBody>(functions["prepare"]);
  if (!functions.contains("library")) throw py::value_error("functions of a kernel: accepted: {'prepare': function}, {'library': path, 'index': i}");
  const auto path = functions["library"].cast<std::string>();
  const auto index = field<uint32_t>(functions, "index");
  const Released release;  // a first look forks, and waits for kernels that run
  return od::native_body(od::plugin_functions(path, index));
}

void register_kernel(const py::dict& spec, const py::dict& functions, const std::string& origin) {
  give_back_pending();
  od::registry().add(std::make_shared<od::OwnedKernel>(data_of(spec), body_of(functions)), origin);
}

// The memory of operands, held as long as it is used; an output's may be written.
void run_kernel(uint32_t digest, const std::vector<uint32_t>& words, const py::list& arrays, size_t scratch_bytes, double seconds,
                const py::list& printed, size_t print_bytes) {
  const od::KernelPtr kernel = od::registry().find(digest);
  if (kernel == nullptr) fail(OD_NOT_FOUND, "kernel " + od::digest_text(digest) + ", which no library registered");
  std::vector<py::buffer_info> held;
  std::vector<od::HostOperand> operands(arrays.size());
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (arrays[i].is_none()) continue;
    held.push_back(py::reinterpret_borrow<py::buffer>(arrays[i]).request());
    operands[i] = {static_cast<uint8_t*>(held.back().ptr), static_cast<uint64_t>(held.back().size * held.back().itemsize)};
  }
  std::vector<uint8_t> scratch(scratch_bytes);
  // Of a call that fails too: what it printed says why.
  struct Log : od::PrintLog {
    py::list into;
    explicit Log(py::list list) : into(std::move(list)) {}
    ~Log() {
      try {
        for (od::PrintRing& ring : take())
          if (!ring.lines.empty() || ring.lost != 0) into.append(row_of(ring));
      } catch (const std::exception&) {  // no memory for what was printed
      }
    }
  } log(printed);
  log.set_capacity(std::min(print_bytes, od::kMostPrintBytes));
  const Released release;
  od::call_on_host(kernel, words, operands, scratch, static_cast<uint32_t>(1000 * seconds), log);
}

// ---- Threads, forks, the end -----------------------------------------------------------------------------------

void* step_back() {
  if (Py_IsInitialized() == 0 || PyGILState_Check() == 0) return nullptr;
  return PyEval_SaveThread();
}

void step_forth(void* held) { PyEval_RestoreThread(static_cast<PyThreadState*>(held)); }

void bind_ends() {
  od::set_waiting_hooks(&step_back, &step_forth);
  // Before os.fork() takes what imports need, no function may be under way that could wait for it.
  py::module_::import("os").attr("register_at_fork")(
      py::arg("before") = py::cpp_function([] { od::sim::WorkerPool::hold_jobs(); }),
      py::arg("after_in_parent") = py::cpp_function([] { od::sim::WorkerPool::release_jobs(); }),
      py::arg("after_in_child") = py::cpp_function([] { entrance = new Entrance; }));
  py::module_::import("atexit").attr("register")(py::cpp_function([] {
    Ending::begin();
    const Released release;
    entrance->close();
  }));
}

}  // namespace

py::object raised_by(const std::shared_ptr<void>& cause) {
  if (cause == nullptr) return py::none();
  return py::reinterpret_borrow<py::object>(static_cast<const Kept*>(cause.get())->get());
}

void require_no_kernel_runs(const char* what) {
  if (functions_running == 0) return;
  throw od::DeviceError({what, "a call from inside a kernel's Python function", "calls from outside of kernels",
                         "A body computes with what its tile has; what it needs beside is an input or an auxiliary tensor."});
}

void bind_kernels(py::module_& m) {
  m.def("interrupts", &od::interrupts_seen);
  py::class_<Host, std::shared_ptr<Host>>(m, "KernelHost")
      .def("print", &Host::print, py::arg("member"), py::arg("text"), py::arg("values") = py::tuple())
      .def("touched", &Host::touched, py::arg("operand"), py::arg("coordinate"), py::arg("count"), py::arg("write"));
  m.def("register_kernel", &register_kernel, py::arg("spec"), py::arg("functions"), py::arg("origin") = "this process");
  m.def("run_kernel", &run_kernel, py::arg("digest"), py::arg("words"), py::arg("operands"), py::arg("scratch_bytes"), py::arg("seconds"),
        py::arg("printed"), py::arg("print_bytes"));
  m.def("require_no_kernel_runs", [](const std::string& what) { require_no_kernel_runs(what.c_str()); }, py::arg("what"));
  m.def("unregister_kernel", [](const std::string& name) { return od::registry().remove(name); }, py::arg("name"));
  m.def("kernel_origins", [] {
    py::list rows;
    for (const auto& row : od::registry().rows()) rows.append(py::make_tuple(row.name, row.digest, row.origin));
    return rows;
  });
  bind_ends();
}
