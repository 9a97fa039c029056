# SPDX-License-Identifier: Apache-2.0
"""The two decorators that make custom kernels known: ``kernel`` and ``maps``.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakSet

from onedispatch.operators.declarations import registry
from onedispatch.operators.declarations.dtypes import DTYPES
from onedispatch.operators.declarations.kernel import WORK, KernelDeclarationError, Prints, work
from onedispatch.operators.declarations.tensor import NodeSpec
from onedispatch.operators.interface.operator import Lowering
from onedispatch.operators.plugin import registrations
from onedispatch.operators.plugin.custom_kernel import CODE_BYTES, CustomKernel
from onedispatch.operators.plugin.instance_checks import is_size
from onedispatch.operators.plugin.lowering import lower
from onedispatch.operators.plugin.node import Node
from onedispatch.operators.plugin.operands import Aux, In, Out, Scratch, operands, scalars, typed_names
from onedispatch.operators.plugin.plugin_kernel import PluginKernel
from onedispatch.operators.plugin.python_kernel import PythonKernel, origin_of
from onedispatch.operators.plugin.refusals import refusal
from onedispatch.transactions import Device
from onedispatch.transactions.base.boundary import public
from onedispatch.transactions.base.errors import KernelError

__all__ = ["NodeMapping", "PluginKernel", "PythonKernel", "kernel", "maps"]

T = TypeVar("T")
_MARK = "__onedispatch_kernel__"
# What the running program registered itself, no plug-in: kernels, rows of the registry. Of those the latest
# holds, as everywhere in Python: in notebooks, and where modules of one program say a name in turn.
_OWN: WeakSet[Any] = WeakSet()


# -- kernels -------------------------------------------------------------------------------------


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
    return KernelArguments(**locals()).register


@dataclass(frozen=True)
class KernelArguments:
    """The arguments of ``kernel``, until the class is there: authors may give anything."""

    name: Any
    inputs: Any
    outputs: Any
    scalars: Any
    aux: Any
    scratch: Any
    dtypes: Any
    devices: Any
    code_bytes: Any
    work: Any
    deterministic: Any
    in_place: Any
    library: Any
    reference: Any
    prints: Any
    summary: Any

    def register(self, cls: type[T]) -> type[T]:
        """Makes the class known as a kernel, and returns it."""
        if not isinstance(cls, type):
            accepted = "a class with the methods of a kernel"
            raise refusal("declaration_invalid", f"kernel {self.name}", repr(cls), accepted)
        plugin = PythonKernel(self.declared(cls), cls)
        make_known(plugin)
        setattr(cls, _MARK, plugin)
        return cls

    def declared(self, cls: type) -> CustomKernel:
        """The declaration that the arguments are short for."""
        if not isinstance(self.dtypes, str):
            raise self._refuse("dtypes", "text: 'f32|bf16'")
        inputs = operands(In, self.inputs, dtypes=self.dtypes)
        devices = self.devices.split() if isinstance(self.devices, str) else self.devices
        if devices is not None and not (isinstance(devices, list | tuple) and devices):
            raise self._refuse("devices", "names of devices, one or more, or None for all")
        return CustomKernel(
            self.name,
            inputs,
            operands(Out, self.outputs, inputs[0] if inputs else None, dtypes=self.dtypes),
            scalars=scalars(self.scalars),
            aux=typed_names(Aux, self.aux),
            code_bytes=self.code_bytes,
            prints=prints_of(self.prints, cls),
            summary=self.summary or (inspect.getdoc(cls) or "").partition("\n")[0],
            scratch_tensors=typed_names(Scratch, self.scratch),
            devices=None if devices is None else tuple(devices),
            work=self._by_name("work", work),
            deterministic=self.deterministic,
            in_place=self._by_name("in_place", dict),
            reference=self.reference,
            library=self.library,
        )

    def _by_name(self, what: str, make: Callable[..., Any]) -> Any:
        """``make(**given)`` of an argument that is a mapping by name, or left out."""
        given = getattr(self, what)
        said = {} if given is None else given
        if not (isinstance(said, Mapping) and all(isinstance(name, str) for name in said)):
            raise self._refuse(what, "a dictionary by name")
        try:
            return make(**said)
        except KernelDeclarationError as error:
            raise self._refuse(what, f"finite numbers from 0 on of {', '.join(WORK)}") from error

    def _refuse(self, what: str, accepted: str) -> KernelError:
        given = repr(getattr(self, what))
        return refusal("declaration_invalid", f"kernel {self.name}: {what}", given, accepted)


def make_known(plugin: PluginKernel) -> None:
    """Registers a kernel; outside of plug-ins it takes the place of an earlier one of its name."""
    name = plugin.kernel.name
    if not registrations.loading() and registrations.named(name) in _OWN:
        registrations.withdraw_kernel(name)
    registrations.add_kernel(plugin)
    if not registrations.loading():
        _OWN.add(plugin)


def map_to(plugin: PluginKernel) -> None:
    """Maps to a kernel the nodes of its name in CamelCase, in the domain of its namespace."""
    space, _, name = plugin.kernel.name.partition("::")
    maps(registrations.camel_case(name.partition("@")[0]), domain=space)(plugin)


def prints_of(said: bool | str | None, cls: type) -> Prints:
    """ "one": strictly one variable per line. ``said`` None: whether ``body`` names ``print``."""
    if said is None:
        said = names_print(getattr(getattr(cls, "body", None), "__code__", None))
    if said == "strict":
        return "one"
    if not isinstance(said, bool):
        raise refusal("declaration_invalid", "prints", repr(said), "None, True, False, 'strict'")
    return "yes" if said else "no"


def names_print(code: Any) -> bool:
    """Whether it names ``print``, itself or in a function or comprehension inside."""
    inside = [one for one in getattr(code, "co_consts", ()) if hasattr(one, "co_names")]
    return "print" in getattr(code, "co_names", ()) or any(map(names_print, inside))


# -- mappings ------------------------------------------------------------------------------------


def plugin_of(target: Any) -> PluginKernel | None:
    """The kernel that a decorated class is, or that ``target`` is itself."""
    return target if isinstance(target, PluginKernel) else getattr(target, "__dict__", {}).get(_MARK)


class NodeMapping:
    """How nodes of an operator become instances of a kernel: what ``maps`` puts into the registry.

    ``attributes`` names the node's attribute of a scalar where it is another one.
    """

    def __init__(self, kernel: PluginKernel, attributes: Mapping[str, str]) -> None:
        self.named, self.attributes = kernel, dict(attributes)
        known = [one.name for one in kernel.kernel.own_scalars]
        unknown = sorted(set(attributes) - set(known))
        if unknown:
            where = f"mapping to {kernel.kernel.name}, attributes of"
            raise refusal("declaration_invalid", where, ", ".join(unknown), ", ".join(known) or "no scalars")
        self.__wrapped__ = getattr(kernel, "cls", type(kernel))  # whose source errors name
        self.__qualname__ = self.__wrapped__.__qualname__

    @property
    def plugin(self) -> PluginKernel:
        """The kernel that has the name now: a class that was declared again is the one that runs."""
        return registrations.named(self.named.kernel.name) or self.named

    def node(self, spec: NodeSpec, device: Device) -> Node:
        """The node as the kernel sees it. Raises ``KernelError`` where it does not agree."""
        return Node(self.plugin.kernel, spec, device, self.attributes)

    def __call__(self, spec: NodeSpec, lowering: Lowering) -> None:
        node = self.node(spec, lowering.device)
        if not self.plugin.lowers(node, lowering):
            lower(self.plugin, node, lowering)


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
        custom = None if kernel is None else function
        types = dtypes or (numpy_names(kernel.kernel) if kernel else ("float32",))
        said = notes or (kernel.kernel.summary if kernel else "")
        origin = origin_of(target) if kernel is None else kernel.origin
        if kernel and not registrations.loading() and registrations.named(kernel.kernel.name) is None:
            registrations.add_kernel(kernel)  # taken back in between
        for op_type in op_types:
            row = registry.OpMapping(
                domain, op_type, types, said, function, custom=custom, origin=origin, like=like, infer=infer
            )
            if not registrations.loading() and registry.mapping_for(domain, op_type) in _OWN:
                registrations.withdraw_mapping(domain, op_type)
            registrations.add_mapping(row, kernel.kernel.name if kernel else "", override=override)
            if not registrations.loading():
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


def numpy_names(kernel: CustomKernel) -> tuple[str, ...]:
    """NumPy's names of the first input's dtypes."""
    first = kernel.inputs[0] if kernel.inputs else kernel.outputs[0]
    return tuple(str(DTYPES[name].numpy) for name in first.dtype_names)
