# SPDX-License-Identifier: Apache-2.0
"""Kernels from outside as the engine meets them, and the two decorators that make them: ``kernel``, ``maps``.

    @od.kernel("acme::scale_add", inputs="x y", outputs="z", scalars={"a": "f32"})
    class ScaleAdd:
        def body(self, t): t.z[:] = t.a * t.x + t.y

    od.maps("ScaleAdd", domain="acme")(ScaleAdd)

Methods are optional where a declaration says enough: without ``infer`` the shapes that the model declares
hold; without ``index_space`` every element of the first output is a member; without ``access`` all operands
are element-wise.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from operator import index
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakSet

import numpy as np

from onedispatch.operators.declarations import registry
from onedispatch.operators.declarations.dtypes import DTYPES, open_dtype_of
from onedispatch.operators.declarations.kernel import WORK, KernelDeclarationError, work
from onedispatch.operators.declarations.tensor import NodeSpec
from onedispatch.operators.interface.operator import Lowering
from onedispatch.operators.plugin import body, catalog
from onedispatch.operators.plugin.counting import box_of, counted_work
from onedispatch.operators.plugin.declared import (
    CODE_BYTES,
    Aux,
    Declared,
    In,
    Interval,
    Out,
    Placement,
    Scratch,
    operands,
    scalars,
    typed_names,
)
from onedispatch.operators.plugin.instance import PluginKernel
from onedispatch.operators.plugin.lowering import lower
from onedispatch.operators.plugin.node import Made, Node, as_intervals
from onedispatch.operators.plugin.placement import check_index_space, check_placement
from onedispatch.operators.plugin.refusals import refusal
from onedispatch.operators.plugin.twin import compiled_body
from onedispatch.operators.plugin.watchdog import asked
from onedispatch.transactions import Device
from onedispatch.transactions.base.boundary import public
from onedispatch.transactions.base.errors import KernelError

__all__ = ["NodeMapping", "PluginKernel", "PythonKernel", "kernel", "maps"]

T = TypeVar("T")
_MARK = "__onedispatch_kernel__"
# What the running program registered itself, no plug-in: kernels, rows of the registry. Of those the latest
# holds, as everywhere in Python: in notebooks, and where modules of one program say a name in turn.
_OWN: WeakSet[Any] = WeakSet()


class PythonKernel(PluginKernel):
    """A kernel that a decorated class makes; its methods get the node, ``body`` a tile."""

    def __init__(self, declared: Declared, cls: type) -> None:
        self.declared, self.cls = declared, cls
        self.origin = origin_of(cls)
        if not declared.library and not callable(getattr(cls, "body", None)):
            accepted = "a method body(self, t), or library= with the compiled body"
            raise refusal("declaration_invalid", f"kernel {declared.name}", "no body", accepted)
        self.instance = asked(cls, f"kernel {declared.name}, the class")
        _ = self.kernel  # refused here, not at its first node
        if declared.library:
            _ = self.functions

    @cached_property
    def functions(self) -> Mapping[str, Any]:
        if self.declared.library:
            return compiled_body(self.declared, self.origin)
        own = self.method("body")
        assert own is not None  # nobody asks where a library has it
        return body.functions(self.kernel, own, {one.name: one.dtype for one in self.declared.scratch})

    def method(self, name: str) -> Callable[..., Any] | None:
        """A method of the class, None where it has none of that name."""
        found = getattr(self.instance, name, None)
        return found if callable(found) else None

    @property
    def has_reference(self) -> bool:
        return self.method("reference") is not None or super().has_reference

    def reference(self, node: Node, *arrays: Any) -> Any:
        own = self.method("reference")
        return super().reference(node, *arrays) if own is None else self._asked(own, node, *arrays)

    def _ask(self, name: str, node: Node) -> Any:
        """What a method answers; None where there is none."""
        method = self.method(name)
        if method is None:
            return None
        return self._asked(method, node)

    # -- an instance -----------------------------------------------------------------------

    def infer(self, node: Node) -> dict[str, Made]:
        answer = self._ask("infer", node)
        if self.method("infer") is None:
            answer = declared_shapes(self.declared, node)
        made = checked_outputs(self.declared, node, answer)
        node.tell_outputs(made)
        node.check_outputs_alike()
        return made

    def place(self, node: Node) -> Placement:
        verdict = self._ask("verify", node)
        if isinstance(verdict, str):
            raise node.refuse("layer_configuration", "verify", verdict, "what the kernel's verify accepts")
        if verdict is False:
            raise node.refuse("layer_configuration", "verify", "False", "what the kernel's verify accepts")
        outputs = self.infer(node)
        space = self._ask("index_space", node)
        if self.method("index_space") is None:
            space = node[self.declared.outputs[0].name].shape
        sizes = index_space_of(node, space)
        node.tell_index_space(sizes)
        if all(0 not in made.shape for made in outputs.values()):
            check_index_space(node, sizes)
        access = self._access(node)
        told = self._ask("work", node)
        if isinstance(told, Mapping):
            node.work(**told)
        values = self._scalars(node)
        node.check_attributes()
        placement = Placement(
            {name: (made.dtype, made.shape) for name, made in outputs.items()},
            sizes,
            access,
            values,
            dict(node.arrays),
            dict(node.scratch_bytes),
            dict(node.pads),
            dict(node.fills),
            work_of(self.declared, node),
            node.preferred_split,
            dict(self.declared.in_place),
        )
        if is_empty(placement):
            return placement
        check_placement(self.declared, node, placement)
        return with_basis(placement, self._counted(node, placement))

    def _counted(self, node: Node, placement: Placement) -> float | None:
        """What a member takes by the count of its body's operations; None where they cannot be counted."""
        own = self.method("body")
        if placement.work or own is None:
            return None
        given = {one.name: node.given(one.name) for one in self.declared.inputs}
        arrays = {name: np.zeros(x.shape, x.dtype) for name, x in given.items() if x is not None}
        box = box_of(placement.index_space)

        def call(watch: Callable[[Any], Any]) -> int:
            body.computed(self.declared, self.kernel, own, placement, arrays, members=box, watch=watch)
            return math.prod(box)

        dtype, _ = placement.outputs[self.declared.outputs[0].name]
        return counted_work(call, DTYPES[dtype], node.target)

    def _access(self, node: Node) -> dict[str, tuple[Interval, ...]]:
        answer = self._ask("access", node)
        if self.method("access") is None:
            return node.elementwise()
        if not isinstance(answer, Mapping):
            accepted = "intervals by operand, as n.elementwise() and n.access() make them"
            raise node.refuse("parameter_invalid", "access", repr(answer), accepted)
        found = {}
        for name, intervals in answer.items():
            if not isinstance(intervals, Sequence):
                accepted = "an interval per dimension"
                raise node.refuse("parameter_invalid", f"access of {name}", repr(intervals), accepted)
            found[name] = as_intervals(intervals)
        return found

    def _scalars(self, node: Node) -> dict[str, float]:
        answer = self._ask("scalars", node) or {}
        if not isinstance(answer, Mapping):
            accepted = "numbers by scalar: {'a': 1.0}"
            raise node.refuse("scalar_argument", "method scalars", repr(answer), accepted)
        known = {one.name: one for one in self.declared.scalars}
        unknown = sorted(set(answer) - set(known))
        if unknown:
            raise node.refuse("scalar_argument", "scalars", ", ".join(unknown), ", ".join(known) or "none")
        for name, value in answer.items():
            node.scalars[name] = node.checked_scalar(known[name], value, "method scalars")
        return node.checked_scalars()


def is_empty(placement: Placement) -> bool:
    """Whether there is nothing to compute: no output has an element."""
    return all(0 in shape for _, shape in placement.outputs.values())


def index_space_of(node: Node, answer: Any) -> tuple[int, ...]:
    """What ``index_space`` answered, as sizes; one member where a tensor without dimensions gave them."""
    sizes = [answer] if isinstance(answer, int) else answer
    try:
        return tuple(index(size) for size in sizes) or (1,)
    except (TypeError, ValueError):
        accepted = "members along each index dimension, such as n['x'].shape"
        raise node.refuse("parameter_invalid", "index space", repr(answer), accepted) from None


def declared_shapes(declared: Declared, node: Node) -> dict[str, Made]:
    """What the model says of its outputs, for kernels without ``infer``."""
    found = {}
    for i, one in enumerate(declared.outputs):
        told = node.spec.outputs[i] if i < len(node.spec.outputs) else None
        row = None if told is None else open_dtype_of(told.dtype)
        if told is None:
            accepted = "a shape that the model declares, or a method infer"
            raise node.refuse("dynamic_shape", f"shape of output {one.name}", "nothing known", accepted)
        found[one.name] = Made(str(told.dtype) if row is None else row.name, told.shape)
    return found


def checked_outputs(declared: Declared, node: Node, answer: Any) -> dict[str, Made]:
    """``infer``'s answer in the order of the outputs. Raises ``KernelError`` for names, dtypes, ranks."""
    names = [one.name for one in declared.outputs]
    if not isinstance(answer, Mapping) or set(answer) != set(names):
        given = ", ".join(map(str, answer)) if isinstance(answer, Mapping) else repr(answer)
        raise node.refuse(
            "output_count", "infer", given or "nothing", f"dtype and shape of {', '.join(names)}"
        )
    found = {}
    for one in declared.outputs:
        dtype, shape = _told(node, one.name, answer[one.name], declared.dtypes_of(one))
        if dtype not in declared.dtypes_of(one):
            accepted = " or ".join(declared.dtypes_of(one))
            raise node.refuse("dtype", f"dtype of output {one.name}, as infer says", repr(dtype), accepted)
        node.check_rank("output", one, shape)
        found[one.name] = Made(dtype, shape)
    return found


def _told(node: Node, name: str, said: Any, dtypes: Sequence[str]) -> tuple[str, tuple[int, ...]]:
    """A ``Made``, a pair, or a shape alone where there is one dtype."""
    accepted = 'n["x"].like(...), a pair ("f32", shape), or a shape where there is one dtype'
    if isinstance(said, Sequence) and all(map(is_size, said)) and len(dtypes) == 1:
        said = (dtypes[0], said)
    if not (isinstance(said, Sequence) and len(said) == 2 and isinstance(said[1], Sequence)):
        raise node.refuse("output_size", f"output {name}, as infer says", repr(said), accepted)
    dtype, shape = said
    if isinstance(shape, str) or not all(is_size(size) and size >= 0 for size in shape):
        accepted = "whole numbers from 0 on"
        raise node.refuse("output_size", f"shape of output {name}, as infer says", repr(shape), accepted)
    return dtype if isinstance(dtype, str) else _name_of(dtype), tuple(int(size) for size in shape)


def is_size(size: Any) -> bool:
    """Whether it is a whole number, NumPy's included."""
    return isinstance(size, int | np.integer) and not isinstance(size, bool)


def _name_of(dtype: Any) -> str:
    """A NumPy type by our name."""
    row = open_dtype_of(dtype)
    return str(dtype) if row is None else row.name


def with_basis(placement: Placement, counted: float | None) -> Placement:
    """The placement with its work, and where that comes from: the declaration, a count, or an assumption."""
    if placement.work:
        return replace(placement, basis="declared")
    return placement if counted is None else replace(placement, work={"op": counted}, basis="counted")


def work_of(declared: Declared, node: Node) -> dict[str, float]:
    """Element operations of a member, as the node says, or the declaration; {} where neither does.

    Those of Python bodies are counted then. ASSUMPTION, where they cannot be: one operation for each element
    of each operand that a member touches; tables, which are whole in all dimensions, count one.
    """
    known = dict(declared.work_per_member)
    unknown = sorted(set(node.work_terms) - set(known))
    if unknown:
        accepted = f"{', '.join(known)}: others are declared, work={{'{unknown[0]}': 1}} of od.kernel"
        raise node.refuse("parameter_invalid", "work", ", ".join(unknown), accepted)
    return known | node.work_terms if node.work_terms or declared.work else {}


# -- the decorators ------------------------------------------------------------------------------


@public
def kernel(
    name: str,
    *,
    inputs: Any = "",
    outputs: Any = "",
    scalars: Any = (),
    aux: Any = "",
    scratch: Any = "",
    dtypes: str = "",
    devices: Sequence[str] | str | None = None,
    code_bytes: int = CODE_BYTES,
    work: Mapping[str, float] | None = None,
    deterministic: bool = True,
    in_place: Mapping[str, str] | None = None,
    library: str = "",
    reference: Callable[..., Any] | None = None,
    prints: bool | str | None = None,
    summary: str = "",
) -> Callable[[type[T]], type[T]]:
    """Declare the decorated class as kernel ``name``, and make it known.

    Args:
        name: ``namespace::name``, or with ``@version``; 64 bytes.
        inputs, outputs: ``"x y z?"``, ``"x:f32|bf16 y"``, or lists of ``In`` and ``Out``.
        scalars: ``{"a": "f32", "n": ("u32", 1)}`` or ``Scalar`` objects; a node's attributes of these names.
        aux, scratch: constant tensors, and memory of the core: ``"table recip:bf16"``.
        dtypes: of the first input, and of all that say nothing else ("f32").
        devices: those that it runs on; None for all.
        code_bytes: program memory that it takes.
        work: element operations per member, by kind (``{"mul": 1, "op": 2}``); ``n.work`` may say others.
        deterministic: whether it gives the same bits whenever it runs.
        in_place: outputs that may lie where an input lay, ``{"z": "x"}``.
        library: a shared object with a compiled body of the same name, which runs instead of ``body``.
        reference: ``f(node, *arrays)``: the same in NumPy, for the host.
        prints: whether the body prints, ``"strict"`` for one variable per line; None: seen in its code.

    Raises ``KernelError`` (``KernelDeclarationInvalidError`` mostly) for what could not be run.
    """
    return _Declaring(name, locals()).of_class


class _Declaring:
    """The arguments of ``kernel``, until the class is there."""

    def __init__(self, name: str, given: dict[str, Any]) -> None:
        self.name, self.given = name, given

    def of_class(self, cls: type[T]) -> type[T]:
        if not isinstance(cls, type):
            accepted = "a class with the methods of a kernel"
            raise refusal("declaration_invalid", f"kernel {self.name}", repr(cls), accepted)
        plugin = PythonKernel(self.declared(cls), cls)
        name = plugin.kernel.name
        if not catalog.loading() and catalog.named(name) in _OWN:
            catalog.withdraw_kernel(name)
        catalog.add_kernel(plugin)
        if not catalog.loading():
            _OWN.add(plugin)
        setattr(cls, _MARK, plugin)
        return cls

    def declared(self, cls: type) -> Declared:
        given = self.given
        if not isinstance(given["dtypes"], str):
            raise self._refuse("dtypes", "text: 'f32|bf16'")
        inputs = operands(In, given["inputs"], dtypes=given["dtypes"])
        devices = given["devices"]
        summary = given["summary"] or (inspect.getdoc(cls) or "").partition("\n")[0]
        return Declared(
            self.name,
            inputs,
            operands(Out, given["outputs"], inputs[0] if inputs else None, dtypes=given["dtypes"]),
            scalars(given["scalars"]),
            typed_names(Aux, given["aux"]),
            typed_names(Scratch, given["scratch"]),
            tuple(devices.split() if isinstance(devices, str) else devices) if devices else None,
            given["code_bytes"],
            self.mapping("work", work),
            given["deterministic"],
            self.mapping("in_place", dict),
            given["reference"],
            given["library"],
            summary,
            prints_of(given["prints"], cls),
        )

    def mapping(self, what: str, make: Callable[..., Any]) -> Any:
        """``make(**given)`` of an argument that is a mapping by name, or left out."""
        said = {} if self.given[what] is None else self.given[what]
        if not (isinstance(said, Mapping) and all(isinstance(name, str) for name in said)):
            raise self._refuse(what, "a dictionary by name")
        try:
            return make(**said)
        except KernelDeclarationError as error:
            raise self._refuse(what, f"finite numbers from 0 on of {', '.join(WORK)}") from error

    def _refuse(self, what: str, accepted: str) -> KernelError:
        return refusal("declaration_invalid", f"kernel {self.name}: {what}", repr(self.given[what]), accepted)


def prints_of(said: bool | str | None, cls: type) -> int:
    """0: never; 1: yes; 2: strictly one variable per line. None: whether ``body`` names ``print``."""
    if said is None:
        return int(_names_print(getattr(getattr(cls, "body", None), "__code__", None)))
    if said == "strict":
        return 2
    if not isinstance(said, bool):
        raise refusal("declaration_invalid", "prints", repr(said), "None, True, False, 'strict'")
    return int(said)


def _names_print(code: Any) -> bool:
    """Whether it names ``print``, itself or in a function or comprehension inside."""
    inside = [one for one in getattr(code, "co_consts", ()) if hasattr(one, "co_names")]
    return "print" in getattr(code, "co_names", ()) or any(map(_names_print, inside))


def plugin_of(target: Any) -> PluginKernel | None:
    """The kernel that a decorated class is, or that ``target`` is itself."""
    return target if isinstance(target, PluginKernel) else getattr(target, "__dict__", {}).get(_MARK)


class NodeMapping:
    """How nodes of an operator become instances of a kernel: what ``maps`` puts into the registry.

    ``attributes`` names the node's attribute of a scalar where it is another one.
    """

    def __init__(self, kernel: PluginKernel, attributes: Mapping[str, str]) -> None:
        self.named, self.attributes = kernel, dict(attributes)
        known = [one.name for one in kernel.declared.scalars]
        unknown = sorted(set(attributes) - set(known))
        if unknown:
            where = f"mapping to {kernel.declared.name}, attributes of"
            raise refusal("declaration_invalid", where, ", ".join(unknown), ", ".join(known) or "no scalars")
        self.__wrapped__ = getattr(kernel, "cls", type(kernel))  # whose source errors name
        self.__qualname__ = self.__wrapped__.__qualname__

    @property
    def kernel(self) -> PluginKernel:
        """The kernel that has the name now: a class that was declared again is the one that runs."""
        latest = catalog.named(self.named.kernel.name)
        return latest if isinstance(latest, PluginKernel) else self.named

    def node(self, spec: NodeSpec, device: Device) -> Node:
        """The node as the kernel sees it. Raises ``KernelError`` where it does not agree."""
        return Node(self.kernel.declared, spec, device, self.attributes)

    def __call__(self, spec: NodeSpec, lowering: Lowering) -> None:
        lower(self.kernel, self.node(spec, lowering.device), lowering)


@public
def maps(
    *op_types: str,
    domain: str = "",
    attributes: Mapping[str, str] | None = None,
    override: bool = False,
    dtypes: tuple[str, ...] = (),
    notes: str = "",
    like: int = -1,
    infer: Callable[[NodeSpec], registry.Inferred] | None = None,
) -> Callable[[Any], Any]:
    """Map nodes ``op_types`` of ``domain`` to a decorated class, a kernel, or a function.

    Args:
        attributes: ``{"a": "alpha"}``: scalar ``a`` comes from the node's attribute ``alpha``.
        override: take the place of a mapping that there is already, one of ours included.
        dtypes, notes: what ``onedispatch ops`` prints; of kernels they come from the declaration.
        like, infer: of a function: the results have shape and type of input ``like``, or those that
            ``infer(node)`` gives, a (dtype, shape) for each; else the model declares them.

    A function gets a ``NodeSpec`` and a ``Lowering``, as those of ``operators/mappings`` do.
    Raises ``KernelLibraryError`` for an operator that is mapped already.
    """

    def register(target: Any) -> Any:
        kernel = plugin_of(target)
        if kernel is None and not (callable(target) and not isinstance(target, type)):
            accepted = "a class that od.kernel decorates, or a function (node, lowering)"
            raise refusal("declaration_invalid", f"mapping of {', '.join(op_types)}", repr(target), accepted)
        if not op_types:
            raise refusal("declaration_invalid", "a mapping", "no operator", "one or more op_types")
        if not all(isinstance(one, str) and one for one in op_types) or not isinstance(domain, str):
            accepted = "op_types and a domain, as text"
            raise refusal("declaration_invalid", "a mapping", f"{op_types}, domain {domain!r}", accepted)
        if attributes is not None and not isinstance(attributes, Mapping):
            accepted = "the node's attributes by scalar: {'a': 'alpha'}"
            raise refusal("declaration_invalid", "attributes of a mapping", repr(attributes), accepted)
        _check_results(like, infer, target if kernel is None else None)
        function = target if kernel is None else NodeMapping(kernel, attributes or {})
        plugin = None if kernel is None else function
        told = dtypes or (numpy_names(kernel.declared) if kernel else ("float32",))
        said = notes or (kernel.declared.summary if kernel else "")
        origin = origin_of(target) if kernel is None else kernel.origin
        if kernel and not catalog.loading() and catalog.named(kernel.kernel.name) is None:
            catalog.add_kernel(kernel)  # taken back in between
        for op_type in op_types:
            row = registry.OpMapping(
                domain, op_type, told, said, function, plugin=plugin, origin=origin, like=like, infer=infer
            )
            if not catalog.loading() and registry.mapping_for(domain, op_type) in _OWN:
                catalog.withdraw_mapping(domain, op_type)
            catalog.add_mapping(row, kernel.kernel.name if kernel else "", override=override)
            if not catalog.loading():
                _OWN.add(row)
        return target

    return register


def _check_results(like: Any, infer: Any, function: Any) -> None:
    """Raises ``KernelError`` for what says no shapes; of a kernel (``function`` None) for what says any."""
    if not is_size(like) or not (infer is None or callable(infer)):
        accepted = "like=the number of an input, and infer=a function of the node"
        raise refusal("declaration_invalid", "a mapping", f"like={like!r}, infer={infer!r}", accepted)
    if function is None and (like != -1 or infer is not None):
        accepted = "a mapping function: a kernel has its method infer"
        raise refusal("declaration_invalid", "a mapping", "like or infer for a kernel", accepted)


def numpy_names(declared: Declared) -> tuple[str, ...]:
    """NumPy's names of the first input's dtypes."""
    first = declared.inputs[0] if declared.inputs else declared.outputs[0]
    return tuple(str(DTYPES[name].numpy) for name in declared.dtypes_of(first))


def origin_of(target: Any) -> str:
    """The file that a class or function stands in, or its module's name."""
    module = sys.modules.get(getattr(target, "__module__", ""), None)
    file = getattr(module, "__file__", None)
    return str(Path(file).resolve()) if file else getattr(target, "__module__", "") or "?"
