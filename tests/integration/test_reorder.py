# SPDX-License-Identifier: Apache-2.0
"""Transposes that move nothing: where readers or makers take other views, and that results are the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import onedispatch as od
from onedispatch.dispatch.compiler import reorder
from onedispatch.operators.scheduling.index_space import F32, Access, Operand
from onedispatch.operators.scheduling.reordered import Order
from onedispatch.operators.scheduling.schedule import Schedule
from tests.integration.test_elide import feed, model
from tests.ops.case import check_beside_onnxruntime, run_onnxruntime
from tests.tables import examples

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

HEADS = "float[1,24,6,64] x"  # batch, places, heads, size
SWAP = "perm=[0, 2, 1, 3]"
READ = {
    "scores of heads": (
        f"({HEADS}, float[1,6,64,24] k) => (float[1,6,24,24] y)",
        f"q = Transpose<{SWAP}>(x) y = MatMul(q, k)",
    ),
    "both sides": (
        f"({HEADS}, float[1,64,6,24] z) => (float[1,6,24,24] y)",
        f"q = Transpose<{SWAP}>(x) k = Transpose<{SWAP}>(z) y = MatMul(q, k)",
    ),
    "several readers": (
        f"({HEADS}, float[1,6,64,24] k) => (float[1,6,24,24] y, float[1,6,24,24] z)",
        f"q = Transpose<{SWAP}>(x) y = MatMul(q, k) l = Neg(k) z = MatMul(q, l)",
    ),
    "by another name": (
        f"({HEADS}, float[6,64,24] k) => (float[6,24,24] y)",
        f"q = Transpose<{SWAP}>(x) h = Squeeze(q) y = MatMul(h, k)",
    ),
}
MADE = {
    "heads side by side": (
        "(float[1,6,24,24] p, float[1,6,24,64] v) => (float[24,384] y)",
        f"a = MatMul(p, v) t = Transpose<{SWAP}>(a) r = Reshape(t, s) y = Neg(r)",
    ),
}
MOVED = {
    "an output of the model": (
        f"({HEADS}, float[1,6,64,24] k) => (float[1,6,24,24] y, float[1,6,24,64] q)",
        f"q = Transpose<{SWAP}>(x) y = MatMul(q, k)",
    ),
    "what readers walk through": (
        f"({HEADS}) => (float[9216] y)",
        f"q = Transpose<{SWAP}>(x) r = Reshape(q, f) y = Softmax(r)",
    ),
    "parts that have names": (
        f"({HEADS}, float[1,3,64,24] k) => (float[1,3,24,24] y, float[1,3,24,24] z)",
        f"q = Transpose<{SWAP}>(x) a, b = Split<axis=1>(q) y = MatMul(a, k) z = MatMul(b, k)",
    ),
}
SIZES = {"s": [24, 384], "f": [9216]}


def proto(signature: str, nodes: str) -> onnx.ModelProto:
    made = model(signature, nodes)
    for name in {name for node in made.graph.node for name in node.input} & SIZES.keys():
        made.graph.initializer.append(onnx.numpy_helper.from_array(np.array(SIZES[name], np.int64), name))
    return made


def moves(compiled: od.CompiledModel) -> int:
    return sum(op.op_type == "move" for op in compiled.timing().ops)


def check(made: onnx.ModelProto, precision: str, device: str, **options: str) -> od.CompiledModel:
    compiled = od.compile(made, device, precision, fallback="error", **options)
    session, given = od.InferenceSession(compiled), feed(made)
    for _ in range(3):  # by the engine, recorded and played
        check_beside_onnxruntime(made, given, session.run(None, given), precision)
    assert session.last_run.cycles == compiled.timing().cycles
    return compiled


@pytest.mark.daily(3)
@pytest.mark.parametrize("name", [*READ, *MADE])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("device", ["npu1", "npu2"])
def test_views_take_the_place_of_a_transposition(name: str, precision: str, device: str) -> None:
    made = proto(*(READ | MADE)[name])
    assert moves(check(made, precision, device)) == 0
    rows = [row for row in od.compile(made, device, precision).placement if row.op_type == "Transpose"]
    assert all("no data moves" in row.reason for row in rows)


@pytest.mark.parametrize("name", MOVED)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_what_has_to_move_does(name: str, precision: str) -> None:
    assert moves(check(proto(*MOVED[name]), precision, "npu1")) == 1


def layers(count: int) -> onnx.ModelProto:
    values = [f"float[1,24,6,64] x{i}, float[1,6,64,24] k{i}" for i in range(count)]
    made = ", ".join(f"float[1,6,24,24] y{i}" for i in range(count))
    nodes = (f"q{i} = Transpose<{SWAP}>(x{i}) y{i} = MatMul(q{i}, k{i})" for i in range(count))
    return proto(f"({', '.join(values)}) => ({made})", " ".join(nodes))


def test_views_of_equal_layers_are_estimated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    estimated = reorder.estimated

    def counted(schedule: Schedule) -> float:
        asked[-1] += 1
        return estimated(schedule)

    monkeypatch.setattr(reorder, "estimated", counted)
    for count in (1, 3):
        asked.append(0)
        assert moves(od.compile(layers(count), "npu1")) == 0
    assert 0 < asked[0] == asked[1]


def test_nothing_is_left_out_where_nodes_run_on_the_host() -> None:
    signature, nodes = READ["scores of heads"]
    made = proto(signature.replace("y)", "y, float[1,6] d)"), f"{nodes} d = Det(y)")
    compiled = od.compile(made, "npu1")
    assert sum(op.op_type == "move" for op in compiled.timing().ops) == 1


def test_files_keep_it(tmp_path: Path) -> None:
    compiled = od.compile(proto(*READ["both sides"]), "npu1")
    compiled.save(tmp_path / "m.od")
    assert od.load(tmp_path / "m.od").timing().cycles == compiled.timing().cycles


KINDS = [*["Transpose"] * 4, *["MatMul"] * 6, "Softmax", "Concat"]


@st.composite
def transposed(draw: st.DrawFn) -> onnx.ModelProto:
    """Matrices of a batch that are transposed again and again, before and behind products."""
    shapes, nodes = {"x": tuple(draw(st.lists(st.sampled_from([2, 4, 6]), min_size=4, max_size=4)))}, []
    for number in range(draw(st.integers(3, 9))):
        name, source = f"t{number}", draw(st.sampled_from(sorted(shapes)))
        given, kind = (
            shapes[source],
            draw(st.sampled_from(KINDS)),
        )
        if kind == "Transpose":
            perm = draw(st.permutations(range(4)))
            nodes.append(f"{name} = Transpose<perm={perm}>({source})")
            shapes[name] = tuple(given[axis] for axis in perm)
        elif kind == "MatMul":
            fitting = [n for n, s in shapes.items() if s[:2] == given[:2] and s[2] == given[3]]
            other = draw(st.sampled_from(sorted(fitting) or [""]))
            nodes.append(f"{name} = MatMul({source}, {other})" if other else f"{name} = Neg({source})")
            shapes[name] = (*given[:3], shapes[other][3]) if other else given
        elif kind == "Concat":
            other = draw(st.sampled_from(sorted(n for n, s in shapes.items() if s[1:] == given[1:])))
            nodes.append(f"{name} = Concat<axis=0>({source}, {other})")
            shapes[name] = (given[0] + shapes[other][0], *given[1:])
        else:
            nodes.append(f"{name} = {kind}({source})")
            shapes[name] = given
    read = {one.strip(" )") for node in nodes for one in node.split("(")[1].split(",")}
    last = sorted(shapes.keys() - read - {"x"})
    nodes += [f"y_{name} = Neg({name})" for name in last]
    made = ", ".join(f"float{[*shapes[name]]} y_{name}" for name in last)
    return model(f"(float{[*shapes['x']]} x) => ({made})", " ".join(nodes))


@pytest.fixture
def whatever_it_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reorder._Planner, "_more", lambda *_: -1.0)


@pytest.mark.usefixtures("whatever_it_costs")
@settings(
    max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(transposed(), st.sampled_from(["npu1", "npu2"]))
def test_random_transpositions(made: onnx.ModelProto, device: str) -> None:
    given, session = feed(made), od.InferenceSession(made, device=device, fallback="error")
    wanted = run_onnxruntime(made, given)
    for _ in range(3):
        for mine, theirs in zip(session.run(None, given), wanted, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4 * np.abs(theirs).max(initial=1))


def test_views_by_dimensions() -> None:
    order = Order(4, (6, 24, 64), (24 * 64, 64, 1), (64, 6 * 64, 1))
    plain = Operand("a", 0, F32, (6, 24, 64), order.counted, (Access(0), Access(1), Access(None)))
    found = order.seen(plain)
    assert found is not None and (found.strides, found.offset) == (order.lie, 0)
    assert order.reverse.seen(found) == plain
    part = Operand("a", 0, F32, (3, 2, 8), (3072, 640, 8), (Access(0), Access(1), Access(None)), 64 * 4 + 5)
    assert (seen := order.seen(part)) is not None
    assert (seen.strides, seen.offset) == ((128, 3840, 8), 384 * 4 + 5)
    beyond = Operand("a", 0, F32, (144, 64), (64, 1), (Access(0), Access(None)))
    assert order.seen(beyond) is None
