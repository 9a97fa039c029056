# SPDX-License-Identifier: Apache-2.0
"""GraphDefs become graphs: what is read from which form, names of tensors, types, outputs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from google.protobuf import text_format
from onnx import helper
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorflow.core.framework.graph_pb2 import GraphDef as OtherGraphDef

from onedispatch.dispatch.frontend.graph import Folded, Graph, type_name_of
from onedispatch.dispatch.tensorflow.reader import is_graphdef, read_graphdef
from tests.tensorflow.evaluator import evaluate_all
from tests.tensorflow.graphdefs import UNKNOWN_RANK, GraphBuilder, encoded
from tests.tensorflow.networks import NETWORKS

F32 = np.dtype(np.float32)


def facts(graph: Graph) -> list[Any]:
    """What a graph says, to be compared."""
    nodes = [(n.name, n.op_type, n.domain, n.inputs, n.outputs, repr(n.attributes)) for n in graph.nodes]
    constants = {name: (a.dtype, a.shape, a.tolist()) for name, a in graph.constants.items()}
    said = (graph.inputs, graph.outputs, graph.values, graph.opsets, graph.folded, graph.order)
    return [nodes, constants, *said]


def small() -> GraphBuilder:
    b = GraphBuilder()
    x = b.placeholder("x", "float32", [None, 4])
    values, indices = b.op("TopKV2", x, b.const("k", np.int32(2)), name="top")
    b.op("Relu", values, name="y", control=["x", "top"])
    b.op("Cast", indices, name="z", DstT="float32")
    return b


# -- forms -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
def test_every_form_reads_the_same(name: str, tmp_path: Path) -> None:
    graphdef, outputs, _ = NETWORKS[name]()
    data = graphdef.SerializeToString()
    (tmp_path / "model.pb").write_bytes(data)
    (tmp_path / "model.pbtxt").write_text(text_format.MessageToString(graphdef))
    other = OtherGraphDef.FromString(data)
    wanted = facts(read_graphdef(graphdef, outputs))
    forms = (data, bytearray(data), tmp_path / "model.pb", str(tmp_path / "model.pbtxt"), other)
    for form in forms:
        assert facts(read_graphdef(form, outputs)) == wanted
    assert graphdef == GraphDef.FromString(data) and other == OtherGraphDef.FromString(data)


@pytest.mark.parametrize("name", NETWORKS)
def test_another_package_reads_what_the_builder_writes(name: str) -> None:
    graphdef, _, _ = NETWORKS[name]()
    other = OtherGraphDef.FromString(graphdef.SerializeToString())
    assert text_format.MessageToString(other) == text_format.MessageToString(graphdef)


def test_what_is_a_graphdef(tmp_path: Path) -> None:
    made, paths = small().graphdef(), {}
    onnx = helper.make_model(helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [], []))
    for name, data in {
        "a.pb": made.SerializeToString(),
        "onnx.pb": onnx.SerializeToString(),
        "a.pbtxt": b"node {}",
        "a.onnx": made.SerializeToString(),
        "saved_model.pb": b"\x08\x01\x12\x00",
    }.items():
        paths[name] = tmp_path / name
        paths[name].write_bytes(data)
    said = {name: is_graphdef(path) for name, path in paths.items()}
    assert said == {"a.pb": True, "onnx.pb": False, "a.pbtxt": True, "a.onnx": False, "saved_model.pb": True}
    assert is_graphdef(str(paths["a.pb"])) and is_graphdef(made) and is_graphdef(OtherGraphDef())
    (tmp_path / "folder.pb").mkdir()
    for no in (tmp_path / "absent.pb", tmp_path / "folder.pb", "\0.pb", b"", onnx, None, 3, GraphDef):
        assert not is_graphdef(no)


def test_nothing_imports_tensorboard_before_a_graphdef_is_read() -> None:
    program = (
        "import sys, onedispatch\n"
        "from onedispatch.dispatch.tensorflow import reader, signatures\n"
        "assert not any(name.partition('.')[0] == 'tensorboard' for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(sys.prefix))


# -- what a graph says -------------------------------------------------------------------------


def test_names_types_and_constants() -> None:
    graph = read_graphdef(small().graphdef(producer=27))
    assert [(n.name, n.op_type, n.domain, n.inputs, n.outputs) for n in graph.nodes] == [
        ("top", "TopKV2", "tensorflow", ("x", "k"), ("top", "top:1")),
        ("y", "Relu", "tensorflow", ("top",), ("y",)),
        ("z", "Cast", "tensorflow", ("top:1",), ("z",)),
    ]
    assert [str(v) for v in graph.inputs] == ["x: tensor(float)[?, 4]"]
    assert [str(v) for v in graph.outputs] == ["y: tensor(float)[...]", "z: tensor(float)[...]"]
    assert graph.value("top:1").type == "tensor(int32)"
    assert graph.constants["k"] == 2 and not graph.constants["k"].flags.writeable
    assert graph.folded == (Folded("k", "Const", "a constant of the model"),)
    assert graph.opsets == {"tensorflow": 27, "": 21} and graph.ir_version == 10
    assert graph.order == ("x", "k", "top", "y", "z")
    assert all(node.proto == b"" and not node.has_subgraph for node in graph.nodes)


def test_attributes_of_every_kind() -> None:
    array = np.array([[1, 2]], np.int64)
    given = {
        "int": 3,
        "float": 0.5,
        "bool": True,
        "str": "SAME",
        "type": F32,
        "shape": (None, 3),
        "scalar": (),
        "tensor": array,
        "ints": [1, 2],
        "floats": [0.5],
        "bools": [False, True],
        "texts": ["a", "b"],
        "types": [F32, np.dtype(bool)],
        "shapes": [(1, None), UNKNOWN_RANK],
        "none": [],
        "unknown": UNKNOWN_RANK,
    }
    b = small()
    b.op("Mine", "y", name="mine", **given)
    (node,) = (n for n in read_graphdef(b.graphdef()).nodes if n.name == "mine")
    found = dict(node.attributes)
    np.testing.assert_array_equal(found.pop("tensor"), given.pop("tensor"))
    assert found == {**given, "shapes": [(1, None), None], "unknown": None}
    assert [type(found[n]) for n in ("int", "float", "bool", "str")] == [int, float, bool, str]


def test_functions_references_and_resources_are_left_as_they_are() -> None:
    b = small()
    made = b.graphdef()
    node = made.node.add(name="call", op="PartitionedCall", input=["y", "y:0", "^z"])
    node.attr["f"].func.name = "body"
    node.attr["T"].type = 101  # DT_FLOAT_REF
    node.attr["Tr"].type = 20  # DT_RESOURCE
    made.node.add(name="sw", op="Switch", input=["call:1", "z"]).attr["T"].type = 101
    made.node.add(name="merge", op="Merge", input=["sw:1", "sw"]).attr["N"].i = 2
    graph = read_graphdef(made, ["merge:1"])
    call, switch = (next(n for n in graph.nodes if n.name == name) for name in ("call", "sw"))
    assert call.attributes == {"f": "body", "T": F32, "Tr": None}
    assert call.inputs == ("y", "y") and call.outputs == ("call", "call:1")
    assert switch.outputs == ("sw", "sw:1") and graph.value("sw:1").dtype == F32
    assert str(graph.outputs[0]) == "merge:1: tensor(int32)[...]"


def test_placeholders() -> None:
    b = GraphBuilder()
    shapes: dict[str, Any] = {"a": [2, None], "b": None, "c": []}
    inputs = [b.placeholder(name, "float32", shape) for name, shape in shapes.items()]
    default = b.op("PlaceholderWithDefault", np.float32(1), name="d", shape=())
    text = b.placeholder("e", "string", [None])
    b.placeholder("unread", "int64", [1])
    b.op("AddN", [*inputs, default], name="y")
    b.op("Mine", text, name="z")
    graph = read_graphdef(b.graphdef())
    assert {v.name: (v.type, v.shape) for v in graph.inputs} == {
        "a": ("tensor(float)", (2, None)),
        "b": ("tensor(float)", None),
        "c": ("tensor(float)", ()),
        "d": ("tensor(float)", ()),
        "e": ("tensor(string)", (None,)),
    }
    assert not graph.constants
    assert Folded("unread", "Placeholder", "nothing reads its result") in graph.folded
    old = read_graphdef(b.graphdef(producer=20))
    assert old.inputs[2].shape is None  # [] was the shape of those of unknown shape


def test_shapes_that_nodes_tell() -> None:
    b = small()
    node = b.made.node[2]
    node.attr["_output_shapes"].CopyFrom(encoded([(None, 2), UNKNOWN_RANK]))
    graph = read_graphdef(b.graphdef())
    assert graph.value("top").shape == (None, 2) and graph.value("top:1").shape is None


@pytest.mark.parametrize("name", NETWORKS)
def test_types_are_those_of_the_evaluator(name: str) -> None:
    graphdef, outputs, feed = NETWORKS[name]()
    graph = read_graphdef(graphdef, outputs)
    computed = evaluate_all(graphdef, feed)
    names = [tensor for node in graph.nodes for tensor in node.writes]
    assert len(names) > 15
    for tensor in names:
        known = graph.value(tensor).type
        assert tensor not in computed or known == type_name_of(computed[tensor].dtype), tensor


# -- outputs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "names", "nodes"),
    [
        (["y"], ["y"], ["top", "y"]),
        (["y:0", "top:1"], ["y", "top:1"], ["top", "y"]),
        (("top",), ["top"], ["top"]),
        (["k", "x"], ["k", "x"], []),
        (None, ["y", "z"], ["top", "y", "z"]),
    ],
)
def test_outputs_as_asked(asked: Any, names: list[str], nodes: list[str]) -> None:
    graph = read_graphdef(small().graphdef(), asked)
    assert [v.name for v in graph.outputs] == names
    assert [n.name for n in graph.nodes] == nodes
    assert all(v.dtype is not None for v in graph.outputs)


def test_outputs_that_are_not_asked_for() -> None:
    b = small()
    b.op("Assert", b.op("Less", "z", np.float32(3), name="less"), [b.const("text", "no")], name="assert")
    b.op("NoOp", name="group", control=["y"])
    b.op("Split", 1, "y", name="parts", num_split=2)
    graph = read_graphdef(b.graphdef())
    assert [v.name for v in graph.outputs] == ["parts", "parts:1"]
    assert {f.node for f in graph.folded} == {"k", "z", "less", "assert", "group", "text"} | {
        f.node for f in graph.folded if "/in" in f.node
    }


# -- constants -------------------------------------------------------------------------------


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize(
    "dtype",
    "float32 float64 float16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool".split()
    + [
        np.complex64,
        np.complex128,
        ml_dtypes.bfloat16,
        ml_dtypes.int4,
        ml_dtypes.uint4,
        ml_dtypes.float8_e5m2,
        ml_dtypes.float8_e4m3fn,
    ],
)
def test_constants_of_every_type(dtype: Any, typed: bool) -> None:
    array = np.array([[0, 1, 5], [6, 1, 7]]).astype(dtype)
    b = GraphBuilder()
    b.const("c", array, typed)
    (read,) = read_graphdef(b.graphdef(), ["c"]).constants.values()
    assert read.dtype == array.dtype and read.shape == array.shape and not read.flags.writeable
    np.testing.assert_array_equal(read.astype(np.complex128), array.astype(np.complex128))


def test_texts() -> None:
    b = GraphBuilder()
    b.const("c", np.array([["a", "bc"]]))
    (read,) = read_graphdef(b.graphdef(), ["c"]).constants.values()
    assert read.dtype == np.dtype(object) and read.tolist() == [["a", "bc"]]


def constant(shape: tuple[int, ...], kind: int = 1, **fields: Any) -> Any:
    made = GraphDef()
    proto = made.node.add(name="c", op="Const").attr["value"].tensor
    proto.dtype = kind
    for size in shape:
        proto.tensor_shape.dim.add(size=size)
    for name, value in fields.items():
        if isinstance(value, list):
            getattr(proto, name).extend(value)
        else:
            setattr(proto, name, value)
    return made


@pytest.mark.parametrize(
    ("given", "values"),
    [
        (constant((3,), float_val=[2.0]), [2, 2, 2]),
        (constant((2, 2), float_val=[1.0, 2.0]), [[1, 2], [2, 2]]),
        (constant((2,)), [0, 0]),
        (constant((0,)), []),
        (constant((), 7), ""),
        (constant((3,), 7, string_val=[b"a", b"b"]), ["a", "b", "b"]),
        (constant((2,), 10, tensor_content=b"\x02\x00"), [True, False]),
        (constant((2,), 8, scomplex_val=[1.0, 2.0]), [1 + 2j, 1 + 2j]),
        (constant((2,), 6, int_val=[-3]), [-3, -3]),
        (constant((2,), 11, int_val=[-3, 4]), [-3, 4]),
    ],
)
def test_values_that_are_left_out_equal_the_last(given: Any, values: Any) -> None:
    (read,) = read_graphdef(given, ["c"]).constants.values()
    assert read.tolist() == values and not read.flags.writeable


def test_a_large_constant_of_one_value_takes_no_memory() -> None:
    (read,) = read_graphdef(constant((1 << 28,), float_val=[1.0]), ["c"]).constants.values()
    assert read.shape == (1 << 28,) and read.strides == (0,) and read[5] == 1
