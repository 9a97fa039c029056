# SPDX-License-Identifier: Apache-2.0
"""Mapping functions of plug-ins: shapes of their results, and what the arg map of their operators says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest

import onedispatch as od
from onedispatch.operators.declarations.functions import Activation
from onedispatch.operators.emission.image import EMPTY
from onedispatch.operators.interface.operator import Lowering, NodeSpec, Operator, TensorSpec
from onedispatch.operators.kernels.elementwise import Eltwise
from onedispatch.operators.plugin import registrations
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.operators.scheduling.select import select
from onedispatch.transactions import ArgKind, ArgMap, TransactionBuilder

DOMAIN = "ownoperators"


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    for row in [one for one in registrations.registry.all_mappings() if one.domain == DOMAIN]:
        registrations.withdraw_mapping(row.domain, row.op_type)


def squares(node: NodeSpec, lowering: Lowering) -> None:
    (x,), (y,) = node.inputs, node.outputs
    assert x is not None and y is not None
    lowering.emit(Eltwise(node.name, "mul", [x, x], y, lowering.device))


def model() -> onnx.ModelProto:
    """Squares, whose result the model says nothing of, and its root."""
    return onnx.parser.parse_model(f"""
<ir_version: 8, opset_import: ["": 17, "{DOMAIN}": 1]> g (float[4, 8] x) => (float[4, 8] y) {{
  s = {DOMAIN}.Squares(x)
  y = Sqrt(s)
}}
""")


@pytest.mark.parametrize(
    "said",
    [{"like": 0}, {"infer": lambda node: [(node.inputs[0].dtype, node.inputs[0].shape)]}],
    ids=["like", "infer"],
)
def test_shapes_of_results_follow(said: dict[str, Any]) -> None:
    od.maps("Squares", domain=DOMAIN, **said)(squares)
    x = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    (y,) = od.InferenceSession(model(), fallback="error").run(None, {"x": x})
    np.testing.assert_allclose(y, np.abs(x), rtol=1e-6)


def test_without_them_the_model_says_it() -> None:
    od.maps("Squares", domain=DOMAIN)(squares)
    with pytest.raises(od.UnsupportedModelError, match="Squares"):
        od.InferenceSession(model(), fallback="error")


@pytest.mark.parametrize("said", [{"like": "x"}, {"like": True}, {"infer": 3}])
def test_what_is_neither_is_refused(said: dict[str, Any]) -> None:
    with pytest.raises(od.KernelError, match="like=the number of an input"):
        od.maps("Squares", domain=DOMAIN, **said)(squares)


def test_a_kernel_has_its_own_infer() -> None:
    @od.kernel(f"{DOMAIN}::same", inputs="x", outputs="z")
    class Same:
        def body(self, t: Any) -> None:
            t.z[:] = t.x

    try:
        with pytest.raises(od.KernelError, match="its method infer"):
            od.maps("Same", domain=DOMAIN, like=0)(Same)
    finally:
        registrations.withdraw_kernel(f"{DOMAIN}::same@1")


class Nothing(Operator):
    """Reads nothing and makes nothing; its arg map has scratch."""

    def nests(self) -> list[Any]:
        return []

    @property
    def image(self) -> Any:  # type: ignore[override]
        return EMPTY

    @property
    def activations(self) -> tuple[TensorSpec, ...]:  # type: ignore[override]
        return self.inputs

    def arg_map(self) -> list[ArgMap]:
        size = self.output.device_bytes
        return [
            ArgMap(ArgKind.OUTPUT, 0, 1, 0, size),
            ArgMap(ArgKind.INPUT, 1, 0, 0, size),
            ArgMap(ArgKind.SCRATCH_PAD, 2, 0, 0, 64),
        ]

    def super_kernel_params(self) -> bytes:
        return b""

    def transaction(self) -> bytes:
        return TransactionBuilder.for_device(self.device).to_bytes()


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([(ArgKind.OUTPUT, 0, 7)], r"entry 0 .*, onnx_arg_idx: given 7; accepted: 1: inputs count from 0"),
        ([(ArgKind.INPUT, 0, 1)], "entry 0 .*, onnx_arg_idx: given 1; accepted: 0"),
        ([(ArgKind.OUTPUT, 0, -1)], "onnx_arg_idx: given -1; accepted: 0 or more"),
        ([("OUTPUT", 0, 1)], "entry 0, kind: given 'OUTPUT'; accepted: an ArgKind: INPUT, OUTPUT"),
        ([3], "entry 0: given 3; accepted: an ArgMap"),
        (None, "arg map: given None; accepted: a list of ArgMap"),
    ],
)
def test_arg_maps_that_name_no_tensor(entries: Any, said: str) -> None:
    """The message names node, operator, class and entry, and is no mistake of OneDispatch."""

    class Mistaken(Nothing):
        def arg_map(self) -> Any:
            size = self.output.device_bytes
            return entries and [ArgMap(*e, 0, size) if isinstance(e, tuple) else e for e in entries]

    @od.maps("Squares", domain=DOMAIN, like=0)
    def mistaken(node: NodeSpec, lowering: Lowering) -> None:
        assert node.inputs[0] is not None and node.outputs[0] is not None
        lowering.emit(Mistaken(node.name, [node.inputs[0]], node.outputs[0], lowering.device))

    with pytest.raises(od.OperatorError, match=said) as caught:
        od.InferenceSession(model(), fallback="error")
    text = str(caught.value)
    assert "operator Squares_0 of" in text and "Mistaken (" in text and "test_own_operators.py:" in text
    assert "OneDispatch" not in text


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([], r"arg map: given no OUTPUT entry with onnx_arg_idx 1; accepted: one of at least 128 bytes"),
        ([(ArgKind.OUTPUT, 0, 1, 0, 8)], r"entry 0 \(OUTPUT\), size: given 8; accepted: at least 128 bytes"),
        (
            [(ArgKind.OUTPUT, 0, 1, 0, 128), (ArgKind.CONST_INPUT, 1, 0, 0, 0)],
            r"entry 1 \(CONST_INPUT\), size: given 0; accepted: no such entry: const_bytes is 0",
        ),
        (
            [(ArgKind.OUTPUT, 0, 1, 0, 128), (ArgKind.CONST_INPUT, 1, 0, 0, 16)],
            r"entry 1 \(CONST_INPUT\), size: given 16; accepted: no such entry",
        ),
    ],
)
def test_arg_maps_without_the_bytes_of_an_output_or_constants(entries: Any, said: str) -> None:
    """They were found by the run, or never: no run writes a byte that no entry has."""

    class Short(Nothing):
        def arg_map(self) -> list[ArgMap]:
            return [ArgMap(*one) for one in entries]

    @od.maps("Squares", domain=DOMAIN, like=0)
    def short(node: NodeSpec, lowering: Lowering) -> None:
        assert node.inputs[0] is not None and node.outputs[0] is not None
        lowering.emit(Short(node.name, [node.inputs[0]], node.outputs[0], lowering.device))

    with pytest.raises(od.OperatorError, match=said) as caught:
        od.compile(model(), fallback="error")
    text = str(caught.value)
    assert "Squares_0" in text and "Short (" in text and "test_own_operators.py:" in text


def test_regions_that_overlap_name_operator_and_node() -> None:
    class Overlapping(Nothing):
        def arg_map(self) -> list[ArgMap]:
            size = self.output.device_bytes
            return [ArgMap(ArgKind.OUTPUT, 0, 1, 0, size), ArgMap(ArgKind.INPUT, 0, 0, 0, size)]

    @od.maps("Squares", domain=DOMAIN, like=0)
    def overlapping(node: NodeSpec, lowering: Lowering) -> None:
        assert node.inputs[0] is not None and node.outputs[0] is not None
        lowering.emit(Overlapping(node.name, [node.inputs[0]], node.outputs[0], lowering.device))

    with pytest.raises(od.TransactionError, match=r"operator Squares_0 \(Overlapping\) of nodes? Squares_0"):
        od.InferenceSession(model(), fallback="error")


def test_scratch_is_called_scratch_and_output_that_is_not_written_an_error() -> None:
    @od.maps("Squares", domain=DOMAIN, like=0)
    def nothing(node: NodeSpec, lowering: Lowering) -> None:
        assert node.inputs[0] is not None and node.outputs[0] is not None
        lowering.emit(Nothing(node.name, [node.inputs[0]], node.outputs[0], lowering.device))

    proto = model()
    proto.graph.node[1].CopyFrom(onnx.helper.make_node("Identity", ["s"], ["y"]))
    session = od.InferenceSession(proto, fallback="error")
    (op,) = session.model.device_step.ops
    assert op.arguments[-1] == "arg 2 SCRATCH_PAD: scratch[0:64] scratch"
    with pytest.raises(od.SimulationError, match="never wrote"):
        session.run(None, {"x": np.ones((4, 8), np.float32)})


class Deaf(Eltwise):
    """An operator whose nests and reference say nothing of its ``activation``."""

    kind = "deaf"

    def nests(self) -> list[Nest]:
        return [replace(nest, scalars={**nest.scalars, **Activation().scalars}) for nest in super().nests()]


class OwnTransaction(Eltwise):
    """An operator that makes its transaction itself: what it does with ``activation`` is not seen."""

    kind = "own"

    def transaction(self) -> bytes:
        return Operator.transaction(self.replaced(activation=Activation()))

    def super_kernel_params(self) -> bytes:
        return Operator.super_kernel_params(self.replaced(activation=Activation()))


def copied_by(kind: type[Eltwise]) -> Callable[[NodeSpec, Lowering], None]:
    """A mapping whose operator, one of ``kind``, copies the only input."""

    def copies(node: NodeSpec, lowering: Lowering) -> None:
        (x,), (y,) = node.inputs, node.outputs
        assert x is not None and y is not None
        lowering.emit(kind(node.name, "copy", [x], y, lowering.device))

    return copies


@pytest.mark.parametrize("kind", [Deaf, OwnTransaction])
def test_functions_behind_an_operator_that_does_not_apply_them_run(kind: type[Eltwise]) -> None:
    """Once they were absorbed and forgotten: the results had the signs of the products."""

    od.maps("Squares", domain=DOMAIN, like=0)(copied_by(kind))
    proto = model()
    proto.graph.node[1].op_type = "Relu"
    x = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    (y,) = od.InferenceSession(proto, fallback="error").run(None, {"x": x})
    assert (y == np.maximum(x, 0)).all()


class OwnActivations(Eltwise):
    @property
    def activations(self) -> tuple[TensorSpec, ...]:  # type: ignore[override]
        return self.inputs


class OwnArgMap(Eltwise):
    def arg_map(self) -> list[ArgMap]:
        (x,), y, params = self.inputs, self.output, len(self.super_kernel_params())
        return [
            ArgMap(ArgKind.OUTPUT, 0, 1, 0, y.device_bytes),
            ArgMap(ArgKind.INPUT, 1, 0, 0, x.device_bytes),
            ArgMap(ArgKind.CONST_KERNEL_PARAM_INPUT, 3, 0, 0, params),
        ]


class OwnSchedules(Eltwise):
    @property
    def schedules(self) -> list[Schedule]:  # type: ignore[override]
        return [select(nest, self.device) for nest in self.plain_nests]


@pytest.mark.parametrize("kind", [Eltwise, OwnActivations, OwnArgMap, OwnSchedules])
def test_what_operators_say_themselves_holds_beside_what_stays_in_memory_tiles(kind: type[Eltwise]) -> None:
    """Of what stays there they have no argument: what they read and make stays only where nests say all."""

    od.maps("Copies", domain=DOMAIN, like=0)(copied_by(kind))
    od.maps("Plain", domain=DOMAIN, like=0)(copied_by(Eltwise))  # the same problem
    proto = onnx.parser.parse_model(f"""
<ir_version: 8, opset_import: ["": 17, "{DOMAIN}": 1]> g (float[64, 256] x) => (float[64, 256] y) {{
  p = {DOMAIN}.Plain(x) q = Softmax(p)
  a = Neg(q) b = Softmax(a) c = {DOMAIN}.Copies(b) d = Softmax(c) e = {DOMAIN}.Copies(d) y = Neg(e)
}}
""")
    x = np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32)
    off, on = (od.compile(proto, "npu1", fallback="error", groups=how) for how in ("off", "on"))
    wanted, given = (od.InferenceSession(one).run(None, {"x": x})[0] for one in (off, on))
    assert wanted.any() and given.tobytes() == wanted.tobytes()
    assert on.timing().ddr_bytes_read < off.timing().ddr_bytes_read
