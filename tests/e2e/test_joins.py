# SPDX-License-Identifier: Apache-2.0
"""Kernel calls of a recorded run that one call makes instead: how many are left, and the same bits."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import onedispatch as od
from onedispatch.dispatch.runtime import device
from onedispatch.transactions import find_device
from tests.ops.case import run_onnxruntime

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

Array = np.ndarray[Any, Any]
THREADS = (1, 2, 3, 7)


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


def bits(results: list[Array]) -> list[bytes]:
    return [result.tobytes() for result in results]


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the simulator says of each run."""
    seen: list[dict[str, Any]] = []
    make = device._report

    def report(raw: Any, *rest: Any) -> Any:
        seen.append(dict(raw))
        return make(raw, *rest)

    monkeypatch.setattr(device, "_report", report)
    return seen


@pytest.mark.daily(3)
@pytest.mark.parametrize("name", CASES)
def test_joined_calls_are_few_and_leave_the_bits_of_the_engine(
    name: str, reports: list[dict[str, Any]]
) -> None:
    case = CASES[name]
    compiled = od.compile(case.model(), fallback="error", precision=case.precision)
    engine = od.InferenceSession(compiled, threads=1, record=False)
    expected = [bits(engine.run(None, case.feed(seed))) for seed in range(4)]
    for threads in THREADS:
        session = od.InferenceSession(compiled, threads=threads, record=True)
        for seed in range(4):
            results = session.run(None, case.feed(seed))
            assert bits(results) == expected[seed]
        assert session.last_run is not None  # which makes the report
        last = reports[-1]
        assert last["recorded"] == "played"
        assert last["calls_made"] <= case.most < last["kernel_calls"]
    for result, wanted in zip(results, run_onnxruntime(case.model(), case.feed(3)), strict=True):
        if wanted.dtype.kind == "f":
            near = 2e-3 if case.precision == "fp32" else 2e-2 * float(np.abs(wanted).max())
            np.testing.assert_allclose(
                result.astype(np.float32), wanted.astype(np.float32), rtol=2e-3, atol=near
            )
        else:
            np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("threads", THREADS)
def test_indices_out_of_range_fail_as_on_the_engine(threads: int) -> None:
    """In a call that was joined over steps and tiles; what came before it is made by the engine again."""
    case = CASES["take"]
    compiled = od.compile(case.model(), fallback="error")
    recording, engine = (od.InferenceSession(compiled, threads=threads, record=on) for on in (True, False))
    for seed in range(3):
        recording.run(None, case.feed(seed))
    feed = case.feed(9)
    feed["i"][[3, 70]] = 30011, -30012
    texts = []
    for session in (recording, engine):
        with pytest.raises(od.OneDispatchError) as caught:
            session.run(None, feed)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
    feed = case.feed(9)
    feed["i"][:2] = -30011, 30010
    for session in (recording, engine):
        assert np.array_equal(session.run(None, feed)[0], feed["x"][feed["i"]])


def quantised(function: str, y_zero: int) -> onnx.ModelProto:
    """A convolution of bytes in many tiles of output channels, and what becomes of its results."""
    proto: onnx.ModelProto = parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        g (uint8[1, 64, 14, 14] x) => (uint8[1, 256, 14, 14] y)
        {{ q = QLinearConv(x, xs, xz, w, ws, wz, ys, yz) {function} }}""")
    rng = np.random.default_rng(5)
    values = {"xs": np.float32(0.05), "ws": np.float32(0.03), "ys": np.float32(0.07), "xz": np.uint8(0)}
    values |= {"wz": np.int8(0), "yz": np.uint8(y_zero), "w": rng.integers(-9, 9, (256, 64, 1, 1), np.int8)}
    for name, value in values.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    return proto


def both_ways(model: onnx.ModelProto, target: str = "npu2") -> tuple[device.LoadedStep, device.LoadedStep]:
    """The model's step with its runs recorded, and by the engine alone."""
    step = od.compile(model, target, fallback="error").device_step
    sessions = (device.DeviceSession(find_device(target), threads=1, record=on) for on in ("on", "off"))
    recording, engine = (device.LoadedStep(session, step) for session in sessions)
    return recording, engine


@pytest.mark.parametrize("own", ["zero point", "table"])
def test_each_tile_has_its_own(own: str, reports: list[dict[str, Any]]) -> None:
    """Tiles of output channels, whose constants lie apart, are joined: each reads its own."""
    function = "y = Identity(q)"
    if own == "table":
        function = "d = DequantizeLinear(q, ys, yz) f = Sigmoid(d) y = QuantizeLinear(f, ws, xz)"
    feed = {"x": np.random.default_rng(6).integers(0, 255, (1, 64, 14, 14), np.uint8)}
    recording, engine = both_ways(quantised(function, 77))
    for _ in range(3):
        before = recording.run(feed)["y"].copy()
    assert recording.report().recorded == ("played",)
    assert 2 * reports[-1]["calls_made"] < reports[-1]["kernel_calls"]
    buffers = [np.frombuffer(loaded._arguments[6].map(), np.uint32) for loaded in (recording, engine)]
    places = np.flatnonzero(buffers[0] == 77)
    if own == "table":  # whose entries never fall
        rows = np.lib.stride_tricks.sliding_window_view(buffers[0].view(np.uint8), 256)[::4]
        places = np.flatnonzero(
            (np.diff(rows.astype(np.int16), axis=1) >= 0).all(1) & (rows[:, 0] < rows[:, -1])
        )
    assert len(places) > 2
    for place in places[1:]:  # the last step of a tile reads it, earlier ones have it beside them
        for words in buffers:
            words[place] = 99
        after = recording.run(feed)["y"]
        assert recording.report().recorded == ("played",)
        assert np.array_equal(after, engine.run(feed)["y"])
        if not np.array_equal(after, before):
            break
    assert 0 < np.count_nonzero(after != before) < after.size / 2


PRODUCTS = {  # rows, members, columns; tiles have 32 columns and a last step that is not full, or 44 columns
    "panels together": (128, 3072, 768),
    "panels by themselves": (32, 512, 1376),
}


@pytest.mark.daily(2)
@pytest.mark.parametrize("own", ["a_zero", "b_zero", "scale", "out_zero"])
@pytest.mark.parametrize("product", PRODUCTS)
def test_each_panel_of_a_product_has_its_own(product: str, own: str, reports: list[dict[str, Any]]) -> None:
    """Panels of columns and steps bring zero points and scales with them, of which one changes."""
    rows, members, columns = PRODUCTS[product]
    proto: onnx.ModelProto = parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        g (uint8[{rows}, {members}] x) => (uint8[{rows}, {columns}] y)
        {{ y = QLinearMatMul(x, xs, xz, w, ws, wz, ys, yz) }}""")
    rng = np.random.default_rng(5)
    scales = {"xs": np.float32(0.05), "ws": np.float32(0.03), "ys": np.float32(4)}
    zeros = {"xz": np.uint8(111), "wz": np.uint8(113), "yz": np.uint8(131)}
    for name, value in {**scales, **zeros, "w": rng.integers(0, 256, (members, columns), np.uint8)}.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    feed = {"x": rng.integers(0, 256, (rows, members), np.uint8)}
    recording, engine = both_ways(proto)
    for _ in range(3):
        before = recording.run(feed)["y"].copy()
    assert recording.report().recorded == ("played",)
    assert 4 * reports[-1]["calls_made"] < reports[-1]["kernel_calls"]
    buffers = [np.frombuffer(loaded._arguments[6].map(), np.uint32) for loaded in (recording, engine)]
    scale = (scales["xs"] * scales["ws"] / scales["ys"]).view(np.uint32)
    word = {"a_zero": 111, "b_zero": 113, "out_zero": 131, "scale": scale}[own]
    places = np.flatnonzero(buffers[0] == word)
    changed = 0
    for place in rng.permutation(places)[:96]:
        for words in buffers:
            words[place] = np.float32(0.001).view(np.uint32) if own == "scale" else 77
        after = recording.run(feed)["y"]
        assert recording.report().recorded == ("played",)
        assert np.array_equal(after, engine.run(feed)["y"])
        changed += 0 < np.count_nonzero(after != before) < after.size / 2
        for words in buffers:
            words[place] = word
    assert changed >= 2


def test_what_two_tiles_write_is_from_the_later_one(reports: list[dict[str, Any]]) -> None:
    """The last tile of channels is shifted back onto others, with constants of its own: one changes."""
    case = Case(
        "float[1, 1, 4, 37] x",
        "float[1, 49, 4, 39] y",
        "y = Conv<kernel_shape = [1, 3], pads = [0, 2, 0, 2]>(x, w, b)",
        20,
        (("w", (49, 1, 1, 3)), ("b", (49,))),
    )
    recording, engine = both_ways(case.model(), "npu1")
    for seed in range(3):
        before = recording.run(case.feed(seed))["y"].copy()
    assert recording.report().recorded == ("played",)
    assert reports[-1]["calls_made"] < reports[-1]["kernel_calls"]
    both = [np.frombuffer(one._arguments[6].map(), np.float32) for one in (recording, engine)]
    constants = both[0].copy()
    unlike = 0
    for place in np.flatnonzero(constants):
        for words in both:
            words[place] += 1
        after, expected = (one.run(case.feed(2))["y"] for one in (recording, engine))
        assert recording.report().recorded == ("played",)
        assert np.array_equal(after, expected)
        unlike += not np.array_equal(after, before)
        for words in both:
            words[place] = constants[place]
    assert unlike >= 4 * 49


def played(
    model: onnx.ModelProto, groups: str, feed: dict[str, Array], reports: list[dict[str, Any]]
) -> tuple[dict[str, Any], Array]:
    """The report and the result of the third run of a session, which plays its recording."""
    session = od.InferenceSession(model, "npu2", fallback="error", groups=groups, record="on", threads=1)
    for _ in range(3):
        (result,) = session.run(None, feed)
    assert session.last_run is not None and session.last_run.recorded == ("played",)
    return reports[-1], result


def test_what_stays_on_the_chip_shares_memory_in_a_recording(reports: list[dict[str, Any]]) -> None:
    """Of twelve tensors in a chain no more than three have memory at once."""
    nodes = " ".join(f"{b} = Conv({a}, w)" for a, b in pairwise(["x", *(f"t{i}" for i in range(12)), "y"]))
    case = Case("float[1, 32, 32, 32] x", "float[1, 32, 32, 32] y", nodes, 0, (("w", (32, 32, 1, 1)),))
    on, off = (played(case.model(), groups, case.feed(0), reports) for groups in ("on", "off"))
    assert 0 < on[0]["kept_bytes"] <= 3 * 4 * 32**3
    assert off[0]["kept_bytes"] == 0
    assert on[1].any() and bits([on[1]]) == bits([off[1]])


def test_sums_of_bytes_that_stay_on_the_chip_are_joined(reports: list[dict[str, Any]]) -> None:
    """No more calls are left than where the tensors pass device memory."""
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1]>
        g (uint8[1, 64, 32, 32] x) => (uint8[1, 64, 32, 32] y) {
            a = QLinearConv(x, s, z, w, s, k, s, z)
            b = QLinearConv(a, s, z, w, s, k, s, z)
            c = com.microsoft.QLinearAdd(a, s, z, b, s, z, s, z)
            y = QLinearConv(c, s, z, w, s, k, s, z) }"""
    )
    rng = np.random.default_rng(3)
    values = {
        "s": np.float32(0.05),
        "z": np.uint8(128),
        "k": np.int8(0),
        "w": rng.integers(-9, 10, (64, 64, 1, 1)),
    }
    for name, value in values.items():
        array = np.asarray(value).astype(np.int8) if name == "w" else np.asarray(value)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    feed = {"x": rng.integers(0, 256, (1, 64, 32, 32)).astype(np.uint8)}
    (on, result), (off, plain) = (played(model, groups, feed, reports) for groups in ("on", "off"))
    assert on["kept_bytes"] > 0 and result.std() > 0 and bits([result]) == bits([plain])
    assert on["calls_made"] <= off["calls_made"] < off["kernel_calls"] / 8
