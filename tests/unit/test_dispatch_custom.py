# SPDX-License-Identifier: Apache-2.0
"""Nodes of domains that ONNX does not know: their shapes, types, casts, and the host that computes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

import onedispatch as od
from onedispatch.operators.declarations.kernel import Scalar
from onedispatch.operators.declarations.registry import Mapping
from onedispatch.operators.declarations.tensor import NodeSpec, Unsupported
from onedispatch.operators.plugin import catalog
from onedispatch.operators.plugin.declared import Declared, In, Out
from onedispatch.operators.plugin.node import Node
from onedispatch.transactions import Device

Array = np.ndarray[Any, Any]
ORIGIN = "tests of custom domains"


@dataclass
class Kernel:
    """A kernel that the device never takes: ``a * x + y``, or what ``told`` and ``computed`` say."""

    declared: Declared
    told: Callable[[Node], dict[str, Any]]
    computed: Callable[..., Any]
    asked: list[Node] = field(default_factory=list)
    has_reference = True
    origin = ORIGIN

    @property
    def kernel(self) -> Declared:
        return self.declared

    def infer(self, node: Node) -> dict[str, Any]:
        self.asked.append(node)
        return self.told(node)

    def reference(self, node: Node, *arrays: Array) -> Any:
        return self.computed(node, *arrays)

    def node(self, spec: NodeSpec, device: Device) -> Node:
        return Node(self.declared, spec, device)


@dataclass
class Mapped:
    kernel: Kernel

    def node(self, spec: NodeSpec, device: Device) -> Node:
        return Node(self.kernel.declared, spec, device)


def refuse(spec: NodeSpec, lowering: Any) -> None:
    raise Unsupported("this test's device takes no such node")


def scaled(node: Node, x: Array, y: Array) -> Array:
    return (np.float32(node.a) * x + y).astype(x.dtype)


Bring = Callable[..., Kernel]


@pytest.fixture
def bring() -> Iterator[Bring]:
    """Maps an operator of domain acme to a kernel."""

    def map_to(
        op_type: str = "ScaleAdd",
        inputs: tuple[In, ...] = (In("x"), In("y", like="x")),
        outputs: tuple[Out, ...] = (Out("z", like="x"),),
        told: Callable[[Node], dict[str, Any]] = lambda n: {"z": n["x"].like()},
        computed: Callable[..., Any] = scaled,
    ) -> Kernel:
        name = f"acme::{op_type.lower()}"
        declared = Declared(name, inputs, outputs, scalars=(Scalar("a", "f32", default=1.0),))
        kernel = Kernel(declared, told, computed)
        row = Mapping("acme", op_type, ("float32",), "", refuse, origin=ORIGIN, plugin=Mapped(kernel))
        catalog.add_mapping(row)
        return kernel

    yield map_to
    catalog.forget(ORIGIN)


def value(name: str, shape: Sequence[int | str] | None, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def acme(inputs: str, outputs: str, op_type: str = "ScaleAdd", **attributes: Any) -> NodeProto:
    return helper.make_node(op_type, inputs.split(), outputs.split(), domain="acme", **attributes)


def model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    imports: Sequence[tuple[str, int]] = (("", 17), ("acme", 1)),
    **more: Any,
) -> ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs, **more)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid(*one) for one in imports], ir_version=8
    )


def chain(shape: Sequence[int | str] = (3, 5), declared: Sequence[int | str] | None = None) -> ModelProto:
    nodes = [acme("x y", "z", name="first", a=2.0), helper.make_node("Add", ["z", "y"], ["w"], name="add")]
    nodes.append(acme("w x", "v", name="last", a=-1.0))
    return model(nodes, [value("x", shape), value("y", shape)], [value("v", declared)])


def feed(*shape: int) -> dict[str, Array]:
    rng = np.random.default_rng(7)
    return {name: rng.integers(-8, 8, shape).astype(np.float32) for name in ("x", "y")}


def answer(x: Array, y: Array) -> Array:
    return -(2 * x + y + y) + x


# -- shapes ---------------------------------------------------------------------------------------


def test_shapes_pass_through_chains_of_custom_and_onnx_nodes(bring: Bring) -> None:
    bring()
    session = od.InferenceSession(chain())
    assert session.get_outputs()[0].name == "v"
    arrays = feed(3, 5)
    (found,) = session.run(None, arrays)
    np.testing.assert_array_equal(found, answer(**arrays))
    rows = {row.node: row for row in session.placement}
    assert [rows[n].device for n in ("first", "add", "last")] == ["cpu", "npu", "cpu"]
    assert "this test's device takes no such node" in rows["first"].reason
    assert "on the kernel's reference" in rows["first"].reason


def test_symbolic_shapes_are_compiled_as_they_come(bring: Bring) -> None:
    kernel = bring()
    session = od.InferenceSession(chain(("N", 4), ("N", 4)))
    assert not kernel.asked and session.placement == []
    for rows in (2, 6, 2):
        arrays = feed(rows, 4)
        np.testing.assert_array_equal(session.run(None, arrays)[0], answer(**arrays))
    assert {node["x"].shape for node in kernel.asked} == {(2, 4), (6, 4)}


def test_symbolic_shapes_may_be_given_at_once(bring: Bring) -> None:
    bring()
    compiled = od.compile(chain(("N", 4)), shapes={"x": [2, 4], "y": [2, 4]})
    assert len(compiled.executables) == 1 and len(compiled.placement) == 3


def test_every_node_is_inferred_once_per_pass_however_long_the_chain(bring: Bring) -> None:
    kernel = bring()
    nodes = []
    for i in range(20):
        nodes.append(acme(f"x{i} x{i}", f"z{i}"))
        nodes.append(helper.make_node("Relu", [f"z{i}"], [f"x{i + 1}"]))
    od.compile(model(nodes, [value("x0", [2, 2])], [value("x20", [2, 2])]))
    assert len(kernel.asked) <= 40


def test_a_kernel_may_change_shape_and_type(bring: Bring) -> None:
    bring(
        told=lambda n: {"z": n["x"].like(shape=(n["x"].shape[1], 2), dtype="i32")},
        outputs=(Out("z", "i32"),),
        computed=lambda n, x, y: np.stack([x.sum(0), y.sum(0)], 1).astype(np.int32),
    )
    nodes = [acme("x y", "z"), helper.make_node("Transpose", ["z"], ["t"])]
    inputs = [value("x", [3, 5]), value("y", [3, 5])]
    session = od.InferenceSession(model(nodes, inputs, [value("t", None, TensorProto.INT32)]))
    arrays = feed(3, 5)
    np.testing.assert_array_equal(
        session.run(None, arrays)[0], np.stack([arrays["x"].sum(0), arrays["y"].sum(0)])
    )


def test_what_the_model_declares_is_told_to_the_kernel(bring: Bring) -> None:
    kernel = bring(told=lambda n: {"z": n["x"].like(shape=n.spec.outputs[0].shape)})
    inputs = [value("x", [3, 5]), value("y", [3, 5])]
    od.compile(model([acme("x y", "z")], inputs, [value("z", [3, 5])]))
    assert kernel.asked[0].spec.outputs[0].shape == (3, 5)


@pytest.mark.parametrize(
    ("declared", "error", "both"),
    [
        (value("z", [3, 6]), "KernelOutputSizeError", ("[3, 5]", "[3, 6]")),
        (value("z", [15]), "KernelOutputSizeError", ("[3, 5]", "[15]")),
        (value("z", [3, 5], TensorProto.FLOAT16), "KernelDtypeError", ("tensor(float)", "tensor(float16)")),
    ],
)
def test_a_kernel_and_a_model_that_disagree(
    bring: Bring, declared: onnx.ValueInfoProto, error: str, both: tuple[str, str]
) -> None:
    bring()
    inputs = [value("x", [3, 5]), value("y", [3, 5])]
    with pytest.raises(getattr(od, error)) as refused:
        od.compile(model([acme("x y", "z", name="n0")], inputs, [declared]))
    assert refused.value.node == "n0" and refused.value.given == both[0] and both[1] in refused.value.expected
    assert "acme::scaleadd@1" in str(refused.value)


def test_a_name_of_a_dimension_is_a_hint(bring: Bring) -> None:
    bring()
    inputs = [value("x", ["N", 5]), value("y", ["N", 5])]
    session = od.InferenceSession(model([acme("x y", "z")], inputs, [value("z", ["M", 5])]))
    session.run(None, feed(3, 5))


def test_value_info_between_nodes_binds_too(bring: Bring) -> None:
    bring()
    proto = chain()
    proto.graph.value_info.append(value("z", [4, 4]))
    with pytest.raises(od.KernelOutputSizeError, match=r"'z'.*\[3, 5\].*\[4, 4\]"):
        od.compile(proto)


def test_shapes_that_only_the_run_knows(bring: Bring) -> None:
    """The host takes what it gets: nothing is known behind NonZero before the run."""
    bring(inputs=(In("x", "f32"), In("y", like="x")))
    nodes = [
        helper.make_node("NonZero", ["x"], ["at"]),
        helper.make_node("Cast", ["at"], ["f"], to=TensorProto.FLOAT),
        acme("f f", "z", name="n0", a=2.0),
    ]
    session = od.InferenceSession(model(nodes, [value("x", [4])], [value("z", None)]))
    (found,) = session.run(None, {"x": np.float32([0, 3, 0, 4])})
    np.testing.assert_array_equal(found, [[3.0, 9.0]])


def test_operands_that_fold_are_constants_for_the_kernel(bring: Bring) -> None:
    """What a Shape node gives is known before anything runs."""

    def told(n: Node) -> dict[str, Any]:
        if n["y"].value is None:
            raise n.refuse("non_static_input", "y", "a value of the run", "a constant")
        return {"z": n["x"].like(shape=tuple(int(v) for v in n["y"].value))}

    bring(
        inputs=(In("x"), In("y", "i32")),
        told=told,
        computed=lambda n, x, y: np.resize(x, y).astype(np.float32),
    )
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Cast", ["s"], ["i"], to=TensorProto.INT32),
        acme("x i", "z"),
    ]
    (found,) = od.InferenceSession(model(nodes, [value("x", [2, 3])], [value("z", [2, 3])])).run(
        None, {"x": np.ones((2, 3), np.float32)}
    )
    assert found.shape == (2, 3)
    inputs = [value("x", [2, 3]), value("y", [2], TensorProto.INT32)]
    with pytest.raises(od.KernelNonStaticInputError, match="y: given a value of the run"):
        od.compile(model([acme("x y", "z")], inputs, [value("z", None)]))


# -- what is missing ------------------------------------------------------------------------------


def test_every_operator_that_nobody_knows_is_named_at_once(bring: Bring) -> None:
    bring()
    nodes = [
        acme("x y", "z", "ScaleAd", name="typo"),
        helper.make_node("Thing", ["z"], ["w"], domain="other.domain", name="thing"),
        acme("w x", "v", name="fine"),
    ]
    inputs = [value("x", [3, 5]), value("y", [3, 5])]
    imports = (("", 17), ("acme", 1), ("other.domain", 3))
    for fallback in ("cpu", "error"):
        with pytest.raises(od.UnknownOperatorError) as refused:
            od.compile(model(nodes, inputs, [value("v", None)], imports), fallback=fallback)
        assert refused.value.nodes == (
            "typo: acme.ScaleAd (nearest: acme.ScaleAdd)",
            "thing: other.domain.Thing",
        )
        assert "--plugin FILE" in str(refused.value) and "plugins=[...]" in str(refused.value)


def test_operators_of_onnxruntime_are_known() -> None:
    node = helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")
    imports = (("", 17), ("com.microsoft", 1))
    session = od.InferenceSession(model([node], [value("x", [4])], [value("y", [4])], imports))
    session.run(None, {"x": np.zeros(4, np.float32)})


def test_a_domain_without_an_operator_set(bring: Bring) -> None:
    bring()
    proto = model([acme("x x", "z", name="n0")], [value("x", [2])], [value("z", None)], (("", 17),))
    with pytest.raises(
        od.ModelError, match=r"node n0.*'acme'.*imports no operator set.*make_opsetid\('acme', 1\)"
    ):
        od.compile(proto)


def test_a_model_of_custom_nodes_alone(bring: Bring) -> None:
    bring()
    proto = model([acme("x x", "z", a=2.0)], [value("x", [2])], [value("z", [2])], (("acme", 1),))
    (found,) = od.InferenceSession(proto).run(None, {"x": np.float32([1, 2])})
    np.testing.assert_array_equal(found, [3, 6])


def test_strict_mode_says_why_the_device_does_not_take_it(bring: Bring) -> None:
    bring()
    with pytest.raises(od.UnsupportedModelError) as refused:
        od.compile(chain(), fallback="error")
    assert [line.split(":")[0] for line in refused.value.nodes] == ["first (ScaleAdd)", "last (ScaleAdd)"]
    assert all("this test's device takes no such node" in line for line in refused.value.nodes)


# -- element types --------------------------------------------------------------------------------

KINDS = {
    "f16": (TensorProto.FLOAT16, np.float16),
    "bf16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
    "i8": (TensorProto.INT8, np.int8),
    "u8": (TensorProto.UINT8, np.uint8),
    "i16": (TensorProto.INT16, np.int16),
}


def typed(kind: int, **more: Any) -> ModelProto:
    node = acme("x y", "z", name="n0", a=2.0)
    return model(
        [node], [value("x", [3, 4], kind), value("y", [3, 4], kind)], [value("z", None, kind)], **more
    )


@pytest.mark.parametrize("name", KINDS)
def test_an_element_type_that_the_kernel_lacks_is_refused(name: str, bring: Bring) -> None:
    bring()
    with pytest.raises(od.KernelDtypeError) as refused:
        od.compile(typed(KINDS[name][0]))
    error = refused.value
    assert (error.node, error.given, error.expected) == ("n0", name, "f32")
    assert 'cast_policy="f32"' in error.remedy


@pytest.mark.parametrize("name", KINDS)
def test_casts_to_f32_and_back_are_inserted_and_listed(name: str, bring: Bring) -> None:
    kernel = bring()
    kind, dtype = KINDS[name]
    session = od.InferenceSession(typed(kind), cast_policy="f32")
    x, y = np.arange(12).reshape(3, 4).astype(dtype), np.ones((3, 4), dtype)
    (found,) = session.run(None, {"x": x, "y": y})
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.astype(np.float32), 2 * np.arange(12).reshape(3, 4) + 1)
    assert {node["x"].dtype for node in kernel.asked} == {"f32"}
    casts = [row for row in session.placement if row.op_type == "Cast"]
    assert len(casts) == 3 and [row.op_type for row in session.placement].index("ScaleAdd") == 2
    assert all(row.reason.startswith("inserted by cast_policy='f32' for n0: ") for row in casts)


@pytest.mark.parametrize(
    "kind", [TensorProto.INT32, TensorProto.INT64, TensorProto.DOUBLE, TensorProto.UINT32]
)
def test_no_cast_loses_what_an_input_may_hold(kind: int, bring: Bring) -> None:
    bring()
    with pytest.raises(od.KernelDtypeError, match="f32 holds all values of") as refused:
        od.compile(typed(kind), cast_policy="f32")
    assert refused.value.node == "n0"


def test_a_constant_that_f32_holds_is_cast(bring: Bring) -> None:
    bring()
    node = acme("x c", "z", a=2.0)
    for largest, fits in ((1 << 24, True), ((1 << 24) + 1, False)):
        constant = helper.make_tensor("c", TensorProto.INT32, [2], [1, largest])
        proto = model([node], [value("x", [2])], [value("z", None)], initializer=[constant])
        if not fits:
            with pytest.raises(od.KernelDtypeError):
                od.compile(proto, cast_policy="f32")
            continue
        (found,) = od.InferenceSession(proto, cast_policy="f32").run(None, {"x": np.float32([1, 2])})
        np.testing.assert_array_equal(found, np.float32([3, 4 + largest]))


def test_what_the_model_declares_as_f32_is_not_cast_back(bring: Bring) -> None:
    bring()
    inputs = [value("x", [2], TensorProto.INT8), value("y", [2], TensorProto.INT8)]
    session = od.InferenceSession(model([acme("x y", "z")], inputs, [value("z", [2])]), cast_policy="f32")
    (found,) = session.run(None, {"x": np.int8([1, 2]), "y": np.int8([3, 4])})
    assert found.dtype == np.float32
    assert sum(row.op_type == "Cast" for row in session.placement) == 2


def test_one_input_twice_is_cast_once(bring: Bring) -> None:
    bring()
    proto = model(
        [acme("x x", "z")], [value("x", [2], TensorProto.INT8)], [value("z", None, TensorProto.INT8)]
    )
    session = od.InferenceSession(proto, cast_policy="f32")
    np.testing.assert_array_equal(session.run(None, {"x": np.int8([1, 2])})[0], [2, 4])
    assert sum(row.op_type == "Cast" for row in session.placement) == 2


@pytest.mark.parametrize("policy", ["f16", "", None, 3])
def test_no_such_cast_policy(policy: Any) -> None:
    with pytest.raises(od.InputError, match=r"cast_policy.*'error', 'f32'"):
        od.compile(typed(TensorProto.FLOAT), cast_policy=policy)


# -- quantisation ---------------------------------------------------------------------------------


def quantised_model(annotated: bool = False) -> ModelProto:
    scale = helper.make_tensor("s", TensorProto.FLOAT, [], [0.25])
    zero = helper.make_tensor("o", TensorProto.UINT8, [], [7])
    nodes = [acme("q q", "r"), helper.make_node("DequantizeLinear", ["r", "s", "o"], ["z"])]
    inputs = [value("q", [4], TensorProto.UINT8)]
    if not annotated:
        nodes.insert(0, helper.make_node("QuantizeLinear", ["x", "s", "o"], ["q"]))
        inputs = [value("x", [4])]
    proto = model(nodes, inputs, [value("z", None)], initializer=[scale, zero])
    if annotated:
        said = proto.graph.quantization_annotation.add(tensor_name="q")
        for key, name in (("SCALE_TENSOR", "s"), ("ZERO_POINT_TENSOR", "o")):
            said.quant_parameter_tensor_names.add(key=key, value=name)
    return proto


@pytest.mark.parametrize("annotated", [False, True])
def test_scale_and_zero_point_reach_the_kernel(annotated: bool, bring: Bring) -> None:
    def computed(n: Node, x: Array, y: Array) -> Array:
        assert n["x"].quantisation is not None
        return x + np.uint8(n["x"].quantisation.zero_point[0])

    kernel = bring(inputs=(In("x", "u8", quantised=True), In("y", "u8")), computed=computed)
    session = od.InferenceSession(quantised_model(annotated))
    given = {"q": np.uint8([1, 2, 3, 4])} if annotated else {"x": np.float32([-1.5, -1.25, -1, -0.75])}
    (found,) = session.run(None, given)
    np.testing.assert_array_equal(found, 0.25 * np.arange(1, 5))
    told = kernel.asked[0]["x"].quantisation
    assert (told.scale, told.zero_point, told.axis) == ((0.25,), (7,), None)


@pytest.mark.parametrize("wanted", [False, True])
def test_a_declared_quantisation_is_verified(wanted: bool, bring: Bring) -> None:
    bring(inputs=(In("x", "u8", quantised=wanted), In("y", "u8")))
    plain = model(
        [acme("q q", "r")], [value("q", [4], TensorProto.UINT8)], [value("r", None, TensorProto.UINT8)]
    )
    with pytest.raises(od.KernelQuantisationError):
        od.compile(plain if wanted else quantised_model())


def test_other_operators_take_annotated_models_as_before() -> None:
    node = helper.make_node("Relu", ["x"], ["y"], name="n0")
    proto = model(
        [node], [value("x", [4])], [value("y", [4])], initializer=[helper.make_tensor("s", 1, [], [0.5])]
    )
    said = proto.graph.quantization_annotation.add(tensor_name="y")
    said.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="s")
    assert od.InferenceSession(proto).placement[0].device == "npu"


# -- functions and bodies -------------------------------------------------------------------------


def test_custom_nodes_of_local_functions(bring: Bring) -> None:
    bring()
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("acme", 1)]
    body = [acme("p q", "t", a=3.0), helper.make_node("Relu", ["t"], ["r"])]
    function = helper.make_function("local", "Twice", ["p", "q"], ["r"], body, imports)
    call = helper.make_node("Twice", ["x", "y"], ["z"], domain="local", name="call")
    inputs = [value("x", [3, 5]), value("y", [3, 5])]
    proto = model([call], inputs, [value("z", [3, 5])], (("", 17), ("local", 1), ("acme", 1)))
    proto.functions.append(function)
    arrays = feed(3, 5)
    (found,) = od.InferenceSession(proto).run(None, arrays)
    np.testing.assert_array_equal(found, np.maximum(3 * arrays["x"] + arrays["y"], 0))


# -- saved models ---------------------------------------------------------------------------------


def test_saved_models_keep_policy_and_quantisation(bring: Bring, tmp_path: Path) -> None:
    bring()
    compiled = od.compile(typed(TensorProto.INT8), cast_policy="f32")
    compiled.save(tmp_path / "m.od")
    again = od.load(tmp_path / "m.od")
    assert again.cast_policy == "f32"
    x = np.arange(12, dtype=np.int8).reshape(3, 4)
    (found,) = od.InferenceSession(again).run(None, {"x": x, "y": x})
    np.testing.assert_array_equal(found, 3 * x)
    kernel = bring(
        "Integers", inputs=(In("x", "u8", quantised=True), In("y", "u8")), computed=lambda n, x, y: x
    )
    proto = quantised_model()
    next(node for node in proto.graph.node if node.domain).op_type = "Integers"
    od.compile(proto).save(tmp_path / "q.od")
    kernel.asked.clear()
    od.InferenceSession(od.load(tmp_path / "q.od")).run(None, {"x": np.zeros(4, np.float32)})
    assert kernel.asked[0]["x"].quantisation.scale == (0.25,)
