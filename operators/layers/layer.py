# SPDX-License-Identifier: Apache-2.0
"""``od.Layer``: a class that says how a layer computes, and what the compiler may do with it.

    class Crop(od.Layer):
        name = "acme::crop"                       # the node Crop of domain acme

        class Params:
            top: int = 0
            height: int

        def shape(self, n):                       # of the result
            return n["x"].like((self.params.height, n["x"].shape[1]))

        def global_(self, g):                     # on device memory, by moves of its own
            g.copy(g.y, g.x[self.params.top : self.params.top + self.params.height])

A layer is a kernel with a face: operands, index space, access, work and scratch mean what they mean of a
kernel (``YOUR_KERNELS.md``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from onedispatch.operators.layers.layer_kernel import declared
from onedispatch.operators.layers.lowering import LayerPlugin
from onedispatch.operators.layers.methods import LayerMethods
from onedispatch.operators.plugin.plugin import make_known, map_to
from onedispatch.transactions.base.boundary import public
from onedispatch.transactions.base.context import setting

_READ: ContextVar[list[type[Any]] | None] = ContextVar("read", default=None)


class Layer(LayerMethods):
    """A layer of one's own: a subclass with a ``name`` is known, and so is its node. One without a name of
    its own is a base for others.

    Attributes of the class, as arguments of ``od.kernel``: ``name``, ``inputs`` and ``outputs`` (``"x y?"``,
    or lists of ``In`` and ``Out``), ``dtypes``, ``devices``, ``work``, ``code_bytes``, ``deterministic``,
    ``library``; ``host_inputs``, names of inputs whose values ``shape`` reads (``n["k"].host_data``): few
    whole numbers, for which a program is made; ``Params``, a class with annotated names (``parameters.py``).

    Attributes of an instance, which is made for each node without arguments: ``params``, and ``layer``, the
    node: ``layer["x"].shape``, ``layer.name``, ``layer.device`` (None while ``local`` runs: a core knows no
    node).

    Raises ``KernelError`` where a subclass is made that cannot be run.
    """

    def __init_subclass__(cls, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        if "name" in cls.__dict__:
            _register(cls)


@contextmanager
def only_reading() -> Iterator[list[type[Layer]]]:
    """Within the block this thread's layers are listed, and nothing of them is known: compiled bodies need
    not be there yet."""
    with setting(_READ, list[type[Layer]]()) as found:
        yield found


@public
def _register(cls: type[Layer]) -> None:
    kernel, read = declared(cls), _READ.get()
    if read is not None:
        read.append(cls)
        return
    plugin = LayerPlugin(kernel, cls)
    make_known(plugin)
    map_to(plugin)
