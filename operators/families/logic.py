# SPDX-License-Identifier: Apache-2.0
"""Element-wise operators whose operands or results are no plain numbers of one type.

Comparisons, selections, functions of bits, remainders, and arithmetic of int64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.dtypes import DTYPES, EVERY, FLOATS, INTEGERS, WIDE, DType
from onedispatch.operators.declarations.formulas import mapped, moves, vectors
from onedispatch.operators.declarations.function_sets import BINARIES, COMPARISONS
from onedispatch.operators.declarations.kernel import FunctionTable, Kernel, Tensor, chooses, declare
from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.declarations.tensor import NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.families.elementwise import (
    Array,
    Eltwise,
    function_dtypes,
    numpy_names,
    operands_of,
)
from onedispatch.operators.families.movement import MOVED
from onedispatch.operators.interface.operator import Lowering
from onedispatch.transactions import Device


def _cost(inputs: int, operations: Callable[[e.Expr], e.Expr]) -> e.Expr:
    """``operations``: cycles of a row of so many."""
    return mapped((f"x{i}" for i in range(inputs)), lambda rows, run: rows * operations(run))


COMPARE = declare(
    Kernel(
        "od::compare@1",
        inputs=(
            Tensor("x0", "...", f"{EVERY} {WIDE}", walk="affine"),
            Tensor("x1", "...", f"{EVERY} {WIDE}", optional=True, walk="affine", like="x0"),
        ),
        outputs=(Tensor("out", "...", "bool", walk="affine"),),
        scalars=(chooses("func", COMPARISONS, of="x0"),),
        # Masks of the operands' vectors, and a selection of ones and zeros for every vector of results.
        cost=_cost(
            2, lambda run: vectors(run, "x0") * e.work("func", "x0") + vectors(run, "out") * moves("out")
        ),
        # ASSUMPTION: 128 instructions: a loop and its edges, about 4 per function, a packing of masks.
        code_bytes=2048,
        summary="true or false for elements of a box of up to five dimensions; inputs strided or broadcast",
    )
)

SELECT = declare(
    Kernel(
        "od::select@1",
        inputs=(
            Tensor("x0", "...", "bool", walk="affine"),
            *(Tensor(f"x{i}", "...", f"u8 u16 u32 {WIDE}", walk="affine", like="out") for i in (1, 2)),
        ),
        outputs=(Tensor("out", "...", f"u8 u16 u32 {WIDE}", walk="affine"),),
        # Truth values become masks of the results' width, each vector of which selects.
        cost=_cost(
            3, lambda run: vectors(run, "x0") * moves("x0") + vectors(run, "out") * (2 * moves("out"))
        ),
        # ASSUMPTION: 64 instructions: a loop and its edges per width.
        code_bytes=1024,
        summary="elements of x1 where x0 is true, of x2 elsewhere; of any type, by their width",
    )
)

BINARY = declare(
    Kernel(
        "od::binary@1",
        inputs=(
            Tensor("x0", "...", f"{EVERY} {WIDE}", walk="affine", like="out"),
            Tensor("x1", "...", f"{EVERY} {WIDE}", optional=True, walk="affine", like="out"),
        ),
        outputs=(Tensor("out", "...", f"{EVERY} {WIDE}", walk="affine"),),
        scalars=(chooses("func", BINARIES),),
        cost=_cost(2, lambda run: vectors(run, "out") * e.work("func", "out")),
        # ASSUMPTION: 80 instructions: a loop and its edges, about 8 per sealed function.
        code_bytes=1280,
        summary="functions of bits and of integers, remainders; integers of 64 bits too, which wrap",
    )
)


class Chosen(Eltwise):
    """``func(inputs)``, a row of the table of the class; no activation can follow."""

    applies_activation = False

    @property
    def numbers(self) -> tuple[float, ...]:
        return ()

    @property
    def scalars(self) -> dict[str, float | str]:
        return {"func": self.func}


class Compare(Chosen):
    """Truth values of one or two operands of one type."""

    kind = "compare"
    kernel: ClassVar[Kernel] = COMPARE
    functions: ClassVar[FunctionTable] = COMPARISONS


class Binary(Chosen):
    """Functions of bits and of integers, of int64 too."""

    kind = "binary"
    kernel: ClassVar[Kernel] = BINARY
    functions: ClassVar[FunctionTable] = BINARIES


class Select(Chosen):
    """``where(condition, x, y)`` of elements of any width."""

    kind = "select"
    kernel: ClassVar[Kernel] = SELECT

    def __init__(self, name: str, inputs: Sequence[TensorSpec], output: TensorSpec, device: Device) -> None:
        super().__init__(name, "", inputs, output, device)

    @property
    def scalars(self) -> dict[str, float | str]:
        return {}

    def row_of(self, tensor: TensorSpec) -> DType:
        if tensor is self.inputs[0]:
            return tensor.element
        found = {1: "u8", 2: "u16", 4: "u32", 8: WIDE}.get(tensor.dtype.itemsize)
        if found is None or tensor.dtype.kind in "SUMO":
            raise Unsupported(f"Where of {tensor}", "elements of 1, 2, 4 or 8 bytes")
        return DTYPES[found]

    def compute(self, *seen: Array) -> Array:
        return np.where(*seen)


# -- ONNX --------------------------------------------------------------------------------------

COMPARED = function_dtypes(COMPARISONS, COMPARISONS.by_onnx)
LOGIC = {"And": "and", "Or": "or", "Xor": "xor", "Not": "not"}
BITWISE = {f"Bitwise{name}": func for name, func in LOGIC.items()}
WHOLE = numpy_names(f"{INTEGERS} {WIDE}")


@maps(
    *(op for op in COMPARED if op not in ("IsNaN", "IsInf")),
    dtypes=COMPARED,
    notes="broadcasting; opset 7 or later",
)
def map_comparison(node: NodeSpec, lowering: Lowering) -> None:
    inputs, output = typed_operands(node, COMPARED[node.op_type])
    refuse_attribute_broadcast(node)
    lowering.emit(Compare(node.name, COMPARISONS.by_onnx[node.op_type], inputs, output, lowering.device))


@maps("IsNaN", "IsInf", dtypes=COMPARED)
def map_class(node: NodeSpec, lowering: Lowering) -> None:
    inputs, output = typed_operands(node, COMPARED[node.op_type])
    func = "isnan"
    if node.op_type == "IsInf":
        wanted = bool(node.attr("detect_positive", 1)), bool(node.attr("detect_negative", 1))
        func = {(True, True): "isinf", (True, False): "isposinf", (False, True): "isneginf"}.get(wanted, "")
    if not func:  # neither: nothing is
        lowering.emit(Eltwise(node.name, "fill", [], output, lowering.device, alpha=0.0))
        return
    lowering.emit(Compare(node.name, func, inputs, output, lowering.device))


def typed_operands(node: NodeSpec, dtypes: Sequence[str]) -> tuple[list[TensorSpec], TensorSpec]:
    """The inputs, of ``dtypes``, and the output, which is of truth values."""
    inputs = [x for x in node.inputs if x is not None]
    output = node.outputs[0]
    if output is None:
        raise Unsupported(f"{node.op_type} without its output")
    for tensor in inputs:
        if str(tensor.dtype) not in dtypes:
            raise Unsupported(f"{node.op_type} of {tensor.dtype} ({tensor.name})", ", ".join(dtypes))
    return inputs, output


def refuse_attribute_broadcast(node: NodeSpec) -> None:
    """Raises ``Unsupported`` before opset 7, where an attribute says how operands are broadcast."""
    if node.opset < 7:
        raise Unsupported(f"{node.op_type} of opset {node.opset} broadcasts by attribute", "opset 7")


@maps(*LOGIC, dtypes=("bool",), notes="broadcasting; opset 7 or later")
def map_logic(node: NodeSpec, lowering: Lowering) -> None:
    inputs, output = operands_of(node, ("bool",))
    if len(inputs) > 1:
        refuse_attribute_broadcast(node)
    lowering.emit(Binary(node.name, LOGIC[node.op_type], inputs, output, lowering.device))


@maps(*BITWISE, dtypes=WHOLE, notes="broadcasting")
def map_bitwise(node: NodeSpec, lowering: Lowering) -> None:
    inputs, output = operands_of(node, WHOLE)
    lowering.emit(Binary(node.name, BITWISE[node.op_type], inputs, output, lowering.device))


SHIFTED = numpy_names(BINARIES["shift_left"].dtypes)


@maps("BitShift", dtypes=SHIFTED, notes="both directions; broadcasting")
def map_shift(node: NodeSpec, lowering: Lowering) -> None:
    inputs, output = operands_of(node, SHIFTED)
    direction = node.attr("direction", "")
    if direction not in ("LEFT", "RIGHT"):
        raise Unsupported(f"BitShift with direction {direction!r}", "LEFT, RIGHT")
    lowering.emit(Binary(node.name, f"shift_{direction.lower()}", inputs, output, lowering.device))


@maps("Mod", dtypes=numpy_names(f"{FLOATS} {INTEGERS} {WIDE}"), notes="both signs; broadcasting")
def map_mod(node: NodeSpec, lowering: Lowering) -> None:
    func = "fmod" if node.attr("fmod", 0) else "mod"
    inputs, output = operands_of(node, numpy_names(f"{FLOATS} {INTEGERS} {WIDE}"))
    func = f"float_{func}" if output.element.is_float else func
    lowering.emit(Binary(node.name, func, inputs, output, lowering.device))


@maps("Where", dtypes=MOVED, notes="a condition, then data of these; broadcasting")
def map_where(node: NodeSpec, lowering: Lowering) -> None:
    condition, x, y = (node.input(i) for i in range(3))
    output = node.outputs[0]
    if condition is None or x is None or y is None or output is None:
        raise Unsupported("Where without one of its operands", "condition, x, y")
    lowering.emit(Select(node.name, [condition, x, y], output, lowering.device))
