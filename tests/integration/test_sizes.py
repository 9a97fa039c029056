# SPDX-License-Identifier: Apache-2.0
"""Sizes that are inferred in rounds: what becomes known late counts as if it had been known at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import onedispatch as od
from onedispatch.dispatch.compiler import fold, sizes

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

HEAD = '<ir_version: 8, opset_import: ["" : 17, "acme" : 1]> g '
SLICED = "int64[1] z={0}, int64[1] b={9}"


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEAD + text)


def beside_onnxruntime(text: str, *feeds: dict[str, np.ndarray[Any, Any]], **options: Any) -> None:
    model = parsed(text)
    session = od.InferenceSession(model, **options)
    runtime = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for feed in feeds:
        for ours, theirs in zip(session.run(None, feed), runtime.run(None, feed), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
            assert ours.shape == theirs.shape


@pytest.mark.parametrize("pad", ["SAME_UPPER", "SAME_LOWER"])
def test_weights_that_are_known_late(pad: str) -> None:
    """Inference takes the output's padding into account for weights that it knows."""
    text = f"""(float[2,3,h,w] x) => (float[?,?,?,?] z)
        <float[3,2,3,3] k = {{{", ".join("1" for _ in range(54))}}}, int64[1] o = {{0}}> {{
        s = Shape(x) a = Gather(s, o) c = Cast<to=1>(a) v = Mul(k, c)
        y = ConvTranspose<auto_pad="{pad}", strides=[2,2], output_padding=[1,1]>(x, v) z = Relu(y) }}"""
    x = np.arange(150, dtype=np.float32).reshape(2, 3, 5, 5)
    beside_onnxruntime(text, {"x": x}, {"x": x[:, :, :4]})


def test_a_shape_that_cannot_be_expanded_to_is_refused_however_late() -> None:
    text = (
        "(float[n] x, int64[1] t) => (float[?] y) <int64[1] one = {1}> { s = Add(t, one) y = Expand(x, s) }"
    )
    session = od.InferenceSession(parsed(text))
    assert session.run(None, {"x": np.ones(1, np.float32), "t": np.int64([6])})[0].shape == (7,)
    with pytest.raises(od.ModelError, match="Incompatible dimensions"):
        session.run(None, {"x": np.ones(4, np.float32), "t": np.int64([6])})


RULE = """
import numpy as np
import onedispatch as od
from onedispatch.operators.kernels.elementwise import Eltwise
def rows(n):
    k = n.inputs[1].value
    return [(np.dtype(np.float32), (1 if k is None else int(k[0]), 4))]
@od.maps("Repeat", domain="acme", infer=rows)
def repeat(node, lowering):
    (x, _), (y,) = node.inputs, node.outputs
    lowering.emit(Eltwise(node.name, "add", [x, x], y, lowering.device))
"""


@pytest.mark.usefixtures("no_plugins")
def test_operators_from_outside_are_asked_again_when_a_value_is_known(tmp_path: Path) -> None:
    (tmp_path / "repeat.py").write_text(RULE)
    text = "(float[1,4] x, float[n] b) => (float[?,?] y) { s = Shape(b) y = acme.Repeat(x, s) }"
    session = od.InferenceSession(parsed(text), plugins=[str(tmp_path / "repeat.py")], fallback="error")
    for n in (3, 5):
        given = {"x": np.ones((1, 4), np.float32), "b": np.ones(n, np.float32)}
        assert session.run(None, given)[0].shape == (n, 4)


def test_the_first_node_that_is_wrong_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where everything is inferred in each round."""
    text = """(float[n,m] x) => (float[?,?] y) <int64[2] o = {1, 0}, int64[1] far = {7}> {
        s = Shape(x) t = Gather(s, o) a = Reshape(x, t) q = Gather<axis=0>(a, far) u = Shape(q)
        v = Gather(u, o) y = Reshape(q, v) }"""
    said = []
    inferred = sizes.infer_values
    for whole in (False, True):
        if whole:
            monkeypatch.setattr(sizes, "infer_values", lambda *a, **k: inferred(*a, **{**k, "settled": ()}))
        with pytest.raises(od.OneDispatchError) as raised:
            od.InferenceSession(parsed(text)).run(None, {"x": np.ones((2, 3), np.float32)})
        said.append(str(raised.value))
    assert said[0] == said[1] and "Gather" in said[0]


def test_what_is_read_as_data_too_is_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    walks: list[int] = []
    cone = fold.decided_cone
    monkeypatch.setattr(fold, "decided_cone", lambda graph: (walks.append(1), cone(graph))[1])
    steps = " ".join(f"a{i + 1} = Not(a{i})" for i in range(40))
    branch = "{ z = Relu(x) }"
    text = f"""(float[3] x, bool a0) => (float[?] y, bool e) {{ {steps} e = Identity(a40)
        y = If(a0) <then_branch = a () => (float[3] z) {branch},
                    else_branch = b () => (float[3] z) {branch}> }}"""
    od.InferenceSession(parsed(text), fallback="cpu").run(
        None, {"x": np.ones(3, np.float32), "a0": np.array(True)}
    )
    assert len(walks) < 10


NEGATIVE = {
    "Split": "(float[3] x) => (float[?] y) <int64[2] p = {5, -2}, SLICED> { q, c = Split(x, p) ",
    "Pad": "(float[3] x) => (float[?] y) <int64[2] p = {-5, 0}, SLICED> { c = Pad(x, p) ",
    "TopK": "(float[3] x) => (float[?] y) <int64[1] k = {-2}, SLICED> { c, q = TopK(x, k) ",
    "MaxPool": "(float[1,3] x) => (float[?,?,?] y) <int64[1] o = {0}, SLICED> "
    "{ u = Unsqueeze(x, o) q = MaxPool<kernel_shape=[7]>(u) c = Transpose<perm=[2, 0, 1]>(q) ",
    "Conv": "(float[1,1,3] x) => (float[?,?,?] y) <float[1,1,5] w = {1, 1, 1, 1, 1}, SLICED> "
    "{ q = Conv(x, w) r = Relu(q) c = Transpose<perm=[2, 0, 1]>(r) ",
}


@pytest.mark.parametrize("name", NEGATIVE)
def test_slices_of_negative_sizes_do_not_end_the_process(name: str) -> None:
    """onnx's inference of Slice does so."""
    text = NEGATIVE[name].replace("SLICED", SLICED) + "y = Slice(c, z, b, z) }"
    with pytest.raises(od.ModelError, match=name):
        od.compile(parsed(text))


def test_a_negative_size_that_a_run_decides_is_a_model_error() -> None:
    text = f"""(float[n] x) => (float[?] y) <int64[1] two = {{2}}, {SLICED}> {{ s = Shape(x) r = Sub(s, two)
        p = Concat<axis=0>(two, r) a, c = Split(x, p) y = Slice(c, z, b, z) }}"""
    session = od.InferenceSession(parsed(text))
    assert session.run(None, {"x": np.ones(3, np.float32)})[0].shape == (1,)
    with pytest.raises(od.ModelError, match="Split"):
        session.run(None, {"x": np.ones(1, np.float32)})


def test_declared_shapes_of_constants_are_not_believed() -> None:
    text = """() => (int64[?] y) <int64[1] one = {1}> {
        c = ConstantOfShape(one) t = Reshape(c, one) y = Shape(t) }"""
    model = parsed(text)
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("t", onnx.TensorProto.FLOAT, [2]))
    assert od.InferenceSession(model).run(None, {})[0].tolist() == [1]


@pytest.mark.parametrize("made", ["Multinomial<sample_size=5>(x)", "Det(x)"])
def test_a_host_node_whose_shape_alone_is_read_is_not_run(made: str) -> None:
    text = f"(float[3,3] x) => (int64[?] y) {{ q = {made} y = Shape(q) }}"
    (y,) = od.InferenceSession(parsed(text), fallback="cpu").run(None, {"x": np.ones((3, 3), np.float32)})
    assert y.tolist() == ([3, 5] if "Multinomial" in made else [])


def test_lists_that_do_not_go_together_are_no_internal_error() -> None:
    text = """(float[n,m] x, int64[2] a, int64[1,2] b) => (float[?,?] y) {
        s = Concat<axis=0>(a, b) y = Reshape(x, s) }"""
    given = {"x": np.ones((2, 2), np.float32), "a": np.int64([2, 2]), "b": np.int64([[2, 2]])}
    with pytest.raises(od.ModelError):
        od.InferenceSession(parsed(text)).run(None, given)


def test_places_beside_numbers_that_nothing_is_read_for() -> None:
    """Nodes without inputs are no transforms of places."""
    text = """(float[1,1,4,4] x, float[1,4,4,2] p) => (float[?,?,?,?] y) {
        r = RandomUniform<shape=[1, 1, 4, 4]>() s = GridSample(x, p) y = Add(s, r) }"""
    model = parsed(text)
    placed = {
        row.op_type: row.device for row in od.compile(model, precision="bf16", fallback="cpu").placement
    }
    assert placed["GridSample"] == "npu" and placed["RandomUniform"] == "cpu"


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_affine_grids_of_any_batch(batch: int, precision: str) -> None:
    """ONNX's own body squeezes a batch of one away; bf16 has fewer numbers than such an image has pixels."""
    text = f"""<ir_version: 9, opset_import: ["" : 20]> g (float[{batch},1,256,256] x, float[{batch},2,3] t)
        => (float[?,?,?,?] y) <int64[4] s = {{{batch}, 1, 64, 64}}> {{
        g = AffineGrid(t, s) y = GridSample(x, g) }}"""
    model = onnx.parser.parse_model(text)
    x = np.random.default_rng(3).standard_normal((batch, 1, 256, 256)).astype(np.float32)
    theta = np.tile(np.float32([[0.75, 0.25, 0.125], [-0.25, 0.5, 0.0]]), (batch, 1, 1))
    feed = {"x": x, "t": theta}
    (y,) = od.InferenceSession(model, precision=precision, fallback="error").run(None, feed)
    runtime = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = runtime.run(None, feed)
    assert np.abs(y - wanted).max() < (1e-4 if precision == "fp32" else 0.02) * np.abs(wanted).max()
