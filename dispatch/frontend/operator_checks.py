# SPDX-License-Identifier: Apache-2.0
"""Validity checks that ONNX's schemas and shape inference leave out: one table, operator -> checks.

A check reads what is known of a node (``Facts``) and refuses it with what was given and what is
accepted. Shapes and values that are not known yet are None; a check that needs one of them passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from onedispatch.dispatch.frontend.attention_checks import ATTENTION
from onedispatch.dispatch.frontend.facts import Facts, NodeCheck, Shape
from onedispatch.dispatch.frontend.index_checks import INDEXED
from onedispatch.dispatch.frontend.movement_checks import MOVEMENT, split_sizes
from onedispatch.dispatch.frontend.quantise_checks import quantised_checks
from onedispatch.dispatch.frontend.sequence_checks import SEQUENCES
from onedispatch.dispatch.frontend.shared_checks import (
    axis_in_range,
    broadcasts,
    fits_first,
    flags,
    listed,
    one_of,
)
from onedispatch.operators.declarations.einsum import EquationError, check_sizes, parse
from onedispatch.transactions.base.text import counted, span

# -- axes ---------------------------------------------------------------------------------------


def softmax_axis(facts: Facts) -> None:
    """Until opset 13 the default was 1, and everything from the axis on."""
    axis_in_range(1 if facts.opset < 13 else -1)(facts)


def _check_axes(facts: Facts, rank: int, *, once: bool) -> list[int]:
    axes = listed(facts, "axes", 1) or []
    for axis in axes:
        if not -rank <= axis < rank and not (rank == 0 and axis in (-1, 0)):
            accepted = f"{span(-rank, rank - 1)} for rank {rank}" if rank else "none for a scalar"
            facts.refuse("axes", axes, accepted)
    positive = [axis % rank if rank else 0 for axis in axes]
    if once and len(set(positive)) < len(positive):
        facts.refuse("axes", axes, "each axis once")
    return positive


def second_is_a_list(facts: Facts) -> None:
    """Axes or sizes that are an input."""
    listed = facts.shape(1)
    if listed is not None and len(listed) != 1:
        facts.refuse(facts.input_name(1), f"rank {len(listed)}", "a list, rank 1")


def reduced_axes(facts: Facts) -> None:
    shape = facts.shape(0)
    if shape is not None:
        _check_axes(facts, len(shape), once=False)


def channel_axes(facts: Facts) -> None:
    """MeanVarianceNormalization: axes that are left out are all but that of the channels, of rank 4."""
    shape = facts.shape(0)
    if shape is not None and len(shape) < 4 and facts.attr("axes") is None:
        facts.refuse(facts.input_name(0), f"rank {len(shape)}", "rank 4 or more: the axes are 0, 2 and 3")


def squeezed_axes(facts: Facts) -> None:
    shape = facts.shape(0)
    if shape is None:
        return
    for axis in _check_axes(facts, len(shape), once=False):
        if shape and shape[axis] != 1:
            facts.refuse("axes", listed(facts, "axes", 1), f"axes of size 1 of the shape {list(shape)}")


def unsqueezed_axes(facts: Facts) -> None:
    shape, axes = facts.shape(0), listed(facts, "axes", 1)
    if shape is not None and axes is not None:
        _check_axes(facts, len(shape) + len(axes), once=True)


def permutation(facts: Facts) -> None:
    shape, order = facts.shape(0), facts.attr("perm")
    if shape is not None and order is not None and sorted(order) != list(range(len(shape))):
        facts.refuse("attribute 'perm'", order, f"a permutation of {span(0, len(shape) - 1)}")


def joined_shapes(facts: Facts) -> None:
    """Concat: equal ranks, and equal sizes but along the axis."""
    known = [(i, s) for i, s in enumerate(facts.shapes) if s is not None]
    axis = facts.attr("axis", 1 if facts.opset < 4 else None)
    if not known or axis is None:
        return
    first = known[0][1]
    rank = len(first)
    if not -rank <= axis < rank:
        accepted = f"{span(-rank, rank - 1)} for rank {rank}" if rank else "inputs of rank 1 or more"
        facts.refuse("attribute 'axis'", axis, accepted)
    axis %= rank
    for index, shape in known[1:]:
        differs = len(shape) != rank or any(
            a != b for d, (a, b) in enumerate(zip(first, shape, strict=False)) if d != axis
        )
        if differs:
            facts.refuse(
                facts.input_name(index), list(shape), f"the shape {list(first)}, but for axis {axis}"
            )


def reshaped_size(facts: Facts) -> None:
    """Reshape: as many elements as before; one -1; 0 copies a dimension that is there."""
    shape, value = facts.shape(0), facts.value(1)
    target = facts.attr("shape") if value is None else [int(v) for v in value.reshape(-1)]
    if shape is None or target is None:
        return
    zero_is_zero = bool(facts.attr("allowzero", 0))
    if target.count(-1) > 1 or any(d < -1 for d in target):
        facts.refuse("shape", target, "sizes of 0 or more, and -1 once at most")
    if zero_is_zero and 0 in target and -1 in target:
        facts.refuse("shape", target, "with allowzero=1 either -1 or 0")
    copies = [d for d, size in enumerate(target) if size == 0 and not zero_is_zero]
    if any(d >= len(shape) for d in copies):
        facts.refuse("shape", target, f"0 only for dimensions of the input, {list(shape)}")
    sizes = [shape[d] if d in copies else size for d, size in enumerate(target)]
    known = prod(size for size in sizes if size != -1)
    total = prod(shape)
    fits = (total % known == 0 if known else total == 0) if -1 in sizes else known == total
    if not fits:
        facts.refuse("shape", target, f"{counted(total, 'element')}, as the input {list(shape)} has")


# -- windows ------------------------------------------------------------------------------------

AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
ROUNDINGS = ("up", "down", "nearest")


def padding_mode(facts: Facts) -> None:
    mode = facts.attr("auto_pad", "")
    if mode and mode not in AUTO_PADS:
        facts.refuse("attribute 'auto_pad'", repr(mode), ", ".join(AUTO_PADS))


def remainder_of_floats(facts: Facts) -> None:
    """Mod: until opset 28 the remainder with the divisor's sign is one of integers."""
    dtype = facts.dtype(0)
    if facts.opset < 28 and dtype is not None and dtype.kind not in "iu" and not facts.attr("fmod", 0):
        facts.refuse("attribute 'fmod'", 0, f"1 for {dtype}, before opset 28")


def rounding_mode(facts: Facts) -> None:
    """Cast: how casts to powers of two round; others have one way."""
    mode = facts.attr("round_mode", "up")
    if mode not in ROUNDINGS:
        facts.refuse("attribute 'round_mode'", repr(mode), ", ".join(ROUNDINGS))


def _window_lists(facts: Facts, rank: int) -> None:
    """Lengths and signs of strides, dilations and pads for ``rank`` spatial dimensions."""
    for name, count, least in (("strides", rank, 1), ("dilations", rank, 1), ("pads", 2 * rank, 0)):
        given = facts.attr(name)
        if given is not None and (len(given) != count or min(given) < least):
            facts.refuse(f"attribute {name!r}", given, f"{counted(count, 'number')} of {least} or more")


def _fits(
    facts: Facts, sizes: Sequence[int], kernel: Sequence[int], or_misses: bool, ceil_mode: bool = False
) -> None:
    """The window fits into the padded data; ``or_misses``: by one stride, which gives nothing.

    In ``ceil_mode`` one may reach beyond it, by less than a stride.
    """
    rank = len(sizes)
    if facts.attr("auto_pad", "NOTSET").startswith("SAME"):
        return
    pads = facts.attr("pads") or [0] * (2 * rank)
    if facts.attr("auto_pad") == "VALID":
        pads = [0] * (2 * rank)
    dilations, strides = (facts.attr(name) or [1] * rank for name in ("dilations", "strides"))
    for d, (size, taps) in enumerate(zip(sizes, kernel, strict=True)):
        padded, reach = size + pads[d] + pads[d + rank], (taps - 1) * dilations[d] + 1
        empty = or_misses and padded - reach == -strides[d]  # rounds neither up nor down: no doubt
        overhangs = ceil_mode and reach - padded < strides[d]
        if reach > padded and not empty and not overhangs:
            facts.refuse(
                f"the window along spatial dimension {d}",
                counted(reach, "value"),
                f"at most {padded}, what the data with its padding has",
            )


def pooled(facts: Facts) -> None:
    shape, kernel = facts.shape(0), facts.attr("kernel_shape")
    if kernel and min(kernel) < 1:
        facts.refuse("attribute 'kernel_shape'", kernel, "numbers of 1 or more")
    if shape is None or kernel is None:
        return
    rank = len(shape) - 2
    if rank < 1 or len(kernel) != rank:
        facts.refuse(facts.input_name(0), f"rank {len(shape)}", f"rank {len(kernel) + 2}: N, C, {kernel}")
    _window_lists(facts, rank)
    pads = facts.attr("pads") or [0] * (2 * rank)
    if 0 in shape[2:] and 0 not in shape[:2]:
        facts.refuse(facts.input_name(0), list(shape), "one value per channel or more")
    if facts.attr("auto_pad", "") in ("", "NOTSET") and any(
        pad >= kernel[d % rank] for d, pad in enumerate(pads)
    ):
        facts.refuse("attribute 'pads'", pads, f"less than the kernel, {kernel}: no window without data")
    if 0 not in shape:
        ceil_mode = bool(facts.attr("ceil_mode", 0))
        _fits(facts, shape[2:], kernel, or_misses=not ceil_mode, ceil_mode=ceil_mode)


def convolved(facts: Facts) -> None:
    x, w = facts.shape(0), facts.shape(1)
    if facts.attr("pads") and facts.attr("auto_pad", "") not in ("", "NOTSET"):
        facts.refuse("attribute 'pads'", facts.attr("pads"), "pads or auto_pad, not both")
    group = facts.attr("group", 1)
    if group < 1:
        facts.refuse("attribute 'group'", group, "1 or more")
    if w is None:
        return
    kernel, rank = facts.attr("kernel_shape"), len(w) - 2
    if rank < 1:
        facts.refuse(facts.input_name(1), f"rank {len(w)}", "rank 3 or more: M, C/group, kernel")
    if kernel and list(kernel) != list(w[2:]):
        facts.refuse("attribute 'kernel_shape'", list(kernel), f"{list(w[2:])}, that of the weights")
    _window_lists(facts, rank)
    if w[0] % group:
        facts.refuse("attribute 'group'", group, f"a divisor of {w[0]}, the output channels of the weights")
    bias = facts.shape(2)
    if bias is not None and bias != (w[0],):
        facts.refuse(facts.input_name(2), list(bias), f"[{w[0]}], one value per output channel")
    if x is None:
        return
    if len(x) != len(w):
        facts.refuse(facts.input_name(1), f"rank {len(w)}", f"rank {len(x)}, that of the data")
    if x[1] != w[1] * group:
        facts.refuse(
            facts.input_name(0),
            counted(x[1], "channel"),
            f"{w[1] * group}: weights of {w[1]} times group {group}",
        )
    _fits(facts, x[2:], w[2:], or_misses=False)


def convolved_of(*operands: int) -> NodeCheck:
    """``convolved`` of data, weights and bias among other operands."""
    return lambda facts: convolved(facts.picked(*operands))


def convolved_backwards(facts: Facts) -> None:
    """ConvTranspose: weights are [C, M/group, kernel], and what is added at the end is less than a step."""
    x, w = facts.shape(0), facts.shape(1)
    group, kernel = facts.attr("group", 1), facts.attr("kernel_shape")
    if group < 1:
        facts.refuse("attribute 'group'", group, "1 or more")
    if w is None:
        return
    rank = len(w) - 2
    if rank < 1:
        facts.refuse(facts.input_name(1), f"rank {len(w)}", "rank 3 or more: C, M/group, kernel")
    if kernel and list(kernel) != list(w[2:]):
        facts.refuse("attribute 'kernel_shape'", list(kernel), f"{list(w[2:])}, that of the weights")
    _window_lists(facts, rank)
    further = facts.attr("output_padding")
    steps = [
        max(pair)
        for pair in zip(*(facts.attr(n) or [1] * rank for n in ("strides", "dilations")), strict=True)
    ]
    if further and (len(further) != rank or any(not 0 <= m < s for m, s in zip(further, steps, strict=True))):
        accepted = f"{counted(rank, 'number')}, each below its stride or dilation, {steps}"
        facts.refuse("attribute 'output_padding'", list(further), accepted)
    if w[0] % group:
        facts.refuse("attribute 'group'", group, f"a divisor of {w[0]}, the input channels of the weights")
    bias = facts.shape(2)
    if bias is not None and bias != (w[1] * group,):
        facts.refuse(facts.input_name(2), list(bias), f"[{w[1] * group}], one value per output channel")
    if x is not None and len(x) != len(w):
        facts.refuse(facts.input_name(1), f"rank {len(w)}", f"rank {len(x)}, that of the data")
    if x is not None and x[1] != w[0]:
        facts.refuse(facts.input_name(0), counted(x[1], "channel"), f"{w[0]}, as the weights have")


def pooled_back(facts: Facts) -> None:
    """MaxUnpool: a position for every value, and a window for every spatial dimension."""
    x, places, kernel = facts.shape(0), facts.shape(1), facts.attr("kernel_shape")
    if kernel is None or min(kernel, default=0) < 1:
        facts.refuse("attribute 'kernel_shape'", kernel, "numbers of 1 or more")
    if x is None:
        return
    rank = len(x) - 2
    if rank < 1 or len(kernel) != rank:
        facts.refuse(facts.input_name(0), f"rank {len(x)}", f"rank {len(kernel) + 2}: N, C, {kernel}")
    _window_lists(facts, rank)
    if places is not None and places != x:
        facts.refuse(facts.input_name(1), list(places), f"{list(x)}, a position for every value")
    given = facts.value(2)
    if given is not None and given.size != len(x):
        facts.refuse(facts.input_name(2), given.reshape(-1).tolist(), f"{counted(len(x), 'size')}")


def columns_of_image(facts: Facts) -> None:
    """Col2Im: as many columns as blocks lie in the padded image, each of whole blocks."""
    x, sizes, block = facts.shape(0), facts.value(1), facts.value(2)
    if sizes is None or block is None:
        return
    rank, image, taps = len(block.reshape(-1)), sizes.reshape(-1).tolist(), block.reshape(-1).tolist()
    if len(image) != rank or min(taps, default=1) < 1:
        facts.refuse(facts.input_name(2), taps, f"{counted(len(image), 'number')} of 1 or more, as the image")
    _window_lists(facts, rank)
    pads, (strides, dilations) = (
        facts.attr("pads") or [0] * (2 * rank),
        (facts.attr(name) or [1] * rank for name in ("strides", "dilations")),
    )
    steps = [
        (image[d] + pads[d] + pads[d + rank] - (taps[d] - 1) * dilations[d] - 1) // strides[d] + 1
        for d in range(rank)
    ]
    if x is None:
        return
    if len(x) != 3 or x[1] % prod(taps) or x[2] != prod(steps) or min(steps) < 1:
        accepted = (
            f"[N, a multiple of {prod(taps)}, {prod(steps)}]: blocks {taps}, {steps} of them in the image"
        )
        facts.refuse(facts.input_name(0), list(x), accepted)


def equation(facts: Facts) -> None:
    """Einsum: a label for every dimension, and a size for every label."""
    shapes = [shape for shape in facts.shapes if shape is not None]
    if len(shapes) < len(facts.shapes):
        return
    try:
        check_sizes(parse(str(facts.attr("equation", "")), [len(shape) for shape in shapes]), shapes)
    except EquationError as error:
        facts.refuse("attribute 'equation'", error.given, error.accepted)


def pooled_whole(facts: Facts) -> None:
    """Global pooling: there is something to pool."""
    shape = facts.shape(0)
    if shape is not None and 0 in shape[2:] and 0 not in shape[:2]:
        facts.refuse(facts.input_name(0), list(shape), "one value per channel or more")


# -- products, normalisation --------------------------------------------------------------------


def matrix_product(facts: Facts) -> None:
    """Gemm: two matrices that fit, and a C that broadcasts to their product."""
    a, b, c = facts.shape(0), facts.shape(1), facts.shape(2)
    for index, shape in ((0, a), (1, b)):
        if shape is not None and len(shape) != 2:
            facts.refuse(facts.input_name(index), list(shape), "a matrix")
    if a is None or b is None:
        return
    m, k = reversed(a) if facts.attr("transA", 0) else a
    inner, n = reversed(b) if facts.attr("transB", 0) else b
    if k != inner:
        facts.refuse(facts.input_name(1), list(b), f"{counted(k, 'row')} after transB, as A has columns")
    if c is None:
        return
    if facts.opset < 7 and not facts.attr("broadcast", 0) and c != (m, n):
        facts.refuse(facts.input_name(2), list(c), f"[{m}, {n}], or broadcast=1")
    if not broadcasts(c, (m, n)):
        facts.refuse(facts.input_name(2), list(c), f"a shape that broadcasts to [{m}, {n}]")


def channel_parameters(first: int, count: int) -> NodeCheck:
    """Inputs from ``first`` on hold one value per channel; with ``spatial=0`` one per element of a sample."""

    def check(facts: Facts) -> None:
        x = facts.shape(0)
        if x is None:
            return
        wanted: Shape = (x[1],) if len(x) > 1 else (1,)
        what = "one value per channel"
        if not facts.attr("spatial", 1):
            wanted, what = x[1:], "one value per element of a sample"
        for index in range(first, first + count):
            shape = facts.shape(index)
            if shape is not None and shape != wanted:
                facts.refuse(facts.input_name(index), list(shape), f"{list(wanted)}, {what}")

    return check


def least_rank(rank: int, what: str) -> NodeCheck:
    def check(facts: Facts) -> None:
        shape = facts.shape(0)
        if shape is not None and len(shape) < rank:
            facts.refuse(facts.input_name(0), f"rank {len(shape)}", f"rank {rank} or more: {what}")

    return check


def equal_shapes_before(opset: int) -> NodeCheck:
    """Older variadic operators do not broadcast."""

    def check(facts: Facts) -> None:
        known = [(i, s) for i, s in enumerate(facts.shapes) if s is not None]
        for index, shape in known[1:] if facts.opset < opset else ():
            if shape != known[0][1]:
                accepted = f"{list(known[0][1])}, before opset {opset} nothing is broadcast"
                facts.refuse(facts.input_name(index), list(shape), accepted)

    return check


def no_scalar_operands(facts: Facts) -> None:
    for index in (0, 1):
        if facts.shape(index) == ():
            facts.refuse(facts.input_name(index), "a scalar", "rank 1 or more")


def scalars(*indices: int) -> NodeCheck:
    """Inputs of one value."""

    def check(facts: Facts) -> None:
        for index in indices:
            shape = facts.shape(index)
            if shape is not None and (len(shape) > 1 or prod(shape) != 1):
                facts.refuse(facts.input_name(index), list(shape), "a scalar")

    return check


def window_size(facts: Facts) -> None:
    """LRN: a positive number of channels."""
    size = facts.attr("size", 1)
    if size < 1:
        facts.refuse("attribute 'size'", size, "1 or more")


def grouped_channels(facts: Facts) -> None:
    """GroupNormalization: groups that share out the channels; parameters per channel, before 21 per group."""
    x, groups = facts.shape(0), facts.attr("num_groups", 1)
    if x is None or len(x) < 2:
        return
    if groups < 1 or x[1] % groups:
        facts.refuse("attribute 'num_groups'", groups, f"a divisor of {x[1]}, the channels")
    wanted = x[1] if facts.opset >= 21 else groups
    for index in (1, 2):
        shape = facts.shape(index)
        if shape is not None and shape != (wanted,):
            facts.refuse(facts.input_name(index), list(shape), f"[{wanted}] at opset {facts.opset}")


def order_of_length(facts: Facts) -> None:
    order = facts.attr("p", 2)
    if order not in (1, 2):
        facts.refuse("attribute 'p'", order, "1 or 2")


def axis_operand(facts: Facts) -> None:
    """CumSum, CumProd: one axis of the first input."""
    value, shape = facts.value(1), facts.shape(0)
    if value is None:
        return
    if value.size != 1:
        facts.refuse(facts.input_name(1), list(value.shape), "one axis")
    axis = int(np.asarray(value).reshape(-1)[0])
    if shape is not None and not -len(shape) <= axis < len(shape):
        accepted = f"{span(-len(shape), len(shape) - 1)} for rank {len(shape)}"
        facts.refuse(facts.input_name(1), axis, accepted)


def dropout_ratio(facts: Facts) -> None:
    value = facts.value(1)
    if value is not None and value.size == 1 and not 0 <= float(np.asarray(value).reshape(-1)[0]) < 1:
        facts.refuse(facts.input_name(1), float(value.reshape(-1)[0]), "a ratio of 0 or more, below 1")


_INTERPOLATED = (
    one_of(
        "coordinate_transformation_mode",
        *("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"),
        *("tf_half_pixel_for_nn", "tf_crop_and_resize"),
    ),
    one_of("keep_aspect_ratio_policy", "stretch", "not_larger", "not_smaller"),
    one_of("mode", "nearest", "linear", "cubic"),
    one_of("nearest_mode", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
)
_WINDOWED = (padding_mode, least_rank(3, "N, C, and what the window runs over"))
_REDUCED = (second_is_a_list, reduced_axes, flags("noop_with_empty_axes"))
_QUANTISED = quantised_checks("")
_GLOBAL = (least_rank(3, "N, C, and what is pooled"), pooled_whole)

CHECKS: dict[str, tuple[NodeCheck, ...]] = {
    **ATTENTION,
    **INDEXED,
    **MOVEMENT,
    **_QUANTISED,
    **SEQUENCES,
    "ArgMax": (axis_in_range(0, no_scalars=11),),
    "ArgMin": (axis_in_range(0, no_scalars=11),),
    "AveragePool": (*_WINDOWED, pooled),
    "BatchNormalization": (channel_parameters(1, 4),),
    "BitShift": (one_of("direction", "LEFT", "RIGHT"),),
    "Cast": (rounding_mode,),
    "CastLike": (rounding_mode,),
    "Clip": (scalars(1, 2),),
    "Col2Im": (columns_of_image,),
    "Concat": (joined_shapes,),
    "Conv": (*_WINDOWED, convolved),
    "ConvInteger": (padding_mode, convolved_of(0, 1), *_QUANTISED["ConvInteger"]),
    "ConvTranspose": (*_WINDOWED, convolved_backwards),
    "CumProd": (axis_operand,),
    "CumSum": (axis_operand,),
    "Dropout": (scalars(1, 2), dropout_ratio),
    "Einsum": (equation,),
    "Flatten": (axis_in_range(1, end=True),),
    "Gelu": (one_of("approximate", "none", "tanh"),),
    "Gemm": (matrix_product,),
    "GlobalAveragePool": _GLOBAL,
    "GlobalLpPool": _GLOBAL,
    "GlobalMaxPool": _GLOBAL,
    "GroupNormalization": (grouped_channels, least_rank(2, "N, C, D1, ...")),
    "Hardmax": (softmax_axis,),
    "InstanceNormalization": (channel_parameters(1, 2), least_rank(3, "N, C, D1, ...")),
    "IsInf": (),  # whatever is not 0 stands for 1
    "LRN": (window_size, least_rank(2, "N, C")),
    "LayerNormalization": (axis_in_range(-1), fits_first(1, 2)),
    "LogSoftmax": (softmax_axis,),
    "LpNormalization": (axis_in_range(-1, no_scalars=1), order_of_length),
    "LpPool": (*_WINDOWED, pooled),
    "MatMul": (no_scalar_operands,),
    "MatMulInteger": (no_scalar_operands, *_QUANTISED["MatMulInteger"]),
    "Max": (equal_shapes_before(8),),
    "MaxPool": (*_WINDOWED, pooled, flags("storage_order")),
    "MeanVarianceNormalization": (reduced_axes, channel_axes),
    "MaxUnpool": (pooled_back,),
    "Mean": (equal_shapes_before(8),),
    "Min": (equal_shapes_before(8),),
    "Mod": (flags("fmod"), remainder_of_floats),
    "PRelu": (fits_first(1, since=7),),
    "QLinearConv": (padding_mode, convolved_of(0, 3, 8), *_QUANTISED["QLinearConv"]),
    "RMSNormalization": (axis_in_range(-1), fits_first(1)),
    "SimplifiedLayerNormalization": (axis_in_range(-1), fits_first(1)),
    "Reshape": (second_is_a_list, reshaped_size),
    "Resize": _INTERPOLATED,
    "Softmax": (softmax_axis,),
    "Split": (axis_in_range(0), split_sizes),
    "Squeeze": (second_is_a_list, squeezed_axes),
    "Sum": (equal_shapes_before(8),),
    "Transpose": (permutation,),
    "Unsqueeze": (unsqueezed_axes,),
    "Upsample": (one_of("mode", "nearest", "linear"),),
    **dict.fromkeys(
        "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd "
        "ReduceSum ReduceSumSquare".split(),
        _REDUCED,
    ),
}
