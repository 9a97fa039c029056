# SPDX-License-Identifier: Apache-2.0
"""``OrtValue``: a tensor in the host's memory, or a sequence of them, under onnxruntime's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onedispatch.dispatch.base import arguments, limits
from onedispatch.dispatch.frontend.graph import Array, dtype_of, type_name_of
from onedispatch.dispatch.ort.without_meaning import refusing
from onedispatch.transactions.base.boundary import guarded, public
from onedispatch.transactions.base.errors import InputError, ModelError
from onedispatch.transactions.base.signature import bounded_repr
from onedispatch.transactions.base.text import counted

REFUSED = dict.fromkeys(("as_sparse_tensor", "ort_value_from_sparse_tensor"), "give dense tensors")


def require_host(where: str, device_type: Any, device_id: Any) -> None:
    """Raises ``InputError`` for another place than the host's memory."""
    if str(device_type).lower() != "cpu" or device_id != 0:
        given = f"device {bounded_repr(device_type)}, {bounded_repr(device_id)}"
        remedy = "every run moves tensors between it and the device's memory, which only runs can address"
        raise InputError(where, given, "memory of the host: 'cpu', 0", remedy)


def element_dtype(where: str, element_type: Any) -> np.dtype[Any] | None:
    """The dtype of a NumPy type, or of a number of ``onnx.TensorProto``. Raises ``InputError``."""
    try:
        if not isinstance(element_type, int):
            dtype: np.dtype[Any] = np.dtype(element_type)
            return dtype
        from onnx import TensorProto

        return dtype_of(f"tensor({TensorProto.DataType.Name(element_type).lower()})")
    except (TypeError, ValueError) as error:
        accepted = "a NumPy type, or a number of onnx.TensorProto"
        raise InputError(where, f"element_type {bounded_repr(element_type)}", accepted) from error


@guarded
@refusing(REFUSED)
class OrtValue:
    """A value of type ``kind``: an array, a list for a sequence. ``absent`` names an output without one."""

    def __init__(self, value: Any, kind: str, absent: str = "") -> None:
        self._value, self._kind, self._absent = value, kind, absent

    # -- making ----------------------------------------------------------------------------

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: Array, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """A value over the memory of an array; of a copy where that is not contiguous.

        Raises ``InputError`` for what is no array, of a dtype that ONNX has not, or for another device.
        """
        where = "OrtValue.ortvalue_from_numpy"
        require_host(where, device_type, device_id)
        array = _array(where, numpy_obj)
        return cls(np.ascontiguousarray(array).reshape(array.shape), _type_of(where, array))

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: Array, onnx_element_type: int) -> OrtValue:
        """A value over the memory of an array, whose elements are read as of another type of their size."""
        where = "OrtValue.ortvalue_from_numpy_with_onnx_type"
        array = np.ascontiguousarray(_array(where, data))
        dtype = element_dtype(where, onnx_element_type)
        if dtype is None or dtype.hasobject or dtype.itemsize != array.itemsize:
            accepted = f"a type of numbers with {counted(array.itemsize, 'byte')}"
            raise InputError(where, f"element type {bounded_repr(onnx_element_type)}", accepted)
        return cls(array.view(dtype).reshape(data.shape), type_name_of(dtype))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: Any,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
        memory_info: None = None,
    ) -> OrtValue:
        """A value of this shape and type (NumPy's, or a number of ``onnx.TensorProto``), all zeros."""
        where = "OrtValue.ortvalue_from_shape_and_type"
        require_host(where, device_type, device_id)
        if memory_info is not None:
            raise InputError(where, "memory_info", "None", "leave it out: values are in the host's memory")
        dtype = element_dtype(where, element_type)
        if dtype is None or dtype.kind in "OUS":
            raise InputError(where, f"element_type {bounded_repr(element_type)}", "a type of numbers")
        sizes = arguments.shapes({"shape": shape})["shape"]
        limits.check_tensor(where, dtype, sizes, InputError)
        array: Array = np.zeros(sizes, dtype)
        return cls(array, _type_of(where, array))

    @classmethod
    def from_dlpack(cls, data: Any) -> OrtValue:
        """A value over the memory of a tensor of another package. Raises ``InputError`` for what is none."""
        where = "OrtValue.from_dlpack"
        try:
            array = np.from_dlpack(data)
        except (AttributeError, BufferError, RuntimeError, TypeError) as error:
            accepted = "an object with __dlpack__ and __dlpack_device__, in the host's memory"
            raise InputError(where, bounded_repr(data), accepted) from error
        return cls.ortvalue_from_numpy(array)

    # -- what it is ------------------------------------------------------------------------

    def has_value(self) -> bool:
        """Whether there is something; not in an output of a binding before its first run."""
        return not self._absent and self._value is not None

    def is_tensor(self) -> bool:
        return dtype_of(self._kind) is not None

    def is_tensor_sequence(self) -> bool:
        return self._kind.startswith("seq(tensor(")

    def is_sparse_tensor(self) -> bool:
        return self._kind.startswith("sparse_tensor(")

    def data_type(self) -> str:
        """``tensor(float)`` and the like."""
        return self._kind

    def element_type(self) -> int:
        """The number of the elements' type in ``onnx.TensorProto``. Raises ``InputError`` for maps."""
        name = self._kind.removeprefix("seq(").removeprefix("tensor(").rstrip(")")
        if dtype_of(f"tensor({name})") is None:
            raise InputError("OrtValue.element_type", f"a {self._kind}", "a tensor, or a sequence of tensors")
        from onnx import TensorProto

        return int(TensorProto.DataType.Value(name.upper()))

    def device_name(self) -> str:
        """``cpu``: results leave the device's memory in every run."""
        return "cpu"

    def shape(self) -> list[int]:
        return list(self._tensor("shape").shape)

    def data_ptr(self) -> int:
        """The address of the first element."""
        return int(self._tensor("data_ptr").ctypes.data)

    def tensor_size_in_bytes(self) -> int:
        return int(self._tensor("tensor_size_in_bytes").nbytes)

    # -- its elements ----------------------------------------------------------------------

    def numpy(self) -> Any:
        """The array, not a copy; a list for a sequence. Raises ``InputError`` where there is none yet."""
        if self._absent:
            remedy = "call session.run_with_iobinding first"
            raise InputError(f"output {self._absent!r}", "a binding that was not run", "one that was", remedy)
        return self._value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array = np.asarray(self._tensor("__array__"), dtype)
        return array.copy() if copy else array

    def __dlpack__(self, **how: Any) -> Any:
        return self._tensor("__dlpack__").__dlpack__(**how)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, number = self._tensor("__dlpack_device__").__dlpack_device__()
        return int(kind), number

    def update_inplace(self, data: Any) -> None:
        """Writes ``data``, an array or a value, into the memory. Raises ``InputError`` for another size or
        dtype, and for memory that is read-only."""
        where = "OrtValue.update_inplace"
        own = self._tensor("update_inplace")
        array = _array(where, data.numpy() if isinstance(data, OrtValue) else data)
        if array.dtype != own.dtype or array.size != own.size:
            given = f"{array.dtype} of shape {list(array.shape)}"
            raise InputError(where, given, f"{own.dtype} of shape {list(own.shape)}")
        if not own.flags.writeable:
            raise InputError(where, "a value over a read-only array", "one over memory that can be written")
        np.copyto(own, array.reshape(own.shape))

    def _tensor(self, name: str) -> Array:
        value = self.numpy()
        if not isinstance(value, np.ndarray):
            raise InputError(f"OrtValue.{name}", f"a {self._kind}", "a tensor", "take numpy(), a list")
        return value


@public
def copy_tensors(src: Sequence[OrtValue], dst: Sequence[OrtValue], stream: None = None) -> None:
    """Writes each value of ``src`` into the one of ``dst``. Raises ``InputError`` where they do not fit."""
    if len(src) != len(dst):
        raise InputError("copy_tensors", f"{len(src)} and {len(dst)}", "as many values in src as in dst")
    for value, target in zip(src, dst, strict=True):
        target.update_inplace(value)


def _array(where: str, given: Any) -> Array:
    if not isinstance(given, np.ndarray):
        raise InputError(where, f"a {type(given).__name__}", "a NumPy array", "use numpy.asarray")
    return given


def _type_of(where: str, array: Array) -> str:
    try:
        return "tensor(string)" if array.dtype.hasobject else type_name_of(array.dtype)
    except ModelError as error:
        raise InputError(where, f"dtype {array.dtype}", "a dtype that ONNX has") from error
