# SPDX-License-Identifier: Apache-2.0
"""GraphDefs with a defect: each is refused by an error that says where, what and what else."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.compat.proto.graph_pb2 import GraphDef

from onedispatch.dispatch.tensorflow.reader import read_graphdef
from onedispatch.transactions.base.errors import InputError, ModelError
from tests.tensorflow.graphdefs import GraphBuilder
from tests.tensorflow.test_reader import constant, small


def changed(change: Callable[[Any], Any]) -> Any:
    """The small graph with a change."""
    made = small().graphdef()
    change(made)
    return made


def node(op: str, *inputs: str, name: str = "new", **numbers: int) -> Callable[[Any], Any]:
    """Puts in a node with attributes that are integers."""

    def change(made: Any) -> None:
        one = made.node.add(name=name, op=op, input=inputs)
        for key, value in numbers.items():
            one.attr[key].i = value

    return change


def dims(*sizes: int) -> Callable[[Any], Any]:
    """Gives the placeholder this shape."""

    def change(made: Any) -> None:
        shape = made.node[0].attr["shape"].shape
        del shape.dim[:]
        for size in sizes:
            shape.dim.add(size=size)

    return change


def attribute(name: str, **value: Any) -> Callable[[Any], Any]:
    """Sets an attribute of the node ``top``."""

    def change(made: Any) -> None:
        for kind, one in value.items():
            setattr(made.node[2].attr[name], kind, one)

    return change


CASES: dict[str, tuple[Any, str]] = {
    "name twice": (changed(node("Relu", "x", name="y")), "node y: given a name that another node has"),
    "no name": (changed(node("Relu", "x", name="")), "a node: given the name '' and the operator 'Relu'"),
    "no operator": (changed(node("", "x")), "the name 'new' and the operator ''"),
    "colon": (changed(node("Relu", "x", name="y:1")), "a name without ^ and :"),
    "empty input": (changed(node("Relu", "")), "node new (Relu): given an input without a name"),
    "undefined": (changed(node("Relu", "nowhere")), "given input 'nowhere', which nothing defines"),
    "no such output": (changed(node("Relu", "top:2")), "given input 'top:2', which nothing defines"),
    "huge number": (changed(node("Relu", "top:" + "9" * 5000)), "which nothing defines"),
    "many outputs": (changed(node("Mine", "new2:5000")), "new2"),
    "many parts": (
        changed(node("Split", "k", "x", num_split=1 << 40)),
        "at most 4,096 tensors from one node",
    ),
    "no count": (changed(node("Split", "k", "x")), "node new (Split), attribute 'num_split': given no value"),
    "element type": (
        changed(attribute("T", type=99)),
        "node top (TopKV2), attribute 'T': given element type 99",
    ),
    "long window": (changed(node("MaxPool", "x", ksize=1 << 30)), "node new (MaxPool), ksize: given"),
    "no placeholder type": (
        changed(lambda made: made.node[0].attr.pop("dtype")),
        "node x (Placeholder): given no element type",
    ),
    "negative size": (changed(dims(-2)), "node x (Placeholder): given the shape [-2]"),
    "huge shape": (
        changed(dims(1 << 40)),
        "node x (Placeholder): given 4,398,046,511,104 bytes in one tensor",
    ),
    "many dimensions": (changed(dims(*[1] * 65)), "given 65 dimensions in one tensor"),
    "unknown dimensions": (changed(dims(*[-1] * 65)), "given 65 dimensions in one tensor"),
    "constant without value": (changed(node("Const")), "node new (Const): given no value"),
    "content": (constant((3,), tensor_content=b"1234"), "given 4 bytes of float32[3]; accepted: 12 bytes"),
    "content of texts": (constant((1,), 7, tensor_content=b"1"), "accepted: strings in string_val"),
    "too many values": (
        constant((1,), float_val=[1.0, 2.0]),
        "node c (Const): given 2 values of float32[1]; accepted: at most 1 value",
    ),
    "constant resource": (constant((), 20), "given element type 20; accepted: one of numbers"),
    "constant of no type": (constant((), 0), "given element type 0"),
    "constant of unknown shape": (constant((-1,)), "given a tensor of unknown shape"),
    "huge constant": (constant((1 << 40,)), "node c (Const): given 4,398,046,511,104 bytes in one tensor"),
    "repeated": (
        constant((1 << 27,), float_val=[1.0, 2.0]),
        "bytes of tensors whose last values are left out",
    ),
    "empty": (GraphDef(), "given no nodes; accepted: a TensorFlow GraphDef. If this is a SavedModel"),
    "no bytes": (b"", "the given bytes (0 bytes): given no nodes"),
    "other bytes": (b"\x0a\xff", "the given bytes: given 2 bytes that are no GraphDef"),
    "other object": (3, "the model: given a int; accepted: a path, the bytes of a GraphDef, or a GraphDef"),
    "no file": ("absent.pb", "absent.pb: given No such file or directory"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_defect_is_told(name: str) -> None:
    given, text = CASES[name]
    with pytest.raises(ModelError, match=re.escape(text)):
        read_graphdef(given)


def test_long_names_and_many_nodes() -> None:
    with pytest.raises(ModelError, match="20,000 characters in a name"):
        read_graphdef(changed(node("Relu", "x", name="n" * 20_000)))
    made = GraphDef()
    for _ in range(100_001):
        made.node.add()
    with pytest.raises(ModelError, match="at most 100,000 nodes in one model"):
        read_graphdef(made)


def test_cycles_are_told() -> None:
    b = GraphBuilder()
    b.op("Relu", "b", name="a")
    b.op("Relu", "a", name="b")
    with pytest.raises(ModelError, match="given a cycle through a, b"):
        read_graphdef(b.graphdef())


def test_texts_that_are_no_graphdef(tmp_path: Path) -> None:
    for number, data in enumerate((b"nodes {}", b"\xff\xfe", b"node { name: ", b"node {" * 5000)):
        path = tmp_path / f"{number}.pbtxt"
        path.write_bytes(data)
        with pytest.raises(ModelError, match=r"given a text that is no GraphDef: .*protobuf's text format"):
            read_graphdef(path)


def test_a_saved_model_is_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "saved_model.pb"
    path.write_bytes(b"\x08\x01\x12\x00")
    with pytest.raises(ModelError, match=r"given a SavedModel; accepted: a TensorFlow GraphDef\. Freeze the"):
        read_graphdef(path)


@pytest.mark.parametrize(
    ("outputs", "kind", "text"),
    [
        (
            ["topp"],
            ModelError,
            "output 'topp': given a name that no node has; accepted: a tensor of the graph.",
        ),
        (["topp"], ModelError, "Did you mean 'top'?"),
        (["logits"], ModelError, "Names that no node reads: 'y', 'z'."),
        (["top:2"], ModelError, "output 'top:2'"),
        (["y", "y:0"], InputError, "outputs: given ['y', 'y:0']; accepted: every tensor once"),
        ("y", InputError, "outputs: given 'y'; accepted: a list of tensor names. Write [\"y\"]."),
        ([], InputError, "a list of tensor names"),
        ([3], InputError, "a list of tensor names"),
    ],
)
def test_outputs_that_are_not_there(outputs: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=re.escape(text)):
        read_graphdef(small().graphdef(), outputs)


def test_a_graph_without_ends() -> None:
    b = GraphBuilder()
    b.const("c", np.float32(1))
    with pytest.raises(ModelError, match="given no tensor that no node reads; accepted: nodes to compute"):
        read_graphdef(b.graphdef())
    b.op("Assert", b.op("Less", "c", np.float32(3), name="less"), ["c"], name="assert")
    with pytest.raises(ModelError, match=r"accepted: outputs=\[...\] with some of: 'less'"):
        read_graphdef(b.graphdef())


def test_without_tensorboard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.graph_pb2", None)
    with pytest.raises(
        InputError, match=r"pip install onedispatch\[tensorflow\] \(or: pip install tensorboard"
    ):
        read_graphdef(b"")
