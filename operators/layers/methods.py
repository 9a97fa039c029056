# SPDX-License-Identifier: Apache-2.0
"""What a layer says, with what holds where it says nothing: the methods and properties of ``od.Layer``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

from onedispatch.operators.plugin.custom_kernel import CODE_BYTES
from onedispatch.operators.plugin.instance import Interval
from onedispatch.operators.plugin.node import Node
from onedispatch.operators.plugin.refusals import refusal
from onedispatch.operators.plugin.watchdog import asked

TensorKind = Literal["neuron", "coeff"]


def said_either_way(function: Callable[[Any], Any]) -> Any:
    """``function``, of a type that subclasses may override by a method or by a class attribute."""
    return function


class NoParameters:
    """Of a layer that declares none."""


class LayerMethods:
    """See ``layer.py``; an instance is made for each node.

    Each method may answer a status in place of what it is for: 0 and more is well, -1 not supported, -2 a
    parameter that is not accepted, -3 and everything below a failure. Properties from ``get_name`` on may be
    class attributes where nothing decides them.
    """

    name: ClassVar[str] = ""
    inputs: ClassVar[Any] = "x"
    outputs: ClassVar[Any] = "y"
    dtypes: ClassVar[str] = ""
    devices: ClassVar[Any] = None
    work: ClassVar[Mapping[str, float] | None] = None
    code_bytes: ClassVar[int] = CODE_BYTES
    deterministic: ClassVar[bool] = True
    library: ClassVar[str] = ""
    host_inputs: ClassVar[str] = ""
    Params: ClassVar[type] = NoParameters

    params: Any = None
    layer: Any = None

    # -- what a layer computes ---------------------------------------------------------------

    def shape(self, n: Node) -> Any:
        """Type and shape of the results: ``n["x"].like(shape)``, of several ``{"y": ...}``.

        Left out: as the model declares them, else as the first input. With ``output_shape_is_dynamic`` the
        largest that there may be.
        """
        raise NotImplementedError

    def local(self, t: Any) -> Any:
        """What a core computes of one tile, all of which lies in its memory: ``t.y[:] = t.x``.

        ``t`` is the tile of a kernel's body; it also has ``t.params``, ``t.buffer`` (uint8, of
        ``get_local_buffer_size``) and ``t.resize("y", shape)``. Nothing here moves data.
        """
        raise refusal("not_supported", f"layer {self.name}", "a call of local", "a layer that has it")

    def global_(self, g: Any) -> Any:
        """What is done on whole tensors in device memory: ``g.copy``, ``g.fill``, ``g.local``, ``g.call``."""
        raise refusal("not_supported", f"layer {self.name}", "a call of global_", "a layer that has it")

    def index_space(self, n: Node) -> Any:
        """Members along each index dimension. Left out: an element of the first result is a member; where the
        shape is dynamic, there is one."""
        raise NotImplementedError

    def access(self, n: Node) -> Mapping[str, tuple[Interval, ...]]:
        """What a member touches of each tensor. Left out: element by element; of a single member all."""
        raise NotImplementedError

    # -- what the compiler may do with it ----------------------------------------------------

    @said_either_way
    def get_name(self) -> str:
        """What reports call it; "UNKNOWN" stands for the kernel's name."""
        return "UNKNOWN"

    @said_either_way
    def must_dynamic_run(self) -> bool:
        """Whether its commands must be made for each set of shapes. All are, here."""
        return False

    @said_either_way
    def output_shape_is_dynamic(self) -> bool:
        """Whether the data decides how much of each result there is: ``t.resize`` says it. It is asked of
        the class, without a node."""
        return False

    @said_either_way
    def force_use_global_layer(self) -> bool:
        """Whether ``local`` may only be called by ``global_``."""
        return False

    @said_either_way
    def can_split_local_h_w(self) -> bool:
        """Whether tiles may have some of the rows and columns; else each has all of these."""
        return True

    def can_inplace(self, data_prec: str) -> bool:
        """Whether the first result may take the memory of the first input, for elements of this type."""
        return False

    @said_either_way
    def can_h_w_dynamic(self) -> bool:
        """Whether the last two dimensions of its inputs may differ from run to run."""
        return True

    @said_either_way
    def just_reshape(self) -> bool:
        """Whether the result is the input under another shape: then nothing moves and no body runs."""
        return False

    @said_either_way
    def is_share_mem_layer(self) -> bool:
        """Whether result and input have one address: as ``can_inplace`` for all element types."""
        return False

    @said_either_way
    def get_global_buffer_size(self) -> int:
        """Bytes of device memory that ``global_`` may take by ``g.buffer``."""
        return 0

    def input_type(self, in_idx: int) -> TensorKind:
        """``"coeff"`` of an input that must be a constant of the model."""
        return "neuron"

    # -- of ``local`` alone ------------------------------------------------------------------

    def get_local_buffer_size(self, split_shape: tuple[int, int, int, int]) -> int:
        """Bytes of ``t.buffer`` for a tile of the first result; leading dimensions are 1."""
        return 0

    @said_either_way
    def is_backslice_optimize_support_layer(self) -> bool:
        """Whether slices are what the hooks below say; else they follow from ``access``."""
        return False

    def backward_hslice(self, out_hslice: int) -> int:
        """Rows of the first input that so many rows of the result need."""
        return out_hslice

    def backward_wslice(self, out_wslice: int) -> int:
        """The same of columns."""
        return out_wslice

    def backward_hidx(self, out_hidx: int) -> int:
        """The first of these rows; below 0 lies the pad."""
        return out_hidx

    def backward_widx(self, out_widx: int) -> int:
        """The same of columns."""
        return out_widx

    def backward_kh(self, out_kh: int) -> int:
        """Rows of the input that a window of ``out_kh`` rows of the result sees."""
        return out_kh

    def backward_stride_h(self, out_stride_h: int) -> int:
        """Rows of the input between two windows that are ``out_stride_h`` rows of the result apart."""
        return out_stride_h

    def backward_up_pad_h(self, out_up_pad_h: int) -> int:
        """Rows of pad above the input where there are ``out_up_pad_h`` above the result."""
        return out_up_pad_h

    def backward_down_pad_h(self, out_down_pad_h: int) -> int:
        """The same below."""
        return out_down_pad_h

    def should_input_on_l2mem(self, in_idx: int) -> bool:
        """Whether tiles of an input are to wait in memory tiles. All pass through them, here."""
        return False

    def forward_height(self, in_height: int) -> int:
        """Rows of the result that follow from so many of the first input."""
        return in_height


def overridden(cls: type, name: str) -> bool:
    """Whether a layer's class has something of its own for what ``Layer`` says."""
    return getattr(cls, name, None) is not getattr(LayerMethods, name)


def said(layer: LayerMethods, name: str, *arguments: Any) -> Any:
    """What a property says, a method or a class attribute; a method is ended where it does not end."""
    found = getattr(layer, name)
    if not callable(found):
        return found
    node = "" if layer.layer is None else f"node {layer.layer.name} ({layer.layer.op_type}), "
    return asked(found, f"{node}layer {layer.name}", *arguments)
