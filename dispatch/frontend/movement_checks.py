# SPDX-License-Identifier: Apache-2.0
"""Validity checks of operators that move data: bounds, sizes and axes, as operands or attributes."""

from __future__ import annotations

from math import prod

from onedispatch.dispatch.frontend.facts import Facts, NodeCheck
from onedispatch.dispatch.frontend.runtime_shapes import range_count
from onedispatch.dispatch.frontend.shared_checks import listed
from onedispatch.transactions.base.text import counted, span

PADDINGS = ("constant", "reflect", "edge")
BLOCKS = ("DCR", "CRD")


def _are_lists(facts: Facts, *indices: int) -> None:
    for index in indices:
        shape = facts.shape(index)
        if shape is not None and len(shape) != 1:
            facts.refuse(facts.input_name(index), f"rank {len(shape)}", "a list, rank 1")


def _axes(facts: Facts, index: int, rank: int) -> list[int] | None:
    """The axes that are named; each is there, and once."""
    axes = listed(facts, "axes", index)
    if axes is None:
        return None
    if any(not -rank <= axis < rank for axis in axes):
        facts.refuse(
            "axes", axes, f"{span(-rank, rank - 1)} for rank {rank}" if rank else "none for a scalar"
        )
    if len({axis % rank for axis in axes}) < len(axes):
        facts.refuse("axes", axes, "each axis once")
    return axes


def slice_bounds(facts: Facts) -> None:
    """As many starts as ends, axes and steps; no step of 0."""
    _are_lists(facts, 1, 2, 3, 4)
    names = ("starts", "ends", "axes", "steps")
    lists = {name: listed(facts, name, i + 1) for i, name in enumerate(names)}
    starts, steps = lists["starts"], lists["steps"]
    if starts is None:
        return
    for name, given in lists.items():
        if given is not None and len(given) != len(starts):
            facts.refuse(name, given, f"{counted(len(starts), 'number')}, as many as there are starts")
    if steps is not None and 0 in steps:
        facts.refuse("steps", steps, "numbers other than 0")
    shape = facts.shape(0)
    if shape is None:
        return
    if _axes(facts, 3, len(shape)) is None and not facts.has(3) and len(starts) > len(shape):
        facts.refuse("starts", starts, f"at most {counted(len(shape), 'number')}, one per dimension")


def split_sizes(facts: Facts) -> None:
    """Split: sizes that are the axis's together, one per output; or a number of parts."""
    _are_lists(facts, 1)
    shape, parts = facts.shape(0), len(facts.node.outputs)
    sizes, wanted = listed(facts, "split", 1), facts.attr("num_outputs")
    if wanted is not None and wanted != parts:
        facts.refuse("attribute 'num_outputs'", wanted, f"{parts}, the outputs that the node has")
    if wanted is not None and facts.has(1):
        facts.refuse("attribute 'num_outputs'", wanted, "sizes as an input or num_outputs, not both")
    if sizes is not None and (len(sizes) != parts or min(sizes) < 0):
        facts.refuse("split", sizes, f"{counted(parts, 'size')} of 0 or more, one per output")
    if not shape:
        return
    extent = shape[facts.attr("axis", 0)]
    if sizes is not None and sum(sizes) != extent:
        facts.refuse("split", sizes, f"sizes that are {extent} together, as the axis of {list(shape)} is")
    if sizes is None and not facts.has(1) and facts.opset < 18 and extent % parts:
        facts.refuse(facts.input_name(0), list(shape), f"{counted(parts, 'equal part')} along the axis")


def pads(facts: Facts) -> None:
    """Pad: two numbers per axis that leave sizes of 0 or more, and something to repeat."""
    mode = facts.attr("mode", "constant")
    modes = (*PADDINGS, "wrap") if facts.opset >= 19 else PADDINGS
    if mode not in modes:
        facts.refuse("attribute 'mode'", repr(mode), ", ".join(modes))
    _are_lists(facts, 1, 3)
    value, shape = facts.shape(2), facts.shape(0)
    if value is not None and prod(value) != 1:
        facts.refuse(facts.input_name(2), list(value), "a scalar")
    given = listed(facts, "pads" if facts.opset >= 2 else "paddings", 1)
    if given is None or shape is None:
        return
    axes = _axes(facts, 3, len(shape))
    if axes is None and facts.has(3):
        return
    axes = list(range(len(shape))) if axes is None else axes
    if len(given) != 2 * len(axes):
        facts.refuse("pads", given, f"{counted(2 * len(axes), 'number')}: before and after of each axis")
    for axis, before, after in zip(axes, given, given[len(axes) :], strict=False):
        size = shape[axis]
        if size + before + after < 0:
            facts.refuse(
                "pads", given, f"at least -{size} for dimension {axis} of {list(shape)}, both together"
            )
        left = size + min(before, 0) + min(after, 0)
        if mode != "constant" and left < 1 and max(before, after) > 0:
            facts.refuse(
                "pads", given, f"for mode {mode!r} a value or more of dimension {axis}, to be repeated"
            )


def repeats(facts: Facts) -> None:
    _are_lists(facts, 1)
    given, shape = listed(facts, "repeats", 1), facts.shape(0)
    if facts.opset < 6 or given is None or shape is None:
        return
    if len(given) != len(shape) or any(times < 0 for times in given):
        facts.refuse("repeats", given, f"{counted(len(shape), 'number')} of 0 or more, one per dimension")


def _block(facts: Facts) -> int:
    mode, size = facts.attr("mode", "DCR"), facts.attr("blocksize", 1)
    if mode not in BLOCKS:
        facts.refuse("attribute 'mode'", repr(mode), ", ".join(BLOCKS))
    if size < 1:
        facts.refuse("attribute 'blocksize'", size, "1 or more")
    shape = facts.shape(0)
    if shape is not None and len(shape) != 4:
        facts.refuse(facts.input_name(0), f"rank {len(shape)}", "rank 4: N, C, H, W")
    return int(size)


def depth_blocks(facts: Facts) -> None:
    size, shape = _block(facts), facts.shape(0)
    if shape is not None and shape[1] % (size * size):
        divides = f"a number whose square divides {counted(shape[1], 'channel')}"
        facts.refuse("attribute 'blocksize'", size, divides)


def space_blocks(facts: Facts) -> None:
    size, shape = _block(facts), facts.shape(0)
    if shape is not None and (shape[2] % size or shape[3] % size):
        facts.refuse("attribute 'blocksize'", size, f"a divisor of height and width, {list(shape[2:])}")


def centred(facts: Facts) -> None:
    _are_lists(facts, 1)
    sizes, shape = listed(facts, "shape", 1), facts.shape(0)
    if shape is None:
        return
    axes = _axes(facts, len(facts.values), len(shape))
    count = len(shape) if axes is None else len(axes)
    if sizes is not None and (len(sizes) != count or any(size < 0 for size in sizes)):
        facts.refuse("shape", sizes, f"{counted(count, 'size')} of 0 or more, one per axis")


def filled_shape(facts: Facts) -> None:
    _are_lists(facts, 0)
    value, sizes = facts.attr("value"), listed(facts, "shape", 0)
    if value is not None and value.size != 1:
        facts.refuse("attribute 'value'", f"shape {list(value.shape)}", "one element")
    if sizes is not None and any(size < 0 for size in sizes):
        facts.refuse("shape", sizes, "sizes of 0 or more")


def counted_range(facts: Facts) -> None:
    """Range: three numbers (lists of one are taken too), and a step."""
    for index in range(3):
        shape = facts.shape(index)
        if shape is not None and (len(shape) > 1 or prod(shape) != 1):
            facts.refuse(facts.input_name(index), list(shape), "a scalar")
    delta = facts.value(2)
    if delta is not None and delta.size == 1 and not delta.any():
        facts.refuse(facts.input_name(2), 0, "a step other than 0")
    numbers = [one.reshape(-1)[0] for one in map(facts.value, range(3)) if one is not None and one.size == 1]
    if len(numbers) == 3 and range_count(*numbers) is None:
        given = [one.item() for one in numbers]
        facts.refuse("start, limit and delta", given, "finite numbers, and a length below 2^63")


def matrix(facts: Facts) -> None:
    shape = facts.shape(0)
    if shape is not None and len(shape) != 2:
        facts.refuse(facts.input_name(0), f"rank {len(shape)}", "a matrix, rank 2")


def triangle(facts: Facts) -> None:
    shape, k = facts.shape(0), facts.shape(1)
    if shape is not None and len(shape) < 2:
        facts.refuse(facts.input_name(0), f"rank {len(shape)}", "matrices, rank 2 or more")
    if k is not None and prod(k) != 1:
        facts.refuse(facts.input_name(1), list(k), "a scalar")


MOVEMENT: dict[str, tuple[NodeCheck, ...]] = {
    "CenterCropPad": (centred,),
    "ConstantOfShape": (filled_shape,),
    "DepthToSpace": (depth_blocks,),
    "EyeLike": (matrix,),
    "Pad": (pads,),
    "Range": (counted_range,),
    "Shape": (),  # bounds beyond the rank are clipped
    "Slice": (slice_bounds,),
    "SpaceToDepth": (space_blocks,),
    "Tile": (repeats,),
    "Trilu": (triangle,),
}
