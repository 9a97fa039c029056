# SPDX-License-Identifier: Apache-2.0
"""Tensors that stay in memory tiles: which do, and the same bits from the engine and from recordings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import onedispatch as od
from onedispatch.dispatch.compiler import group_costs, groups, phases
from onedispatch.dispatch.compiler.groups import KeptTensor
from onedispatch.operators.declarations.tensor import TensorSpec, Unsupported
from onedispatch.operators.interface.operator import Operator
from onedispatch.operators.kernels.elementwise import Eltwise
from onedispatch.operators.scheduling import solution
from onedispatch.operators.scheduling.buffer import Buffer
from onedispatch.operators.scheduling.index_space import OUTPUT
from onedispatch.operators.scheduling.keeping import beside, in_buffers, with_less_room
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.resources import resources
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.operators.scheduling.select import SEARCH, Search
from onedispatch.operators.scheduling.solution import Solution
from onedispatch.operators.scheduling.solution_rules import check_solution
from onedispatch.transactions import Device, find_device
from onedispatch.transactions.base.errors import SolutionError
from tests.devices import device_file
from tests.ops.case import check_beside_onnxruntime
from tests.timing import modelled

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

Array = np.ndarray[Any, Any]
Planned = Callable[[], tuple[KeptTensor, ...]]  # what the last compiled model keeps
BYTES = {"s": np.float32(0.05), "z": np.uint8(128)}  # scale and zero point

IMAGE = (
    "g (float[1, 64, 28, 28] x) => (float[1, 64, 28, 28] y)"
    " { a = Conv(x, w) b = Conv <pads = [1, 1, 1, 1], group = 64> (a, d) c = Conv(b, w) y = Add(c, x) }"
)
WEIGHTS = {"w": np.full((64, 64, 1, 1), 0.1, np.float32), "d": np.full((64, 1, 3, 3), 0.1, np.float32)}
ELEMENTS = "g (float[64, 256] x) => (float[64, 256] y) { a = Tanh(x) b = Softmax(a) y = Add(b, b) }"


def model_of(text: str, constants: Mapping[str, Any] = {}) -> onnx.ModelProto:
    made: onnx.ModelProto = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    for name, value in constants.items():
        made.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return made


def feed_of(model: onnx.ModelProto, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    shapes = {one.name: [d.dim_value for d in one.type.tensor_type.shape.dim] for one in model.graph.input}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Planned:
    found: list[tuple[KeptTensor, ...]] = [()]
    best = groups.Planner.best

    def noted(planner: Any) -> Any:
        plan = best(planner)
        found[0] = plan.kept
        return plan

    monkeypatch.setattr(groups.Planner, "best", noted)
    return lambda: found[0]


def check_same(model: onnx.ModelProto, device: Any, precision: str = "fp32") -> od.CompiledModel:
    """Grouped (returned) and not, by the engine and played, on threads or not: the same bits and time."""
    plain = od.InferenceSession(
        model, device=device, precision=precision, fallback="error", record=False, groups="off"
    )
    grouped = od.compile(model, device, precision, "error", groups="on")
    engine = od.InferenceSession(grouped, record=False)
    sessions = [od.InferenceSession(grouped, threads=threads, record="on") for threads in (1, 3)]
    for seed in range(3):  # a first run, one that is recorded, one that is played
        feed = feed_of(model, seed)
        results = plain.run(None, feed)
        check_beside_onnxruntime(model, feed, results, precision)
        wanted = [y.tobytes() for y in results]
        for session in (engine, *sessions):
            assert [y.tobytes() for y in session.run(None, feed)] == wanted, (seed, session.last_run)
            assert modelled(session.last_run) == modelled(grouped.timing())
    assert {one.last_run.recorded for one in sessions if one.last_run} == {("played",)}
    return grouped


# -- what stays -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["npu1", "npu1_2col"])
@pytest.mark.parametrize(("text", "constants"), [(IMAGE, WEIGHTS), (ELEMENTS, {})])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_same_bits(
    planned: Planned, text: str, constants: dict[str, Array], device: str, precision: str
) -> None:
    check_same(model_of(text, constants), device, precision)
    assert planned()


def test_less_goes_through_device_memory_and_nothing_is_slower() -> None:
    model = model_of(IMAGE, WEIGHTS)
    off, on = (od.compile(model, "npu1", fallback="error", groups=g).timing() for g in ("off", "on"))
    assert on.ddr_bytes_read + on.ddr_bytes_written < 0.7 * (off.ddr_bytes_read + off.ddr_bytes_written)
    assert on.cycles < off.cycles


def emitted(model: onnx.ModelProto, device: str, **options: Any) -> tuple[bytes, bytes]:
    """The transaction and the parameters: tiles show in either."""
    step = od.compile(model, device, fallback="error", **options).device_step
    return step.transaction, step.params


def test_on_is_the_default() -> None:
    model = model_of(IMAGE, WEIGHTS)
    options: tuple[dict[str, Any], ...] = ({}, {"groups": "off"}, {"groups": "on"})
    plain, off, on = (emitted(model, "npu1", **how) for how in options)
    assert plain == on != off


def test_a_plan_does_not_depend_on_what_was_compiled_before() -> None:
    """The search knows other problems by then, and the best of those that it only sketched."""
    model = model_of(IMAGE, WEIGHTS)
    first, second = (emitted(model, "npu1", selector=one) for one in (Search(), Search()))
    used = Search()
    for device in ("npu1", "npu2", "npu1"):
        last = emitted(model, device, selector=used)
    assert first == second == last == emitted(model, "npu1")


def test_results_of_elements_lie_where_what_they_read_last_lay(planned: Planned, whatever_fits: None) -> None:
    text = "g (float[64, 256] x) => (float[64, 256] y) { a = Tanh(x) b = Sigmoid(a) y = Exp(b) }"
    od.compile(model_of(text), "npu1", groups="on")
    a, b = planned()
    assert (a.tensor.name, b.tensor.name, a.top) == ("a", "b", b.top)


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("a = Tanh(x) y = Exp(a) z = Neg(a)", {"a"}),  # two readers
        ("z = Tanh(x) y = Exp(z)", set()),  # it leaves the device, too
        ("a = Tanh(x) b = Reshape(a, n) y = Exp(a) z = Neg(b)", {"a"}),  # two names of the same bytes
        ("a = Tanh(x) z = Reshape(a, n) y = Exp(a)", set()),  # it leaves the device by another name
        ("a, b = Split <axis = 0> (x) c = Tanh(a) d = Exp(b) z = Concat <axis = 0> (c, d) y = Neg(z)", set()),
    ],
)
def test_what_stays(planned: Planned, whatever_fits: None, body: str, left: set[str]) -> None:
    shape = {"n": np.array([64, 256])}
    text = f"g (float[64, 256] x) => (float[64, 256] y, float[64, 256] z) {{ {body} }}"
    model = model_of(text, shape if "Reshape" in body else {})
    od.compile(model, "npu1", groups="on")
    assert {one.tensor.name for one in planned()} == left
    check_same(model, "npu1")


def test_nothing_stays_without_columns(planned: Planned) -> None:
    text = "g (float[64, 256] x) => (float[64, 256] y) { a = Tanh(x) b = Softmax(a) y = Neg(b) }"
    od.compile(model_of(text), "npu1_1col", groups="on")
    assert not planned()


@pytest.mark.parametrize(
    ("size", "stays"), [(528384, True), (655360, True), (917504, True), (1048576, False)]
)
def test_neighbours_read_what_their_descriptors_reach_of_larger_memories(
    planned: Planned, tmp_path: Path, size: int, stays: bool
) -> None:
    """Of a western neighbour's memory that is its end, of an eastern one's its beginning."""
    changes = {"device.columns": 3, "memory_tile.memory_bytes": size}
    device = device_file(tmp_path, "larger", changes)
    body = "{ t = Conv(x, w) y = Conv <pads = [1, 1, 1, 1]> (t, v) }"
    rng = np.random.default_rng(3)
    shapes = {"w": (64, 13, 1, 1), "v": (43, 64, 3, 3)}
    text = f"g (float[1, 13, 9, 9] x) => (float[a, b, c, d] y) {body}"
    model = model_of(text, {name: rng.standard_normal(shapes[name], np.float32) for name in shapes})
    check_same(model, device)
    assert [one.tensor.name for one in planned()] == ["t"] * stays
    end, shared = 4 * resources(find_device(device)).mem_words, range(size - 524288, 3 * 524288 - size)
    assert all(shared.start <= end - 4 * k.top < end - 4 * k.bottom <= shared.stop for k in planned())


def test_what_lives_at_once_lies_apart_and_fits(planned: Planned, whatever_fits: None) -> None:
    text = (
        "g (float[256, 256] x) => (float[256, 256] y)"
        " { a = Tanh(x) b = Exp(a) c = Neg(b) d = Add(a, c) e = Mul(b, d) y = Add(a, e) }"
    )
    od.compile(model_of(text), "npu1", groups="on")
    kept = planned()
    assert len(kept) > 2
    words = find_device("npu1").count("memory_tile.memory_bytes") // 4
    assert all(one.bottom >= 0 and one.top < words for one in kept)
    for one in kept:
        for other in kept:
            if one is not other and one.overlaps(other):  # the later one takes the place of the earlier
                assert other.last <= one.maker or one.last <= other.maker
    check_same(model_of(text), "npu1")


# -- what was wrong -------------------------------------------------------------------------------------


def test_chunks_of_the_last_column_begin_as_others_do(planned: Planned, whatever_fits: None) -> None:
    """A tile of 245 bfloat16 needs 248, which are not there at the end of the tensor."""
    text = "g (float[1, 20, 14, 14] x) => (float[1, 20, 14, 14] y) { a = Neg(x) b = Tanh(a) y = Mul(b, b) }"
    check_same(model_of(text), "npu1", "bf16")
    assert len(planned()) == 4


def test_a_result_of_nothing_stays() -> None:
    """A product over no steps brings nothing, and its result is in memory tiles: no shim has a task."""
    check_same(
        model_of("g (float[8, 0] x, float[0, 16] w) => (float[8, 16] y) { a = MatMul(x, w) y = Softmax(a) }"),
        "npu2",
    )


@pytest.mark.parametrize("columns", [512, 1024])
def test_rows_that_cores_cannot_put_together_pass_device_memory(columns: int) -> None:
    """Of 256 words a descriptor of a core counts 255."""
    text = (
        f"g (float[1, 3, 64, {columns}] x) => (float[1, 32, 16, {columns // 4}] y)"
        " { a = Sigmoid(x) y = Conv <pads = [3, 3, 3, 3], strides = [4, 4]> (a, w) }"
    )
    weights = np.full((32, 3, 7, 7), 0.1, np.float32)
    check_same(model_of(text, {"w": weights}), "npu2", "bf16")


def test_dimensions_are_cut_into_whole_words_of_every_view(planned: Planned, whatever_fits: None) -> None:
    text = (
        "g (float[1, 20, 14, 14] x) => (float[14, 14, 20, 1] y)"
        " { a = Neg(x) y = Transpose <perm = [2, 3, 1, 0]> (a) }"
    )
    check_same(model_of(text), "npu1", "bf16")


@pytest.mark.parametrize("shape", [(1, 64, 32, 32), (2, 64, 16, 16)])
def test_positions_count_in_the_tensor_where_its_dimensions_could_be_cut(
    planned: Planned, shape: tuple[int, ...]
) -> None:
    text = "a = Relu(x) y, i = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(a)"
    dims = ", ".join(map(str, shape))
    model = model_of(f"g (float[{dims}] x) => (float y, int64 i) {{ {text} }}")
    check_same(model, "npu2")
    assert planned()


@pytest.mark.parametrize(("device", "rows", "columns"), [("npu2", 14, 7), ("npu2", 6, 6), ("npu1", 9, 3)])
def test_fewer_columns_share_what_all_have_no_shares_of(
    planned: Planned, whatever_fits: None, device: str, rows: int, columns: int
) -> None:
    kept = f"float[{rows}, 50]"
    model = model_of(f"g ({kept} x) => ({kept} y) {{ a = Softmax(x) b = Tanh(a) y = Softmax(b) }}")
    check_same(model, device)
    assert [one.buffer.columns for one in planned()] == [columns] * 2


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(("device", "rows", "share"), [("npu2", 23, 3), ("npu2", 57, 8), ("npu1", 7, 2)])
def test_the_last_column_may_have_less(
    planned: Planned, whatever_fits: None, device: str, rows: int, share: int, precision: str
) -> None:
    """Its cores do tiles again, so no result lies over what they read."""
    kept = f"float[{rows}, 50]"
    model = model_of(f"g ({kept} x) => ({kept} y) {{ a = Softmax(x) b = Tanh(a) c = Neg(b) y = Softmax(c) }}")
    check_same(model, device, precision)
    found = planned()
    assert len(found) > 1
    for one in found:
        assert one.buffer.share == share * 50 and not one.buffer.is_even
        assert one.buffer.columns == find_device(device).columns
        assert not any(one.maker < other.maker <= one.last and one.overlaps(other) for other in found)


def test_equal_shares_for_fewer_columns_are_weighed_beside_unequal_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Shares of four rows for eight columns, the last with two; or of five rows for six."""
    seen, cut_forms = set[tuple[int, bool]](), groups.Planner._cut_forms

    def noted(planner: Any, i: int) -> list[KeptTensor]:
        forms: list[KeptTensor] = cut_forms(planner, i)
        seen.update((one.buffer.columns, one.buffer.is_even) for one in forms)
        return forms

    monkeypatch.setattr(groups.Planner, "_cut_forms", noted)
    od.compile(model_of("g (float[30, 50] x) => (float[30, 50] y) { a = Softmax(x) y = Softmax(a) }"), "npu2")
    assert seen == {(8, False), (6, True)}


@pytest.mark.parametrize(("device", "side"), [("npu2", 30), ("npu2", 57), ("npu1", 14), ("npu1", 27)])
def test_windows_reach_into_a_smaller_last_share(
    planned: Planned, whatever_fits: None, device: str, side: int
) -> None:
    """Rows of the last column come from the column before it, and go to it; pools halve the shares."""
    text = (
        f"g (float[1, 8, {side}, {side}] x) => (float[1, 8, {side // 2}, {side // 2}] y)"
        " { a = Tanh(x) b = Conv <pads = [1, 1, 1, 1]> (a, w) c = Conv <pads = [1, 1, 1, 1]> (b, w)"
        " d = Add(c, b) y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (d) }"
    )
    weights = np.random.default_rng(0).integers(-1, 2, (8, 8, 3, 3)).astype(np.float32)
    check_same(model_of(text, {"w": weights}), device)
    assert any(not one.buffer.is_even for one in planned())


@pytest.mark.parametrize(
    ("device", "shape"), [("npu1", (12, 8, 14)), ("npu1_2col", (12, 14, 8)), ("npu2_4col", (12, 12, 12))]
)
def test_windows_over_what_was_turned_reach_into_other_shares(
    planned: Planned, device: str, shape: tuple[int, ...]
) -> None:
    """The innermost dimension of such a view walks whole rows of its tensor."""
    c, h, w = shape
    text = (
        f"g (float[1, {c}, {h}, {w}] x) => (float[1, 20, {h}, {w}] y) {{ a = Clip(x, low, high)"
        " b = Transpose <perm = [0, 1, 3, 2]> (a) d = Conv <pads = [1, 1, 1, 1]> (b, w)"
        " e = Clip(d, low, high) y = Transpose <perm = [0, 1, 3, 2]> (e) }"
    )
    weights = np.random.default_rng(5).standard_normal((20, c, 3, 3)).astype(np.float32)
    constants = {"w": weights, "low": np.float32(-1), "high": np.float32(1)}
    check_same(model_of(text, constants), device)
    assert planned()


@pytest.mark.parametrize(("device", "shape"), [("npu1", (1, 16, 4, 16, 16)), ("npu2", (1, 8, 2, 9, 6))])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_view_whose_first_dimension_is_not_the_widest_has_room(
    planned: Planned, whatever_fits: None, device: str, shape: tuple[int, ...], precision: str
) -> None:
    """Depthwise convolutions of volumes walk planes outside of channels."""
    _, c, depth, rows, columns = shape
    made = f"float[1, {c}, {depth}, {rows}, {columns}]"
    text = (
        f"g (float[{', '.join(map(str, shape))}] x) => ({made} y)"
        f" {{ a = Conv <pads = [0, 1, 1, 1, 1, 1], group = {c}> (x, w) y = Softmax (a) }}"
    )
    weights = np.random.default_rng(0).integers(-1, 2, (c, 1, 2, 3, 3)).astype(np.float32)
    check_same(model_of(text, {"w": weights}), device, precision)
    assert planned()


def test_tiles_that_two_rows_make_are_stored_where_they_lie_apart(
    planned: Planned, whatever_fits: None
) -> None:
    """Three tiles of bytes for four rows: the last two make the same one, and readers see one of them."""
    text = (
        "g (float[1, 20, 8, 10] x) => (float[1, 20, 8, 10] y)"
        " { a = Neg(x) b = QuantizeLinear(a, s, z) y = DequantizeLinear(b, s, z) }"
    )
    check_same(model_of(text, BYTES), "npu2_2col")
    assert [one.tensor.name for one in planned()] == ["a", "b"]


@pytest.mark.parametrize("reader", ["Conv_0", "Conv_2", "Add_3"])
def test_nothing_stays_where_an_operator_refuses_in_the_end(
    monkeypatch: pytest.MonkeyPatch, planned: Planned, reader: str
) -> None:
    """What it falls apart into knows nothing of what others left in memory tiles."""
    build = phases.build

    def refusing(operator: Operator, about: str) -> None:
        if operator.name == reader and operator.kept_buffers:
            raise Unsupported("its transaction", "another one")
        build(operator, about)

    monkeypatch.setattr(phases, "build", refusing)
    model = model_of(IMAGE, WEIGHTS)
    off, on = (od.compile(model, "npu1", groups=how) for how in ("off", "on"))
    assert planned()
    assert on.device_step.transaction == off.device_step.transaction


def test_operators_that_are_one_problem_keep_their_own_scalars(planned: Planned, whatever_fits: None) -> None:
    """What they cost is one question; what they compute is not."""
    text = (
        "g (float[64, 256] x) => (float[64, 256] y)"
        " { a = LeakyRelu <alpha = 0.1> (x) b = LeakyRelu <alpha = 0.7> (a)"
        " c = LeakyRelu <alpha = 0.3> (b) y = LeakyRelu <alpha = 0.9> (c) }"
    )
    model = model_of(text)
    assert od.compile(model, "npu1", groups="on") and len(planned()) == 3
    check_same(model, "npu1")


def test_views_that_begin_inside_a_share_are_not_taken_for_others(
    planned: Planned, whatever_fits: None
) -> None:
    """They are one problem for the model of costs, and lie otherwise in memory tiles."""
    text = (
        "g (float[64, 256] x) => (float[64, 128] y) { a = Tanh(x) b, c = Split <axis = 1> (a) y = Mul(b, c) }"
    )
    model = model_of(text)
    check_same(model, "npu1")
    assert "a" not in {one.tensor.name for one in planned()}


def test_rows_that_walk_the_same_of_what_stays_count_on_their_own(planned: Planned) -> None:
    """Two tiles of 25 rows for four rows of cores: two and two take the same ones, in several steps."""
    text = (
        "g (float[8, 50, 96] x) => (float[8, 50, 50] y)"
        " { t = Transpose <perm = [0, 2, 1]> (x) a = MatMul(x, t) y = Softmax(a) }"
    )
    check_same(model_of(text), "npu2_4col", "bf16")
    assert {"t", "a"} <= {one.tensor.name.partition("//")[0] for one in planned()}


@pytest.mark.parametrize("device", ["npu1", "npu2"])
def test_narrow_sums_of_integers_take_the_steps_that_they_have_ungrouped(device: str) -> None:
    """They are rounded and saturated after every step."""
    text = (
        "g (int8[64, 512] x) => (int8[64, 64] y) { a = DequantizeLinear(x, s, z) b = Relu(a)"
        " c = QuantizeLinear(b, s, z) d = QLinearMatMul(c, s, z, w, t, z, r, z)"
        " e = DequantizeLinear(d, r, z) f = Tanh(e) y = QuantizeLinear(f, s, z) }"
    )
    rng = np.random.default_rng(0)
    w, x = (rng.integers(-128, 128, shape, np.int8) for shape in ((512, 64), (64, 512)))
    scales = {"s": np.float32(1 / 16), "r": np.float32(1 / 8), "t": np.float32(1 / 128)}
    model = model_of(text, {"w": w, "z": np.int8(0), **scales})
    sums: dict[str, Any] = {"precision": "fp32", "fallback": "error", "sums": "narrow"}
    off, on = (
        od.InferenceSession(model, device, **sums, groups=g).run(None, {"x": x}) for g in ("off", "on")
    )
    (exact,) = od.InferenceSession(model, device).run(None, {"x": x})
    assert (on[0] == off[0]).all()
    assert (off[0] != exact).any(), "steps show in results"


@pytest.mark.parametrize(("share", "left"), [(0.001, set()), (0.1, {"a", "b"})])
def test_groups_that_save_next_to_nothing_are_none(
    monkeypatch: pytest.MonkeyPatch, planned: Planned, share: float, left: set[str]
) -> None:
    def cycles(schedule: Schedule, known: float | None) -> float:
        return 1e6 * (1 - share * sum(schedule.kept))

    monkeypatch.setattr(group_costs, "_cycles", cycles)
    text = "g (float[64, 256] x) => (float[64, 256] y) { a = Tanh(x) b = Sigmoid(a) y = Exp(b) }"
    od.compile(model_of(text), "npu1", groups="on")
    assert {one.tensor.name for one in planned()} == left


def test_less_room_leaves_what_still_fits_and_no_more() -> None:
    device = find_device("npu1")
    x, y = (TensorSpec(name, np.dtype(np.float32), (6, 16, 16)) for name in "xy")
    schedule = Eltwise("copy", "copy", [x], y, device).schedules[0]
    room = resources(device).mem_words
    assert with_less_room(beside(schedule.nest, room // 2), schedule) is not None
    assert with_less_room(beside(schedule.nest, room), schedule) is None


def test_no_core_does_a_tile_again_where_results_may_lie_over_operands() -> None:
    device = find_device("npu1")
    x, y = (TensorSpec(name, np.dtype(np.float32), (6, 16, 16)) for name in "xy")
    plain = Eltwise("copy", "copy", [x], y, device).plain_nests[0]
    rows = Buffer(256, 64, 6 * 64)
    nest = in_buffers(plain, {0: rows, OUTPUT: rows}, 2 * rows.words)
    mapping = solution.Mapping(0, 1, 4, frozenset(), rowcast=False, order=(0, 1))
    with pytest.raises(SolutionError, match="no row does a tile again"):
        check_solution(Schedule(nest, device, solution.Solution("od::eltwise@1", mapping, (1, 64), 1)))
    check_solution(Schedule(nest, device, solution.Solution("od::eltwise@1", mapping, (2, 64), 1)))


class Asked:
    """The search, but for problems whose tensors stay: of those it notes the kernels, and has no entry."""

    def __init__(self, entries: bool) -> None:
        self.entries, self.kept = entries, list[str]()

    def select(self, problem: Problem, device: Device) -> Solution:
        if problem.nest.split is None:
            return SEARCH.select(problem, device)
        self.kept.append(problem.nest.kernel.name)
        if not self.entries:
            raise KeyError(problem.digest)
        return SEARCH.select(problem, device)


@pytest.mark.parametrize("entries", [True, False])
def test_other_selectors_are_asked_about_what_shall_run(planned: Planned, entries: bool) -> None:
    """Plans ask about more; where a selector has no entry for what stays, it passes device memory."""
    model, asked = model_of(IMAGE, WEIGHTS), Asked(entries)
    compiled = od.compile(model, "npu1", fallback="error", selector=asked)
    assert asked.kept and bool(planned()) == entries
    if entries:
        grouped = od.compile(model, "npu1", fallback="error")
        assert compiled.device_step.params == grouped.device_step.params
        assert compiled.transaction == grouped.transaction
        assert len(asked.kept) <= 2 * len(compiled.device_step.ops)
