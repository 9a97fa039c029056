# SPDX-License-Identifier: Apache-2.0
"""Writes operator cases for the C++ tests: what a build leaves behind for a host application.

    python -m tests.cpp.make_cases build/cases

Per case: NAME.xclbin (the overlay), NAME.txn (the operator's transaction), NAME.params,
NAME.const (constants in device layout), NAME.weights (raw values that the test has to know:
constants as ONNX has them, row-major, little-endian) and NAME.case, a text of `key value...` lines:

    operator Conv
    element DTYPE                          | where given: of the declared element types, the narrowest there
    device npu2
    tolerance ULP SCALE ABSOLUTE
    kernel DIGEST                          | of the first parameter block, where there is one
    argument INDEX output BYTES            | kernel arguments, in order
    argument INDEX input BYTES TENSOR      | TENSOR counts the `input` lines below
    argument INDEX fixed BYTES OFFSET      | constant that is read as it is, at OFFSET of NAME.weights
    argument INDEX const BYTES
    argument INDEX params BYTES
    input DTYPE FILL RANK EXTENT...        | ONNX inputs in order; FILL: normal, positive, integer
    input DTYPE weights OFFSET RANK EXTENT...   | ... a constant, values at OFFSET of NAME.weights
    input absent
    output DTYPE RANK EXTENT...
    expected OFFSET                        | where given: the values of output, at OFFSET of NAME.weights
    ints NAME VALUE...                     | attributes
    float NAME VALUE
    text NAME VALUE
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from ml_dtypes import finfo

if __package__ in (None, ""):
    sys.path.append(str(Path(__file__).resolve().parents[2]))

from onedispatch.operators.declarations import params
from onedispatch.operators.declarations.dtypes import DType, dtype_of
from onedispatch.operators.declarations.functions import REDUCTIONS
from onedispatch.operators.emission.overlay import overlay_transaction
from onedispatch.operators.interface.operator import Operator, TensorSpec
from onedispatch.operators.kernels.elementwise import View
from onedispatch.operators.kernels.movement import Move, StridedCopy
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import ArgKind, Xclbin, find_device
from onedispatch.transactions.base.cached import cached_property
from tests.ops.case import EXACT, SUMS, Array, Case, Input, case, f32, integers, value, weight
from tests.ops.cases import CASES as TABLE
from tests.ops.lowered import computed, device_bytes, lower, reference
from tests.ops.typed import SLOW, TYPED, answer

SMALL = ("npu1", "npu2_2col")
POOL: dict[str, Any] = {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 0, 2, 1]}
HALF: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}


def batch(*shape: int) -> Case:
    c = shape[1]
    constants = [weight(c), weight(c), weight(c), weight(c, kind="positive")]
    return case("BatchNormalization", f32(*shape), *constants, epsilon=0.01)


def products() -> list[Case]:
    u8, i8 = integers("uint8", 5, 19), integers("int8", 19, 11, const=True)
    per_column = integers("int8", 11, const=True)
    return [
        case("MatMul", f32(1, 1), weight(1, 1)),
        case("MatMul", f32(37, 61), weight(61, 29)),
        *case("MatMul", f32(37, 61), f32(61, 29)).on("npu2", *SMALL),
        case("MatMul", f32(2, 3, 5), f32(2, 5, 7)),
        case("MatMul", f32(3, 1, 4, 6), f32(2, 6, 5)),
        case("Gemm", f32(37, 61), weight(61, 29), weight(29)),
        case("Gemm", f32(13, 7), weight(5, 13), weight(5), transA=1, transB=1, alpha=0.5, beta=-2.0),
        *case("Gemm", f32(3, 61), weight(29, 61), transB=1).on(*SMALL),
        case("MatMulInteger", integers("int8", 37, 64), integers("int8", 64, 10)),
        case("MatMulInteger", u8, i8, value(131, "uint8"), value(-3, "int8")),
        *case("MatMulInteger", u8, i8, value(7, "uint8"), per_column).on("npu2", *SMALL),
        *quantised(u8, i8, "uint8").on("npu2", *SMALL),
        quantised(integers("int8", 37, 64), integers("int8", 64, 10), "int8"),
    ]


def quantised(a: Input, b: Input, dtype: str) -> Case:
    """A QLinearMatMul whose results are neither all small nor all saturated."""
    scales, zeros = (value(0.02), value(0.01), value(0.25)), (value(3, a.dtype), value(-2, b.dtype))
    return case("QLinearMatMul", a, scales[0], zeros[0], b, scales[1], zeros[1], scales[2], value(5, dtype))


def windows() -> list[Case]:
    image = f32(2, 6, 13, 11)
    convolution = case("Conv", image, weight(4, 6, 3, 3), weight(4), pads=[1, 0, 2, 1], strides=[2, 1])
    return [
        convolution,
        *convolution.on(*SMALL),
        case("Conv", f32(1, 1, 1, 1), weight(1, 1, 1, 1)),
        case("Conv", image, weight(9, 6, 1, 1)),
        case("Conv", image, weight(4, 3, 3, 3), group=2, dilations=[2, 1]),
        case("Conv", image, weight(6, 1, 3, 5), weight(6), group=6, pads=[1, 2, 1, 2]),
        case("Conv", f32(37, 2, 31), weight(3, 2, 4), weight(3), pads=[2, 1], strides=[3]),
        *(case(op, image, **POOL) for op in ("MaxPool", "AveragePool")),
        case("AveragePool", image, count_include_pad=1, **POOL),
        *(one for op in ("MaxPool", "AveragePool") for one in case(op, f32(37, 1, 8, 8), **HALF).on(*SMALL)),
        *(case("GlobalAveragePool", f32(*s)) for s in [(1, 1, 1, 1), (37, 3, 5, 7), (2, 5, 101)]),
        *(case("GlobalMaxPool", f32(*s)) for s in [(1, 1, 1, 1), (37, 3, 5, 7), (2, 5, 101)]),
        *(batch(*s) for s in [(1, 1, 1, 1), (37, 3, 5, 5), (2, 67, 7, 3)]),
        *batch(2, 5, 9, 3).on(*SMALL),
        case("LRN", f32(1, 1, 1, 1), size=1),
        case("LRN", f32(2, 11, 5, 7), size=5, alpha=0.5, beta=0.5, bias=2.0),
        *case("LRN", f32(1, 7, 3, 5), size=3, alpha=0.1).on(*SMALL),
    ]


def normalised() -> list[Case]:
    """By channel, and without a mean."""
    channels = weight(5), weight(5)
    return [
        case("InstanceNormalization", f32(3, 5, 7, 9), *channels, epsilon=0.01, tolerance=SUMS),
        *case("InstanceNormalization", f32(2, 5, 31), *channels, tolerance=SUMS).on(*SMALL),
        case("RMSNormalization", f32(37, 61), weight(61), opset=23, tolerance=SUMS),
        case("SimplifiedLayerNormalization", f32(31, 40), weight(40), tolerance=SUMS),
    ]


def elements() -> list[Case]:
    cases = []
    for op in ("Add", "Sub", "Mul", "Div"):
        pairs = [((), ()), ((37, 101), (37, 101)), ((2, 3, 4), (3, 1)), ((5, 1), (1, 31)), ((7,), (2, 1, 7))]
        cases += [case(op, f32(*a), f32(*b, kind="positive")) for a, b in pairs]
        cases += case(op, f32(9, 31), f32(31, kind="positive")).on(*SMALL)
    cases += [case("Sum", f32(37, 5), f32(5)), case("Sum", f32(2, 1, 3), f32(4, 1)), case("Sum", f32(11))]
    for op in ("Max", "Min"):
        cases += [case(op, f32(37, 5), f32(5)), case(op, f32(2, 1, 3), f32(4, 1)), case(op, f32(11))]
    unary = ("Relu", "LeakyRelu", "Sigmoid", "Tanh", "Exp", "Sqrt", "Erf", "Abs", "Neg", "Log", "Reciprocal")
    for op in unary:
        kind = "positive" if op in ("Sqrt", "Log", "Reciprocal") else "normal"
        cases += [case(op, f32(*shape, kind=kind)) for shape in [(), (1009,), (37, 3, 5)]]
        cases += case(op, f32(61, 7, kind=kind)).on(*SMALL)
    for op in REDUCTIONS.by_onnx:
        kind = "positive" if op in ("ReduceMean", "ReduceSum") else "normal"
        given: dict[str, Any] = {"keepdims": 1, "tolerance": SUMS if op == "ReduceL1" else None}
        cases += [case(op, f32(37, 11, kind=kind), value([a], "int64"), **given) for a in (0, 1)]
        cases += case(op, f32(3, 5, 7, kind=kind), value([1], "int64"), **given).on("npu2", *SMALL)
    cases += normalised()
    for axis, flags in [(1, {}), (1, {"reverse": 1}), (0, {"exclusive": 1})]:
        cases.append(case("CumSum", f32(37, 11), value(axis, "int64"), tolerance=SUMS, **flags))
    cases += [case(op, f32(37, 11), axis=a, keepdims=1) for op in ("ArgMax", "ArgMin") for a in (0, 1)]
    cases += [case("LogSoftmax", f32(*s), axis=a) for s, a in [((7,), 0), ((37, 10), 1), ((3, 5, 7), 1)]]
    cases += case("LogSoftmax", f32(5, 61), axis=1).on(*SMALL)
    cases += case("LeakyRelu", f32(37, 11), alpha=0.3).on("npu2")
    cases += case("Clip", f32(37, 11), value(-0.5), value(0.75)).on("npu2", *SMALL)
    cases += [case("Softmax", f32(*s), axis=a) for s, a in [((7,), 0), ((37, 10), 1), ((3, 5, 7), 1)]]
    cases += case("Softmax", f32(5, 61), axis=1).on(*SMALL)
    return cases


def logic() -> list[Case]:
    condition = value([[True, False, True, True, False]] * 37, "bool")
    return [
        *case("Greater", f32(37, 5), f32(5)).on("npu2", *SMALL),
        case("Greater", f32(2, 1, 3), f32(4, 1)),
        case("Greater", f32(), f32(33)),
        *case("Where", condition, f32(37, 5), f32(5)).on("npu2", *SMALL),
        case("Where", value([[True], [False], [True]], "bool"), f32(3, 7), f32(1)),
        *case("Mod", f32(37, 5, kind="positive"), f32(5, kind="positive"), fmod=1).on("npu2", *SMALL),
        case("Mod", f32(2, 1, 33), f32(3, 1, kind="positive"), fmod=1),
    ]


def movements() -> list[Case]:
    shape = value([5, 7, 3], "int64")
    return [
        *case("Concat", f32(3, 4, 5), f32(3, 1, 5), f32(3, 7, 5), axis=1).on("npu2", *SMALL),
        case("Concat", f32(3), f32(4), axis=0),
        *case("Transpose", f32(3, 4, 5), perm=[2, 0, 1]).on("npu2", *SMALL),
        case("Transpose", f32(37, 101), perm=[1, 0]),
        case("Transpose", f32(2, 3, 2, 3, 2, 3), perm=[5, 4, 3, 2, 1, 0]),
        case("Reshape", f32(15, 7), shape),
        case("Flatten", f32(2, 3, 5)),
        case("Squeeze", f32(1, 37, 1)),
        case("Unsqueeze", f32(37, 3), value([1], "int64")),
        case("Identity", f32(37, 3)),
        case("Identity", integers("int8", 3, 5)),
        case("Dropout", f32(37, 3)),
    ]


def resampled() -> list[Case]:
    """By weights along one axis, rows and their elements."""
    along = case("Resize", f32(2, 5, 7), None, value([1, 1, 2.5]), mode="linear", tolerance=SUMS)
    return [
        *along.on("npu2", *SMALL),
        case("Resize", f32(2, 9, 7), None, value([1, 3, 1]), mode="linear", tolerance=SUMS),
        case("Resize", f32(1, 33, 70), None, value([1, 0.5, 1]), mode="linear", tolerance=SUMS),
    ]


NAMED = [*products(), *windows(), *elements(), *logic(), *movements(), *resampled()]
MOST = 6


@cache
def registered() -> list[Case]:
    """The first cases of the table of every operator that has no row above (of Resize only some): those that
    are one device operator, with finite answers. Their values and onnxruntime's answers go with them."""
    found: dict[str, list[Case]] = {}
    named = {one.op_type for one in NAMED} - {one.op_type for one in resampled()}
    for one in TABLE:
        cases = found.setdefault(one.op_type, [])
        if one.op_type in named or len(cases) == MOST or not np.isfinite(one.expected[0]).all():
            continue
        if is_one_operator(one) and one.expected[0].size:
            cases.append(one)
    return [case for cases in found.values() for case in cases]


def all_cases() -> list[Case]:
    """The rows above, then those of the table."""
    return [*NAMED, *registered()]


@dataclass(frozen=True)
class Step:
    """One device operator of a case in another element type, its inputs, and its reference's answer."""

    case: Case
    op: Operator
    arrays: list[Array]
    answer: Array

    @property
    def narrowest(self) -> DType | None:
        """The narrowest element type of its tensors; None where one has a type without a row."""
        rows = [dtype_of(tensor.dtype) for tensor in (*self.op.inputs, self.op.output)]
        known = [row for row in rows if row is not None]
        return min(known, key=lambda row: row.itemsize) if len(known) == len(rows) else None

    @cached_property
    def nests(self) -> list[Nest]:
        """What has work to do. Not the schedules: most steps are one sort, and only the first is solved."""
        return [nest for nest in self.op.nests() if not nest.is_empty]

    @property
    def is_plain(self) -> bool:
        """One nest, results that are numbers, and a type narrower than a word."""
        row, single = self.narrowest, self.answer.size and len(self.nests) == 1
        narrow = row is not None and row.per_word > 1
        return bool(single and narrow and np.isfinite(self.answer.astype(np.float64)).all())

    @property
    def sort(self) -> tuple[object, ...]:
        """What makes it another test: class, kernel, functions, element types."""
        (nest,) = self.nests
        types = (str(tensor.dtype) for tensor in (*self.op.inputs, self.op.output))
        functions = (value for value in nest.scalars.values() if isinstance(value, str))
        return type(self.op), nest.kernel.name, *types, *functions

    @property
    def ulp(self) -> int:
        """Two roundings to a type of two bytes, in units of float32, where something is approximated."""
        exact = self.case.allowed == EXACT and self.case.op_type not in SLOW
        short = self.answer.dtype.itemsize == 2 and self.op.output.element.is_float
        widened = int(2 * float(finfo(self.answer.dtype).eps) * 2**23) if short else 0
        return 0 if exact else self.case.allowed.ulp + widened


def steps() -> list[Step]:
    """The first device operator of every sort, over the cases in types other than float32."""
    found: dict[tuple[object, ...], Step] = {}
    for one in TYPED:
        with np.errstate(all="ignore"):
            one.__dict__["expected"] = [answer(one)]
        for step in steps_of(one):
            if step.is_plain and step.sort not in found:
                found[step.sort] = step
    return list(found.values())


def parted() -> list[Step]:
    """The device operators of the first cases of every operator that always takes several of them, or does
    for its further results."""
    found: dict[str, list[Step]] = {}
    alone = {one.op_type for one in all_cases()}
    for one in TABLE:
        kept = found.setdefault(one.op_type, [])
        if (
            (one.op_type in alone and one.outputs == 1)
            or len(kept) >= MOST
            or not np.isfinite(one.expected[0]).all()
        ):
            continue
        known = {type(step.op) for step in kept}
        kept += [step for step in steps_of(one) if step.answer.size and type(step.op) not in known]
    return [step for steps in found.values() for step in steps]


def steps_of(one: Case) -> Iterator[Step]:
    for op, given, result in computed(lower(one), dict(one.feed), reference):
        yield Step(one, op, given, result)


def is_one_operator(case: Case) -> bool:
    """Whether the node becomes one device operator, or moves no data."""
    lowered = lower(case)
    return len(lowered.ops) + len(lowered.aliases) == 1


def only_operator(case: Case) -> Operator:
    """The one device operator of the case; for a node that moves no data, the copy that a model of
    this node alone needs."""
    lowering = lower(case)
    if not lowering.ops:
        ((output, source, offset),) = lowering.aliases
        count, at = (n // output.dtype.itemsize for n in (output.device_bytes, offset))
        part = StridedCopy(0, (count,), View((1,), at), View((1,)))
        return Move("copy", [source], output, lowering.device, [part])
    ((_, op),) = lowering.ops
    return op


def write(case: Case, folder: Path, name: str, answered: bool) -> None:
    """The files of one case; with its inputs' values and its answer if ``answered``."""
    op, weights = only_operator(case), Weights()
    keep, allowed = weights.keep, case.allowed
    lines = [
        f"operator {case.op_type}",
        f"device {case.device}",
        f"tolerance {allowed.ulp} {allowed.scale} {allowed.absolute}",
    ]
    lines += arguments(op, keep, lambda tensor: int(tensor.name.removeprefix("x")))
    for x, array in zip(case.inputs, case.arrays, strict=True):
        if x is None or array is None:
            lines.append("input absent")
            continue
        extents = " ".join(map(str, (array.ndim, *array.shape)))
        if x.const or answered:
            lines.append(f"input {array.dtype} weights {keep(array.tobytes())} {extents}")
        else:
            lines.append(f"input {array.dtype} {x.kind} {extents}")
    result = case.expected[0]
    lines.append(" ".join(map(str, ("output", result.dtype, result.ndim, *result.shape))))
    if answered:
        lines.append(f"expected {keep(result.tobytes())}")
    for key, given in case.attributes.items():
        if isinstance(given, np.ndarray):
            continue  # a tensor, which no formula there needs
        kind = {float: "float", str: "text"}.get(type(given), "ints")
        values = given if isinstance(given, list) else [given]
        lines.append(f"{kind} {key} {' '.join(map(str, values))}")
    write_files(folder / name, case.device, op, weights, lines)


def write_step(step: Step, folder: Path, name: str, element: DType | None) -> None:
    """The files of one device operator, inputs' values and answer with it."""
    op, weights, allowed = step.op, Weights(), step.case.allowed
    lines = [
        f"operator {step.case.op_type}",
        *([f"element {element}"] if element else []),
        f"device {step.case.device}",
        f"tolerance {step.ulp} {allowed.scale} {allowed.absolute}",
    ]
    lines += arguments(op, weights.keep, op.inputs.index)
    for array in step.arrays:
        extents = " ".join(map(str, (array.ndim, *array.shape)))
        lines.append(f"input {array.dtype} weights {weights.keep(array.tobytes())} {extents}")
    result = step.answer
    lines.append(" ".join(map(str, ("output", result.dtype, result.ndim, *result.shape))))
    lines.append(f"expected {weights.keep(result.tobytes())}")
    write_files(folder / name, step.case.device, op, weights, lines)


class Weights(bytearray):
    """Values that a test has to know, one after the other."""

    def keep(self, data: bytes) -> int:
        """Where they begin."""
        at = len(self)
        self.extend(data + bytes(-len(data) % 4))
        return at


def arguments(
    op: Operator, keep: Callable[[bytes], int], number: Callable[[TensorSpec], int]
) -> Iterator[str]:
    """The kernel's arguments, in order; ``number`` counts the `input` lines."""
    for entry in op.arg_map():
        text = f"argument {entry.xrt_arg_idx} "
        if entry.kind is ArgKind.OUTPUT:
            text += f"output {entry.size}"
        elif entry.kind is ArgKind.INPUT:
            tensor = op.activations[entry.onnx_arg_idx]
            if tensor.value is not None:
                text += f"fixed {entry.size} {keep(device_bytes(tensor, np.asarray(tensor.value)))}"
            else:
                text += f"input {entry.size} {number(tensor)}"
        elif entry.kind is ArgKind.CONST_INPUT:
            text += f"const {entry.size}"
        else:
            text += f"params {entry.size}"
        yield text


def write_files(path: Path, device: str, op: Operator, weights: bytearray, lines: list[str]) -> None:
    overlay = Xclbin(device, {0: overlay_transaction(find_device(device), op.image)})
    words = [np.frombuffer(block, np.uint32) for block in op.parameter_blocks[:1]]
    lines = [*lines, *(f"kernel {one[params.HEADER['kernel']]}" for one in words)]
    files = {
        "xclbin": overlay.to_bytes(),
        "txn": op.transaction(),
        "params": op.super_kernel_params(),
        "const": op.format_const_params().tobytes(),
        "weights": bytes(weights),
        "case": ("\n".join(lines) + "\n").encode(),
    }
    for suffix, data in files.items():
        path.with_name(f"{path.name}.{suffix}").write_bytes(data)


def main() -> int:
    parser = argparse.ArgumentParser(description="Writes operator cases for the C++ tests.")
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        if old.suffix in {".xclbin", ".txn", ".params", ".const", ".weights", ".case"}:
            old.unlink()
    cases, narrow, parts = all_cases(), steps(), parted()
    for number, one in enumerate(cases):
        write(one, folder, f"{number:03d}_{one.op_type}_{one.device}", number >= len(NAMED))
    for number, step in enumerate(narrow, len(cases)):
        write_step(step, folder, f"{number:03d}_step_{step.narrowest}_{step.case.op_type}", step.narrowest)
    for number, step in enumerate(parts, len(cases) + len(narrow)):
        write_step(step, folder, f"{number:03d}_part_{step.op.kind}_{step.case.op_type}", None)
    print(f"{len(cases) + len(narrow) + len(parts)} cases in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
