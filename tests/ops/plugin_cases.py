# SPDX-License-Identifier: Apache-2.0
"""What the kernels of ``tests/ops/plugins`` compute, in NumPy, and over which tensors they are tried.

Which kernels there are, and for which dtypes, is not said here: the libraries are asked. Sums are taken in
the kernels' order, so that all bits are to be equal unless ``close`` says how near they come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from onnx import ModelProto, helper

from onedispatch.operators.declarations.dtypes import DTYPES
from onedispatch.operators.plugin.custom_kernel import CustomKernel
from onedispatch.operators.plugin.registrations import camel_case
from tests.plugins import model, value

Array = np.ndarray[Any, Any]
Shapes = Sequence[tuple[tuple[int, ...], ...]]
F32 = np.float32
BF16 = np.dtype(ml_dtypes.bfloat16)


def each(*shapes: tuple[int, ...]) -> Shapes:
    """Shapes of one input."""
    return [(shape,) for shape in shapes]


ANY = each((), (1,), (7,), (5, 6), (33, 130), (2, 3, 4, 5), (2, 1, 3, 2, 5))
ROWS = each((1,), (7,), (5, 6), (33, 130), (2, 3, 4, 5), (2, 1, 3, 2, 5))
MATRICES = each((1, 1), (5, 6), (33, 70), (4, 129), (70, 9))
IMAGES = each((2, 2), (5, 6), (7, 33), (40, 64))
PAIRS = [((),) * 2, ((7,), (7,)), ((5, 6), (6,)), ((33, 130), (33, 1)), ((2, 3, 4, 5), (3, 1, 5))]
PRODUCTS = [((1, 1), (1, 1)), ((5, 6), (6, 3)), ((33, 64), (64, 40)), ((8, 7), (7, 65))]


@dataclass(frozen=True)
class Reference:
    """``compute(*inputs, **attributes)``: one output or several; floats of 16 bits come and go as f32."""

    shapes: Shapes
    compute: Callable[..., Any]
    attributes: Sequence[Mapping[str, float]] = ({},)
    close: Mapping[str, float] = field(default_factory=dict)  # dtype -> most that may lie between, absolute
    rounded: str = ""  # dtype of the outputs, where it is not the first input's
    given: Callable[[tuple[int, ...], np.dtype[Any], int], Array] | None = None  # data of one's own, by input


@dataclass(frozen=True)
class Case:
    """A node with data."""

    name: str
    domain: str
    op_type: str
    inputs: Mapping[str, Array]
    attributes: Mapping[str, float]
    expected: tuple[Array, ...]
    close: float

    def model(self) -> ModelProto:
        """One node, whose output shapes the kernel has to infer."""
        described = [value(name, array.shape, array.dtype) for name, array in self.inputs.items()]
        outputs = [value(f"out{i}", None, array.dtype) for i, array in enumerate(self.expected)]
        names = [one.name for one in outputs]
        node = helper.make_node(self.op_type, list(self.inputs), names, domain=self.domain, **self.attributes)
        return model([node], described, outputs)

    def insist(self, answers: Sequence[Array]) -> None:
        """The answers are those expected."""
        assert len(answers) == len(self.expected), self.name
        for got, wanted in zip(answers, self.expected, strict=True):
            assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape), self.name
            if self.close:
                np.testing.assert_allclose(
                    got.astype(F32), wanted.astype(F32), 0, self.close, err_msg=self.name
                )
            else:
                np.testing.assert_array_equal(got, wanted, err_msg=self.name)


def cases(kernel: CustomKernel) -> Iterator[Case]:
    """All of a kernel: every dtype that it declares, every shape and every set of attributes."""
    space, _, short = kernel.name.partition("@")[0].partition("::")
    reference = REFERENCES[short]
    for dtype in kernel.inputs[0].dtype_names:
        for i, shapes in enumerate(reference.shapes):
            attributes = reference.attributes[i % len(reference.attributes)]
            inputs = list(_data(kernel, reference, dtype, shapes))
            given = {one.name: array for one, array in zip(kernel.inputs, inputs, strict=True)}
            found = reference.compute(*(as_f32(array) for array in inputs), **attributes)
            rounded = DTYPES[reference.rounded or dtype].numpy
            made = tuple(one.astype(rounded) for one in (found if isinstance(found, tuple) else (found,)))
            name = f"{kernel.name} {dtype} {shapes} {dict(attributes)}"
            close = reference.close.get(dtype, 0.0)
            yield Case(name, space, camel_case(short), given, attributes, made, close)


def _data(
    kernel: CustomKernel, reference: Reference, dtype: str, shapes: Sequence[tuple[int, ...]]
) -> Iterator[Array]:
    for i, (one, shape) in enumerate(zip(kernel.inputs, shapes, strict=True)):
        accepted = one.dtype_names
        row = DTYPES[dtype if dtype in accepted else accepted[0]].numpy
        yield numbers(shape, row, i) if reference.given is None else reference.given(shape, row, i)


def numbers(shape: tuple[int, ...], dtype: np.dtype[Any], seed: int) -> Array:
    rng = np.random.default_rng([seed, *shape])
    if np.issubdtype(dtype, np.integer):
        return rng.integers(-100, 101, shape).astype(dtype)
    return np.asarray(rng.standard_normal(shape) * 3, F32).astype(dtype)


def as_f32(array: Array) -> Array:
    return array.astype(F32) if array.dtype == BF16 else array


# -- what they compute -------------------------------------------------------------------------------


def softsign(x: Array) -> Array:
    steps = np.arange(-512, 513).astype(F32) / F32(64)
    table = steps / (F32(1) + np.abs(steps))
    at = np.clip(x * F32(64) + F32(512), F32(0), F32(1023.99))
    i = at.astype(np.int32)
    return np.asarray(table[i] + (at - i.astype(F32)) * (table[i + 1] - table[i]))


def total(x: Array, axis: int) -> Array:
    """The sum in order; NumPy's own adds pairs."""
    return np.add.accumulate(x, axis).take([-1], axis)


def softmax(x: Array, axis: int) -> Array:
    powers = np.exp(x - x.max(axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis, keepdims=True))


def windows(x: Array) -> list[Array]:
    """Those of 3 x 3, by place in the window, with zeros around the image."""
    padded = np.pad(x, 1)
    return [padded[i : i + x.shape[0], j : j + x.shape[1]] for i in range(3) for j in range(3)]


def box(x: Array) -> Array:
    return np.asarray(sum(windows(x), np.zeros_like(x)) * (F32(1) / F32(9)))


def down(x: Array) -> Array:
    x = x[: x.shape[0] // 2 * 2, : x.shape[1] // 2 * 2]
    return np.asarray(F32(0.25) * (x[::2, ::2] + x[::2, 1::2] + x[1::2, ::2] + x[1::2, 1::2]))


def product(x: Array, y: Array) -> Array:
    wide = F32 if x.dtype == F32 else np.int32
    made = np.zeros((x.shape[0], y.shape[1]), wide)
    for k in range(x.shape[1]):
        made = made + x[:, k : k + 1].astype(wide) * y[k].astype(wide)
    return made


def gather(table: Array, index: Array) -> Array:
    inside = (index >= 0) & (index < len(table))
    return np.where(inside[:, None], table[np.where(inside, index, 0)], F32(-1))


def one_hot(x: Array, depth: int, on: float = 1, off: float = 0) -> Array:
    return np.where(x[:, None] == np.arange(depth), F32(on), F32(off))


def indices(shape: tuple[int, ...], dtype: np.dtype[Any], seed: int) -> Array:
    """Small numbers where integers are asked for, some of them below zero."""
    made = numbers(shape, dtype, seed)
    return made % 12 - 2 if np.issubdtype(dtype, np.integer) else made


SOFTMAX = {"f32": 1e-6, "bf16": 2.0**-8}
REFERENCES = {
    "abs": Reference(ANY, np.abs),
    "relu6": Reference(ANY, lambda x: np.clip(x, F32(0), F32(6))),
    "clip": Reference(
        ANY, lambda x, low=-1, high=1: np.clip(x, F32(low), F32(high)), [{}, {"low": -0.3, "high": 0.7}]
    ),
    "leaky_relu": Reference(
        ANY, lambda x, alpha=0.01: np.where(x < 0, F32(alpha) * x, x), [{}, {"alpha": 0.3}]
    ),
    "scale_add": Reference(PAIRS, lambda x, y, a: F32(a) * x + y, [{"a": 0.5}, {"a": -2.7}]),
    "scale_bf16": Reference(ANY, lambda x, a: F32(a) * x, [{"a": 1.7}]),
    "saturating_add": Reference(PAIRS, lambda x, y: np.clip(x.astype(np.int32) + y, -128, 127)),
    "cast_bf16": Reference(ANY, lambda x: x, rounded="bf16"),
    "softsign_table": Reference(ANY, softsign),
    "row_sum": Reference(ROWS, lambda x: total(x, -1)),
    "row_max": Reference(ROWS, lambda x: x.max(-1, keepdims=True)),
    "mean_first": Reference(ROWS, lambda x: F32(1) / F32(len(x)) * total(x, 0)),
    "arg_max": Reference(ROWS, lambda x: x.argmax(-1)[..., None], rounded="i32"),
    "min_max": Reference(ROWS, lambda x: (x.min(-1, keepdims=True), x.max(-1, keepdims=True))),
    "softmax_last": Reference(MATRICES, lambda x: softmax(x, 1), close=SOFTMAX),
    "softmax_first": Reference(MATRICES, lambda x: softmax(x, 0), close=SOFTMAX),
    "row_cum_sum": Reference(MATRICES, lambda x: np.add.accumulate(x, 1, x.dtype)),
    "square64": Reference(MATRICES, lambda x: x * x),
    "box3": Reference(IMAGES, box),
    "median3": Reference(IMAGES, lambda x: np.sort(windows(x), 0)[4]),
    "down2": Reference(IMAGES, down),
    "up2": Reference(IMAGES, lambda x: x.repeat(2, 0).repeat(2, 1)),
    "mat_mul": Reference(PRODUCTS, product),
    "mat_mul_i8": Reference(PRODUCTS, product, rounded="i32"),
    "transpose2": Reference(MATRICES, np.transpose),
    "gather": Reference([((9, 5), (4,)), ((8, 33), (70,)), ((1, 1), (1,))], gather, given=indices),
    "one_hot": Reference(
        each((1,), (7,), (40,)),
        one_hot,
        [{"depth": 10}, {"depth": 9, "on": 2.0, "off": -0.5}],
        rounded="f32",
        given=indices,
    ),
}
