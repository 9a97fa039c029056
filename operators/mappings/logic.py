# SPDX-License-Identifier: Apache-2.0
"""Comparisons, logic, shifts, remainders and Where."""

from __future__ import annotations

from collections.abc import Sequence

from onedispatch.operators.declarations.dtypes import FLOATS, INTEGERS, WIDE
from onedispatch.operators.declarations.function_sets import BINARIES, COMPARISONS
from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.declarations.tensor import NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.interface.operator import Lowering
from onedispatch.operators.kernels.elementwise import Eltwise, numpy_names
from onedispatch.operators.kernels.logic import Binary, Compare, Select
from onedispatch.operators.lowering.movement import MOVED
from onedispatch.operators.lowering.operands import function_dtypes, operands_of

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
