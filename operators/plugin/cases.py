# SPDX-License-Identifier: Apache-2.0
"""Nodes to check a kernel with, where there is no model: from its declaration, or its ``examples``.

Shapes are small and odd, so that every member can run alone; seeds are fixed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from onedispatch.operators.declarations.dtypes import DTYPES, OPEN, DType, open_dtype_of
from onedispatch.operators.declarations.kernel import Scalar, Tensor
from onedispatch.operators.declarations.tensor import NodeSpec, TensorSpec
from onedispatch.operators.plugin.boxes import Array
from onedispatch.operators.plugin.custom_kernel import CustomKernel
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.text import did_you_mean

if TYPE_CHECKING:
    from onedispatch.operators.plugin.plugin import PluginKernel

SHAPES: dict[int, tuple[tuple[int, ...], ...]] = {
    0: ((),),
    1: ((7,), (130,)),
    2: ((3, 5), (6, 40)),
    3: ((2, 3, 5), (1, 4, 33)),
    4: ((2, 3, 4, 5), (1, 2, 7, 9)),
    5: ((2, 1, 3, 2, 5),),
}
MOST = 24  # cases of a kernel
SEED = 20250
_TENSOR = re.compile(r"([a-z][a-z0-9_]*)=(?:([a-z0-9]+)\[([0-9, ]*)\]|\[([0-9, ]*)\])")
_NUMBER = re.compile(r"([a-z][a-z0-9_]*)=([-+0-9.eE]+)")


@dataclass(frozen=True)
class Case:
    """Inputs by name, and attributes of the node."""

    arrays: Mapping[str, Array]
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        tensors = [f"{name}={_text(array)}" for name, array in self.arrays.items()]
        return " ".join([*tensors, *(f"{name}={_said(value)}" for name, value in self.attributes.items())])

    def spec(self, kernel: CustomKernel) -> NodeSpec:
        """The node, as if a model had it; nothing is known of its outputs."""
        inputs = [self._tensor(one.name) for one in kernel.inputs]
        while inputs and inputs[-1] is None:
            inputs.pop()
        outputs = [None] * len(kernel.outputs)
        op_type = kernel.name.partition("::")[2].partition("@")[0]
        domain = kernel.name.partition("::")[0]
        return NodeSpec("check", op_type, domain, 1, inputs, outputs, dict(self.attributes))

    def _tensor(self, name: str) -> TensorSpec | None:
        array = self.arrays.get(name)
        return None if array is None else TensorSpec(name, array.dtype, array.shape, array)


def _said(value: Any) -> str:
    """A number, or what else an attribute of a layer may be."""
    return f"{value:g}" if isinstance(value, int | float) else repr(value).replace(" ", "")


def _text(array: Array) -> str:
    row = open_dtype_of(array.dtype)
    return f"{row or array.dtype}{list(array.shape)}"


def cases_of(plugin: PluginKernel) -> list[Case]:
    """Those that the kernel brings (``examples``), or made ones; the kernel need not take them all."""
    brought = getattr(getattr(plugin, "cls", None), "examples", None)
    if brought is None:
        made = (
            replace(case, attributes={**case.attributes, **plugin.made_up}) for case in _made(plugin.kernel)
        )
        return list(islice({str(case): case for case in made}.values(), MOST))
    given = brought() if callable(brought) else brought
    if not isinstance(given, Iterable) or isinstance(given, Mapping | str):
        accepted = (
            'a list of cases, each {"x": (4, 5), "a": 2.0}: shapes or arrays by input, numbers by attribute'
        )
        raise InputError(f"examples of {plugin.kernel.name}", repr(given), accepted)
    return [example(plugin.kernel, one) for one in given]


def example(kernel: CustomKernel, given: Mapping[str, Any]) -> Case:
    """A case from ``{"x": (4, 5), "y": ("bf16", (4, 5)), "a": 2.0}``. Raises ``InputError``."""
    rng = np.random.default_rng(SEED)
    inputs = {one.name: one for one in kernel.inputs}
    arrays, attributes = {}, {}
    for name, value in given.items():
        if name not in inputs:
            attributes[name] = value
        elif isinstance(value, np.ndarray):
            arrays[name] = value
        else:
            dtype, shape = _dtype_and_shape(kernel, inputs[name], value)
            arrays[name] = values(dtype, shape, rng)
    return Case(arrays, {**_numbers(kernel), **attributes})


def _dtype_and_shape(kernel: CustomKernel, one: Tensor, value: Any) -> tuple[DType, tuple[int, ...]]:
    dtype, shape = value if len(value) == 2 and isinstance(value[0], str) else (one.dtype_names[0], value)
    if dtype not in OPEN or not all(isinstance(size, int) and size > 0 for size in shape):
        raise InputError(f"example of {kernel.name}: {one.name}", repr(value), 'a shape, or ("bf16", shape)')
    return DTYPES[dtype], tuple(shape)


def parsed(kernel: CustomKernel, text: str) -> Case:
    """A case from ``x=f32[4,5] y=[4,5] a=2``. Raises ``InputError`` for what cannot be read, names twice, and
    tensors that are no inputs of the kernel."""
    given: dict[str, Any] = {}
    inputs = [one.name for one in kernel.inputs]
    for token in re.findall(r"\S+=[a-z0-9]*\[[^\]]*\]|\S+", text):
        name, value = _parsed_token(token)
        where = f"--case of {kernel.name}, {token!r}"
        if name in given:
            raise InputError(where, f"{name} once more", "each name once")
        if name in inputs and not isinstance(value, tuple):
            raise InputError(where, f"a number for the input {name}", f"a tensor: {name}=f32[4,5]")
        if name not in inputs and isinstance(value, tuple):
            accepted = f"{', '.join(inputs)}: the inputs" if inputs else "numbers: the kernel has no inputs"
            raise InputError(where, name, accepted, did_you_mean(name, inputs))
        given[name] = value
    return example(kernel, given)


def _parsed_token(token: str) -> tuple[str, Any]:
    """The name, and a shape, (dtype, shape) or a number. Raises ``InputError`` for any other token."""
    if tensor := _TENSOR.fullmatch(token):
        name, dtype, shape, bare = tensor.groups()
        sizes = tuple(int(size) for size in (shape if dtype else bare).split(",") if size.strip())
        return name, (dtype, sizes) if dtype else sizes
    number = _NUMBER.fullmatch(token)
    with suppress(ValueError):
        if number:
            return number[1], float(number[2]) if re.search("[.eE]", number[2]) else int(number[2])
    raise InputError("--case", repr(token), "tensors and numbers: x=f32[4,5] y=[4,5] a=2.0")


# -- made ones ---------------------------------------------------------------------------------


def _made(kernel: CustomKernel) -> Iterator[Case]:
    """Every rank and dtype of the first input once before any comes twice."""
    if not kernel.inputs:
        yield Case({}, _numbers(kernel))
        return
    least, most = kernel.inputs[0].rank
    dtypes = kernel.inputs[0].dtype_names
    for round_ in range(2):
        for position, rank in enumerate(range(most, least - 1, -1)):
            shapes = SHAPES[rank]
            shape = shapes[round_ % len(shapes)]
            chosen = dtypes if round_ == 0 and position == 0 else (dtypes[(position + round_) % len(dtypes)],)
            for dtype in chosen:
                yield from _with_shapes(kernel, dtype, shape, round_)


def _with_shapes(kernel: CustomKernel, dtype: str, shape: tuple[int, ...], round_: int) -> Iterator[Case]:
    """Other inputs of the same shape; of one that broadcasts; of one that a product takes."""
    others = [shape]
    if len(kernel.inputs) > 1:
        others += [shape[-1:], shape[:-1] + (1,)] if round_ == 0 and shape else []
        others += [(*shape[:-2], shape[-1], 4)] if len(shape) > 1 else []
    seen = set()
    for other in others:
        rng = np.random.default_rng([SEED, *shape])
        arrays = {}
        for position, one in enumerate(kernel.inputs):
            if one.optional and round_ == 1:
                continue
            least, most = one.rank
            wanted = shape if position == 0 else other
            wanted = wanted if least <= len(wanted) <= most else SHAPES[most][0]
            allowed = one.dtype_names
            arrays[one.name] = values(DTYPES[dtype if dtype in allowed else allowed[0]], wanted, rng)
        key = tuple(array.shape for array in arrays.values())
        if key not in seen:
            seen.add(key)
            yield Case(arrays, _numbers(kernel))


def values(row: DType, shape: Sequence[int], rng: np.random.Generator) -> Array:
    """Numbers such as models have; of wide integers small ones, since they may be indices."""
    if row.numpy.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if row.is_float:
        return rng.standard_normal(shape).astype(row.numpy)
    if row.itemsize == 1:
        info = np.iinfo(row.numpy)
        return rng.integers(info.min, info.max, shape, endpoint=True).astype(row.numpy)
    return rng.integers(0, 3, shape).astype(row.numpy)


def _numbers(kernel: CustomKernel) -> dict[str, Any]:
    return {one.name: _number(one) for one in kernel.own_scalars if one.default is None}


def _number(scalar: Scalar) -> float | int:
    low, high = scalar.bounds
    value = min(max(0.75 if scalar.type == "f32" else 2, low), high)
    return float(value) if scalar.type == "f32" else int(value)
