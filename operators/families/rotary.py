# SPDX-License-Identifier: Apache-2.0
"""RotaryEmbedding of ONNX: pairs of elements turned by an angle, by element-wise functions over views.

Halves, or every second element, are views of the input: nothing is cut out of it first.
"""

from __future__ import annotations

import numpy as np

from onedispatch.operators.declarations.registry import mapping_for, maps
from onedispatch.operators.families.elementwise import Eltwise, View
from onedispatch.operators.families.movement import Move, Part
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.scheduling.index_space import contiguous_strides


class _Rotary:
    """One node, seen as [batch, heads, places, size]."""

    def __init__(self, node: NodeSpec, lowering: Lowering) -> None:
        x, y = node.input(0), node.outputs[0]
        if x is None or y is None:
            raise Unsupported("RotaryEmbedding without input or output")
        if x.dtype != np.float32:  # narrower ones are rounded where ONNX's own body does
            raise Unsupported(f"RotaryEmbedding of {x.dtype} ({x.name})", "float32")
        self.node, self.lowering, self.x, self.y = node, lowering, x, y
        self.shape, self.strides = self._seen(x)
        size = int(node.attr("rotary_embedding_dim", 0)) or self.shape[3]
        if size % 2 or size > self.shape[3]:
            raise Unsupported(f"rotary_embedding_dim {size}", f"an even number up to {self.shape[3]}")
        self.turned = size
        apart, step = (1, 2) if node.attr("interleaved", 0) else (size // 2, 1)
        self.halves = [View((*self.strides[:3], step), at) for at in (0, apart)]
        self.pairs = (*self.shape[:3], size // 2)

    def _seen(self, x: TensorSpec) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Sizes and strides of x by batch, head, place and element."""
        if len(x.shape) == 4:
            return x.shape, contiguous_strides(x.shape)
        heads = int(self.node.attr("num_heads", 0))
        if len(x.shape) != 3 or heads < 1 or x.shape[2] % heads:
            given = f"an input of shape {list(x.shape)} with num_heads {heads}"
            raise Unsupported(given, "4 dimensions, or 3 whose last num_heads divides")
        batch, places, width = x.shape
        size = width // heads
        return (batch, heads, places, size), (places * width, size, width, 1)

    def emit(self) -> None:
        tables = [self._table(1), self._table(2)]
        first = self._turned("sub", tables)
        second = self._turned("add", tables[::-1])
        whole = View(contiguous_strides(self.pairs))
        parts = [Part(i, self.pairs, whole, view) for i, view in enumerate(self.halves)]
        rest = self.shape[3] - self.turned
        if rest:
            view = View(self.strides, self.turned)
            parts.append(Part(2, (*self.shape[:3], rest), view, view))
        sources = [first, second, *([self.x] if rest else [])]
        self.lowering.emit(Move(self.node.name, sources, self.y, self.lowering.device, parts))

    def _turned(self, func: str, tables: list[tuple[TensorSpec, View]]) -> TensorSpec:
        """The first elements times the first table, less or plus the second ones times the other."""
        products = []
        for half, (table, view) in zip(self.halves, tables, strict=True):
            product = self.lowering.temp(self.x.dtype, self.pairs)
            self._each("mul", [self.x, table], [half, view], product)
            products.append(product)
        result, whole = self.lowering.temp(self.x.dtype, self.pairs), View(contiguous_strides(self.pairs))
        self._each(func, products, [whole, whole], result)
        return result

    def _each(self, func: str, tensors: list[TensorSpec], views: list[View], to: TensorSpec) -> None:
        name, device, out = self.node.name, self.lowering.device, View(contiguous_strides(self.pairs))
        op = Eltwise(name, func, tensors, to, device, views=views, shape=self.pairs, out_view=out)
        self.lowering.emit(op)

    def _table(self, index: int) -> tuple[TensorSpec, View]:
        """Cosines or sines, and where they lie by batch, head, place and pair."""
        table, places = self.node.input(index), self.node.input(3)
        if table is None:
            raise Unsupported("RotaryEmbedding without its tables", "cos_cache and sin_cache")
        batch, _, length, half = self.pairs
        if places is not None:  # rows of the table, by place
            found = self.lowering.temp(table.dtype, (batch, length, half))
            gather = mapping_for("", "Gather")
            if gather is None or table.shape[-1] != half:
                raise Unsupported(f"a table of shape {list(table.shape)} with position_ids", f"[..., {half}]")
            spec = NodeSpec(self.node.name, "Gather", "", 21, [table, places], [found], {"axis": 0})
            gather.function(spec, self.lowering)
            table = found
        if table.shape != (batch, length, half):
            raise Unsupported(f"a table of shape {list(table.shape)}", f"{[batch, length, half]}")
        return table, View((length * half, 0, half, 1))


@maps("RotaryEmbedding", notes="4 dimensions or 3 with num_heads, halves or interleaved, position_ids")
def map_rotary(node: NodeSpec, lowering: Lowering) -> None:
    _Rotary(node, lowering).emit()
