# SPDX-License-Identifier: Apache-2.0
"""``IOBinding``: inputs and outputs that stay bound from run to run, under onnxruntime's names."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from onedispatch.dispatch.base import arguments, limits
from onedispatch.dispatch.compiler.executable import Executable
from onedispatch.dispatch.frontend.graph import Array, Value
from onedispatch.dispatch.frontend.input_shapes import check_shape
from onedispatch.dispatch.ort.values import OrtValue, element_dtype, require_host
from onedispatch.dispatch.ort.without_meaning import refusing
from onedispatch.dispatch.runtime.feeds import as_value
from onedispatch.transactions.base.boundary import guarded
from onedispatch.transactions.base.cached import cached_property
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.signature import bounded_repr

_MOST_ADDRESS = (1 << 64) - 1
_PACKED = ("int4", "uint4", "int2", "uint2", "float4e2m1")  # several elements in a byte, unlike NumPy's
REFUSED = {"get_outputs_as_ortvaluevector": "take get_outputs(), a list"}
_OF_TENSOR = ("data_ptr", "data_type", "device_name", "shape")  # methods of onnxruntime.OrtValue


@dataclass
class Targets:
    """Memory of the caller that outputs are written into, by their index; ``feed`` is what the run reads."""

    buffers: Mapping[int, Array] = field(default_factory=dict)
    feed: Mapping[str, Any] = field(default_factory=dict)
    _direct: tuple[Executable, Mapping[str, Array]] | None = None  # of the last run, which most runs repeat

    @cached_property
    def shared(self) -> frozenset[int]:
        """Those whose memory an input, or another output, has too."""
        inputs = [array for array in self.feed.values() if isinstance(array, np.ndarray)]
        found = set()
        for index, buffer in self.buffers.items():
            others = (other for at, other in self.buffers.items() if at != index)
            if any(np.may_share_memory(buffer, other) for other in chain(inputs, others)):
                found.add(index)
        return frozenset(found)

    def direct(self, executable: Executable) -> Mapping[str, Array]:
        """Those that device steps may write, by the name of the value.

        Memory that is shared is written when all steps have run, unless one step makes all outputs: later
        steps, or outputs that are inputs, need what it holds.

        Raises ``InputError`` for memory of another shape than the output has in this run.
        """
        if not self.buffers:
            return {}
        if self._direct is not None and self._direct[0] is executable:
            return self._direct[1]
        found: dict[str, Array] = {}
        alone = len(executable.steps) == 1 and made_on_device(executable).issuperset(executable.sources)
        for index, buffer in self.buffers.items():
            value = executable.outputs[index]
            if value.is_concrete:
                _require_shape(value, buffer, value.concrete_shape)
            if alone or index not in self.shared:
                found.setdefault(executable.sources[index], buffer)
        self._direct = executable, found
        return found

    def write(self, executable: Executable, results: Sequence[Any]) -> None:
        """Writes the results that no step wrote there. Raises ``InputError`` where the shape is another.

        Memory for a result of which the run decides how much there is has the planned shape; the result lies
        at its beginning.
        """
        outputs = executable.outputs
        left = []
        for index, buffer in self.buffers.items():
            result = results[index]
            if executable.sources[index] in executable.actual:
                _require_shape(outputs[index], buffer, outputs[index].concrete_shape)
                buffer = buffer[tuple(map(slice, result.shape))]
            if result is not buffer:
                _require_shape(outputs[index], buffer, result.shape)
                # One result may lie where another one is written.
                left.append((buffer, result.copy() if self.shared else result))
        for buffer, result in left:
            np.copyto(buffer, result)

    def holds(self, result: Any) -> bool:
        """Whether a step wrote ``result`` there."""
        return any(result is buffer for buffer in self.buffers.values())

    def own(self, result: Any) -> Any:
        """``result``, copied where it is memory that is bound: that changes without it."""
        bound = chain(self.feed.values(), self.buffers.values())
        if isinstance(result, np.ndarray) and any(
            np.may_share_memory(result, other) for other in bound if isinstance(other, np.ndarray)
        ):
            return result.copy()
        return result


class BoundRun(NamedTuple):
    """What a binding hands to a run."""

    feed: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]
    targets: Targets


def made_on_device(executable: Executable) -> frozenset[str]:
    """The values that device steps make, in new arrays or where targets say."""
    return frozenset(slot.name for step in executable.device_steps for slot in step.outputs)


@guarded
@refusing(REFUSED)
class IOBinding:
    """Inputs and outputs of a session that are bound once, for any number of runs.

    ``InferenceSession.io_binding`` makes it, ``run_with_iobinding`` runs it. Arrays and memory are not copied
    when they are bound: a run reads what they hold then, and writes bound outputs in place. The memory
    behind an address is the caller's to keep alive. Outputs without memory get a new array in every run.

    All methods raise ``InputError``: for a name that the model does not have, another dtype than the model's,
    a shape that does not fit the declared one, and memory that cannot be used: of another device than
    ``"cpu"``, not contiguous, or read-only for an output.
    """

    def __init__(self, session: object, inputs: Mapping[str, Value], outputs: Sequence[Value]) -> None:
        self._session, self._declared = session, inputs
        self._known = {value.name: value for value in outputs}
        self._index = {value.name: index for index, value in enumerate(outputs)}
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, Array | None] = {}  # the memory that is bound, in the order of binding
        self._results: dict[str, Any] = {}  # of the last run, where no memory is bound
        self._owners: dict[tuple[str, str], object] = {}  # of memory, which lives as long as they do
        self._prepared: BoundRun | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        where = "pickle or copy of an IOBinding"
        raise InputError(where, "memory of this process", "a session, which can be pickled", "bind it anew")

    # -- inputs ----------------------------------------------------------------------------

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Binds an array, a list for a sequence. One that is not contiguous is copied, as it is now."""
        value = self._value("input", self._declared, name)
        array = as_value(f"input {name!r}", value.type, arr_on_cpu)
        if value.dtype is not None:
            check_shape(value, array.shape)
        self._set_input(name, array)

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Binds memory of the host: ``shape`` elements of ``element_type`` from address ``buffer_ptr`` on.

        ``element_type`` is a NumPy type, or a number of ``onnx.TensorProto``.
        """
        value = self._value("input", self._declared, name)
        require_host(f"input {name!r}", device_type, device_id)
        array = _memory(f"input {name!r}", value, element_type, shape, buffer_ptr)
        check_shape(value, array.shape)
        self._set_input(name, array)

    def bind_ortvalue_input(self, name: str, ortvalue: Any) -> None:
        """Binds the memory of an ``onnxruntime.OrtValue``, of an output of a binding, an array, or what an
        object's ``numpy()`` returns."""
        value = self._value("input", self._declared, name)
        self.bind_cpu_input(name, _array_of(f"input {name!r}", value, ortvalue))
        self._owners["input", name] = ortvalue

    def synchronize_inputs(self) -> None:
        """Does nothing: inputs are in the host's memory."""

    def clear_binding_inputs(self) -> None:
        """Unbinds all inputs."""
        for name in self._inputs:
            self._owners.pop(("input", name), None)
        self._inputs.clear()
        self._prepared = None

    # -- outputs ---------------------------------------------------------------------------

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Binds an output: to memory of the host as ``bind_input`` does, or to a new array for every run
        where ``buffer_ptr`` is None."""
        where = f"output {name!r}"
        value = self._value("output", self._known, name)
        require_host(where, device_type, device_id)
        if buffer_ptr is None:
            if element_type is not None:
                _require_type(where, value, element_type)
            if shape is not None:
                check_shape(value, arguments.shapes({name: shape})[name], where)
            self._set_output(name, None, None)
            return
        if element_type is None or shape is None:
            missing = "element_type" if element_type is None else "shape"
            raise InputError(where, f"buffer_ptr without {missing}", "element_type, shape and buffer_ptr")
        array = _memory(where, value, element_type, shape, buffer_ptr)
        check_shape(value, array.shape, where)
        self._set_output(name, array, None)

    def bind_ortvalue_output(self, name: str, ortvalue: Any) -> None:
        """Binds an output to memory: of an ``onnxruntime.OrtValue``, of an array, or of the array that an
        object's ``numpy()`` returns."""
        where = f"output {name!r}"
        value = self._value("output", self._known, name)
        array = _array_of(where, value, ortvalue)
        _require_writable(where, value, array)
        check_shape(value, array.shape, where)
        self._set_output(name, array.view(), ortvalue)

    def synchronize_outputs(self) -> None:
        """Does nothing: ``run_with_iobinding`` returns when all outputs are written."""

    def clear_binding_outputs(self) -> None:
        """Unbinds all outputs."""
        for name in self._outputs:
            self._owners.pop(("output", name), None)
        self._outputs.clear()
        self._results.clear()
        self._prepared = None

    def get_outputs(self) -> list[OrtValue]:
        """The outputs, in the order in which they were bound. Their arrays are no copies: bound memory, or
        what the run made, which no other run changes."""
        return [
            OrtValue(
                self._results.get(name, bound),
                self._known[name].type,
                "" if name in self._results or bound is not None else name,
            )
            for name, bound in self._outputs.items()
        ]

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The outputs as arrays (lists for sequences), in the order in which they were bound.

        What is bound to memory is copied. Raises ``InputError`` before the first run.
        """
        bound = self._outputs.values()
        values = [output.numpy() for output in self.get_outputs()]
        return [
            value if memory is None else value.copy() for value, memory in zip(values, bound, strict=True)
        ]

    # -- running ---------------------------------------------------------------------------

    def _begin(self, session: object) -> BoundRun:
        """What a run of ``session`` takes. The results of the one before are gone."""
        if session is not self._session:
            raise InputError("run_with_iobinding", "a binding of another session", "one of io_binding()")
        self._results = {}
        if self._prepared is None:
            self._prepared = self._checked()
        return self._prepared

    def _finish(self, targets: Targets, executable: Executable, results: Sequence[Any]) -> None:
        """Takes the results of a run, of all outputs of the model."""
        new = [name for name, memory in self._outputs.items() if memory is None]
        made = made_on_device(executable) if new else frozenset()
        for name in new:
            index = self._index[name]
            fresh = executable.sources[index] in made and not targets.holds(results[index])
            self._results[name] = results[index] if fresh else targets.own(results[index])
        targets.write(executable, results)

    def _checked(self) -> BoundRun:
        missing = [
            name
            for name, value in self._declared.items()
            if name not in self._inputs and not value.type.startswith("optional")
        ]
        if missing:
            given = ", ".join(f"no {name!r}" for name in missing)
            raise InputError("the binding's inputs", given, f"inputs {list(self._declared)}", "bind them all")
        if not self._outputs:
            raise InputError(
                "the binding's outputs",
                "none",
                f"some of {list(self._known)}",
                "bind one with bind_output(name)",
            )
        feed = {name: self._inputs.get(name) for name in self._declared}
        tensors = [name for name, value in self._declared.items() if value.dtype is not None]
        shapes = {name: self._inputs[name].shape for name in tensors}
        buffers = {self._index[name]: bound for name, bound in self._outputs.items() if bound is not None}
        return BoundRun(feed, shapes, Targets(buffers, feed))

    def _set_input(self, name: str, array: Any) -> None:
        self._inputs[name] = array
        self._owners.pop(("input", name), None)
        self._prepared = None

    def _set_output(self, name: str, array: Array | None, owner: object) -> None:
        self._outputs[name], self._owners["output", name] = array, owner
        self._results.pop(name, None)
        self._prepared = None

    def _value(self, kind: str, known: Mapping[str, Value], name: str) -> Value:
        value = known.get(name) if isinstance(name, str) else None
        if value is None:
            raise InputError(f"{kind} of the binding", bounded_repr(name), f"some of {list(known)}")
        return value


def _require_type(where: str, value: Value, element_type: Any) -> None:
    """Raises ``InputError`` unless the model declares this type: NumPy's, or a number of TensorProto."""
    if value.dtype is None or element_dtype(where, element_type) != value.dtype:
        raise InputError(where, f"element_type {bounded_repr(element_type)}", f"{value.dtype}, {value}")


def _memory(where: str, value: Value, element_type: Any, shape: Any, buffer_ptr: Any) -> Array:
    """The tensor at an address of this process, as a view that writes go through."""
    _require_type(where, value, element_type)
    dtype = value.dtype
    sizes = arguments.shapes({value.name: shape})[value.name]
    if dtype is None or dtype.hasobject or value.type.removeprefix("tensor(")[:-1] in _PACKED:
        raise InputError(where, f"an address for {value}", "an array", "bind an array, or no memory")
    nbytes = limits.check_tensor(where, dtype, sizes, InputError)
    if not nbytes:
        return np.empty(sizes, dtype)
    address = arguments.integer(f"{where}, buffer_ptr", buffer_ptr, 1, _MOST_ADDRESS)
    raw = memoryview((ctypes.c_uint8 * nbytes).from_address(address))
    tensor: Array = np.frombuffer(raw, np.uint8).view(dtype).reshape(sizes)
    return tensor


def _array_of(where: str, value: Value, given: Any) -> Any:
    """The memory of an OrtValue on the host, an array, or what an object's ``numpy()`` returns."""
    if isinstance(given, np.ndarray | OrtValue):
        return given if isinstance(given, np.ndarray) else given.numpy()
    dtype = value.dtype
    if (
        dtype is not None
        and not dtype.hasobject
        and all(callable(getattr(given, m, None)) for m in _OF_TENSOR)
    ):
        if given.data_type() != value.type:
            raise InputError(where, f"an OrtValue of {given.data_type()}", f"{value}")
        require_host(where, given.device_name().lower(), 0)
        return _memory(where, value, dtype, given.shape(), given.data_ptr())
    if callable(getattr(given, "numpy", None)):
        return given.numpy()
    accepted = "an OrtValue, an array, or an object with numpy()"
    raise InputError(where, f"a {type(given).__name__}", accepted)


def _require_writable(where: str, value: Value, array: Any) -> None:
    """Raises ``InputError`` for what results cannot be written into as they are."""
    if value.dtype is None or value.dtype.hasobject:
        raise InputError(
            where, f"memory for {value}", "memory for tensors of numbers", "use bind_output(name)"
        )
    if not isinstance(array, np.ndarray):
        raise InputError(where, f"a {type(array).__name__}", f"a NumPy array, {value}")
    if array.dtype != value.dtype:
        raise InputError(
            where, f"dtype {array.dtype}", f"{value.dtype}, {value}", "bind memory of that dtype"
        )
    if not array.flags.c_contiguous:
        strides = f"strides {array.strides} for shape {list(array.shape)}"
        raise InputError(where, strides, "a C-contiguous array", "bind one, and copy from it after the run")
    if not array.flags.writeable:
        raise InputError(
            where, "a read-only array", "a writable one", "bind a copy, or use bind_output(name)"
        )


def _require_shape(value: Value, memory: Array, shape: Sequence[int]) -> None:
    if memory.shape != tuple(shape):
        raise InputError(
            f"output {value.name!r}",
            f"memory of shape {list(memory.shape)}",
            f"{list(shape)}, the shape that the output has in this run",
            "bind memory of that shape, or none by bind_output(name)",
        )
