# SPDX-License-Identifier: Apache-2.0
"""Strict mode computes no data of a run on the host, however the graph disguises data as sizes.

Random graphs compute numbers from images, lists and single integers of the run, and hand them to shape
operands. What the host may have computed is found here a second time, on the ONNX graph alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import onedispatch as od
from onedispatch.dispatch.base import limits
from onedispatch.transactions.base.errors import InternalError

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

Array = np.ndarray[Any, Any]
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64

CONSTANTS: dict[str, Array] = {
    "table": np.arange(64, dtype=np.float32),
    "grid": np.arange(64, dtype=np.float32).reshape(8, 8),
    "long": np.arange(64, dtype=np.int64) % 5,
    "zero": np.int64([0]),
    "one": np.int64([1]),
    "two": np.int64([2]),
    "five": np.int64([5]),
    "half": np.float32([0.5]),
    "all": np.int64([64]),
    "last": np.int64([-1]),
    "scalar_axes": np.int64([0]),
}
INPUTS: dict[str, tuple[int, ...]] = {"image": (6, 7), "list": (4,), "number": (1,), "other": (1,)}
FEEDS = [
    {name: (np.arange(np.prod(shape)) * step % 5).reshape(shape) for name, shape in INPUTS.items()}
    for step in (1, 3)
]


class Builder:
    """Grows a graph; ``numbers`` are int64[1] values between 0 and 4 on the feeds, by construction."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.numbers = ["number", "other"]
        self.outputs: list[str] = []

    def add(self, op: str, reads: str, **attributes: Any) -> str:
        made = f"v{len(self.nodes)}"
        name = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, reads.split(), [made], name, **attributes))
        return made

    def bounded(self, name: str) -> None:
        """Takes an int64[1] value into ``numbers``."""
        self.numbers.append(self.add("Mod", f"{self.add('Abs', name)} five"))

    def model(self) -> onnx.ModelProto:
        used = {name for node in self.nodes for name in node.input}
        ends = [helper.make_tensor_value_info(n, INT64, s) for n, s in INPUTS.items()]
        outputs = [helper.make_empty_tensor_value_info(name) for name in self.outputs]
        tensors = [numpy_helper.from_array(array, n) for n, array in CONSTANTS.items() if n in used]
        graph = helper.make_graph(self.nodes, "disguised", ends, outputs, tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def compute(b: Builder, kind: str, draw: st.DrawFn) -> None:
    """One more number, computed of data or of other numbers."""
    number = draw(st.sampled_from(b.numbers))
    match kind:
        case "of an image":
            total = b.add("ReduceSum", "image", keepdims=0)
            b.bounded(b.add("Unsqueeze", f"{total} scalar_axes"))
        case "of floats":
            total = b.add("ReduceMax", b.add("Cast", "image", to=FLOAT), keepdims=0)
            b.bounded(b.add("Cast", b.add("Unsqueeze", f"{total} scalar_axes"), to=INT64))
        case "of a list":
            b.bounded(b.add("ReduceSum", "list scalar_axes", keepdims=1))
        case "through floats":
            scaled = b.add("Mul", f"{b.add('Cast', number, to=FLOAT)} half")
            b.bounded(b.add("Cast", b.add("Floor", scaled), to=INT64))
        case "by look-up":
            b.bounded(b.add("Gather", f"long {number}"))
        case "by comparison":
            b.bounded(b.add("Cast", b.add("Less", f"{number} two"), to=INT64))
        case "of numbers":
            other = draw(st.sampled_from(b.numbers))
            b.bounded(b.add(draw(st.sampled_from(["Add", "Mul", "Sub", "Max", "Min"])), f"{number} {other}"))


def use(b: Builder, kind: str, draw: st.DrawFn) -> None:
    """A number as an operand that chooses a size, or pretends to."""
    number = draw(st.sampled_from(b.numbers))
    match kind:
        case "start":
            b.outputs.append(b.add("Slice", f"table {number} {b.add('Add', f'{number} two')}"))
        case "end":
            b.outputs.append(b.add("Slice", f"table zero {b.add('Add', f'{number} one')}"))
        case "from":
            b.outputs.append(b.add("Slice", f"table {number} all"))
        case "pads":
            after = b.add("Sub", f"five {number}")
            b.outputs.append(b.add("Pad", f"table {b.add('Concat', f'{number} {after}', axis=0)}"))
        case "tile":
            b.outputs.append(b.add("Tile", f"table {b.add('Add', f'{number} one')}"))
        case "expand":
            b.outputs.append(b.add("Expand", f"one {b.add('Add', f'{number} one')}"))
        case "top":
            b.outputs.append(b.add("TopK", f"table {b.add('Add', f'{number} one')}"))
            b.nodes[-1].output.append("places")
        case "diagonal":
            scalar = b.add("Squeeze", f"{number} scalar_axes")
            b.outputs.append(b.add("Trilu", f"grid {scalar}"))
        case "fill":
            b.outputs.append(b.add("ConstantOfShape", b.add("Add", f"{number} one")))


COMPUTED = "of an image, of floats, of a list, through floats, by look-up, by comparison, of numbers".split(
    ", "
)
USED = "start end from pads tile expand top diagonal fill".split()


@st.composite
def models(draw: st.DrawFn) -> onnx.ModelProto:
    b = Builder()
    for kind in draw(st.lists(st.sampled_from(COMPUTED), max_size=4)):
        compute(b, kind, draw)
    for kind in draw(st.lists(st.sampled_from(USED), min_size=1, max_size=2)):
        use(b, kind, draw)
    return b.model()


# -- the rule, once more -------------------------------------------------------------------------------------


def sizes_of(model: onnx.ModelProto) -> dict[str, tuple[int, bool]]:
    """Name -> elements and whether it is of integers, as far as onnx infers it."""
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    found = {t.name: (int(np.prod(t.dims)), t.data_type != FLOAT) for t in model.graph.initializer}
    for info in (*inferred.input, *inferred.value_info, *inferred.output):
        tensor = info.type.tensor_type
        dims = [d.dim_value for d in tensor.shape.dim]
        found[info.name] = (int(np.prod(dims)), tensor.elem_type != FLOAT)
    return found


def of_the_run(model: onnx.ModelProto) -> set[str]:
    """Names of values that depend on what the inputs hold."""
    found = set(INPUTS)
    for node in model.graph.node:
        if found & set(node.input):
            found.update(node.output)
    return found


def offences(model: onnx.ModelProto, folded: set[str]) -> list[str]:
    """Nodes that the host computed of data: of floats, or of more integers than sizes have."""
    sizes, depends = sizes_of(model), of_the_run(model)
    wrong = []
    for node in model.graph.node:
        if node.name in folded and depends & set(node.output):
            read = [sizes.get(name, (0, True)) for name in (*node.input, *node.output)]
            if any(count > limits.SHAPE_ELEMENTS.most or not whole for count, whole in read):
                wrong.append(node.name)
    return wrong


@settings(
    max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.filter_too_much]
)
@given(models())
def test_the_host_computes_sizes_alone(model: onnx.ModelProto) -> None:
    theirs = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    try:
        session = od.InferenceSession(model, fallback="error")
        for feed in FEEDS:
            for mine, other in zip(session.run(None, feed), theirs.run(None, feed), strict=True):
                np.testing.assert_array_equal(mine, other)
            folded = {row.node for row in session.placement if row.reason == "shape arithmetic"}
            assert not offences(model, folded), onnx.printer.to_text(model)
            assert {row.device for row in session.placement} <= {"npu", "folded"}
            report = session.last_run
            assert report is not None and report.dispatches == 1
            named = {
                name for work in report.host_work if work.kind == "evaluate" for name in work.what.split(", ")
            }
            assert named <= folded | {n.name for n in model.graph.node}
            assert not offences(model, named), onnx.printer.to_text(model)
    except od.UnsupportedModelError as error:
        assert error.nodes


def built(*steps: str, use_as: str) -> onnx.ModelProto:
    """The newest number of ``steps`` as ``use_as``."""

    class Newest:
        def __call__(self, strategy: Any) -> Any:
            return strategy.elements[-1]

    b = Builder()
    for step in steps:
        compute(b, step, Newest())  # type: ignore[arg-type]
    use(b, use_as, Newest())  # type: ignore[arg-type]
    return b.model()


@pytest.mark.parametrize("use_as", [kind for kind in USED if kind != "diagonal"])
@pytest.mark.parametrize("computed", ["of an image", "of floats", "through floats", "by look-up"])
def test_sizes_computed_of_data_are_refused(computed: str, use_as: str) -> None:
    with pytest.raises(od.UnsupportedModelError, match="computed when the model runs"):
        od.InferenceSession(built(computed, use_as=use_as), fallback="error").run(None, FEEDS[0])


@pytest.mark.parametrize("use_as", ["start", "pads"])
def test_bounds_of_constant_extent_are_data(use_as: str) -> None:
    """No shape follows from them: an executable for each value would be the host's way of indexing."""
    model = built(use_as=use_as)
    with pytest.raises(od.UnsupportedModelError, match="not which data"):
        od.InferenceSession(model, fallback="error").run(None, FEEDS[0])
    session = od.InferenceSession(model, fallback="cpu")
    theirs = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for feed in FEEDS:
        np.testing.assert_array_equal(session.run(None, feed)[0], theirs.run(None, feed)[0])
    assert len(session.model.executables) == 1


# What became of a number: bounds whose extent is constant, however that is written, and sizes that are read
# back as numbers. ``n`` is int64[1].
CHOICES = {
    "sum": "Add n zero; Add n two; Slice table v1 v2",
    "product": "Mul n two; Add v1 one; Sub v2 n; Slice table n v3",
    "negated twice": "Neg n; Neg v1; Add n one; Slice table v2 v3",
    "largest": "Max n zero; Add n one; Slice table v1 v2",
    "part of itself": "Slice n zero one; Add n one; Slice table v1 v2",
    "every second": "Add n zero; Slice table v1 all zero two",
    "backwards": "Mul n two; Sub one v1; Slice table zero all zero v2",
    "pads": "Sub five n; Mul n one; Concat v2 v1; Pad table v3",
    "shape": "Add n one; Expand one v1; Shape v2",
    "size": "Add n one; Expand one v1; Size v2; Mul v3 one",
    "shape as data": "Add n one; Expand one v1; Shape v2; Cast v3 float; Mul v4 half",
    "sizes added": "Slice table zero n; Concat v1 v1; Shape v2; Mul v3 one",
    "sizes multiplied": "Tile table n; Size v1; Mul v2 one",
    "first of the rest": "Mul n two; Slice table v1 all; Slice v2 zero one",
    "last of the first": "Add n one; Slice table zero v1; Gather v2 last",
    "last of the first, by a bound": "Add n one; Slice table zero v1; Neg v2; Slice v3 last all",
    "middle part": "Mul n two; Sub all v1; Sub v2 one; Concat v1 one v3; Split table v4",
    "middle": "Mul n two; CenterCropPad table v1",
}


def choosing(steps: str) -> onnx.ModelProto:
    b = Builder()
    known = {"n": "number"}
    for index, step in enumerate(steps.split("; "), 1):
        op, *reads = step.split()
        attributes = {"Concat": {"axis": 0}, "Cast": {"to": FLOAT}}.get(op, {})
        names = [known.get(name, name) for name in reads if name != "float"]
        known[f"v{index}"] = b.add(op, " ".join(names), **attributes)
        if op == "Split":  # in three, whose middle one is looked at
            b.nodes[-1].output[:] = ["before", b.nodes[-1].output[0], "behind"]
    b.outputs.append(known[f"v{len(known) - 1}"])
    model = b.model()
    del model.graph.input[:2], model.graph.input[1:]  # but for ``number``
    return model


@pytest.mark.parametrize("steps", CHOICES.values(), ids=CHOICES)
def test_numbers_that_choose_data_are_data(steps: str) -> None:
    model = choosing(steps)
    with pytest.raises(od.UnsupportedModelError):
        od.InferenceSession(model, fallback="error").run(None, {"number": np.int64([1])})
    session = od.InferenceSession(model, fallback="cpu")
    theirs = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for number in (0, 1):
        feed = {"number": np.int64([number])}
        np.testing.assert_array_equal(session.run(None, feed)[0], theirs.run(None, feed)[0])
    assert len(session.model.executables) == 1


@pytest.mark.parametrize(
    "steps",
    [
        "Add n one; Slice table zero v1",
        "Add n one; Slice table v1 all",
        "Add n one; Tile table v1",
        "Add n one; Slice long v1 all; Gather table v2",  # places that are cut, of data that is not
    ],
)
def test_sizes_that_are_sizes_alone_still_decide(steps: str) -> None:
    session = od.InferenceSession(choosing(steps), fallback="error")
    for number in (1, 3):
        session.run(None, {"number": np.int64([number])})
    assert len(session.model.executables) == 2


def test_bounds_that_do_not_go_together_are_an_error_of_the_model() -> None:
    model = choosing("Concat n n; Add n one; Slice table v1 v2")
    for fallback in ("error", "cpu"):
        with pytest.raises(od.OneDispatchError) as caught:
            od.InferenceSession(model, fallback=fallback).run(None, {"number": np.int64([1])})
        assert not isinstance(caught.value, InternalError)


def test_the_diagonal_of_a_triangle_is_data() -> None:
    session = od.InferenceSession(built("of floats", use_as="diagonal"), fallback="error")
    for feed in FEEDS:
        session.run(None, feed)
    assert len(session.model.executables) == 1
    assert {row.device for row in session.placement} == {"npu"}


def test_many_small_steps_are_no_way_around() -> None:
    b = Builder()
    number = "number"
    for _ in range(limits.SHAPE_OPERATIONS.most + 1):
        number = b.add("Add", f"{number} zero")
    b.outputs.append(b.add("Slice", f"table zero {number}"))
    with pytest.raises(od.UnsupportedModelError):
        od.InferenceSession(b.model(), fallback="error").run(None, FEEDS[1])


# -- what the report says ------------------------------------------------------------------------------------


def test_a_run_names_what_the_host_did_for_it() -> None:
    session = od.InferenceSession(built("of numbers", use_as="end"), fallback="error")
    session.run(None, FEEDS[0])
    report = session.last_run
    assert report is not None
    assert [work.kind for work in report.host_work] == ["evaluate", "compile"]
    evaluated, compiled = report.host_work
    assert set(evaluated.what.split(", ")) <= {
        row.node for row in session.placement if row.device == "folded"
    }
    assert compiled.seconds > evaluated.seconds > 0
    assert "host compile" in str(report) and report.as_dict()["host_work"][0]["kind"] == "evaluate"
    session.run(None, FEEDS[0])
    assert session.last_run is not None and session.last_run.host_work == ()


def test_rows_that_the_host_pads_are_charged() -> None:
    def ran(columns: int) -> Any:
        ends = [helper.make_tensor_value_info(n, TensorProto.INT8, [1000, columns]) for n in "xy"]
        graph = helper.make_graph([helper.make_node("Abs", ["x"], ["y"])], "g", ends[:1], ends[1:])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
        session = od.InferenceSession(model, fallback="error")
        session.run(None, {"x": np.ones((1000, columns), np.int8)})
        return session.last_run

    narrow, whole = ran(3), ran(4)
    assert whole.host_work == () and whole.repack_seconds == 0
    assert [(work.kind, work.what, work.nbytes) for work in narrow.host_work] == [
        ("repack", "x", 4000),
        ("repack", "y", 4000),
    ]
    assert narrow.repack_seconds == pytest.approx(2 * (1000 * 2e-9 + 4000 / 10e9))
    assert narrow.ddr_bytes_read == whole.ddr_bytes_read


def test_nodes_on_the_host_are_named() -> None:
    session = od.InferenceSession(built("of an image", use_as="end"), fallback="cpu")
    session.run(None, FEEDS[0])
    report = session.last_run
    assert report is not None
    hosts = [row.node for row in session.placement if row.device == "cpu"]
    regions = [work.what for work in report.host_work if work.kind == "region"]
    assert ", ".join(regions) == ", ".join(hosts)


def cropping(roi: str) -> onnx.ModelProto:
    """A Resize of ``x`` to 6 x 6 whose region is an input of the model."""
    ends = [
        helper.make_tensor_value_info("x", FLOAT, [1, 1, 4, 4]),
        helper.make_tensor_value_info("roi", FLOAT, [8]),
    ]
    node = helper.make_node(
        "Resize",
        ["x", "roi", "", "sizes"],
        ["y"],
        "resize",
        mode="linear",
        coordinate_transformation_mode=roi,
    )
    sizes = numpy_helper.from_array(np.int64([1, 1, 6, 6]), "sizes")
    outputs = [helper.make_empty_tensor_value_info("y")]
    graph = helper.make_graph([node], "cropping", ends, outputs, [sizes])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize("fallback", ["cpu", "error"])
def test_a_region_of_interest_is_data(fallback: str) -> None:
    """Weights of a Resize follow from it: the host would compute them anew for every region."""
    model = cropping("tf_crop_and_resize")
    feeds = [
        {
            "x": np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4),
            "roi": np.float32([0, 0, a, a, 1, 1, b, b]),
        }
        for a, b in ((0.25, 0.75), (0.0, 1.0))
    ]
    if fallback == "error":
        with pytest.raises(od.UnsupportedModelError, match="roi computed at run time"):
            od.InferenceSession(model, fallback=fallback)
        return
    session = od.InferenceSession(model, fallback=fallback)
    theirs = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for feed in feeds:
        np.testing.assert_allclose(session.run(None, feed)[0], theirs.run(None, feed)[0], rtol=1e-5)
    assert len(session.model.executables) == 1


def test_a_region_that_is_not_used_is_not_read() -> None:
    model = cropping("half_pixel")
    feed = {"x": np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4), "roi": np.float32([0] * 8)}
    theirs = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (mine,) = od.InferenceSession(model, fallback="error").run(None, feed)
    np.testing.assert_allclose(mine, theirs.run(None, feed)[0], rtol=1e-5)
