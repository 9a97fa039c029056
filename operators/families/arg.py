# SPDX-License-Identifier: Apache-2.0
"""ArgMax and ArgMin: places of the largest and smallest values; Hardmax, which is one at the first."""

from __future__ import annotations

from math import prod

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.dtypes import FLOATS, NUMBERS, WIDE
from onedispatch.operators.declarations.formulas import (
    ENTRY,
    ROW,
    WORD_BYTES,
    accesses,
    busiest,
    combined,
    comparisons,
    either,
    moves,
    read,
    vectors,
    words,
)
from onedispatch.operators.declarations.functions import Activation
from onedispatch.operators.declarations.kernel import Kernel, Scalar, Tensor, declare
from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.families.convert import emit_converted, in_float32
from onedispatch.operators.families.elementwise import Array, Eltwise, numpy_names, operands_of
from onedispatch.operators.families.reduce import Reduce, emit_each, reshaped, word_of
from onedispatch.operators.families.rows import normalised_axes
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.scheduling.index_space import Dim, K, Operand
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Device


def _cost() -> e.Expr:
    """As a reduction; beside the comparison, value and place are selected, and the place counts on."""
    r, i, k = e.tile("r"), e.tile("i"), e.K_COUNT
    several = e.named("several", e.differs(i, 1))
    lines = e.named("lines", r * either(several, vectors(i, "x"), 1))
    line = e.named("line", either(several, k, vectors(k, "x")))
    places = r * either(several, k * words(i), words(k))  # vectors of places: words, whatever x is
    loads = read(r * i * k / e.run("x"), e.run("x"), "x")
    best = lines * line * (comparisons("x") + moves("x")) + places * (
        e.device("i32_move_cycles") + e.device("i32_op_cycles")
    )
    across = (
        (1 - several) * lines * combined(k, "x", comparisons("x") + moves("x") + e.device("i32_move_cycles"))
    )
    kept = 4 * r * e.ceiling(WORD_BYTES * i / e.device("vector_bytes"))  # both are loaded and stored
    return (
        ENTRY
        + lines * ROW
        + busiest(loads, e.as_expr(0), best)
        + across
        + kept
        + e.LAST * r * accesses(i, "out")
    )


ARG = declare(
    Kernel(
        "od::arg@1",
        dims=("r", "i"),
        reduces=True,
        inputs=(Tensor("x", "r k i", NUMBERS),),
        outputs=(Tensor("out", "r i", WIDE),),
        scalars=(
            Scalar("least", high=1, default=0),
            Scalar("last", high=1, default=0),  # of equal values the last one; 0: the first
        ),
        cost=_cost(),
        # The best value so far and its place, a word each.
        scratch=e.tile("r") * e.tile("i") * (2 * WORD_BYTES),
        keeps_scratch=True,
        # ASSUMPTION: 96 instructions: a loop along and one across rows, and the places across lanes.
        code_bytes=1536,
        summary="out[r][i] = the k of the largest, or least, x[r][k][i]; a NaN only where it is the first",
    )
)


class Arg(Reduce):
    """Places along ``axis``: int64. A NaN is larger and smaller than nothing, as in onnxruntime: it is found
    where it comes first, and nowhere else."""

    kind = "arg"
    applies_activation = False

    def __init__(
        self, name: str, x: TensorSpec, output: TensorSpec, axis: int, device: Device, **flags: int
    ) -> None:
        super().__init__(name, "arg", x, output, (axis, axis + 1), device)
        self.flags = flags

    def _nest(self, x: Operand, out: Operand, dims: tuple[Dim, Dim]) -> Nest:
        unit = x.dtype.per_word if any(a.dim == K and a.align > 1 for a in x.access) else 1
        _, given, _ = self.sizes
        return Nest(ARG, dims, (x,), (out,), {"r": 0, "i": 1}, self.flags, k_extent=given, k_multiple=unit)

    def reference(self, *arrays: Array) -> Array:
        x: Array = arrays[0].astype(word_of(self.inputs[0].element)).reshape(self.sizes)
        length, first = self.sizes[1], x[:, :1]
        if self.flags.get("last"):
            x = x[:, ::-1]
        if x.dtype.kind == "f":
            x = np.where(np.isnan(x), np.inf if self.flags.get("least") else -np.inf, x)
        found = np.argmin(x, axis=1) if self.flags.get("least") else np.argmax(x, axis=1)
        if self.flags.get("last"):
            found = length - 1 - found
        found = np.where(np.isnan(first[:, 0].astype(np.float32)), 0, found)
        return found.astype(np.int64).reshape(self.output.shape)


def emit_arg(
    name: str, x: TensorSpec, output: TensorSpec, axis: int, lowering: Lowering, **flags: int
) -> None:
    """``Arg``; where rows are kept whose padding the result does not have, of words."""
    if axis + 1 < len(x.shape) and x.element.per_word > 1 and x.row_pitch != x.row:
        x = emit_converted(name, x, lowering.temp(word_of(x.element), x.shape), lowering)
    lowering.emit(Arg(name, x, output, axis, lowering.device, **flags))


_EXACT = 1 << 24  # places that float32 has all of

# -- ONNX --------------------------------------------------------------------------------------

TAKEN = numpy_names(NUMBERS)


@maps("ArgMax", "ArgMin", dtypes=TAKEN, notes="any axis of any length")
def map_arg(node: NodeSpec, lowering: Lowering) -> None:
    x, output = node.input(0), node.outputs[0]
    if x is None or output is None or str(x.dtype) not in TAKEN:
        raise Unsupported(f"{node.op_type} of {x.dtype if x else 'nothing'}", ", ".join(TAKEN))
    axis = int(node.attr("axis", 0)) % max(len(x.shape), 1)
    if x.shape and x.shape[axis] == 0 and output.size:
        raise Unsupported(f"{node.op_type} over an empty extent", "at least one element")
    if not x.shape:
        x = TensorSpec(x.name, x.dtype, (1,), x.value)
    flags = {"least": int(node.op_type == "ArgMin"), "last": int(node.attr("select_last_index", 0) != 0)}
    emit_arg(node.name, x, output, axis, lowering, **flags)


@maps("Hardmax", dtypes=numpy_names(FLOATS), notes="any axis of any length")
def map_hardmax(node: NodeSpec, lowering: Lowering) -> None:
    """One where the place is that of the first largest: 1 - |place - its own|, cut at 0."""
    (x,), output = operands_of(node, numpy_names(FLOATS))
    axis, stop = normalised_axes(node, len(x.shape))
    name, f32 = node.name, np.dtype(np.float32)
    sizes = outer, length, inner = prod(x.shape[:axis]), prod(x.shape[axis:stop]), prod(x.shape[stop:])
    if not x.size:
        raise Unsupported(f"Hardmax of shape {x.shape}", "at least one element")
    if length == 1:
        lowering.emit(Eltwise(name, "fill", [], output, lowering.device, alpha=1.0))
        return
    if length > _EXACT:
        raise Unsupported(f"Hardmax along {length} elements", f"at most {_EXACT}, whose places are float32")
    wide = reshaped(in_float32(name, x, lowering), sizes, lowering)
    places = lowering.temp(np.dtype(np.int64), (outer, 1, inner))
    emit_arg(name, wide, places, 1, lowering)
    found = emit_converted(name, places, lowering.temp(f32, places.shape), lowering)
    own = lowering.const(np.arange(length, dtype=np.float32).reshape(1, length, 1))
    one = lowering.const(np.ones((1, 1, 1), np.float32))
    result = output if output.dtype == f32 else lowering.temp(f32, output.shape)
    apart = emit_each(name, "sub", [own, found], lowering, activation=Activation("abs"))
    emit_each(name, "sub", [one, apart], lowering, result, activation=Activation("relu"))
    if result is not output:
        emit_converted(name, result, output, lowering)
