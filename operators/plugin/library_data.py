# SPDX-License-Identifier: Apache-2.0
"""Plain data of ``onedispatch/plugin.h`` and what it means here: declarations, nodes, instances."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from onedispatch.operators.declarations.dtypes import DTYPES, open_dtype_of
from onedispatch.operators.declarations.kernel import PRINTS, Scalar, Tensor, work
from onedispatch.operators.declarations.tensor import Quantisation, TensorSpec
from onedispatch.operators.plugin.custom_kernel import CODE_BYTES, CustomKernel
from onedispatch.operators.plugin.instance import WHOLE_DIMENSION, Interval
from onedispatch.operators.plugin.node import Made, Node
from onedispatch.operators.plugin.operands import Aux, In, Out, Scratch
from onedispatch.operators.plugin.refusals import refusal
from onedispatch.transactions.base.text import counted

OD_WHOLE = 255  # of onedispatch/plugin.h
_BY_CODE = {row.code: row.name for row in DTYPES.values()}


# -- declarations --------------------------------------------------------------------------------


def declared_of(said: Mapping[str, Any], path: str) -> CustomKernel:
    """A plug-in's declaration. Raises ``KernelDeclarationInvalidError`` for what could not be run."""
    by_role: dict[str, list[Mapping[str, Any]]] = {"input": [], "aux": [], "scratch": [], "output": []}
    for operand in said["operands"]:
        by_role[operand["role"]].append(operand)
    terms = said["work"] or {}
    unpriced = {term: times for term, times in terms.items() if not 0 <= times < math.inf}
    if unpriced:
        where = f"kernel {said['name']}: work"
        raise refusal("declaration_invalid", where, unpriced, "finite numbers from 0 on")
    return CustomKernel(
        said["name"],
        inputs=tuple(
            _operand(In, one, pad=one["value"], optional=one["optional"]) for one in by_role["input"]
        ),
        outputs=tuple(_operand(Out, one, fill=one["value"]) for one in by_role["output"]),
        aux=tuple(Aux(one["name"], " ".join(one["dtypes"])) for one in by_role["aux"]),
        scratch_tensors=tuple(Scratch(one["name"], " ".join(one["dtypes"])) for one in by_role["scratch"]),
        scalars=tuple(_scalar(one) for one in said["scalars"]),
        devices=tuple(said["devices"]) or None,
        prints=PRINTS[said["prints"]],
        code_bytes=said["code_bytes"] or CODE_BYTES,
        work=work(**terms),
        deterministic=said["deterministic"],
        library=path,
        summary=said["summary"],
    )


def _operand(kind: Any, one: Mapping[str, Any], **more: Any) -> Any:
    dtypes = " ".join(one["dtypes"])
    return kind(one["name"], dtypes, one["rank"], like=one["like"], quantised=one["quantised"], **more)


def _scalar(one: Mapping[str, Any]) -> Scalar:
    return Scalar(one["name"], one["type"], one["low"], one["high"], one["default"])


# -- nodes ---------------------------------------------------------------------------------------


def node_data(kernel: CustomKernel, node: Node) -> dict[str, Any]:
    """What ``instantiate`` is handed of a node."""
    spec = node.spec
    outputs = [_tensor(one) for one in spec.outputs]
    inputs = [_tensor(node.given(one.name)) for one in kernel.inputs]
    while inputs and inputs[-1] is None:
        inputs.pop()
    return {
        "name": node.name,
        "kernel": kernel.name,
        "device": node.device,
        "max_cores": node.max_cores,
        "inputs": inputs,
        "outputs": outputs,
        "scalars": [node.scalars.get(one.name) for one in kernel.own_scalars],
        "attributes": [
            (name, value)
            for name, given in spec.attributes.items()
            if (value := _attribute(given)) is not None
        ],
    }


def _tensor(spec: TensorSpec | None) -> tuple[Any, ...] | None:
    """(dtype code, shape, quantisation, value); None for what is absent or not known."""
    row = open_dtype_of(spec.dtype) if spec is not None else None
    if spec is None or row is None:
        return None
    value = None if spec.value is None else np.ascontiguousarray(spec.value).tobytes()
    return (row.code, list(spec.shape), _quantisation(spec.quantisation), value)


def _quantisation(given: Quantisation | None) -> tuple[int, float, int] | None:
    if given is None:
        return None
    return (1 if given.axis is None else 2, given.scale[0], given.zero_point[0])


def _attribute(given: Any) -> list[int] | list[float] | bytes | None:
    """Numbers and text as C has them; None for what it has no form of (tensors, graphs)."""
    if isinstance(given, bytes):
        return given
    if isinstance(given, str):
        return given.encode()
    values = list(given) if isinstance(given, list | tuple) else [given]
    if all(isinstance(one, int | np.integer) for one in values):
        return [int(one) for one in values]
    if all(isinstance(one, int | float | np.number) for one in values):
        return [float(one) for one in values]
    return None


# -- instances -----------------------------------------------------------------------------------


def outputs_of(kernel: CustomKernel, made: Mapping[str, Any]) -> dict[str, Made]:
    """Dtype and shape of every output, as an instance says them."""
    stated = zip(kernel.outputs, made["outputs"], strict=True)
    return {one.name: Made(_BY_CODE[dtype], tuple(shape)) for one, (dtype, shape) in stated}


def access_of(kernel: CustomKernel, node: Node, made: Mapping[str, Any]) -> dict[str, tuple[Interval, ...]]:
    """The intervals of every operand that is there; the node knows its outputs by now."""
    found = {}
    for one, intervals in zip(kernel.operands, made["access"], strict=False):
        if node[one.name].present:
            given = enumerate(intervals[: node[one.name].rank])
            found[one.name] = tuple(_interval(node, one.name, position, *it) for position, it in given)
    return found


def edges_of(operands: Sequence[Tensor], first: int, made: Mapping[str, Any]) -> dict[str, float]:
    """Pads or fills that an instance sets; ``first`` is the number of the first operand."""
    given = zip(operands, made["values"][first:], strict=False)
    return {one.name: value for one, value in given if value is not None}


def in_place_of(kernel: CustomKernel, made: Mapping[str, Any]) -> dict[str, str]:
    """The first output, and the input whose place it may take."""
    may = [one.name for i, one in enumerate(kernel.inputs) if made["in_place"] >> i & 1]
    return {kernel.outputs[0].name: may[0]} if may else {}


def _interval(
    node: Node, name: str, position: int, dim: int, a: int, den: int, start: int, end: int
) -> Interval:
    if dim == OD_WHOLE:
        return WHOLE_DIMENSION
    if den < 1:
        where = f"access of {name}, dimension {position}"
        raise node.refuse("parameter_invalid", where, f"den = {den}", "1 or more")
    return Interval(dim, a if den == 1 else Fraction(a, den), start, end)


def scalars_of(kernel: CustomKernel, node: Node, made: Mapping[str, Any]) -> dict[str, float]:
    """The scalars as an instance left them. Raises ``KernelScalarArgumentError`` for no value of theirs."""
    given = zip(kernel.own_scalars, made["scalars"], strict=False)
    return {
        one.name: node.checked_scalar(one, _whole(value), "set by the library")
        for one, value in given
        if value is not None
    }


def _whole(value: float) -> float:
    return int(value) if math.isfinite(value) and value == int(value) else value


def aux_of(kernel: CustomKernel, node: Node, made: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Their values. Raises ``KernelParameterInvalidError`` where an auxiliary tensor's shape says others."""
    found = {}
    for one, (shape, _, data) in zip(kernel.aux, made["aux"], strict=False):
        row = DTYPES[one.dtypes]
        wanted = math.prod(shape) * row.itemsize
        if any(extent < 1 for extent in shape) or wanted != len(data):
            accepted = f"extents of 1 or more, and as many bytes of {one.dtypes}"
            given = f"shape {list(shape)} with {counted(len(data), 'byte')}"
            raise node.refuse("parameter_invalid", f"auxiliary tensor {one.name}", given, accepted)
        found[one.name] = np.frombuffer(data, row.numpy).reshape(shape)
    return found


def scratch_of(kernel: CustomKernel, made: Mapping[str, Any]) -> dict[str, int]:
    """Bytes of every scratch."""
    given = zip(kernel.scratch_tensors, made["aux"][len(kernel.aux) :], strict=True)
    return {one.name: bytes_ for one, (_, bytes_, _) in given}
