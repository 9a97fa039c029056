# SPDX-License-Identifier: Apache-2.0
"""A node of the model as the methods of a kernel see it: ``n``.

``n["x"]`` is an operand by its declared name, ``n.a`` a scalar. Whatever does not agree with the declaration
(counts, ranks, dtypes, quantisation, attributes) is refused before a method runs, with ``.given``,
``.accepted`` and ``.node``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from onedispatch.operators.declarations.dtypes import DTYPES, OPEN, open_dtype_of
from onedispatch.operators.declarations.kernel import Scalar, Tensor
from onedispatch.operators.declarations.tensor import NodeSpec, Quantisation, TensorSpec
from onedispatch.operators.plugin.custom_kernel import CustomKernel
from onedispatch.operators.plugin.instance import WHOLE_DIMENSION, Interval
from onedispatch.operators.plugin.refusals import refusal
from onedispatch.transactions import Device
from onedispatch.transactions.base.errors import KernelError
from onedispatch.transactions.base.text import counted, did_you_mean, span


class Made(NamedTuple):
    """What ``infer`` says of an output."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class NodeTensor:
    """An operand of a node: ``dtype`` is a name ("f32"), ``value`` is set of a constant of the model."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    quantisation: Quantisation | None = None
    value: np.ndarray[Any, Any] | None = None
    where: str = ""  # the node and the kernel, for messages

    present = True

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def host_data(self) -> np.ndarray[Any, Any]:
        """The value of an input that shapes follow from, before anything runs.

        Raises ``KernelNonStaticInputError`` where it is known only in the run.
        """
        if self.value is None:
            accepted = "a constant, or an input that host_inputs of the layer names: small, of whole numbers"
            where = f"{self.where}: host_data of {self.name}"
            raise refusal("non_static_input", where, "a value of the run", accepted)
        return self.value

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    def like(self, shape: int | Sequence[int] | None = None, dtype: str | None = None) -> Made:
        """An output of the same shape and dtype, or with one of them changed."""
        sizes = self.shape if shape is None else (shape,) if isinstance(shape, int) else shape
        return Made(dtype or self.dtype, tuple(sizes))


class AbsentTensor:
    """An optional input that the node does not give: nothing but ``present`` may be asked."""

    present = False
    value = None

    def __init__(self, name: str, node: Node) -> None:
        self.name, self._node = name, node

    def __getattr__(self, what: str) -> Any:
        if what.startswith("__"):
            raise AttributeError(what)
        raise self._node.refuse(
            "input_count",
            f"{self.name}.{what}",
            "an absent input",
            f'n["{self.name}"].present to be asked first',
        )


class Node:
    """One node for one kernel on one device.

    ``attributes`` names the node's attribute of a scalar, where it is not the same. Raises ``KernelError``
    on construction for what does not agree with ``kernel``.
    """

    def __init__(
        self,
        kernel: CustomKernel,
        spec: NodeSpec,
        device: Device,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        self._kernel, self._spec, self._device = kernel, spec, device
        self._attributes = dict(attributes or {})
        self._asked: set[str] = set()  # attributes that methods of the kernel have read
        self._tensors: dict[str, NodeTensor | AbsentTensor] = {}
        self._index_space: tuple[int, ...] | None = None
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}  # what ``aux`` collects
        self.scratch_bytes: dict[str, int] = {}
        self.pads: dict[str, float] = {}
        self.fills: dict[str, float] = {}
        self.work_terms: dict[str, float] = {}
        self._check_counts()
        for operand, tensor in zip(kernel.inputs, self._given(spec.inputs, kernel.inputs), strict=True):
            self._tensors[operand.name] = self._input(operand, tensor)
        self._check_likes(kernel.inputs)
        self.preferred_split: int | None = None  # the index dimension that is best cut first
        stated = {scalar: self._stated(scalar) for scalar in kernel.own_scalars}
        self.scalars = {
            scalar.name: self.checked_scalar(scalar, value, f"attribute {self._attribute(scalar)!r}")
            for scalar, value in stated.items()
            if value is not None
        }

    # -- what is there ---------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self._spec.name

    @property
    def op_type(self) -> str:
        return self._spec.op_type

    @property
    def target(self) -> Device:
        """The device's description."""
        return self._device

    @property
    def device(self) -> str:
        """The name of the device: "npu2", "npu2_4col"."""
        return self._device.name

    @property
    def max_cores(self) -> int:
        """Cores that may work on it; any number of them gives the same bits."""
        return self._device.columns * self._device.core_rows

    def __getitem__(self, name: str) -> Any:
        """The operand: an input, or an output once ``infer`` has given it."""
        if name in self._tensors:
            return self._tensors[name]
        if name in (one.name for one in self._kernel.outputs):
            raise self.refuse(
                "parameter_invalid", f'n["{name}"]', "an output before infer has given it", "inputs"
            )
        raise self.refuse("parameter_invalid", "an operand", repr(name), ", ".join(self._names()))

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and "scalars" in self.__dict__:
            if name in self.scalars:
                return self.scalars[name]
            for scalar in self._kernel.own_scalars:
                if scalar.name == name:
                    raise self._missing(scalar)
        known = ", ".join(self.__dict__.get("scalars", ())) or "none"
        raise AttributeError(f"a node has no {name!r}; the kernel's scalars: {known}")

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute of the node, declared as a scalar or not: a number, text, a list, an array."""
        self._asked.add(name)
        return self._spec.attr(name, default)

    def check_attributes(self) -> None:
        """Raises ``KernelParameterInvalidError`` for attributes that are no scalar of the kernel and that its
        methods, which have all been called by now, have not read.
        """
        known = sorted({self._attribute(scalar) for scalar in self._kernel.own_scalars} | self._asked)
        unknown = [name for name in self._spec.attributes if name not in known]
        if unknown:
            accepted = (
                f"{', '.join(known) or 'no attributes'}: its scalars, and what its methods read by n.attr"
            )
            given = repr(self._spec.attributes[unknown[0]])
            remedy = (
                did_you_mean(unknown[0], known) or "leave it out, or declare it as a scalar of the kernel"
            )
            raise self.refuse("parameter_invalid", f"attribute {unknown[0]!r}", given, accepted, remedy)

    def refuse(self, status: str, what: str, given: object, accepted: str, remedy: str = "") -> KernelError:
        """The error that says what of this node the kernel does not take; ``status``: see ``statuses.py``."""
        return refusal(status, f"{self.where}: {what}", given, accepted, remedy, node=self.name)

    @property
    def where(self) -> str:
        """The node and the kernel, for messages."""
        return f"node {self.name} ({self.op_type}), kernel {self._kernel.name}"

    # -- access ----------------------------------------------------------------------------

    @property
    def index_space(self) -> tuple[int, ...]:
        """Members along each index dimension, once the method of that name has given it."""
        if self._index_space is None:
            raise self.refuse("parameter_invalid", "n.index_space", "nothing yet", "to be asked in access")
        return self._index_space

    def elementwise(self, *names: str) -> dict[str, tuple[Interval, ...]]:
        """Member ``i`` touches element ``i`` of these operands (all that are there, where none is named).

        Dimensions are matched from the last one on, as NumPy broadcasts: those of size 1 are whole.
        """
        wanted = [name for given in names for name in given.split()] or self._operands()
        return {name: self._broadcast(self[name]) for name in wanted if self[name].present}

    def _broadcast(self, tensor: NodeTensor) -> tuple[Interval, ...]:
        space = self.index_space
        lead = len(space) - tensor.rank
        found = []
        for d, size in enumerate(tensor.shape):
            members = space[lead + d] if lead + d >= 0 else 1
            if size == 1:
                found.append(WHOLE_DIMENSION if lead + d < 0 or members > 1 else Interval(lead + d))
            elif lead + d >= 0 and size == members:
                found.append(Interval(lead + d))
            else:
                given = f"{list(tensor.shape)} beside an index space of {list(space)}"
                raise self.refuse(
                    "broadcast", f"shape of {tensor.name}", given, "sizes of the index space, or 1"
                )
        return tuple(found)

    def access(self, name: str, *intervals: Interval | int | None) -> dict[str, tuple[Interval, ...]]:
        """What member ``i`` touches of ``name``: per dimension of the tensor an ``Interval``, the number of
        an index dimension (element ``i``), or None (anything)."""
        return {name: as_intervals(intervals)}

    @staticmethod
    def dim(dim: int, a: int | Fraction = 1, start: int = 0, end: int = 0) -> Interval:
        """``[a*i + start, a*i + end]`` for member ``i`` of index dimension ``dim``."""
        return Interval(dim, a, start, end)

    @staticmethod
    def block(dim: int, size: int) -> Interval:
        """``size`` elements of its own for each member: ``[size*i, size*i + size - 1]``."""
        return Interval(dim, size, 0, size - 1)

    @staticmethod
    def whole() -> Interval:
        """Any member may touch anything of a dimension."""
        return WHOLE_DIMENSION

    # -- what an instance adds -------------------------------------------------------------

    def aux(self, name: str, array: Any) -> None:
        """The values of an auxiliary tensor; they must be numbers of its dtype."""
        known = {one.name: one.dtypes for one in self._kernel.aux}
        if name not in known:
            raise self.refuse(
                "parameter_invalid", "an auxiliary tensor", repr(name), ", ".join(known) or "none"
            )
        values = np.asarray(array)
        numpy = DTYPES[known[name]].numpy
        if values.dtype != numpy and not np.can_cast(values.dtype, numpy, "same_kind"):
            raise self.refuse("dtype", f"auxiliary tensor {name}", values.dtype, known[name])
        if values.size == 0:
            raise self.refuse("parameter_invalid", f"auxiliary tensor {name}", "no elements", "one or more")
        self.arrays[name] = np.ascontiguousarray(values.astype(numpy)).reshape(values.shape)

    def scratch(self, name: str, shape: int | Sequence[int], dtype: str | None = None) -> None:
        """Elements that a call has of a declared scratch; ``dtype`` where it is not the declared one."""
        known = {one.name: one.dtypes for one in self._kernel.scratch_tensors}
        if name not in known:
            raise self.refuse("parameter_invalid", "scratch", repr(name), ", ".join(known) or "none")
        sizes = [shape] if isinstance(shape, int) else list(shape)
        if any(size < 1 for size in sizes) or (dtype or "f32") not in OPEN:
            given = f"{sizes} of {dtype or known[name]}"
            raise self.refuse("parameter_invalid", f"scratch {name}", given, "sizes of 1 or more, a dtype")
        row = DTYPES[dtype or known[name]]
        self.scratch_bytes[name] = int(np.prod(sizes, dtype=np.int64)) * row.itemsize

    @property
    def scratch_mask(self) -> int:
        """A bit per auxiliary tensor in the order of declaration, aux first: set where it is scratch."""
        aux, scratch = len(self._kernel.aux), len(self._kernel.scratch_tensors)
        return ((1 << scratch) - 1) << aux

    def pad(self, name: str, value: float) -> None:
        """What is read outside of an input."""
        self._edge("pad", self._kernel.inputs, name, value, self.pads)

    def fill(self, name: str, value: float) -> None:
        """What elements of an output hold that no member writes."""
        self._edge("fill", self._kernel.outputs, name, value, self.fills)

    def _edge(
        self, what: str, operands: Sequence[Tensor], name: str, value: float, into: dict[str, float]
    ) -> None:
        if name not in (one.name for one in operands):
            known = ", ".join(one.name for one in operands)
            raise self.refuse("parameter_invalid", f"{what} of", repr(name), known)
        dtype = self[name].dtype if self[name].present else ""
        if dtype and not DTYPES[dtype].holds(value):
            raise self.refuse("parameter_invalid", f"{what} of {name}", value, f"a value of {dtype}")
        into[name] = float(value)

    def work(self, **terms: float) -> None:
        """Element operations that one member takes, by kind: ``n.work(mul=1, op=2)``."""
        self.work_terms |= terms

    # -- for those who place ---------------------------------------------------------------

    def set_outputs(self, outputs: Mapping[str, Made]) -> None:
        """From here on outputs are known too."""
        for name, made in outputs.items():
            self._tensors[name] = NodeTensor(name, made.dtype, made.shape)

    def set_index_space(self, sizes: tuple[int, ...]) -> None:
        self._index_space = sizes

    @property
    def spec(self) -> NodeSpec:
        return self._spec

    def given(self, name: str) -> TensorSpec | None:
        """The tensor of the graph that an input is; None where it is absent."""
        at = [one.name for one in self._kernel.inputs].index(name)
        return self._spec.input(at)

    # -- checks ----------------------------------------------------------------------------

    def _names(self) -> list[str]:
        return [one.name for one in self._kernel.operands]

    def _operands(self) -> list[str]:
        return [name for name in self._names() if name in self._tensors]

    @staticmethod
    def _given(given: Sequence[Any], operands: Sequence[Any]) -> list[Any]:
        return [given[i] if i < len(given) else None for i in range(len(operands))]

    def _check_counts(self) -> None:
        inputs, outputs = self._kernel.inputs, self._kernel.outputs
        least = max((i + 1 for i, one in enumerate(inputs) if not one.optional), default=0)
        given = len(self._spec.inputs)
        if not least <= given <= len(inputs):
            accepted = f"{span(least, len(inputs))}: {', '.join(one.name for one in inputs)}"
            raise self.refuse("input_count", "inputs", counted(given, "input"), accepted)
        for operand, tensor in zip(inputs, self._spec.inputs, strict=False):
            if tensor is None and not operand.optional:
                raise self.refuse("input_count", f"input {operand.name}", "nothing", "a tensor")
        if len(self._spec.outputs) > len(outputs):
            accepted = f"{len(outputs)}: {', '.join(one.name for one in outputs)}"
            raise self.refuse("output_count", "outputs", counted(len(self._spec.outputs), "output"), accepted)

    def _input(self, operand: Tensor, tensor: TensorSpec | None) -> NodeTensor | AbsentTensor:
        if tensor is None:
            return AbsentTensor(operand.name, self)
        row = open_dtype_of(tensor.dtype)
        dtypes = operand.dtype_names
        if row is None or row.name not in dtypes:
            given = row.name if row is not None else str(tensor.dtype)
            remedy = (
                'InferenceSession(..., cast_policy="f32") casts to f32 and back' if "f32" in dtypes else ""
            )
            raise self.refuse("dtype", f"dtype of input {operand.name}", given, " or ".join(dtypes), remedy)
        self.check_rank("input", operand, tensor.shape)
        if operand.quantised is not None and operand.quantised != (tensor.quantisation is not None):
            stated = ("no scale and zero point", "scale and zero point")
            wanted, found = stated[operand.quantised], stated[tensor.quantisation is not None]
            raise self.refuse("quantisation", f"input {operand.name}", f"a tensor with {found}", wanted)
        said = tensor.quantisation, tensor.value
        return NodeTensor(operand.name, row.name, tensor.shape, *said, self.where)

    def check_rank(self, role: str, operand: Tensor, shape: Sequence[int]) -> None:
        least, most = operand.rank
        if not least <= len(shape) <= most:
            given = f"{len(shape)} (shape {list(shape)})"
            raise self.refuse("rank", f"rank of {role} {operand.name}", given, span(least, most))

    def _check_likes(self, operands: Iterable[Tensor]) -> None:
        for operand in operands:
            own, like = self._tensors.get(operand.name), self._tensors.get(operand.like)
            if isinstance(own, NodeTensor) and isinstance(like, NodeTensor) and own.dtype != like.dtype:
                accepted = f"{like.dtype}, that of {operand.like}"
                raise self.refuse("dtype", f"dtype of {operand.name}", own.dtype, accepted)

    def check_outputs_alike(self) -> None:
        """Raises ``KernelDtypeError`` where an output is not like the operand that it must be like."""
        self._check_likes(self._kernel.outputs)

    def _attribute(self, scalar: Scalar) -> str:
        return self._attributes.get(scalar.name, scalar.name)

    def _stated(self, scalar: Scalar) -> Any:
        return self._spec.attr(self._attribute(scalar), scalar.default)

    def _missing(self, scalar: Scalar) -> KernelError:
        given = ", ".join(sorted(self._spec.attributes)) or "no attributes"
        accepted = f"attribute {self._attribute(scalar)!r}, {scalar.accepted} (it has no default)"
        return self.refuse("missing_parameters", f"scalar {scalar.name}", given, accepted)

    def checked_scalars(self) -> dict[str, float]:
        """Every scalar. Raises ``KernelMissingParametersError`` where neither node nor kernel gives one."""
        for scalar in self._kernel.own_scalars:
            if scalar.name not in self.scalars:
                raise self._missing(scalar)
        return dict(self.scalars)

    def checked_scalar(self, scalar: Scalar, value: Any, where: str) -> float:
        """``value`` as a number of the scalar's type. Raises ``KernelScalarArgumentError``."""
        if isinstance(value, np.ndarray | np.generic) and value.size == 1:
            value = value.item()
        if not isinstance(value, int | float) or not scalar.takes(value):
            raise self.refuse(
                "scalar_argument", f"scalar {scalar.name}, {where}", repr(value), scalar.accepted
            )
        return float(np.float32(value)) if scalar.type == "f32" else int(value)


def as_intervals(given: Any) -> tuple[Interval, ...]:
    """Intervals as methods may return them: numbers and None stand for element ``i`` and for anything."""
    return tuple(
        WHOLE_DIMENSION if one is None else Interval(one) if isinstance(one, int) else one for one in given
    )
