# SPDX-License-Identifier: Apache-2.0
"""A layer's class as a kernel: its declaration, its methods by the names that kernels have, its instances."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any

from onedispatch.operators.declarations.statuses import CODES, error_class
from onedispatch.operators.layers import parameters
from onedispatch.operators.layers.checks import check_in_place, check_slices
from onedispatch.operators.layers.methods import LayerMethods, overridden, said
from onedispatch.operators.layers.tile import LayerTile
from onedispatch.operators.plugin import body
from onedispatch.operators.plugin.custom_kernel import CustomKernel
from onedispatch.operators.plugin.instance import Interval, KernelInstance
from onedispatch.operators.plugin.instance_checks import declared_shapes, is_size
from onedispatch.operators.plugin.node import Made, Node
from onedispatch.operators.plugin.operands import In, Out, Scratch, operands
from onedispatch.operators.plugin.plugin import KernelArguments, names_print
from onedispatch.operators.plugin.python_kernel import PythonKernel, origin_of
from onedispatch.operators.plugin.refusals import refusal
from onedispatch.operators.plugin.watchdog import asked
from onedispatch.transactions.base.cached import cached_property

BUFFER = "buffer"  # the scratch of ``get_local_buffer_size``
SIZES = "_sizes"  # ends the name of the result that says how much of another there is
_OWN_NAMES = {"infer": "shape", "body": "local"}  # what a layer calls the methods of a kernel


def declared(cls: type[LayerMethods]) -> CustomKernel:
    """The declaration of a layer's class. Raises ``KernelDeclarationInvalidError`` for what cannot be one."""
    _check_bodies(cls)
    inputs = operands(In, cls.inputs, dtypes=cls.dtypes)
    outputs = operands(Out, cls.outputs, inputs[0] if inputs else None, dtypes=cls.dtypes)
    _check_host_inputs(cls, [one.name for one in inputs])
    if _is_dynamic(cls):
        outputs = (*outputs, *(Out(one.name + SIZES, "i32", rank=1) for one in outputs))
    _, typed = parameters.parameters_of(cls.name, cls.Params)
    return KernelArguments(
        name=cls.name,
        inputs=inputs,
        outputs=outputs,
        scalars=[one.scalar for one in typed if one.scalar],
        aux=[one.aux for one in typed if not one.scalar],
        scratch=[Scratch(BUFFER, "u8")] if overridden(cls, "get_local_buffer_size") else (),
        dtypes="",
        devices=cls.devices,
        code_bytes=cls.code_bytes,
        work=cls.work,
        deterministic=cls.deterministic,
        in_place=None,
        library=cls.library,
        reference=None,
        prints=names_print(getattr(cls.local, "__code__", None)),
        summary="",
    ).declared(cls)


def _check_host_inputs(cls: type[LayerMethods], names: list[str]) -> None:
    given = cls.host_inputs
    if not isinstance(given, str) or not set(given.split()) <= set(names):
        accepted = f"some of: {' '.join(names)}"
        raise refusal("declaration_invalid", f"layer {cls.name}: host_inputs", repr(given), accepted)


def _check_bodies(cls: type[LayerMethods]) -> None:
    bodies = overridden(cls, "local") or overridden(cls, "global_") or cls.library
    if not bodies and not overridden(cls, "just_reshape"):
        accepted = "a method local(self, t), global_(self, g) or both; or just_reshape = True"
        raise refusal("declaration_invalid", f"layer {cls.name}", "nothing that computes", accepted)


def _is_dynamic(cls: type[LayerMethods]) -> bool:
    layer: LayerMethods = asked(cls, f"layer {cls.name}, the class")
    return bool(said(layer, "output_shape_is_dynamic"))


class LayerKernel(PythonKernel):
    """A layer: a kernel whose methods are those of a ``Layer`` that is made for each node."""

    def __init__(self, kernel: CustomKernel, cls: type[LayerMethods]) -> None:
        self.kernel, self.cls, self.origin = kernel, cls, origin_of(cls)
        self.local, self._host_inputs = cls.local, cls.host_inputs.split()
        self.params, self.parameters = parameters.parameters_of(cls.name, cls.Params)
        self.is_dynamic = any(one.name.endswith(SIZES) for one in kernel.outputs)
        if kernel.library:
            _ = self.functions

    @property
    def has_body(self) -> bool:
        return overridden(self.cls, "local") or bool(self.kernel.library)

    @property
    def made_up(self) -> Mapping[str, Any]:
        return {one.name: one.example for one in self.parameters if one.required and one.scalar is None}

    @property
    def has_global(self) -> bool:
        return overridden(self.cls, "global_")

    @property
    def host_inputs(self) -> tuple[int, ...]:
        names = [one.name for one in self.kernel.inputs]
        return tuple(sorted(names.index(name) for name in self._host_inputs))

    @property
    def parameter_names(self) -> list[str]:
        return sorted(one.name for one in self.parameters)

    def takes_dynamic(self, node: Node) -> bool:
        return bool(said(self.made(node), "can_h_w_dynamic"))

    # -- methods by the names that kernels have ------------------------------------------------

    def method(self, name: str) -> Callable[..., Any] | None:
        own = _OWN_NAMES.get(name, name)
        function = getattr(self.cls, own, None)
        if not callable(function):
            return None
        if name == "body":
            return self._body if self.has_body else self._no_body
        if hasattr(LayerMethods, own) and not overridden(self.cls, own):
            return self._of_one_member(name)

        @wraps(function)
        def call(node: Node, *rest: Any) -> Any:
            return self.checked(function(self.made(node), node, *rest), node, own)

        return call

    def _of_one_member(self, name: str) -> Callable[..., Any] | None:
        """The index space, or the access, of a layer that says none and whose shape is dynamic."""
        if not self.is_dynamic or name not in ("index_space", "access"):
            return None
        if name == "index_space":
            return lambda node: (1,)
        return lambda node: {
            one.name: tuple(node.whole() for _ in node[one.name].shape)
            for one in self.kernel.operands
            if node[one.name].present
        }

    @cached_property
    def _body(self) -> Callable[[Any], None]:
        return self._running(lambda tile: parameters.of_tile(self.params, self.parameters, tile))

    def _counted_body(self, node: Node) -> Callable[..., Any] | None:
        """With the node's parameters: what counts has ones in place of lists and text."""
        params = self.made(node).params
        return self._running(lambda tile: params) if self.has_body else None

    def _running(self, params_of: Callable[[Any], Any]) -> Callable[[Any], None]:
        function = self.local

        @wraps(function)
        def call(tile: Any) -> None:
            layer = self.cls()
            layer.params = params_of(tile)
            given = LayerTile(tile, layer.params, SIZES)
            given.begin()
            answer = function(layer, given)
            if not isinstance(answer, body.Result):
                self.check_status(answer, f"layer {self.kernel.name}: local")

        return call

    def _no_body(self, tile: Any) -> None:
        raise refusal("not_supported", f"layer {self.kernel.name}", "a call of local", "a layer that has it")

    # -- a layer for a node ----------------------------------------------------------------------

    def made(self, node: Node) -> LayerMethods:
        """The layer of a node. Raises ``KernelError`` for parameters that it does not accept."""
        layer: LayerMethods = asked(self.cls, f"node {node.name} ({node.op_type}), layer {self.kernel.name}")
        layer.layer = node
        layer.params = parameters.of_node(self.params, self.parameters, node)
        return layer

    def checked(self, answer: Any, node: Node, method: str) -> Any:
        """``answer`` of a method, unless it is a status that says that something is wrong."""
        if is_size(answer):
            self.check_status(answer, f"{node.where}: {method}", node.name)
        return answer

    def check_status(self, status: Any, where: str, node: str = "") -> None:
        """Raises the ``KernelError`` of a status below 0; what is no status stands for a failure."""
        if status is None or (is_size(status) and status >= 0):
            return
        code = int(status) if is_size(status) and status >= -3 else CODES["runtime_failure"]
        accepted = "0 and more, or nothing, where all is well"
        raise error_class(code)(where, f"answered {status!r}", accepted, "", status=code, node=node)

    # -- an instance -----------------------------------------------------------------------------

    def infer(self, node: Node) -> dict[str, Made]:
        names = [one.name for one in self.kernel.outputs if not one.name.endswith(SIZES)]
        answer = self._ask("infer", node)
        if not overridden(self.cls, "shape"):
            answer = self._like_the_input(node, names)
        if not isinstance(answer, Mapping) and len(names) == 1:
            answer = {names[0]: answer}
        if self.is_dynamic and isinstance(answer, Mapping):
            ranks = {name: len(_shape_of(made)) for name, made in answer.items()}
            answer = {**answer, **{name + SIZES: ("i32", (max(rank, 1),)) for name, rank in ranks.items()}}
        return self._made(node, answer)

    def _like_the_input(self, node: Node, names: list[str]) -> Mapping[str, Any]:
        stated = [node.spec.outputs[i] if i < len(node.spec.outputs) else None for i in range(len(names))]
        if all(one is not None for one in stated) and not self.is_dynamic:
            return declared_shapes(self.kernel, node)
        first = self.kernel.inputs[0].name if self.kernel.inputs else ""
        if not first or not node[first].present:
            raise node.refuse("dynamic_shape", "shape", "nothing known", "a method shape")
        return {name: node[first].like() for name in names}

    def _ask(self, name: str, node: Node) -> Any:
        if name == "scalars":
            return self._numbers(node)
        return super()._ask(name, node)

    def _numbers(self, node: Node) -> Mapping[str, Any]:
        """The parameters of a node as scalars; lists and text go into auxiliary tensors."""
        params = self.made(node).params
        for one in self.parameters:
            if one.scalar is None:
                node.aux(one.name, one.packed(getattr(params, one.name)))
        return {one.name: getattr(params, one.name) for one in self.parameters if one.scalar}

    def _bound(
        self,
        node: Node,
        outputs: Mapping[str, Made],
        access: Mapping[str, tuple[Interval, ...]],
        in_place: Mapping[str, str],
    ) -> KernelInstance:
        layer = self.made(node)
        for scratch in self.kernel.scratch_tensors:
            if scratch.name not in node.scratch_bytes:
                node.scratch(scratch.name, 4)  # grows until it does for the tiles: ``lowering.py``
        made = super()._bound(node, outputs, access, self._in_place(layer, node, outputs))
        instance = replace(made, uncut=self._uncut(layer, made))
        self._check_inputs(layer, node)
        check_in_place(self.kernel, node, instance)
        check_slices(self.kernel, layer, node, instance)
        return instance

    def _in_place(self, layer: LayerMethods, node: Node, outputs: Mapping[str, Made]) -> Mapping[str, str]:
        if not self.kernel.inputs:
            return {}
        source, (target, made) = self.kernel.inputs[0].name, next(iter(outputs.items()))
        shares = said(layer, "is_share_mem_layer") or said(layer, "can_inplace", made.dtype)
        return {target: source} if shares and node[source].present else {}

    def _uncut(self, layer: LayerMethods, instance: KernelInstance) -> frozenset[int]:
        """Index dimensions of rows and columns, where tiles have all of these."""
        if said(layer, "can_split_local_h_w"):
            return frozenset()
        intervals = instance.intervals(self.kernel.outputs[0].name)[-2:]
        return frozenset(it.dim for it in intervals if it.dim is not None)

    def _check_inputs(self, layer: LayerMethods, node: Node) -> None:
        for index, one in enumerate(self.kernel.inputs):
            kind = self.checked(said(layer, "input_type", index), node, "input_type")
            if kind not in ("neuron", "coeff"):
                where = f"input_type({index})"
                raise node.refuse("parameter_invalid", where, repr(kind), "'neuron' or 'coeff'")
            if kind == "coeff" and node[one.name].present and node[one.name].value is None:
                accepted = "a constant of the model: input_type says 'coeff'"
                raise node.refuse("non_static_input", f"input {one.name}", "computed in the run", accepted)

    @property
    def dynamic_results(self) -> Mapping[str, str]:
        names = [one.name for one in self.kernel.outputs]
        return {name: name + SIZES for name in names if name + SIZES in names}


def _shape_of(made: Any) -> Any:
    """The shape in what ``shape`` says of a result: a ``Made``, a pair, or the shape itself."""
    paired = isinstance(made, tuple) and len(made) == 2 and not all(isinstance(one, int) for one in made)
    return made[1] if paired else made
