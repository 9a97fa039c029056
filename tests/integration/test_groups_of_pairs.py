# SPDX-License-Identifier: Apache-2.0
"""Operators behind each other on tensors larger than the tables': the bits that they have ungrouped.

Tables' tensors are small: a group that counts wrongly from the second memory tile or band on is right there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product

import numpy as np
import onnx
import onnx.parser
import onnx.shape_inference
import pytest
from onnx import helper, numpy_helper

import onedispatch as od
from tests.ops.case import run_onnxruntime
from tests.tables import each_case, sampled

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")
SHAPES = ((1, 16, 72, 60), (1, 64, 32, 32))  # powers of two are cut into shares of memory tiles
BEFORE = "x0 = Neg (x)"

# Each reads {x}, [1, c, h, w], and writes {y}; W: weights of a shape, I: integers of these values.
STEPS = {
    "Clip": "{y} = Clip ({x})",
    "MaxPool": "{y}, {y}_at = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> ({x})",
    "AveragePool": "{y} = AveragePool <kernel_shape = [3, 2], strides = [1, 2]> ({x})",
    "GlobalAveragePool": "{y}_all = GlobalAveragePool ({x}) {y} = Mul ({x}, {y}_all)",
    "Conv 1x1": "{y} = Conv ({x}, W(24, c, 1, 1), W(24))",
    "Conv 3x3": "{y} = Conv <pads = [1, 1, 1, 1]> ({x}, W(20, c, 3, 3))",
    "Conv apart": "{y} = Conv <strides = [2, 3], pads = [2, 0, 1, 1]> ({x}, W(8, c, 5, 3), W(8))",
    "Conv depthwise": "{y} = Conv <group = c, pads = [1, 1, 1, 1]> ({x}, W(c, 1, 3, 3))",
    "ConvTranspose": "{y} = ConvTranspose <strides = [2, 2]> ({x}, W(c, 12, 2, 2))",
    "Transpose": "{y} = Transpose <perm = [0, 1, 3, 2]> ({x})",
    "Concat": "{y} = Concat <axis = 1> ({x}, {x})",
    "Slice": "{y} = Slice ({x}, I(1, 3), I(h, w), I(2, 3), I(2, 1))",
    "Pad": '{y} = Pad <mode = "reflect"> ({x}, I(0, 0, 2, 1, 0, 0, 1, 3))',
    "Resize": '{y} = Resize <mode = "linear"> ({x}, , , I(1, c, 50, 90))',
    "Softmax": "{y} = Softmax <axis = 1> ({x})",
    "ReduceMean": "{y}_mean = ReduceMean <axes = [3], keepdims = 1> ({x}) {y} = Add ({x}, {y}_mean)",
    "ReduceMax": "{y}_max = ReduceMax <axes = [1], keepdims = 1> ({x}) {y} = Sub ({x}, {y}_max)",
    "ArgMax": "{y}_at = ArgMax <axis = 1> ({x}) {y} = Identity ({x})",
    "TopK": "{y}, {y}_at = TopK <axis = 2> ({x}, I(9))",
    "CumSum": "{y} = CumSum ({x}, I(2))",
    "Gather": "{y} = Gather <axis = 1> ({x}, I(3, 0, 2, 3, 1, 2, 0, 1))",
    "LRN": "{y} = LRN <size = 3> ({x})",
    "InstanceNormalization": "{y} = InstanceNormalization ({x}, W(c), W(c))",
    "LayerNormalization": "{y} = LayerNormalization ({x}, W(w))",
    "DepthToSpace": "{y} = DepthToSpace <blocksize = 2> ({x})",
    "MatMul": "{y} = MatMul ({x}, W(w, 40))",
}


@dataclass(frozen=True)
class Pair:
    first: str
    second: str
    shape: tuple[int, ...]
    precision: str = "fp32"

    @property
    def id(self) -> str:
        return f"{self.first} then {self.second}, {self.shape[1]} channels, {self.precision}"


# Of each value, of the largest, and which part of them: what a normalisation leaves nearly alike is noise in
# bf16, which the next one enlarges.
CLOSE = {"fp32": (1e-4, 1e-5, 1.0), "bf16": (0.0, 0.05, 0.95)}
PAIRS = [Pair(*one) for one in product(STEPS, STEPS, SHAPES, CLOSE)]


class Chain:
    """A graph that grows by steps."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.rng = np.random.default_rng(0)
        self.lines, self.weights = [BEFORE], dict[str, np.ndarray]()

    def add(self, step: str, shape: tuple[int, ...]) -> None:
        sizes = dict(zip("nchw", shape, strict=True))

        def constant(call: re.Match[str]) -> str:
            numbers = [sizes[one] if one in sizes else int(one) for one in call[2].split(", ")]
            return self.floats(*numbers) if call[1] == "W" else self.integers(*numbers)

        number = len(self.lines)
        text = step.format(x=f"x{number - 1}", y=f"x{number}").replace("group = c", f"group = {shape[1]}")
        self.lines.append(re.sub(r"\b([WI])\(([^)]*)\)", constant, text))

    def floats(self, *shape: int) -> str:
        return self.keep(self.rng.standard_normal(shape).astype(np.float32) / 4)

    def integers(self, *values: int) -> str:
        return self.keep(np.array(values, np.int64))

    def keep(self, array: np.ndarray) -> str:
        name = f"k{len(self.weights)}"
        self.weights[name] = array
        return name

    def model(self) -> onnx.ModelProto:
        """All values that no node reads are outputs."""
        dims = ", ".join(map(str, self.shape))
        graph = onnx.parser.parse_graph(f"g (float[{dims}] x) => () {{ {' '.join(self.lines)} }}")
        read = {name for node in graph.node for name in node.input}
        names = [name for node in graph.node for name in node.output if name not in read]
        graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
        graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in self.weights.items())
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return onnx.shape_inference.infer_shapes(model, strict_mode=True)


def chain_of(pair: Pair) -> onnx.ModelProto:
    chain, shape = Chain(pair.shape), pair.shape
    for step in (pair.first, pair.second, "Clip"):
        chain.add(STEPS[step], shape)
        found = {one.name: one for one in chain.model().graph.output}[f"x{len(chain.lines) - 1}"]
        shape = tuple(d.dim_value for d in found.type.tensor_type.shape.dim)
    return chain.model()


def test_pairs_group(whatever_fits: None) -> None:
    model = chain_of(Pair("Conv 3x3", "MaxPool", SHAPES[0]))
    off, on = (od.compile(model, "npu2", fallback="error", groups=how).timing() for how in ("off", "on"))
    assert on.ddr_bytes_written < off.ddr_bytes_written


@each_case(sampled(PAIRS, lambda pair: "", 195), group=lambda pair: pair.first)
def test_groups_change_no_bit(pair: Pair, whatever_fits: None) -> None:
    model = chain_of(pair)
    x = np.random.default_rng(1).standard_normal(pair.shape).astype(np.float32)
    on, off = (
        od.InferenceSession(
            model, "npu2", fallback="error", groups=groups, record=False, precision=pair.precision
        ).run(None, {"x": x})
        for groups in ("on", "off")
    )
    assert [one.tobytes() for one in on] == [one.tobytes() for one in off]
    relative, least, part = CLOSE[pair.precision]
    for result, wanted in zip(off, run_onnxruntime(model, {"x": x}), strict=True):
        if wanted.dtype == np.float32:  # positions of near equals are another's as sums are rounded
            near = np.isclose(result, wanted, rtol=relative, atol=least * float(np.abs(wanted).max()))
            assert near.mean() >= part
