// SPDX-License-Identifier: Apache-2.0
// Python can make an object without running its __init__ (cls.__new__(cls)). pybind11 would hand out memory that nothing
// has constructed; what is here refuses such an object like one of another class.
#pragma once
#include <pybind11/pybind11.h>

#include <string>

inline bool is_constructed(PyObject* object) {
  return reinterpret_cast<pybind11::detail::instance*>(object)->get_value_and_holder().holder_constructed();
}

// Lets the class answer with TypeError where memory of such an object is asked for: pybind11 ends the process.
inline void refuse_unconstructed_buffers(const pybind11::handle& type) {
  static getbufferproc bound = nullptr;  // pybind11's, one for all classes
  PyBufferProcs& procs = reinterpret_cast<PyHeapTypeObject*>(type.ptr())->as_buffer;
  bound = procs.bf_getbuffer;
  procs.bf_getbuffer = [](PyObject* object, Py_buffer* view, int flags) {
    if (is_constructed(object)) return bound(object, view, flags);
    if (view != nullptr) view->obj = nullptr;
    PyErr_Format(PyExc_TypeError, "a %s whose __init__ never ran", Py_TYPE(object)->tp_name);
    return -1;
  };
}

// Lets all classes of `holder` answer when they are pickled or copied, and enums return themselves: `__reduce__`, which the
// protocols 0 and 1 use, would make an object of pybind11's own base class, and that ends the process.
inline void answer_pickling(const pybind11::object& holder) {
  namespace py = pybind11;
  const auto metaclass = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(py::detail::get_internals().default_metaclass));
  for (const auto& item : py::dict(holder.attr("__dict__"))) {
    const auto cls = py::reinterpret_borrow<py::object>(item.second);
    if (!py::type::handle_of(cls).is(metaclass) || py::dict(cls.attr("__dict__")).contains("__reduce__")) continue;
    const bool is_enum = py::hasattr(cls, "__members__");
    const auto reduced = [is_enum](const py::object& self, const py::args&) -> py::object {
      if (is_enum) return py::make_tuple(py::type::of(self), py::make_tuple(py::int_(self)));
      throw py::type_error(std::string("cannot pickle a ") + Py_TYPE(self.ptr())->tp_name + ", which is a part of this process");
    };
    for (const char* name : {"__reduce__", "__reduce_ex__"}) cls.attr(name) = py::cpp_function(reduced, py::is_method(cls), py::name(name));
    answer_pickling(cls);
  }
}

// The base of a class's caster: template <> struct type_caster<T> : constructed_caster<T> {};
namespace pybind11::detail {

template <typename T>
struct constructed_caster : type_caster_base<T> {
  bool load(handle source, bool convert) {
    const handle type = get_type_handle(typeid(T), false);
    if (source && type && PyObject_TypeCheck(source.ptr(), reinterpret_cast<PyTypeObject*>(type.ptr())) != 0 && !is_constructed(source.ptr()))
      return false;
    return type_caster_base<T>::load(source, convert);
  }
};

}  // namespace pybind11::detail
