# SPDX-License-Identifier: Apache-2.0
"""Networks of one kernel, whose calls a recorded run joins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import parser

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """A network of one kernel, whose tiles, and steps, do not divide its extents."""

    inputs: str
    outputs: str
    body: str
    most: int  # calls that a played run may make of it
    constants: tuple[tuple[str, tuple[int, ...]], ...] = ()  # weights: names and shapes
    values: tuple[tuple[str, tuple[float, ...]], ...] = ()  # others: floats, or whole numbers
    below: int = 0  # of inputs that are whole numbers
    precision: str = "fp32"

    def model(self) -> onnx.ModelProto:
        head = '<ir_version: 8, opset_import: ["" : 18]>'
        graph = f"g ({self.inputs}) => ({self.outputs}) {{ {self.body} }}"
        proto: onnx.ModelProto = parser.parse_model(f"{head} {graph}")
        rng = np.random.default_rng(5)
        for name, shape in self.constants:
            values = rng.standard_normal(shape, np.float32) / 3
            proto.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
        for name, given in self.values:
            array = np.array(given)
            array = array.astype(np.float32 if array.dtype.kind == "f" else np.int64)
            proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        return proto

    def feed(self, seed: int) -> dict[str, Array]:
        rng = np.random.default_rng(seed)
        feed = {}
        for value in self.model().graph.input:
            shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            if dtype == np.bool_:
                feed[value.name] = rng.random(shape) < 0.5
            elif dtype.kind in "iu":
                low = 0 if dtype.kind == "u" else -self.below
                feed[value.name] = rng.integers(low, self.below, shape).astype(dtype)
            else:
                feed[value.name] = rng.standard_normal(shape).astype(dtype)
        return feed


CASES = {
    # Rows that indices name, of a table that streams by: the last step has fewer of its rows.
    "take": Case(
        "float[30011, 100] x, int64[77] i", "float[77, 100] y", "y = Gather<axis = 0>(x, i)", 4, below=30011
    ),
    "take along columns": Case(
        "float[7, 5003] x, int64[7, 131] i",
        "float[7, 131] y",
        "y = GatherElements<axis = 1>(x, i)",
        4,
        below=5003,
    ),
    # Every tile looks at all indices; updates of one row add up in their order.
    "scattered rows": Case(
        "float[3001, 100] x, int64[577, 1] i, float[577, 100] u",
        "float[3001, 100] y",
        'y = ScatterND<reduction = "add">(x, i, u)',
        12,
        below=3001,
    ),
    "scattered along columns": Case(
        "float[7, 5003] x, int64[7, 3131] i, float[7, 3131] u",
        "float[7, 5003] y",
        "y = ScatterElements<axis = 1>(x, i, u)",
        12,
        below=5003,
    ),
    # Reflected rows of the image come in reverse, which steps add up as they lie.
    "sampled": Case(
        "float[2, 5, 61, 47] x, float[2, 33, 29, 2] p",
        "float[2, 5, 33, 29] y",
        'y = GridSample<padding_mode = "reflection">(x, p)',
        12,
    ),
    "the best": Case(
        "float[37, 5003] x",
        "float[37, 9] y, int64[37, 9] z",
        "y, z = TopK<axis = 1>(x, k)",
        12,
        values=(("k", (9,)),),
    ),
    "cumulated": Case(
        "float[5, 301, 77] x", "float[5, 301, 77] y", "y = CumSum(x, a)", 12, values=(("a", (1,)),)
    ),
    # Two outputs: the second is the sum that the first is made of.
    "normalise": Case(
        "float[1, 300, 130] x, float[1, 300, 130] r",
        "float[1, 300, 130] y, float[1, 300, 130] z",
        "t = Add(x, r) n = LayerNormalization(t, s, b) y = Neg(n) z = Neg(t)",
        30,
        (("s", (130,)), ("b", (130,))),
    ),
    "softmax of rows": Case("float[701, 150] x", "float[701, 150] y", "y = Softmax<axis = 1>(x)", 20),
    "softmax of columns": Case("float[3, 301, 77] x", "float[3, 301, 77] y", "y = Softmax<axis = 1>(x)", 12),
    "reduced rows": Case(
        "float[1201, 300] x", "float[1201] y", "y = ReduceMean<keepdims = 0>(x, a)", 24, values=(("a", (1,)),)
    ),
    "reduced columns": Case(
        "float[7, 331, 150] x",
        "float[7, 150] y",
        "y = ReduceSum<keepdims = 0>(x, a)",
        12,
        values=(("a", (1,)),),
    ),
    # What is left of a row has no neighbour, but is added up as the columns beside it.
    "reduced columns, one left": Case(
        "float[20003, 3] x", "float[3] y", "y = ReduceSum<keepdims = 0>(x, a)", 4, values=(("a", (0,)),)
    ),
    "reduced columns of halves": Case(
        "float16[7, 331, 150] x",
        "float16[7, 150] y",
        "y = ReduceMean<keepdims = 0>(x, a)",
        12,
        values=(("a", (1,)),),
    ),
    # A tile has one result, and what it is made of lies together there, but not in the tensor.
    "reduced to one each": Case(
        "float[40, 600, 8] x", "float[40, 8] y", "y = ReduceL2<keepdims = 0>(x, a)", 40, values=(("a", (1,)),)
    ),
    "reduced positions": Case(
        "float[1, 320, 29, 31] x", "float[1, 320, 1, 1] y", "y = GlobalAveragePool(x)", 48
    ),
    # Cores have a part of the weights that no core can hold: a call takes all of it, for each of its gates.
    "recurrent": Case(
        "float[3, 2, 24] x",
        "float[3, 1, 2, 517] y",
        "y = LSTM<hidden_size = 517>(x, w, r)",
        24,
        (("w", (1, 2068, 24)), ("r", (1, 2068, 517))),
    ),
    "recurrent, gates that wait": Case(
        "float[3, 2, 24] x",
        "float[3, 1, 2, 603] y",
        "y = GRU<hidden_size = 603, linear_before_reset = 1>(x, w, r)",
        24,
        (("w", (1, 1809, 24)), ("r", (1, 1809, 603))),
    ),
    # Steps, and panels of columns, of bytes.
    "bytes times weights": Case(
        "uint8[130, 768] x",
        "int32[130, 512] y",
        "v = Mul(w, s) q = Cast<to = 3>(v) y = MatMulInteger(x, q)",
        20,
        (("w", (768, 512)),),
        (("s", (100.0,)),),
        below=256,
    ),
    "lrn": Case("float[1, 50, 40, 41] x", "float[1, 50, 40, 41] y", "y = LRN<size = 5>(x)", 12),
    "largest": Case(
        "float[1, 37, 61, 59] x",
        "float[1, 37, 30, 29] y",
        "y = MaxPool<kernel_shape = [3, 3], strides = [2, 2]>(x)",
        6,
    ),
    "average": Case(
        "float[1, 37, 61, 59] x",
        "float[1, 37, 61, 59] y",
        "y = AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x)",
        14,
    ),
    "channels": Case(
        "float[1, 67, 61, 59] x",
        "float[1, 67, 61, 59] y",
        "y = Conv<group = 67, kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x, w, b)",
        24,
        (("w", (67, 1, 3, 3)), ("b", (67,))),
    ),
    "panels of channels": Case(
        "float[1, 385, 14, 14] x",
        "float[1, 385, 14, 14] y",
        "y = Conv<group = 385, kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x, w, b)",
        5,
        (("w", (385, 1, 3, 3)), ("b", (385,))),
    ),
    "panels of channels of bytes": Case(
        "uint8[1, 384, 14, 14] x",
        "int32[1, 384, 14, 14] y",
        "v = Mul(w, s) q = Cast<to = 3>(v)"
        "y = ConvInteger<group = 384, kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x, q)",
        5,
        (("w", (384, 1, 3, 3)),),
        (("s", (100.0,)),),
        below=256,
    ),
    "large windows": Case(  # steps of one channel, whose weights lie apart
        "float[1, 3, 96, 90] x",
        "float[1, 20, 12, 11] y",
        "y = Conv<kernel_shape = [8, 8], strides = [8, 8]>(x, w, b)",
        15,
        (("w", (20, 3, 8, 8)), ("b", (20,))),
    ),
    "narrow panels": Case(  # of outputs, which fill vectors only together
        "float[1, 77, 20, 20] x",
        "float[1, 80, 20, 20] y",
        "y = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x, w, b)",
        12,
        (("w", (80, 77, 3, 3)), ("b", (80,))),
    ),
    "narrow panels of columns": Case(
        "float[197, 384] x", "float[197, 384] y", "y = MatMul(x, w)", 12, (("w", (384, 384)),)
    ),
    "panels by turns": Case(  # those of a column's cores, step by step; the last one is shifted back
        "float[32, 512] x", "float[32, 1376] y", "y = MatMul(x, w)", 20, (("w", (512, 1376)),)
    ),
    # Planes of a power of two: their rows share few places of a cache, so columns of them are copied;
    # and pixels that a stride leaves apart are gathered to such planes.
    "conv of planes of a power of two": Case(
        "float[2, 48, 32, 32] x",
        "float[2, 90, 32, 32] y",
        "y = Conv<kernel_shape = [1, 1]>(x, w, b)",
        24,
        constants=(("w", (90, 48, 1, 1)), ("b", (90,))),
    ),
    "conv of pixels apart": Case(
        "float[1, 64, 64, 64] x",
        "float[1, 32, 32, 32] y",
        "y = Conv<kernel_shape = [1, 1], strides = [2, 2]>(x, w, b)",
        24,
        constants=(("w", (32, 64, 1, 1)), ("b", (32,))),
    ),
    # Vectors of outputs come from several panels, or are gathered from them.
    "conv of many panels": Case(
        "float[1, 70, 14, 14] x",
        "float[1, 184, 14, 14] y",
        "y = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x, w, b)",
        24,
        constants=(("w", (184, 70, 3, 3)), ("b", (184,))),
    ),
    "conv of few pixels": Case(
        "float[1, 161, 7, 7] x",
        "float[1, 150, 7, 7] y",
        "y = Conv<kernel_shape = [1, 1]>(x, w, b)",
        24,
        constants=(("w", (150, 161, 1, 1)), ("b", (150,))),
    ),
    "panels of outputs by turns": Case(
        "float[1, 160, 7, 7] x",
        "float[1, 960, 7, 7] y",
        "y = Conv<kernel_shape = [1, 1]>(x, w, b)",
        18,
        (("w", (960, 160, 1, 1)), ("b", (960,))),
    ),
    "narrow panels of halves": Case(
        "float16[1, 72, 14, 14] x",
        "float16[1, 40, 14, 14] y",
        "v = Mul(w, s) c = Cast<to = 10>(v) y = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x, c)",
        12,
        (("w", (40, 72, 3, 3)),),
        (("s", (0.01,)),),
    ),
    "pairs of channels": Case(  # bf16; one channel is left alone
        "float[1, 77, 20, 20] x",
        "float[1, 80, 20, 20] y",
        "y = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x, w, b)",
        50,
        (("w", (80, 77, 3, 3)), ("b", (80,))),
        precision="bf16",
    ),
    "pairs of one row": Case(
        "float[1, 301] x", "float[1, 90] y", "y = MatMul(x, w)", 17, (("w", (301, 90)),), precision="bf16"
    ),
    "pairs of one pixel": Case(
        "float[1, 300, 1, 1] x",
        "float[1, 90, 1, 1] y",
        "y = Conv<kernel_shape = [1, 1]>(x, w)",
        16,
        (("w", (90, 300, 1, 1)),),
        precision="bf16",
    ),
    "pairs of members": Case(
        "float[70, 301] x", "float[70, 90] y", "y = MatMul(x, w)", 18, (("w", (301, 90)),), precision="bf16"
    ),
    "pairs of strided pixels": Case(
        "float[1, 150, 30, 31] x",
        "float[1, 72, 15, 16] y",
        "y = Conv<kernel_shape = [1, 1], strides = [2, 2]>(x, w)",
        8,
        (("w", (72, 150, 1, 1)),),
        precision="bf16",
    ),
    "pairs of long sums": Case(
        "float[41, 3001] x",
        "float[41, 200] y",
        "y = MatMul(x, w)",
        11,
        (("w", (3001, 200)),),
        precision="bf16",
    ),
    "pairs of computed columns": Case(
        "float[3, 75, 131] x, float[3, 99, 131] z",
        "float[3, 75, 99] y",
        "t = Transpose<perm = [0, 2, 1]>(z) y = MatMul(x, t)",
        11,
        precision="bf16",
    ),
    "select": Case(
        "bool[300, 151] c, float[300, 151] x, float[151] z", "float[300, 151] y", "y = Where(c, x, z)", 9
    ),
    "compare": Case("float[300, 152] x, float[152] z", "bool[300, 152] y", "y = Less(x, z)", 9),
    "binary": Case(
        "int32[300, 151] x, int32[151] z", "int32[300, 151] y", "y = BitwiseXor(x, z)", 9, below=1 << 30
    ),
    "long integers": Case(
        "int64[300, 151] x, int64[151] z", "int64[300, 151] y", "y = BitwiseXor(x, z)", 9, below=1 << 30
    ),
    "cast": Case("int64[300, 151] x", "float[300, 151] y", "y = Cast<to = 1>(x)", 9, below=1 << 30),
    "resample": Case(
        "float[1, 90, 31, 30] x",
        "float[1, 90, 62, 60] y",
        'y = Resize<mode = "linear">(x, , s)',
        80,
        values=(("s", (1.0, 1.0, 2.0, 2.0)),),
    ),
    "half": Case("float16[300, 150] x, float16[150] z", "float16[300, 150] y", "y = Mul(x, z)", 9),
    # Inputs begin with words, also where results have more bytes: at every other element.
    "half as words": Case("float16[3, 131074] x", "float[3, 131074] y", "y = Cast<to = 1>(x)", 40),
    "half product": Case(  # the last step has fewer members, and its weights begin further back
        "float16[40, 514] x",
        "float16[40, 128] y",
        "v = Mul(w, s) c = Cast<to = 10>(v) y = MatMul(x, c)",
        24,
        (("w", (514, 128)),),
        (("s", (0.01,)),),
    ),
    "half softmax": Case("float16[701, 150] x", "float16[701, 150] y", "y = Softmax<axis = 1>(x)", 20),
    "bytes": Case(
        "uint8[300, 151] x, uint8[151] z", "uint8[300, 151] y", "y = BitwiseAnd(x, z)", 9, below=256
    ),
    "turned": Case("float[91, 83, 77] x", "float[77, 91, 83] y", "y = Transpose<perm = [2, 0, 1]>(x)", 90),
    "reversed": Case(
        "float[200, 300] x",
        "float[200, 300] y",
        "t = Slice(x, first, last, axes, steps) y = Neg(t)",
        40,
        values=(("first", (-1,)), ("last", (-9999,)), ("axes", (0,)), ("steps", (-1,))),
    ),
}
