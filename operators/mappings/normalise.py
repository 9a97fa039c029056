# SPDX-License-Identifier: Apache-2.0
"""ONNX's normalisations: which rows they have, and which parameters belong to which."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from onedispatch.operators.declarations.dtypes import FLOATS
from onedispatch.operators.declarations.functions import Activation
from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.kernels.elementwise import numpy_names
from onedispatch.operators.lowering.convert import emit_converted, in_float32
from onedispatch.operators.lowering.normalise import MultiPassNorm, emit_normalised
from onedispatch.operators.lowering.operands import inputs_of, operands_of
from onedispatch.operators.lowering.reduce import emit_each, emit_reduction, groups

NAMES = numpy_names(FLOATS)
_F32 = np.dtype(np.float32)
_DOUBLE = 11  # of ONNX's element types
_SMALLEST = float(np.finfo(np.float32).tiny)


def _need_elements(node: NodeSpec, x: TensorSpec) -> None:
    if not x.size:
        raise Unsupported(f"{node.op_type} of shape {x.shape}", "at least one element")


def _need_float32_statistics(node: NodeSpec, *statistics: TensorSpec | None) -> None:
    """Statistics are float32 whatever ``stash_type`` names that is narrower; results of theirs say which."""
    if node.attr("stash_type", 1) == _DOUBLE:
        raise Unsupported(f"{node.op_type} with statistics in float64", "stash_type 1, float32")
    for tensor in statistics:
        if tensor is not None and tensor.dtype != np.float32:
            raise Unsupported(f"{node.op_type} with statistics of {tensor.dtype} as outputs", "float32")


# RMSNormalization under onnxruntime's name, with 1 / sqrt(mean square + epsilon) as a second output.
_SIMPLIFIED = "SimplifiedLayerNormalization"


@maps(
    "LayerNormalization",
    "RMSNormalization",
    _SIMPLIFIED,
    dtypes=NAMES,
    notes="scale and bias of the normalised shape",
)
def map_layer_normalization(node: NodeSpec, lowering: Lowering) -> None:
    x, *parameters = inputs_of(node, NAMES)
    further = (*node.outputs[1:], None, None)
    mean, inverse = (None, further[0]) if node.op_type == _SIMPLIFIED else further[:2]
    _need_float32_statistics(node, mean, inverse)
    _need_elements(node, x)
    rank, centre = len(x.shape), node.op_type == "LayerNormalization"
    axis = int(node.attr("axis", -1)) % max(rank, 1)
    length, epsilon = prod(x.shape[axis:]), float(node.attr("epsilon", 1e-5))
    if mean is not None or inverse is not None:
        axes = list(range(axis, rank))
        steps = MultiPassNorm(node.name, lowering, in_float32(node.name, x, lowering), axes, centre)
        _statistics(steps, epsilon, mean, inverse)
    if node.outputs[0] is None:  # the statistics alone
        return
    _, y = operands_of(node, NAMES)
    if x.dtype != y.dtype:  # RMSNormalization has the type of its scale
        x = in_float32(node.name, x, lowering)
    given: dict[str, Any] = {"sizes": (1, x.size // length, length), "epsilon": epsilon, "centre": centre}
    if not all(_per_column(tensor, x.shape[axis:]) for tensor in parameters):
        _scaled_afterwards(node.name, lowering, x, parameters, y, given)
        return
    result = y if x.dtype == y.dtype else lowering.temp(_F32, y.shape)
    emit_normalised(node.name, [x, *parameters], result, lowering, **given)
    if result is not y:
        emit_converted(node.name, result, y, lowering)


def _per_column(parameter: TensorSpec, normalised: tuple[int, ...]) -> bool:
    """Whether it has one value for every element of a row: [3, 1] has none for those of [3, 3]."""
    rank = len(normalised)
    shape = (1,) * (rank - len(parameter.shape)) + tuple(parameter.shape)
    return shape[len(shape) - rank :] == tuple(normalised) and prod(shape) == prod(normalised)


def _scaled_afterwards(
    name: str,
    lowering: Lowering,
    x: TensorSpec,
    parameters: list[TensorSpec],
    y: TensorSpec,
    given: dict[str, Any],
) -> None:
    """Rows first, then scale and bias that broadcast to all of ``x`` in whatever way.

    ONNX's own function of LayerNormalization would do it too, but subtracts the mean's square from the
    squares' mean: of rows far from zero few digits are left.
    """
    x = in_float32(name, x, lowering)
    normal = lowering.temp(_F32, x.shape)
    emit_normalised(name, [x], normal, lowering, **given)
    result = y if y.dtype == np.float32 else lowering.temp(_F32, y.shape)
    wide = [in_float32(name, parameter, lowering) for parameter in parameters]
    emit_each(name, "muladd" if len(wide) == 2 else "mul", [normal, *wide], lowering, result)
    if result is not y:
        emit_converted(name, result, y, lowering)


def _statistics(
    steps: MultiPassNorm, epsilon: float, mean: TensorSpec | None, inverse: TensorSpec | None
) -> None:
    """The outputs beside the first: the mean and 1 / sqrt(variance + epsilon)."""
    found_mean, found_inverse = steps.moments(epsilon)
    for output, found in ((mean, found_mean), (inverse, found_inverse)):
        if output is not None and found is not None:
            steps.each("copy", [found], output)


@maps("InstanceNormalization", dtypes=NAMES, notes="planes of any size")
def map_instance_normalization(node: NodeSpec, lowering: Lowering) -> None:
    (x, *parameters), y = operands_of(node, NAMES)
    _need_elements(node, x)
    if len(x.shape) < 3 or any(p.size != x.shape[1] for p in parameters):
        given = ", ".join(str(list(p.shape)) for p in (x, *parameters))
        raise Unsupported(f"InstanceNormalization of {given}", "[N, C, D1, ...] with scale and B [C]")
    sizes = x.shape[0], x.shape[1], prod(x.shape[2:])
    epsilon = float(node.attr("epsilon", 1e-5))
    emit_normalised(node.name, [x, *parameters], y, lowering, sizes=sizes, epsilon=epsilon, sections=1)


@maps("GroupNormalization", dtypes=NAMES, notes="scale and bias per channel, or per group before opset 21")
def map_group_normalization(node: NodeSpec, lowering: Lowering) -> None:
    (x, *parameters), y = operands_of(node, NAMES)
    _need_elements(node, x)
    _need_float32_statistics(node)
    number = int(node.attr("num_groups", 0))
    channels = x.shape[1] if len(x.shape) > 1 else 0
    if number < 1 or channels % number or not channels:
        given = f"GroupNormalization of {list(x.shape)} in {number} groups"
        raise Unsupported(given, "[N, C, ...] and groups that C is a multiple of")
    wanted = number if node.opset < 21 else channels
    for tensor in parameters:
        if tensor.size != wanted:
            raise Unsupported(f"{tensor.name} of shape {tensor.shape}", f"{wanted} elements at this opset")
    sizes = x.shape[0], number, prod(x.shape[1:]) // number
    epsilon, sections = float(node.attr("epsilon", 1e-5)), wanted // number
    emit_normalised(node.name, [x, *parameters], y, lowering, sizes=sizes, epsilon=epsilon, sections=sections)


# What ONNX's own function body adds to the deviation, 1e-9, as what is added to the variance: both say that
# rows of one value become zeros.
_MVN_EPSILON = 1e-18


@maps("MeanVarianceNormalization", dtypes=NAMES, notes="any axes")
def map_mean_variance_normalization(node: NodeSpec, lowering: Lowering) -> None:
    (x,), y = operands_of(node, NAMES)
    _need_elements(node, x)
    rank = len(x.shape)
    axes = sorted({int(a) % max(rank, 1) for a in _axes_of_mvn(node)})
    if any(a >= rank for a in axes):
        raise Unsupported(f"MeanVarianceNormalization over axes {axes} of rank {rank}", "axes of the input")
    ranges = groups(x.shape, axes)
    if len(ranges) == 1 and prod(x.shape[ranges[0][1] :]) == 1 and ranges[0][1] == rank:
        length = prod(x.shape[ranges[0][0] :])
        sizes = 1, x.size // length, length
        emit_normalised(node.name, [x], y, lowering, sizes=sizes, epsilon=_MVN_EPSILON)
        return
    result = y if y.dtype == np.float32 else lowering.temp(_F32, y.shape)
    steps = MultiPassNorm(node.name, lowering, in_float32(node.name, x, lowering), axes, centre=True)
    steps.rows(_MVN_EPSILON, [], False, result)
    if result is not y:
        emit_converted(node.name, result, y, lowering)


def _axes_of_mvn(node: NodeSpec) -> list[int]:
    """The axes, which before operator set 9 followed from whether channels are normalised together."""
    if not node.attr("normalize_variance", 1):
        raise Unsupported("MeanVarianceNormalization of means alone", "normalize_variance 1")
    return [0, 1, 2, 3] if node.attr("across_channels", 0) else list(node.attr("axes", [0, 2, 3]))


@maps("LpNormalization", dtypes=NAMES, notes="p of 1 and 2, any axis")
def map_lp_normalization(node: NodeSpec, lowering: Lowering) -> None:
    """x / norm, zeros where the norm is zero: it is raised to the smallest normal number before.

    Along rows, for p = 2, it is what their root mean square is, but for a factor.
    """
    (x,), y = operands_of(node, NAMES)
    _need_elements(node, x)
    axis, p = int(node.attr("axis", -1)) % len(x.shape), int(node.attr("p", 2))
    if p not in (1, 2):
        raise Unsupported(f"LpNormalization with p = {p}", "1 or 2")
    length, count = x.shape[axis], x.size // x.shape[axis]
    if p == 2 and axis == len(x.shape) - 1:
        factor, sizes = lowering.const(np.full(1, length**-0.5, np.float32)), (count, 1, length)
        emit_normalised(
            node.name, [x, factor], y, lowering, sizes=sizes, epsilon=_SMALLEST, centre=False, sections=1
        )
        return
    wide = in_float32(node.name, x, lowering)
    steps = MultiPassNorm(node.name, lowering, wide, [axis], centre=False)
    norm = lowering.temp(_F32, steps.kept)
    mode, root = ("sum_abs", None) if p == 1 else ("sum_square", Activation("sqrt"))
    emit_reduction(node.name, mode, wide, norm, [axis], lowering, root)
    least = lowering.const(np.full([1] * len(x.shape), _SMALLEST, np.float32))
    factor = steps.each("max", [norm, least], activation=Activation("reciprocal"))
    result = y if y.dtype == np.float32 else lowering.temp(_F32, y.shape)
    steps.each("mul", [wide, factor], result)
    if result is not y:
        emit_converted(node.name, result, y, lowering)
