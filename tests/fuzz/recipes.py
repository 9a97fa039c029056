# SPDX-License-Identifier: Apache-2.0
"""Recipes for operators whose operands are not all of one type and shape: flags, indices, sizes, states."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
import onnx
from onnx import TensorProto

from tests.fuzz.maker import SIZES, Draft, Maker, Tensor

Recipe = Callable[[Maker, str], Draft]
WHOLE = ("int32", "int64", "uint8", "int8")


def of_types(*dtypes: str, since: int = 1) -> Recipe:
    """Operands of one of ``dtypes`` that broadcast; from ``since`` on all of them, before it the first."""

    def made(make: Maker, op_type: str) -> Draft:
        dtype = make.rng.choice(dtypes if make.opset >= since else dtypes[:1])
        shape = make.shape()
        other = [1 if make.chance(0.3) else size for size in shape][make.rng.randrange(len(shape) + 1) :]
        count = onnx.defs.get_schema(op_type, make.opset).max_input
        pair = [make.tensor(*shape, dtype=dtype), make.tensor(*other, dtype=dtype)]
        return Draft(op_type, [*pair[:count]])

    return made


def shifted(make: Maker, op_type: str) -> Draft:
    draft = of_types("uint8", "uint32", "uint64")(make, op_type)
    return Draft(op_type, draft.inputs, {"direction": make.rng.choice(("LEFT", "RIGHT"))})


def remainder(make: Maker, op_type: str) -> Draft:
    draft = of_types("float32", "int32", "int64")(make, op_type)
    floats = any(isinstance(x, Tensor) and x.array.dtype.kind == "f" for x in draft.inputs)
    for x in draft.inputs[1:]:
        if isinstance(x, Tensor):  # implementations differ about division by zero
            x.array = np.where(x.array == 0, np.ones_like(x.array), x.array)
    return Draft(op_type, draft.inputs, {"fmod": 1} if floats or make.chance(0.3) else {})


def cast(make: Maker, op_type: str) -> Draft:
    kinds = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL, TensorProto.DOUBLE
    return Draft(op_type, [make.data_input()[0]], {"to": make.rng.choice(kinds)})


def where(make: Maker, op_type: str) -> Draft:
    x, shape = make.data_input()
    flags = [1 if make.chance(0.3) else size for size in shape]
    return Draft(op_type, [make.tensor(*flags, dtype="bool"), x, make.tensor(*shape)])


# -- sizes ---------------------------------------------------------------------------------------


def expand(make: Maker, op_type: str) -> Draft:
    x, shape = make.data_input(0, 4)
    target = [make.rng.choice(SIZES) if size == 1 else size for size in shape]
    return Draft(op_type, [x, make.ints([2, *target] if make.chance(0.3) else target)])


def tile(make: Maker, op_type: str) -> Draft:
    x, shape = make.data_input(1, 4)
    return Draft(op_type, [x, make.ints([make.rng.randint(1, 3) for _ in shape])])


def padded(make: Maker, op_type: str) -> Draft:
    x, shape = make.data_input(1, 4)
    pads = [make.rng.randint(0, 2) for _ in range(2 * len(shape))]
    if make.opset < 11:
        return Draft(op_type, [x], {"pads": pads})
    return Draft(op_type, [x, make.ints(pads)], {"mode": make.rng.choice(("constant", "edge"))})


def sliced(make: Maker, op_type: str) -> Draft:
    x, shape = make.data_input(1, 4)
    axes = make.axes(len(shape))
    starts = [make.rng.randint(-2, 2) for _ in axes]
    ends = [make.rng.randint(-2, 5) for _ in axes]
    if make.opset < 10:
        return Draft(op_type, [x], {"starts": starts, "ends": ends, "axes": axes})
    steps = [make.rng.choice((1, 1, 2, -1)) for _ in axes]
    return Draft(op_type, [x, *map(make.ints, (starts, ends, axes, steps))])


def split(make: Maker, op_type: str) -> Draft:
    x, shape = make.data_input(1)
    axis = make.axis(len(shape))
    first = make.rng.randint(0, shape[axis])
    sizes = [first, shape[axis] - first]
    if make.opset < 13:
        return Draft(op_type, [x], {"axis": axis, "split": sizes}, outputs=2)
    return Draft(op_type, [x, make.ints(sizes)], {"axis": axis}, outputs=2)


def blocks(make: Maker, op_type: str) -> Draft:
    n, c, h, w = (make.rng.choice((1, 2, 3)) for _ in range(4))
    size = make.rng.choice((1, 2, 3))
    deep = op_type == "DepthToSpace"
    x = make.tensor(n, c * size**2, h, w) if deep else make.tensor(n, c, h * size, w * size)
    modes = {"mode": make.rng.choice(("DCR", "CRD"))} if deep and make.opset >= 11 else {}
    return Draft(op_type, [x], {"blocksize": size, **modes})


def centred(make: Maker, op_type: str) -> Draft:
    x, shape = make.data_input(1, 4)
    return Draft(op_type, [x, make.ints([make.rng.choice(SIZES) for _ in shape])])


def filled(make: Maker, op_type: str) -> Draft:
    return Draft(op_type, [make.ints(list(make.shape(1, 3)))])


def counted(make: Maker, op_type: str) -> Draft:
    start, step = make.rng.randint(-5, 5), make.rng.choice((-2, -1, 1, 3))
    numbers = start, start + step * make.rng.randint(0, 9), step
    return Draft(op_type, [Tensor(np.asarray(n, np.int64), make.chance(0.7)) for n in numbers])


def matrix(make: Maker, op_type: str) -> Draft:
    return Draft(op_type, [make.data_input(2, 2)[0]], {"k": make.rng.randint(-2, 2)})


def triangle(make: Maker, op_type: str) -> Draft:
    x, _ = make.data_input(2)
    k = Tensor(np.asarray(make.rng.randint(-3, 3), np.int64), make.chance(0.7))
    return Draft(op_type, [x, k] if make.chance(0.6) else [x], {"upper": make.rng.randrange(2)})


# -- indices and axes ------------------------------------------------------------------------------


def places(make: Maker, extent: int, *shape: int) -> Tensor:
    """Indices into ``extent`` elements, none where there are none."""
    data = [make.rng.randrange(-extent, extent) for _ in range(prod(shape))] if extent else []
    sizes = shape if extent else (0, *shape[1:])
    return Tensor(np.asarray(data, np.int64).reshape(sizes), make.chance(0.6))


def gathered(make: Maker, op_type: str) -> Draft:
    x, shape = make.data_input(1, 4)
    axis = make.axis(len(shape))
    sizes = shape if op_type == "GatherElements" else make.shape(1, 2)
    at = places(make, shape[axis], *sizes)
    if make.opset < 11:
        at.array = np.abs(at.array) % max(shape[axis], 1)  # indices from the end came later
    return Draft(op_type, [x, at], {"axis": axis})


def gathered_tuples(make: Maker, op_type: str) -> Draft:
    x, shape = make.data_input(1, 4)
    return Draft(
        op_type, [x, places(make, min(shape), make.rng.choice(SIZES), make.rng.randint(1, len(shape)))]
    )


def scattered(make: Maker, op_type: str) -> Draft:
    """Each place once: which of two writes comes last is not promised."""
    x, shape = make.data_input(1, 4)
    axis = make.axis(len(shape))
    count = make.rng.randint(0, shape[axis])
    sizes = list(shape)
    sizes[axis] = count
    line = np.asarray(make.rng.sample(range(shape[axis]), count), np.int64)
    at = np.broadcast_to(np.expand_dims(line, tuple(range(1, len(shape) - axis % len(shape)))), sizes)
    return Draft(op_type, [x, Tensor(at.copy(), make.chance(0.6)), make.tensor(*sizes)], {"axis": axis})


def scattered_rows(make: Maker, op_type: str) -> Draft:
    x, shape = make.data_input(1, 4)
    rows = make.rng.sample(range(shape[0]), make.rng.randint(0, shape[0]))
    at = Tensor(np.asarray(rows, np.int64).reshape(-1, 1), make.chance(0.6))
    return Draft(op_type, [x, at, make.tensor(len(rows), *shape[1:])])


def one_hot(make: Maker, op_type: str) -> Draft:
    depth, shape = make.rng.choice(SIZES), make.shape(0, 3)
    counts = make.ints([depth], const=0.7)
    return Draft(
        op_type, [places(make, depth, *shape), counts, make.tensor(2)], {"axis": make.axis(len(shape) + 1)}
    )


def running(make: Maker, op_type: str) -> Draft:
    x, shape = make.data_input(1)
    axis = Tensor(np.asarray(make.axis(len(shape)), np.int64), make.chance(0.8))
    return Draft(op_type, [x, axis], {"reverse": make.rng.randrange(2), "exclusive": make.rng.randrange(2)})


def turned(make: Maker, op_type: str) -> Draft:
    x, shape = make.data_input(2)
    batch = make.rng.randrange(2)
    lengths = [make.rng.randint(1, max(shape[1 - batch], 1)) for _ in range(shape[batch])]
    return Draft(op_type, [x, make.ints(lengths, const=0.5)], {"batch_axis": batch, "time_axis": 1 - batch})


def largest(make: Maker, op_type: str) -> Draft:
    x, shape = make.data_input(1)
    axis = make.axis(len(shape))
    count = make.rng.randint(0, shape[axis])
    if make.opset < 10:
        return Draft(op_type, [x], {"axis": axis, "k": count}, outputs=2)
    return Draft(op_type, [x, make.ints([count])], {"axis": axis}, outputs=2)


# -- layers ----------------------------------------------------------------------------------------


def layer(make: Maker, op_type: str) -> Draft:
    """A layer or root-mean-square normalisation: a scale, and a bias where there is one."""
    x, shape = make.data_input(1)
    axis = make.axis(len(shape))
    ends = shape[axis % len(shape) :]
    sizes = [1 if make.chance(0.2) else size for size in ends]
    bias = op_type == "LayerNormalization" and make.chance(0.5)
    return Draft(op_type, [x, make.tensor(*sizes), *([make.tensor(*ends)] if bias else [])], {"axis": axis})


def planes(make: Maker, op_type: str) -> Draft:
    x, shape = make.data_input(3)
    return Draft(op_type, [x, make.tensor(shape[1]), make.tensor(shape[1])])


def recurrent(make: Maker, op_type: str) -> Draft:
    gates = {"GRU": 3, "LSTM": 4, "RNN": 1}[op_type]
    steps, batch, inputs, hidden = (make.rng.choice((1, 2, 3, 5)) for _ in range(4))
    direction = make.rng.choice(("forward", "reverse", "bidirectional"))
    count = 2 if direction == "bidirectional" else 1
    weights = [make.tensor(count, gates * hidden, size, const=0.7) for size in (inputs, hidden)]
    bias = [make.tensor(count, 2 * gates * hidden)] if make.chance(0.5) else []
    given = {"hidden_size": hidden, "direction": direction}
    return Draft(op_type, [make.tensor(steps, batch, inputs), *weights, *bias], given)


def sampled(make: Maker, op_type: str) -> Draft:
    n, c, h, w = (make.rng.choice((1, 2, 3, 5)) for _ in range(4))
    grid = make.tensor(n, make.rng.choice(SIZES), make.rng.choice(SIZES), 2)
    return Draft(op_type, [make.tensor(n, c, h, w), grid], {"align_corners": make.rng.randrange(2)})


TYPED: dict[str, Recipe] = {
    "And": of_types("bool"), "BitShift": shifted, "BitwiseAnd": of_types(*WHOLE),
    "BitwiseNot": of_types(*WHOLE), "BitwiseOr": of_types(*WHOLE), "BitwiseXor": of_types(*WHOLE),
    "Cast": cast, "CenterCropPad": centred, "ConstantOfShape": filled, "CumProd": running, "CumSum": running,
    "DepthToSpace": blocks, "Equal": of_types("int64", "int32", "float32", since=11), "Expand": expand,
    "EyeLike": matrix, "GRU": recurrent, "Gather": gathered, "GatherElements": gathered,
    "GatherND": gathered_tuples, "GridSample": sampled, "InstanceNormalization": planes, "LSTM": recurrent,
    "LayerNormalization": layer, "Mod": remainder, "Not": of_types("bool"), "OneHot": one_hot,
    "Or": of_types("bool"), "Pad": padded, "RMSNormalization": layer, "RNN": recurrent, "Range": counted,
    "ReverseSequence": turned, "ScatterElements": scattered, "ScatterND": scattered_rows, "Slice": sliced,
    "SpaceToDepth": blocks, "Split": split, "Tile": tile, "TopK": largest, "Trilu": triangle, "Where": where,
    "Xor": of_types("bool"),
}  # fmt: skip
