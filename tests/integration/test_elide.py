# SPDX-License-Identifier: Apache-2.0
"""Concats that copy nothing: what is left out, what is not, and that results are onnxruntime's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli import app
from onedispatch.dispatch.compiler import phases
from onedispatch.dispatch.compiler.copies import Copies
from onedispatch.dispatch.compiler.executable import DeviceStep
from onedispatch.operators.declarations.tensor import Unsupported
from onedispatch.operators.plugin import registrations
from tests.ops.case import check_beside_onnxruntime, run_onnxruntime
from tests.tables import examples

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

X = "float[1,8,6,10] x"


def model(signature: str, nodes: str) -> onnx.ModelProto:
    head = '<ir_version: 8, opset_import: ["": 17]>'
    return onnx.parser.parse_model(f"{head} g {signature} {{ {nodes} }}")


def feed(proto: onnx.ModelProto) -> dict[str, np.ndarray[Any, Any]]:
    rng, made = np.random.default_rng(3), {}
    for one in proto.graph.input:
        shape = [dim.dim_value for dim in one.type.tensor_type.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(one.type.tensor_type.elem_type)
        made[one.name] = (10 * rng.standard_normal(shape)).astype(dtype)
    return made


def held(compiled: od.CompiledModel) -> list[str]:
    """Tensors that lie in a result, as reports say."""
    assert compiled.latest is not None
    steps = (step for step in compiled.latest[1].steps if isinstance(step, DeviceStep))
    lines = (line for step in steps for op in step.ops for line in op.schedule)
    return sorted(line.split()[0].removesuffix("//bf16") for line in lines if " lies in " in line)


def check(proto: onnx.ModelProto, *expected: str, precision: str = "fp32", device: str = "npu1") -> None:
    """Results are onnxruntime's, thrice: by the engine, recorded and played; ``expected`` is not copied."""
    compiled = od.compile(proto, device, precision, fallback="error")
    assert held(compiled) == sorted(expected)
    session, given = od.InferenceSession(compiled), feed(proto)
    wanted = run_onnxruntime(proto, given)
    for _ in range(3):
        results = session.run(None, given)
        if all(np.issubdtype(one.dtype, np.floating) for one in wanted):
            check_beside_onnxruntime(proto, given, results, precision)
        else:
            for mine, theirs in zip(results, wanted, strict=True):
                np.testing.assert_array_equal(mine, theirs)
    assert session.last_run.cycles == compiled.timing().cycles


WHOLE = {
    "two": (f"({X}) => (float[1,16,6,10] y)", "a = Exp(x) b = Abs(x) y = Concat<axis=1>(a, b)", "ab"),
    "read after it": (
        f"({X}) => (float[1,16,6,10] y, float[1,8,6,10] z)",
        "a = Exp(x) b = Abs(x) y = Concat<axis=1>(a, b) z = Neg(a)",
        "ab",
    ),
    "one in the next": (
        f"({X}) => (float[1,24,6,10] y)",
        "a = Exp(x) b = Abs(x) c = Concat<axis=1>(a, b) d = Neg(b) y = Concat<axis=1>(d, c)",
        "abcd",
    ),
    "inputs of one in the next": (
        f"({X}) => (float[1,24,6,10] y)",
        "a = Exp(x) b = Abs(x) c = Concat<axis=1>(a, b) g = Neg(c) d = ReduceMax<axes=[1]>(g)"
        " f = Expand(d, e) y = Concat<axis=1>(a, b, f)",
        "abcf",
    ),
    "rows in rows": (
        "(float[12,5] x) => (float[36,5] y)",
        "a = Exp(x) b = Abs(x) c = Neg(x) y = Concat<axis=0>(a, b, c)",
        "abc",
    ),
    "by another name": (
        "(float[12,5] x) => (float[24,5] y)",
        "t = Exp(x) a = Reshape(t, r) b = Abs(a) y = Concat<axis=0>(a, b)",
        "bt",
    ),
    "parts that have names": (
        f"({X}) => (float[1,16,6,10] y)",
        "t = Exp(x) u, v = Split<axis=1>(t) a = Neg(u) b = Abs(t) c = Concat<axis=1>(a, v)"
        " y = Concat<axis=1>(c, b)",
        "abc",
    ),
}


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("device", ["npu1", "npu2"])
def test_what_operators_make_is_not_copied(name: str, precision: str, device: str) -> None:
    signature, nodes, expected = WHOLE[name]
    proto = with_constants(
        model(signature, nodes), e=np.array([1, 8, 6, 10], np.int64), r=np.array([12, 5], np.int64)
    )
    check(proto, *expected, precision=precision, device=device)


@pytest.mark.parametrize("element", ["float", "float16", "int32", "uint8", "int8", "int64", "bool"])
def test_elements_of_any_width(element: str) -> None:
    signature = f"({element}[8,4] x, {element}[3,8] z) => ({element}[11,8] y)"
    check(model(signature, "a = Transpose(x) y = Concat<axis=0>(a, z, a)"), "a")


COPIED = {
    "inputs and constants of the model": ("(float[4,8] x) => (float[12,8] y)", "y = Concat<axis=0>(x, c, x)"),
    "outputs of the model": (
        "(float[4,8] x) => (float[8,8] y, float[4,8] a, float[32] b)",
        "a = Exp(x) t = Neg(x) b = Reshape(t, s) y = Concat<axis=0>(a, t)",
    ),
    "what lies apart in the result": (
        "(float[2,4,8] x) => (float[2,8,8] y)",
        "a = Exp(x) b = Neg(x) y = Concat<axis=1>(a, b)",
    ),
    "what begins inside a word": (
        "(bool[8,3] x) => (bool[17] y)",
        "t = Transpose(x) a = Reshape(t, s) y = Concat<axis=0>(o, a)",
    ),
    "parts of what else lies there": (
        "(float[8,4] x) => (float[12,4] y)",
        "t = Exp(x) a, b = Split<axis=0>(t) y = Concat<axis=0>(b, a, b)",
    ),
}
CONSTANTS = {
    "c": np.ones((4, 8), np.float32),
    "s": np.array([-1], np.int64),
    "o": np.array([True]),
}


def with_constants(proto: onnx.ModelProto, **constants: np.ndarray[Any, Any]) -> onnx.ModelProto:
    read = {name for node in proto.graph.node for name in node.input}
    for name in read & constants.keys():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(constants[name], name))
    return proto


@pytest.mark.parametrize("name", COPIED)
def test_what_has_to_be_copied_is(name: str) -> None:
    check(with_constants(model(*COPIED[name]), **CONSTANTS))


def test_one_place_for_what_two_results_have() -> None:
    """The other one's copy is made."""
    nodes = "a = Exp(x) b = Abs(x) c = Concat<axis=0>(a, b) d = Concat<axis=0>(b, a) y = Add(c, d)"
    check(model("(float[12,5] x) => (float[24,5] y)", nodes), "a", "b")


def test_bytes_and_cycles_fall(monkeypatch: pytest.MonkeyPatch) -> None:
    signature, nodes, _ = WHOLE["two"]
    proto = model(signature, nodes)
    after = od.compile(proto, "npu1", groups="off").timing()
    monkeypatch.setattr(phases, "elide_copies", lambda units, _: tuple(units))
    before = od.compile(proto, "npu1", groups="off").timing()
    moved = 2 * 16 * 6 * 10 * 4
    fell = before.ddr_bytes_read + before.ddr_bytes_written - after.ddr_bytes_read - after.ddr_bytes_written
    assert fell >= moved and after.cycles < before.cycles


def test_nothing_lies_together_where_nodes_run_on_the_host() -> None:
    nodes = "a = Exp(x) d = Det(a) b = Mul(a, d) y = Concat<axis=0>(a, b)"
    compiled = od.compile(model("(float[4,4] x) => (float[8,4] y)", nodes), "npu1")
    assert not held(compiled)


def test_an_alias_that_goes_to_the_host_takes_results_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only then is it known that the operators do not run together."""

    def refused(self: Copies, tensor: object) -> object:
        raise Unsupported("copies of nothing", "others")

    monkeypatch.setattr(Copies, "of", refused)
    nodes = "t = Exp(x) a = Reshape(t, s) u = Reshape(t, r) b = Neg(u) y = Concat<axis=0>(t, b)"
    proto = with_constants(
        model("(float[4,4] x) => (float[8,4] y, float[16] a)", nodes),
        s=np.array([16], np.int64),
        r=np.array([4, 4], np.int64),
    )
    session, given = od.InferenceSession(proto, device="npu1"), feed(proto)
    check_beside_onnxruntime(proto, given, session.run(None, given), "fp32")


@pytest.fixture
def spread() -> Iterator[None]:
    class Spread(od.Layer):
        """Rows 2i and 2i + 1 of y are those of x, plus row i of w."""

        name = "elided::spread"
        inputs = "x w"

        def can_inplace(self, data_prec: int) -> bool:
            return True

        def shape(self, n: Any) -> Any:
            return n["x"].like(n["x"].shape)

        def index_space(self, n: Any) -> tuple[int, ...]:
            return (n["x"].shape[0] // 2,)

        def access(self, n: Any) -> dict[str, Any]:
            pair = {k: v for name in "xy" for k, v in n.access(name, n.block(0, 2), n.whole()).items()}
            return {**pair, **n.access("w", n.dim(0), n.whole())}

        def local(self, t: Any) -> None:
            for i in range(t.w.shape[0]):
                t.y[2 * i], t.y[2 * i + 1] = t.x[2 * i] + t.w[i], t.x[2 * i + 1] + t.w[i]

    yield
    registrations.forget(__file__)


@pytest.mark.usefixtures("spread")
@pytest.mark.parametrize("device", ["npu1_1col", "npu1", "npu2"])
def test_a_result_takes_no_memory_in_which_another_input_lies(device: str) -> None:
    nodes = "a = Neg(x) b = Abs(x) c = Concat<axis=0>(a, b) d = elided.Spread(c, a) y = Neg(d)"
    head = '<ir_version: 8, opset_import: ["": 17, "elided": 1]>'
    signature = "(float[32,512] x) => (float[64,512] y)"
    proto = onnx.parser.parse_model(f"{head} g {signature} {{ {nodes} }}")
    (x,) = feed(proto).values()
    (y,) = od.InferenceSession(proto, device=device, fallback="error").run(None, {"x": x})
    np.testing.assert_array_equal(y, -(np.concatenate([-x, abs(x)]) + np.repeat(-x, 2, axis=0)))


def test_passes_say_what_was_left_out(tmp_path: Path) -> None:
    nodes = "a = Exp(x) t = Transpose<perm=[1,0,2]>(a) b = MatMul(t, t) c = Neg(b) y = Concat<axis=0>(b, c)"
    proto, path = model("(float[64,8,64] x) => (float[16,64,64] y)", nodes), tmp_path / "m.onnx"
    onnx.save(proto, path)
    arguments = ["inspect", str(path), "--passes", "--json", "--groups", "off"]
    printed = CliRunner().invoke(app, arguments, catch_exceptions=False).stdout
    rows = {row["name"]: row["changed"] for row in json.loads(printed)[-1]["passes"]}
    assert rows["elide-copies"] == "2 copies and 1 transposition left out" and not rows["emit-operators"]


def test_files_keep_it(tmp_path: Path) -> None:
    signature, nodes, _ = WHOLE["one in the next"]
    compiled = od.compile(model(signature, nodes), "npu1")
    compiled.save(tmp_path / "m.od")
    assert od.load(tmp_path / "m.od").timing().cycles == compiled.timing().cycles


@st.composite
def joined(draw: st.DrawFn) -> onnx.ModelProto:
    """Rows that operators make and Concats join, in any order, again and again."""
    rows, nodes = {"x": draw(st.integers(1, 6))}, []
    for number in range(draw(st.integers(2, 9))):
        name = f"t{number}"
        if draw(st.booleans()):
            source = draw(st.sampled_from(sorted(rows)))
            nodes.append(f"{name} = {draw(st.sampled_from(['Neg', 'Abs', 'Relu']))}({source})")
            rows[name] = rows[source]
        else:
            read = draw(st.lists(st.sampled_from(sorted(rows)), min_size=2, max_size=4))
            nodes.append(f"{name} = Concat<axis=0>({', '.join(read)})")
            rows[name] = sum(rows[one] for one in read)
    last = {name for name in rows if not any(f"{name}," in n or f"{name})" in n for n in nodes)} or {"t0"}
    made = ", ".join(f"float[{rows[name]},3] {name}" for name in sorted(last - {"x"}))
    return model(f"(float[{rows['x']},3] x) => ({made})", " ".join(nodes))


@settings(max_examples=examples(800), deadline=None)
@given(joined())
def test_random_concats(proto: onnx.ModelProto) -> None:
    given = feed(proto)
    session = od.InferenceSession(proto, device="npu1", fallback="error")
    for _ in range(3):
        for mine, theirs in zip(session.run(None, given), run_onnxruntime(proto, given), strict=True):
            np.testing.assert_array_equal(mine, theirs)
