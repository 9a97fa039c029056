# SPDX-License-Identifier: Apache-2.0
"""RotaryEmbedding of ONNX and of onnxruntime."""

from __future__ import annotations

import numpy as np

from onedispatch.operators.declarations.dtypes import FLOATS
from onedispatch.operators.declarations.registry import MICROSOFT, mapping_for, maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.kernels.elementwise import Eltwise, numpy_names
from onedispatch.operators.kernels.rotary import Rotate
from onedispatch.operators.lowering.convert import emit_converted, in_float32
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
        self.half = size // 2

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
        x, cosines, sines = self.x, self._table(1), self._table(2)
        interleaved = bool(self.node.attr("interleaved", 0))
        self.lowering.emit(
            Rotate(
                self.node.name, [x, cosines, sines], self.y, self.lowering.device,
                sizes=self.shape, strides=self.strides, interleaved=interleaved,
            )
        )  # fmt: skip

    def _table(self, index: int) -> TensorSpec:
        """Cosines or sines by batch, place and pair."""
        table, places = self.node.input(index), self.node.input(3)
        if table is None:
            raise Unsupported("RotaryEmbedding without its tables", "cos_cache and sin_cache")
        (batch, _, length, _), half = self.shape, self.half
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
        return table


@maps("RotaryEmbedding", notes="4 dimensions or 3 with num_heads, halves or interleaved, position_ids")
def map_rotary(node: NodeSpec, lowering: Lowering) -> None:
    _Rotary(node, lowering).emit()


@maps(
    "RotaryEmbedding",
    domain=MICROSOFT,
    dtypes=numpy_names(FLOATS),
    like=0,
    notes="as ONNX's; position_ids for every place or of the first one; scale 1, no packed batching",
)
def map_own_rotary(node: NodeSpec, lowering: Lowering) -> None:
    """(x, position_ids, cos_cache, sin_cache), as docs/ContribOperators.md of onnxruntime has it."""
    x, places, cosines, sines = (node.input(i) for i in range(4))
    if x is None or places is None or cosines is None or sines is None:
        raise Unsupported(
            "RotaryEmbedding without one of its inputs", "x, position_ids, cos_cache, sin_cache"
        )
    for name, accepted in (("scale", 1.0), ("is_packed_batching", 0)):
        if node.attr(name, accepted) != accepted:
            raise Unsupported(f"{name} {node.attr(name)}", str(accepted))
    if len(x.shape) not in (3, 4) or len(cosines.shape) != 2:
        given = f"an input of shape {list(x.shape)} with tables of {list(cosines.shape)}"
        raise Unsupported(given, "3 or 4 dimensions, and 2")
    attributes = dict(node.attributes)
    if len(x.shape) == 3 and not node.attr("num_heads", 0):  # a table has half of what a head has
        attributes["num_heads"] = x.shape[2] // max(2 * cosines.shape[1], 1)
    ids = _places(node.name, places, (x.shape[0], x.shape[-2]), cosines.shape[0], lowering)
    inputs = [*(in_float32(node.name, one, lowering) for one in (x, cosines, sines)), ids]
    y = node.outputs[0]
    narrow = y is not None and y.dtype != np.float32  # rounded once, at the end
    made = lowering.temp(np.dtype(np.float32), x.shape) if narrow else y
    map_rotary(NodeSpec(node.name, "RotaryEmbedding", "", 23, inputs, [made], attributes), lowering)
    if narrow and y is not None and made is not None:
        emit_converted(node.name, made, y, lowering)


def _places(
    name: str, places: TensorSpec, shape: tuple[int, int], rows: int, lowering: Lowering
) -> TensorSpec:
    """Rows of the tables for every place of every batch; one number is the first place's."""
    first = places.shape == (1,)
    if not first and places.shape != shape:
        raise Unsupported(f"position_ids of shape {list(places.shape)}", f"[1] or {list(shape)}")
    following = np.broadcast_to(np.arange(shape[1]), shape)
    if places.value is not None:
        known = places.value + following if first else places.value
        if known.size and not 0 <= known.min() <= known.max() < rows:
            raise Unsupported(f"position_ids from {known.min()} to {known.max()}", f"0 to {rows - 1}")
        return lowering.const(np.ascontiguousarray(known, np.int64))
    if not first:
        return places
    word = np.dtype(np.int32)  # which holds every row of a table
    start = emit_converted(name, places, lowering.temp(word, (1,)), lowering)
    found = lowering.temp(word, shape)
    counted = lowering.const(np.ascontiguousarray(following, word))
    lowering.emit(Eltwise(name, "add", [start, counted], found, lowering.device))
    return found
