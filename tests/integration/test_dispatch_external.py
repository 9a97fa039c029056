# SPDX-License-Identifier: Apache-2.0
"""External data at any depth goes through the same checks, and never from the working directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import SparseTensorProto, TensorProto, helper, numpy_helper

import onedispatch as od
from onedispatch.dispatch.frontend.exporter import sub_model
from onedispatch.dispatch.frontend.importer import import_model
from onedispatch.dispatch.frontend.walk import bodies, tensors

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

FLOAT, BOOL = TensorProto.FLOAT, TensorProto.BOOL
GOOD, BAD = np.float32([1, 2, 3]), np.float32([100, 200, 300])
X = np.float32([1, -1, 2])


def external(name: str, kind: int = FLOAT, count: int = 3, location: str = "w.bin") -> TensorProto:
    tensor = TensorProto(name=name, data_type=kind, dims=[count])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    return tensor


def node(op: str, reads: str, writes: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, reads.split(), writes.split(), **attributes)


def whole(nodes: list[onnx.NodeProto], functions: list[onnx.FunctionProto] | None = None) -> onnx.ModelProto:
    ins = [helper.make_tensor_value_info("x", FLOAT, [3]), helper.make_tensor_value_info("c", BOOL, [])]
    graph = helper.make_graph(nodes, "g", ins, [helper.make_tensor_value_info("y", FLOAT, [3])])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=functions)


def choose(then: onnx.GraphProto, where: str = "y") -> onnx.NodeProto:
    out = [helper.make_tensor_value_info("e", FLOAT, [3])]
    other = helper.make_graph([node("Neg", "x", "e")], "else", [], out)
    return node("If", "c", where, then_branch=then, else_branch=other)


def branch(nodes: list[onnx.NodeProto], *weights: TensorProto) -> onnx.GraphProto:
    return helper.make_graph(
        nodes, "then", [], [helper.make_tensor_value_info("t", FLOAT, [3])], list(weights)
    )


def in_initializer() -> onnx.ModelProto:
    return whole([choose(branch([node("Add", "x w", "t")], external("w")))])


def in_constant() -> onnx.ModelProto:
    return whole([choose(branch([node("Constant", "", "w", value=external("w")), node("Add", "x w", "t")]))])


def in_nested_if() -> onnx.ModelProto:
    inner = branch([node("Add", "x w", "t")], external("w"))
    return whole([choose(branch([choose(inner, "i"), node("Identity", "i", "t")]))])


def in_main_constant() -> onnx.ModelProto:
    return whole([node("Constant", "", "w", value=external("w")), node("Add", "x w", "y")])


def in_function() -> onnx.ModelProto:
    body = [node("Constant", "", "w", value=external("w")), node("Add", "a w", "b")]
    function = helper.make_function("own", "F", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    return whole([node("F", "x", "y", domain="own")], [function])


def in_sparse() -> onnx.ModelProto:
    proto = whole([node("Add", "x w", "y")])
    indices = numpy_helper.from_array(np.int64([0, 1, 2]), "i")
    proto.graph.sparse_initializer.append(SparseTensorProto(values=external("w"), indices=indices, dims=[3]))
    return proto


def in_sparse_constant() -> onnx.ModelProto:
    sparse = SparseTensorProto(
        values=external("w"), indices=numpy_helper.from_array(np.int64([0, 1, 2]), "i"), dims=[3]
    )
    return whole([node("Constant", "", "w", sparse_value=sparse), node("Add", "x w", "y")])


CASES = [
    in_initializer,
    in_constant,
    in_nested_if,
    in_main_constant,
    in_function,
    in_sparse,
    in_sparse_constant,
]


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The model's folder, with good data; the working directory holds other data of the same name."""
    for name, data in (("model", GOOD), ("cwd", BAD)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "w.bin").write_bytes(data.tobytes())
    monkeypatch.chdir(tmp_path / "cwd")
    return tmp_path / "model"


@pytest.mark.parametrize("make", CASES)
def test_data_comes_from_beside_the_model(make: Callable[[], onnx.ModelProto], folders: Path) -> None:
    path = folders / "m.onnx"
    path.write_bytes(make().SerializeToString())
    (y,) = od.InferenceSession(path).run(None, {"x": X, "c": np.array(True)})
    np.testing.assert_array_equal(y, X + GOOD)


@pytest.mark.parametrize("make", CASES)
def test_models_without_a_folder_have_no_external_data(
    make: Callable[[], onnx.ModelProto], folders: Path
) -> None:
    proto = make()
    before = proto.SerializeToString()
    for given in (proto, before):
        with pytest.raises(od.ModelError, match=r"external data of tensor 'w'.*no folder"):
            od.compile(given)
    assert proto.SerializeToString() == before


@pytest.mark.parametrize("make", CASES)
@pytest.mark.parametrize("location", ["../cwd/w.bin", "link.bin", "absent.bin", "", "short.bin"])
def test_the_same_checks_at_any_depth(
    make: Callable[[], onnx.ModelProto], location: str, folders: Path
) -> None:
    (folders / "link.bin").symlink_to(folders.parent / "cwd" / "w.bin")
    (folders / "short.bin").write_bytes(bytes(4))
    proto = make()
    for body, _ in bodies(proto):
        for tensor in tensors(body):
            for entry in tensor.external_data:
                entry.value = location
    path = folders / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(od.ModelError, match="external data"):
        od.compile(path)


def test_host_regions_are_never_handed_a_reference() -> None:
    """Also not by a graph that did not come through the importer, as from a file of ours."""
    graph = import_model(whole([node("Relu", "x", "y")]))
    stranger = in_initializer().graph.node[0]
    nodes = [type(graph.nodes[0])("if", "If", "", ("c",), ("y",), proto=stranger.SerializeToString())]
    with pytest.raises(od.ModelError, match="external data"):
        sub_model(graph, nodes, graph.inputs, graph.outputs, {})
