# SPDX-License-Identifier: Apache-2.0
"""Sizes for open dimensions that a model takes: usual ones first, then those that its own constants say.

What a dimension is (a batch, a side of an image, a length) follows from its name, or from its place. Sides
are multiples of what the model's strides divide by; reshapes, tables of positions and constants that are
joined with an input say others. Each is tried by shape inference and the checks of nodes, without a compile.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from math import isqrt

from onedispatch.dispatch.compiler.fold import specialise
from onedispatch.dispatch.frontend.graph import Array, Dimension, Graph, Node, Value
from onedispatch.dispatch.frontend.validity import check_nodes
from onedispatch.transactions.base.errors import OneDispatchError

Shapes = dict[str, tuple[int, ...]]

BATCH, SIDE, LENGTH = "batch", "side", "length"
_WORDS = {
    BATCH: {"batch", "batchsize", "bs", "b", "n"},
    SIDE: {"height", "width", "h", "w", "rows", "cols", "columns", "image", "size", "resolution"},
    LENGTH: {
        "sequence",
        "seq",
        "seqlen",
        "length",
        "len",
        "time",
        "t",
        "tokens",
        "frames",
        "samples",
        "past",
    },
}
_SIDES = (224, 256, 320, 512, 640)
_LENGTHS = (128, 64, 32, 256)
_ANY = (2, 3, 4, 8, 16, 32, 64, 128, 224, 256)  # of every open dimension
_MOST_CONSTANT_SIZES = 6
_MOST_STRIDE = 64
_SECONDS = 2.0  # of trying


def fitting_sizes(graph: Graph, inputs: Sequence[Value], known: Mapping[str, tuple[int, ...]]) -> Shapes:
    """Returns sizes that no node of ``graph`` refuses, or {} after a few tries.

    Args:
        inputs: tensors with open dimensions; equal names have equal sizes.
        known: shapes of the other inputs.
    """
    until = time.monotonic() + _SECONDS
    for tried in _tries(graph, inputs):
        shapes = {**known, **tried}
        with suppress(OneDispatchError):
            special = specialise(graph, shapes, {})
            check_nodes(special, special.nodes)
            return shapes
        if time.monotonic() > until:
            break
    return {}


def kind_of(value: Value, axis: int) -> str:
    """Returns what an open dimension is, by its name or else its place."""
    shape = value.shape or ()
    name = shape[axis] if axis < len(shape) else None
    words = re.findall(r"[a-z]+", name.lower()) if isinstance(name, str) else []
    for kind, known in _WORDS.items():
        if known.intersection(words):
            return kind
    if axis == 0 and shape[1:]:
        return BATCH
    return SIDE if len(shape) == 4 else LENGTH


def _tries(graph: Graph, inputs: Sequence[Value]) -> Iterator[Shapes]:
    sides, lengths = _sides(graph), [*_LENGTHS, *_constant_sizes(graph.constants)]
    for number in range(max(len(sides), len(lengths))):
        sizes = {BATCH: 1, SIDE: sides[number % len(sides)], LENGTH: lengths[number % len(lengths)]}
        yield {
            v.name: _filled(v, [sizes[kind_of(v, axis)] for axis in range(len(v.shape or ()))])
            for v in inputs
        }
    for size in (*_ANY, *_constant_sizes(graph.constants)):
        for batch in (1, size):
            yield {v.name: _filled(v, _uniform(v, size, batch)) for v in inputs}


def _uniform(value: Value, size: int, batch: int) -> list[int]:
    rest = [size for _ in (value.shape or ())[1:]]
    return [batch if rest else size, *rest]


def _filled(value: Value, sizes: Sequence[int]) -> tuple[int, ...]:
    shape: tuple[Dimension, ...] = value.shape or ()
    return tuple(d if isinstance(d, int) else new for d, new in zip(shape, sizes, strict=True))


def _sides(graph: Graph) -> list[int]:
    """Sides of images, most usual first."""
    stride = _stride(graph)
    usual = [side for side in _SIDES if side % stride == 0]
    roots = sorted({root for size in _reshaped_sizes(graph.constants) for root in _roots(size, stride)})
    return [*dict.fromkeys((*usual[:2], *roots, *usual, *(stride * factor for factor in (1, 2, 4, 7, 10))))]


def _roots(size: int, stride: int) -> Iterator[int]:
    """Sides of an image of which, divided by ``stride`` or a part of it, ``size`` positions are left."""
    for positions in (size, size - 1):  # with a class token, one more
        root = isqrt(max(positions, 0))
        if root > 3 and root * root == positions:
            yield from (root * part for part in (1, 2, 4, 8, 14, 16, 32) if stride % part == 0)


def _reshaped_sizes(constants: Mapping[str, Array]) -> list[int]:
    """Sizes that reshapes ask for, and those of tables."""
    asked = (array for array in constants.values() if array.dtype == "int64" and array.ndim == 1)
    named = chain.from_iterable(array.tolist() for array in asked if 2 <= array.size <= 8)
    tables = (array.shape[-2] for array in constants.values() if array.ndim in (2, 3))
    return [*islice(dict.fromkeys(size for size in chain(named, tables) if 16 <= size <= 1 << 16), 64)]


def _constant_sizes(constants: Mapping[str, Array]) -> list[int]:
    """What is joined with a constant has its size."""
    return sorted({size for array in constants.values() for size in array.shape if size > 1})[
        :_MOST_CONSTANT_SIZES
    ]


def _stride(graph: Graph) -> int:
    """Returns by what the strides on a way through the graph divide an image at most."""
    reached: dict[str, float] = {}
    for node in graph.nodes:
        stride = max((reached.get(name, 1) for name in node.inputs), default=1) * _step(node)
        reached.update(dict.fromkeys(node.writes, stride))
    return int(max(1, min(_MOST_STRIDE, max(reached.values(), default=1))))


def _step(node: Node) -> float:
    if node.op_type in ("Conv", "QLinearConv", "ConvInteger"):
        return float(max(node.attributes.get("strides") or (1,)))
    if node.op_type in ("MaxPool", "AveragePool", "LpPool"):
        stride = max(node.attributes.get("strides") or (1,))
        return float(stride) if stride <= 4 else 1.0  # of more, it pools all that is there
    if node.op_type == "ConvTranspose":
        return 1 / float(max(node.attributes.get("strides") or (1,)))
    if node.op_type == "SpaceToDepth":
        return float(node.attributes.get("blocksize", 1))
    return 0.5 if node.op_type in ("Resize", "Upsample", "DepthToSpace") else 1.0
