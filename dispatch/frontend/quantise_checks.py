# SPDX-License-Identifier: Apache-2.0
"""Rules for quantised operators that neither schemas nor shape inference hold.

Those of scales and zero points are the same for all operators: ``quantised_operands`` says where they are.
"""

from __future__ import annotations

from math import prod

import numpy as np
from onnx import helper

from onedispatch.dispatch.frontend.facts import Facts, NodeCheck, Shape
from onedispatch.dispatch.frontend.quantised_operands import (
    OPERATORS,
    Parameters,
    QuantisedOperator,
    dimension,
)
from onedispatch.operators.declarations.registry import MICROSOFT
from onedispatch.transactions.base.text import counted, span


def quantised(domain: str, op_type: str) -> NodeCheck:
    """Returns the check of all scales and zero points of an operator."""
    operator = OPERATORS[domain, op_type]

    def check(facts: Facts) -> None:
        if domain == MICROSOFT:  # of ONNX's own, the schema counts
            _check_count(facts, operator)
        for one in operator.parameters(len(facts.node.inputs)):
            _check_scale(facts, one)
            _check_zero(facts, one)
            for index in (one.scale, one.zero):
                _check_length(facts, one, index)

    return check


def _check_count(facts: Facts, operator: QuantisedOperator) -> None:
    """As many inputs as the operator has, the needed ones among them."""
    names, given = operator.names, len(facts.node.inputs)
    if operator.most is None:
        beyond = given - len(names)
        if beyond < 0 or beyond % operator.period:
            accepted = f"{', '.join(names)}, the last {operator.period} once or more"
            facts.refuse("inputs", counted(given, "input"), accepted)
    elif given > operator.most:
        facts.refuse("inputs", counted(given, "input"), f"at most {operator.most}: {', '.join(names)}")
    missing = [names[index] for index in operator.needed if not facts.has(index)]
    if missing:
        facts.refuse("inputs", f"no {' and no '.join(missing)}", ", ".join(names))


# -- scales and zero points -----------------------------------------------------------------------


def _check_scale(facts: Facts, one: Parameters) -> None:
    """Scales are finite and above zero: by others nothing is divided, and no sign is turned."""
    if one.scale is None or not facts.has(one.scale):
        return
    dtype, scale = facts.dtype(one.scale), facts.value(one.scale)
    if dtype is not None and dtype.kind in "iub" and facts.node.domain == MICROSOFT:
        facts.refuse(facts.input_name(one.scale), str(dtype), "a type of floats, of which scales are")
    if scale is None or scale.dtype.kind in "iub":
        return
    values = np.asarray(scale).astype(np.float32).reshape(-1)
    wrong = values[~(np.isfinite(values) & (values > 0))]
    if wrong.size:
        facts.refuse(facts.input_name(one.scale), f"the scale {wrong[0]}", "finite numbers above zero")


def _check_zero(facts: Facts, one: Parameters) -> None:
    """Zero points are of the type of the integers, and 0 for those of 32 bits."""
    zero = None if one.zero is None else facts.dtype(one.zero)
    if one.zero is None or zero is None:
        return
    source = one.like if one.made else one.tensor
    wanted = None if source is None else facts.dtype(source)
    if wanted is not None and zero != wanted:
        what = "as the result's" if one.made else "as the data"
        facts.refuse(facts.input_name(one.zero), str(zero), f"{wanted}, {what}")
    if one.made and zero.kind == "f" and facts.node.domain == MICROSOFT:
        facts.refuse(facts.input_name(one.zero), str(zero), "a type of integers, which the result has")
    value = facts.value(one.zero)
    if zero == np.int32 and value is not None and np.any(value):
        facts.refuse(facts.input_name(one.zero), f"a zero point other than 0 for {zero}", "0")


def _check_length(facts: Facts, one: Parameters, index: int | None) -> None:
    """One for the tensor, or as many as it has members along its dimension."""
    given = None if index is None else facts.shape(index)
    if index is None or given is None or one.along == "axis" or (prod(given) == 1 and len(given) < 2):
        return
    if one.along is None:
        facts.refuse(facts.input_name(index), list(given), "one value for the whole tensor")
    shape = facts.result_shape if one.made else facts.shape(one.tensor)
    if shape is None or not shape:
        return
    wanted = _several(shape, one.along, facts)
    if given not in wanted:
        accepted = " or ".join(map(str, map(list, wanted)))
        facts.refuse(facts.input_name(index), list(given), f"one value, or {accepted} of {list(shape)}")


def _several(shape: Shape, along: int | str, facts: Facts) -> list[Shape]:
    """The shapes that several scales of a tensor of ``shape`` have."""
    if along == "directions":  # of a recurrent layer, or of their gates each
        return [shape[:1], (shape[0], shape[-1])]
    dim = dimension(along, facts.node.attributes)
    wanted: list[Shape] = [(1 if dim < -len(shape) else shape[dim],)]  # a list is one row
    if dim < 0 and len(shape) > 2:  # of every matrix its own, as operands that broadcast
        wanted.append((*shape[:-2], *(shape[d] if d == dim else 1 for d in (-2, -1))))
    return wanted


# -- QuantizeLinear, DequantizeLinear -------------------------------------------------------------


def _axis(facts: Facts, shape: Shape) -> int:
    """The dimension that scales lie along."""
    axis, rank = int(facts.attr("axis", 1)), len(shape)
    if not -rank <= axis < rank:
        accepted = f"{span(-rank, rank - 1)} for rank {rank}" if rank else "one scale for a scalar"
        facts.refuse("attribute 'axis'", axis, accepted)
    return axis % rank


def scale_shapes(facts: Facts) -> None:
    """One scale, one per member of an axis, or one per block of an axis."""
    x, scale, block = facts.shape(0), facts.shape(1), int(facts.attr("block_size", 0))
    if block < 0:
        facts.refuse("attribute 'block_size'", block, "1 or more, or 0: no blocks")
    if scale is None or x is None or (prod(scale) == 1 and len(scale) < 2):
        return
    if not block:
        if len(scale) != 1:
            accepted = "a scalar, a list, or block_size for scales of blocks"
            facts.refuse(facts.input_name(1), list(scale), accepted)
        axis = _axis(facts, x)
        if scale[0] != x[axis]:
            accepted = f"[{x[axis]}], one scale per member of axis {axis}"
            facts.refuse(facts.input_name(1), list(scale), accepted)
        return
    axis = _axis(facts, x)
    blocks = -(-x[axis] // block)
    wanted = (*x[:axis], blocks, *x[axis + 1 :])
    if scale != wanted:
        what = f"{counted(blocks, 'block')} of {block} along axis {axis}"
        facts.refuse(facts.input_name(1), list(scale), f"{list(wanted)}, {what} of {list(x)}")


def zero_shapes(facts: Facts) -> None:
    """As many zero points as scales."""
    scale, zero = facts.shape(1), facts.shape(2)
    if scale is None or zero is None or zero == scale or (prod(zero) == 1 and prod(scale) == 1):
        return
    facts.refuse(facts.input_name(2), list(zero), f"{list(scale)}, one zero point for every scale")


def zero_type_made(facts: Facts) -> None:
    """QuantizeLinear: zero points are of the type of the output, which they or an attribute give."""
    zero, named = facts.dtype(2), int(facts.attr("output_dtype", 0))
    if zero is None or not named:
        return
    if zero != helper.tensor_dtype_to_np_dtype(named):
        accepted = f"{helper.tensor_dtype_to_np_dtype(named)}, the output_dtype"
        facts.refuse(facts.input_name(2), str(zero), accepted)


_OWN: dict[str, tuple[NodeCheck, ...]] = {
    "QuantizeLinear": (zero_type_made, scale_shapes, zero_shapes),
    "DequantizeLinear": (scale_shapes, zero_shapes),
}


def quantised_checks(domain: str) -> dict[str, tuple[NodeCheck, ...]]:
    """Returns the checks of every quantised operator of a domain, by operator."""
    return {
        op_type: (quantised(domain, op_type), *_OWN.get(op_type, ()))
        for where, op_type in OPERATORS
        if where == domain
    }
