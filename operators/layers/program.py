# SPDX-License-Identifier: Apache-2.0
"""What ``global_`` of a layer is given: tensors in device memory, moves between them, and calls on cores.

    def global_(self, g):
        rows = g.buffer((8, 64))                  # of get_global_buffer_size
        g.copy(rows, g.x[2:10])
        g.local(x=rows, y=g.y)                    # its own ``local``, on tiles of these

Moves and calls run in the order in which they are said. Each tensor is written once, as a whole, before it is
read; inputs are only read. What breaks that is refused when the node is placed, before anything runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from onedispatch.operators.declarations.dtypes import DTYPES, OPEN
from onedispatch.operators.declarations.tensor import NodeSpec, TensorSpec
from onedispatch.operators.interface.operator import Lowering
from onedispatch.operators.layers.checks import checked_bytes
from onedispatch.operators.layers.layer_kernel import LayerKernel
from onedispatch.operators.layers.methods import LayerMethods, said
from onedispatch.operators.lowering.boxes import BoxCopy, CoordinateMap, emit_boxes, emit_slab
from onedispatch.operators.plugin import registrations
from onedispatch.operators.plugin.lowering import check_device, member_operator
from onedispatch.operators.plugin.node import Made, Node
from onedispatch.operators.plugin.plugin_kernel import PluginKernel
from onedispatch.transactions.base.text import counted, did_you_mean

MOST_MOVES = 4096  # into one tensor: each is a loop nest


@dataclass(frozen=True, eq=False)
class View:
    """A part of a tensor in device memory, as NumPy's basic slices take it: ``g.x[0, 2:8, ::2]``.

    ``shape``, ``dtype`` ("f32") and ``value``, which is set of a constant, are what they are of an operand.
    """

    program: GlobalProgram = field(repr=False)
    tensor: TensorSpec
    begin: tuple[int, ...]
    steps: tuple[tuple[int, int], ...]  # (dimension of the tensor, step) per dimension of the view
    shape: tuple[int, ...]

    @property
    def dtype(self) -> str:
        return self.tensor.element.name

    @property
    def value(self) -> Any:
        """The elements of a constant of the model, else None."""
        value = self.tensor.value
        if value is None:
            return None
        strides = [value.strides[d] * step for d, step in self.steps]
        first = value[self.begin] if self.begin else value
        at = np.lib.stride_tricks.as_strided
        return at(first, self.shape, strides) if self.shape else first

    @property
    def is_whole(self) -> bool:
        return self.shape == self.tensor.shape and self.steps == tuple((d, 1) for d in range(len(self.shape)))

    @property
    def along(self) -> CoordinateMap:
        return CoordinateMap(self.begin, self.steps)

    def __getitem__(self, at: Any) -> View:
        begin, steps, shape = list(self.begin), [], []
        for (dim, step), size, part in zip(self.steps, self.shape, self._parts(at), strict=True):
            if isinstance(part, slice):
                taken = range(*part.indices(size))
                begin[dim] += (taken.start if taken else 0) * step
                steps.append((dim, taken.step * step))
                shape.append(len(taken))
            else:
                begin[dim] += part * step
        return View(self.program, self.tensor, tuple(begin), tuple(steps), tuple(shape))

    def _parts(self, at: Any) -> list[Any]:
        """A slice or a coordinate per dimension. Raises ``KernelError`` for other indices."""
        given = list(at) if isinstance(at, tuple) else [at]
        ellipses = [i for i, part in enumerate(given) if part is Ellipsis]
        missing = len(self.shape) - len(given) + len(ellipses)
        if missing < 0 or len(ellipses) > 1:
            raise self._refuse(at, f"one index at most for each of {counted(len(self.shape), 'dimension')}")
        where = ellipses[0] if ellipses else len(given)
        given[where : where + len(ellipses)] = [slice(None)] * missing
        return [self._part(part, size, at) for part, size in zip(given, self.shape, strict=True)]

    def _part(self, part: Any, size: int, at: Any) -> Any:
        if isinstance(part, slice):
            try:
                step = part.indices(size)[2]
            except (TypeError, ValueError):
                step = 0
            if step < 1:
                raise self._refuse(at, "slices of whole numbers that go upwards")
            return part
        if isinstance(part, bool) or not isinstance(part, int | np.integer):
            raise self._refuse(at, "whole numbers, slices and ...")
        if not -size <= part < size:
            raise self._refuse(at, f"coordinates from {-size} to {size - 1}")
        return int(part) % size

    def _refuse(self, at: Any, accepted: str) -> Exception:
        parts = at if isinstance(at, tuple | list) else [at]
        where = f"a part of {self.tensor.name}, {list(self.shape)}"
        return self.program.refused(where, f"[{', '.join(map(_text, parts))}]", accepted)

    def transposed(self, *order: int) -> View:
        """The same elements with dimensions in another order."""
        if sorted(order) != list(range(len(self.shape))):
            raise self._refuse(list(order), f"each of 0 to {len(self.shape) - 1} once")
        steps, shape = tuple(self.steps[d] for d in order), tuple(self.shape[d] for d in order)
        return View(self.program, self.tensor, self.begin, steps, shape)


@dataclass(eq=False)
class _Written:
    """A tensor that the program makes: what of it is there, and the moves that are still to be emitted."""

    there: np.ndarray[Any, Any]
    sources: list[TensorSpec] = field(default_factory=list)
    boxes: list[BoxCopy] = field(default_factory=list)
    read: bool = False


class GlobalProgram:
    """``g``: operands by name, as ``View``; an input that is absent is None."""

    def __init__(
        self,
        plugin: LayerKernel,
        layer: LayerMethods,
        node: Node,
        made: Mapping[str, Made],
        lowering: Lowering,
    ) -> None:
        self._plugin, self._layer, self._node, self._lowering = plugin, layer, node, lowering
        self._written: dict[str, _Written] = {}
        self._steps = 0
        self._room = self._checked_room()
        self._outputs = self._planned(made)
        given = {one.name: node.given(one.name) for one in plugin.kernel.inputs}
        operands = {name: None if one is None else self._whole(one) for name, one in given.items()}
        operands |= {name: self._whole(one) for name, one in self._outputs.items()}
        self.__dict__.update(operands)

    def __getattr__(self, name: str) -> Any:
        known = ", ".join(one.name for one in self._plugin.kernel.operands)
        raise AttributeError(f"a layer's program has no {name!r}; it has {known}, {', '.join(_METHODS)}")

    # -- what an author says -----------------------------------------------------------------

    def buffer(self, shape: int | Sequence[int], dtype: str = "f32") -> View:
        """Device memory for what lies between, of ``get_global_buffer_size``; of no contents at first."""
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        if dtype not in OPEN or not all(isinstance(size, int) and size > 0 for size in sizes):
            raise self.refused(
                "g.buffer", f"{list(sizes)} of {dtype!r}", f"sizes above 0, one of {', '.join(OPEN)}"
            )
        tensor = self._lowering.temp(DTYPES[dtype].numpy, sizes)
        if tensor.device_bytes > self._room:
            given = f"{counted(tensor.device_bytes, 'byte')} for {list(sizes)} of {dtype}"
            accepted = f"at most {self._room}, which get_global_buffer_size leaves"
            raise self.refused("g.buffer", given, accepted, "buffer_too_small")
        self._room -= tensor.device_bytes
        self._make(tensor)
        return self._whole(tensor)

    def copy(self, target: View, source: Any) -> None:
        """Moves ``source``, a view or an array of constants, into ``target``: same shape, same type."""
        to = self._target("g.copy", target)
        view = source if isinstance(source, View) else self._constant(source, target)
        if view.shape != target.shape or view.dtype != target.dtype:
            given = f"{view.dtype}{list(view.shape)} into {target.dtype}{list(target.shape)}"
            raise self.refused("g.copy", given, "a source of the target's shape and type")
        self._readable("g.copy", view)
        self._move(to, target, view.tensor, view.along)

    def fill(self, target: View, value: float) -> None:
        """Writes one number everywhere in ``target``."""
        to = self._target("g.fill", target)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not DTYPES[target.dtype].holds(value)
        ):
            raise self.refused("g.fill", repr(value), f"a number of {target.dtype}")
        number = self._lowering.const(np.asarray(value, target.tensor.dtype))
        self._move(to, target, number, CoordinateMap((), ((0, 0),) * len(target.shape)))

    def local(self, **operands: View | None) -> None:
        """Runs the layer's own ``local`` as if a node had these tensors: inputs to read, results to write."""
        if not self._plugin.has_body:
            raise self.refused("g.local", "a layer without local", "one that has it", "not_supported")
        self._call(self._plugin, operands, self._node.spec.attributes, "g.local")

    def call(self, kernel: str, params: Mapping[str, Any] | None = None, **operands: View | None) -> None:
        """Runs another kernel, or another layer's ``local``; ``params`` are its node's attributes."""
        found = (
            registrations.named(kernel if "@" in kernel else f"{kernel}@1")
            if isinstance(kernel, str)
            else None
        )
        if found is None:
            names = [one.kernel.name for one in registrations.kernels()]
            accepted = ", ".join(names)
            raise self.refused(
                "g.call", repr(kernel), accepted, "not_found", did_you_mean(f"{kernel}@1", names) or ""
            )
        self._call(found, operands, dict(params or {}), f"g.call({kernel!r})")

    # -- for those who place -----------------------------------------------------------------

    def refused(
        self, where: str, given: object, accepted: str, status: str = "parameter_invalid", remedy: str = ""
    ) -> Exception:
        return self._node.refuse(status, where, given, accepted, remedy)

    def finish(self) -> None:
        """Emits what is left. Raises ``KernelError`` for results that are not written as a whole."""
        for tensor in self._outputs.values():
            self._complete(tensor, "its results")

    def _planned(self, made: Mapping[str, Made]) -> dict[str, TensorSpec]:
        outputs = {}
        for i, (name, (dtype, shape)) in enumerate(made.items()):
            given = self._node.spec.outputs
            tensor = given[i] if i < len(given) else None
            outputs[name] = tensor or self._lowering.temp(DTYPES[dtype].numpy, shape)
            self._make(outputs[name])
        return {name: tensor for name, tensor in outputs.items() if name not in self._hidden}

    @property
    def _hidden(self) -> frozenset[str]:
        return frozenset(self._plugin.dynamic_results.values())

    def _checked_room(self) -> int:
        what = "get_global_buffer_size"
        return checked_bytes(self._node, what, said(self._layer, what))

    def _whole(self, tensor: TensorSpec) -> View:
        dims = range(len(tensor.shape))
        return View(self, tensor, (0,) * len(dims), tuple((d, 1) for d in dims), tensor.shape)

    def _make(self, tensor: TensorSpec) -> None:
        self._written[tensor.name] = _Written(np.zeros(tensor.shape, bool))

    def _name(self) -> str:
        self._steps += 1
        return f"{self._node.name}//{self._steps}"

    def _constant(self, values: Any, target: View) -> View:
        array = np.asarray(values)
        if array.dtype.kind not in "iufb" or not np.can_cast(array.dtype, target.tensor.dtype, "same_kind"):
            raise self.refused(
                "g.copy", f"{array.dtype}{list(array.shape)}", "a view, or numbers of its type"
            )
        return self._whole(self._lowering.const(array.astype(target.tensor.dtype)))

    # -- writing and reading -------------------------------------------------------------------

    def _target(self, where: str, target: Any) -> _Written:
        """What is known of the tensor that a view to be written lies in."""
        if not isinstance(target, View) or target.program is not self:
            raise self.refused(where, repr(target), "a view of this layer's: g.y, g.buffer(...)")
        to = self._written.get(target.tensor.name)
        if to is None:
            raise self.refused(
                where, f"{target.tensor.name} as its target", "results and buffers: inputs are read"
            )
        if to.read:
            given = f"{target.tensor.name}, which has been read"
            raise self.refused(where, given, "a tensor that is written before it is read")
        cells = to.there[_index(target)]
        if cells.any():
            given = f"{int(cells.sum())} of {cells.size} elements of {target.tensor.name} a second time"
            raise self.refused(where, given, "each element once")
        return to

    def _readable(self, where: str, view: View) -> None:
        """Raises ``KernelError`` for what is not there yet; emits the moves that make it."""
        if view.program is not self:
            raise self.refused(where, repr(view), "a view of this layer's")
        if view.tensor.name in self._written:
            self._complete(view.tensor, where)

    def _move(self, to: _Written, target: View, source: TensorSpec, along: CoordinateMap) -> None:
        if not prod(target.shape):
            return
        if len(to.boxes) >= MOST_MOVES:
            accepted = f"at most {MOST_MOVES}: move larger parts"
            raise self.refused("g.copy", f"more moves into {target.tensor.name}", accepted)
        to.there[_index(target)] = True
        to.sources.append(source)
        to.boxes.append(BoxCopy(len(to.sources) - 1, target.shape, along, target.along))

    def _complete(self, tensor: TensorSpec, where: str) -> None:
        """The moves into a tensor, emitted once: it is whole from here on."""
        made = self._written[tensor.name]
        if not made.there.all():
            missing = [int(i) for i in np.argwhere(~made.there)[0]]
            left = int(made.there.size - made.there.sum())
            given = f"{counted(left, 'element')} of {tensor.name} that nothing writes, the first at {missing}"
            raise self.refused(where, given, "all elements written")
        made.read = True
        if made.boxes:
            emit_boxes(self._name(), made.sources, made.boxes, tensor, self._lowering)
            made.boxes = []

    # -- calls ---------------------------------------------------------------------------------

    def _call(
        self, plugin: PluginKernel, operands: Mapping[str, Any], attributes: Mapping[str, Any], where: str
    ) -> None:
        names = [one.name for one in plugin.kernel.operands]
        unknown = [name for name in operands if name not in names]
        if unknown:
            raise self.refused(where, ", ".join(unknown), ", ".join(names))
        inputs = [self._operand(operands.get(one.name), where) for one in plugin.kernel.inputs]
        while inputs and inputs[-1] is None:
            inputs.pop()
        wanted = [one.name for one in plugin.kernel.outputs]
        targets = {name: operands[name] for name in wanted if operands.get(name) is not None}
        if not targets:
            raise self.refused(where, "no result", f"views for {', '.join(wanted)}")
        results = [self._result(targets[name], where) if name in targets else None for name in wanted]
        spec = self._node.spec
        outputs = [None if one is None else one[1] for one in results]
        inner = NodeSpec(self._name(), spec.op_type, spec.domain, spec.opset, inputs, outputs, attributes)
        node = Node(plugin.kernel, inner, self._lowering.device)
        check_device(plugin.kernel, self._lowering.device)
        self._lowering.emit(member_operator(plugin, node, plugin.instantiate(node), self._lowering))
        for result in results:
            if result is not None:
                self._deliver(*result)

    def _operand(self, view: Any, where: str) -> TensorSpec | None:
        """An input of a call: a whole tensor, or a part that is moved into one of its own."""
        if view is None:
            return None
        if not isinstance(view, View):
            raise self.refused(where, repr(view), "views, or None for an absent input")
        self._readable(where, view)
        if view.is_whole:
            return view.tensor
        part = self._lowering.temp(view.tensor.dtype, view.shape)
        same = CoordinateMap((0,) * len(view.shape), tuple((d, 1) for d in range(len(view.shape))))
        box = BoxCopy(0, view.shape, view.along, same)
        slab = len(view.shape) == len(view.tensor.shape)
        if slab:
            emit_slab(self._name(), view.tensor, box, part, self._lowering)
        else:
            emit_boxes(self._name(), [view.tensor], [box], part, self._lowering)
        return part

    def _result(self, view: Any, where: str) -> tuple[View, TensorSpec]:
        """The view that a call writes, and the tensor that it writes into."""
        self._target(where, view)
        whole = view.is_whole
        return view, view.tensor if whole else self._lowering.temp(view.tensor.dtype, view.shape)

    def _deliver(self, view: View, tensor: TensorSpec) -> None:
        made = self._written[view.tensor.name]
        if tensor is view.tensor:
            made.there[...] = True
        else:
            self._move(made, view, tensor, self._whole(tensor).along)


_METHODS = ("buffer", "copy", "fill", "local", "call")


def _text(part: Any) -> str:
    """An index as it is written."""
    if not isinstance(part, slice):
        return "..." if part is Ellipsis else repr(part)
    ends = ["" if end is None else repr(end) for end in (part.start, part.stop)]
    return ":".join([*ends, *([] if part.step is None else [repr(part.step)])])


def _index(view: View) -> tuple[Any, ...]:
    """The view's elements in an array of its tensor: as many dimensions as the tensor has."""
    found: list[Any] = [slice(begin, begin + 1) for begin in view.begin]
    for (dim, step), size in zip(view.steps, view.shape, strict=True):
        begin = view.begin[dim]
        found[dim] = slice(begin, begin + (size - 1) * step + 1 if size else begin, step)
    return tuple(found)
