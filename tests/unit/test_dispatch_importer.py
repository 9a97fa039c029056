# SPDX-License-Identifier: Apache-2.0
"""Reading ONNX: what is wrong with a model is said, whatever it is."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onedispatch.dispatch.frontend.importer import import_model
from onedispatch.transactions.base.errors import ModelError


def info(
    name: str, shape: list[int | str] | None = None, kind: int = TensorProto.FLOAT
) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, [2, 3] if shape is None else shape)


def model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    **weights: np.ndarray,
) -> onnx.ModelProto:
    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "test", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def relu() -> onnx.ModelProto:
    return model([helper.make_node("Relu", ["x"], ["y"])], [info("x")], [info("y")])


def test_path_bytes_and_proto_give_the_same_graph(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(relu(), path)
    graphs = [import_model(m) for m in (str(path), path, path.read_bytes(), onnx.load(path))]
    assert {str(g.inputs) + str([n.op_type for n in g.nodes]) for g in graphs} == {
        str(graphs[0].inputs) + "['Relu']"
    }


def test_the_given_proto_is_left_as_it_is() -> None:
    proto = model(
        [helper.make_node("Add", ["x", "w"], ["y"])], [info("x")], [info("y")], w=np.ones((2, 3), np.float32)
    )
    before = proto.SerializeToString()
    import_model(proto)
    assert proto.SerializeToString() == before


@pytest.mark.parametrize("given", [b"", b"\x00" * 64, b"not a model", 17, None, ["x"], object()])
def test_what_is_no_model_is_a_model_error(given: object) -> None:
    with pytest.raises(ModelError):
        import_model(given)  # type: ignore[arg-type]


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.onnx", tmp_path, "a\0b"):
        with pytest.raises(ModelError):
            import_model(path)


def test_cycles_and_undefined_names() -> None:
    cycle = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Relu", ["a"], ["b"])]
    with pytest.raises(ModelError, match="cycle"):
        import_model(model(cycle, [info("x")], [info("b")]))
    with pytest.raises(ModelError, match="nothing defines"):
        import_model(model([helper.make_node("Relu", ["nope"], ["y"])], [info("x")], [info("y")]))
    with pytest.raises(ModelError, match="nothing defines"):
        import_model(model([helper.make_node("Relu", ["x"], ["y"])], [info("x")], [info("z")]))
    twice = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Tanh", ["x"], ["y"])]
    with pytest.raises(ModelError, match="elsewhere"):
        import_model(model(twice, [info("x")], [info("y")]))


def test_nodes_in_disorder_are_sorted() -> None:
    nodes = [helper.make_node("Tanh", ["a"], ["y"]), helper.make_node("Relu", ["x"], ["a"])]
    assert [n.op_type for n in import_model(model(nodes, [info("x")], [info("y")])).nodes] == ["Relu", "Tanh"]


def test_constants_are_no_nodes_and_dead_nodes_go() -> None:
    nodes = [
        helper.make_node("Constant", [], ["c"], value_float=2.0),
        helper.make_node("Mul", ["x", "c"], ["y"]),
        helper.make_node("Exp", ["x"], ["unused"]),
    ]
    graph = import_model(model(nodes, [info("x")], [info("y")]))
    assert [n.op_type for n in graph.nodes] == ["Mul"]
    assert graph.constants["c"] == np.float32(2)
    assert sorted(f.op_type for f in graph.folded) == ["Constant", "Exp"]


def external(tmp_path: Path, location: str, **more: str) -> Path:
    proto = model(
        [helper.make_node("Add", ["x", "w"], ["y"])], [info("x")], [info("y")], w=np.ones((2, 3), np.float32)
    )
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **more}.items():
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    path = tmp_path / "model" / "m.onnx"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(proto.SerializeToString())
    return path


def test_external_data_is_read(tmp_path: Path) -> None:
    path = external(tmp_path, "w.bin", offset="8", length="24")
    values = np.arange(6, dtype=np.float32)
    (path.parent / "w.bin").write_bytes(bytes(8) + values.tobytes())
    np.testing.assert_array_equal(import_model(path).constants["w"], values.reshape(2, 3))
    with pytest.raises(ModelError, match="folder"):
        import_model(path.read_bytes())


@pytest.mark.parametrize(
    ("location", "more"),
    [
        ("../secret.bin", {}),
        ("a/../../secret.bin", {}),
        ("absent.bin", {}),
        ("", {}),
        ("short.bin", {}),
        ("link.bin", {}),
        ("good.bin", {"offset": "-4"}),
        ("good.bin", {"offset": "8"}),
        ("good.bin", {"length": "4"}),
    ],
)
def test_external_data_stays_inside_the_folder(tmp_path: Path, location: str, more: dict[str, str]) -> None:
    (tmp_path / "secret.bin").write_bytes(bytes(24))
    path = external(tmp_path, location, **more)
    (path.parent / "short.bin").write_bytes(bytes(8))
    (path.parent / "good.bin").write_bytes(bytes(24))
    os.symlink(tmp_path / "secret.bin", path.parent / "link.bin")
    with pytest.raises(ModelError, match="external data"):
        import_model(path)


def test_an_absolute_location_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret.bin").write_bytes(bytes(24))
    with pytest.raises(ModelError, match="external data"):
        import_model(external(tmp_path, str(tmp_path / "secret.bin")))


def sparse_model(values: int, indices: list[object], dims: list[int]) -> onnx.ModelProto:
    sparse = onnx.SparseTensorProto(dims=dims)
    sparse.values.CopyFrom(numpy_helper.from_array(np.ones(values, np.float32), "w"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.array(indices, np.int64), "at"))
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in ("x", "y")]
    add = helper.make_node("Add", ["x", "w"], ["y"])
    graph = helper.make_graph([add], "g", ends[:1], ends[1:], sparse_initializer=[sparse])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_sparse_constants() -> None:
    for indices in ([1, 5], [[0, 1], [1, 2]]):
        (dense,) = import_model(sparse_model(2, indices, [2, 3])).constants.values()
        np.testing.assert_array_equal(dense, [[0, 1, 0], [0, 0, 1]])
    for values, indices, dims in (
        (2, [0, 99], [2, 3]),
        (1, [-1], [2, 3]),
        (1, [[0, 3]], [2, 3]),
        (1, [[0, 0, 0]], [2, 3]),
        (1, [0, 1], [2, 3]),
        (1, [0], [-2, 3]),
    ):
        with pytest.raises(ModelError, match="sparse tensor 'w'"):
            import_model(sparse_model(values, indices, dims))


def test_external_locations_that_no_file_can_have(tmp_path: Path) -> None:
    for location, offset in (
        ("a" * 5000, "0"),
        ("/".join("a" * 3000), "0"),
        ("w.bin", "²"),
        ("w.bin", "9" * 5000),
    ):
        tensor = onnx.TensorProto(name="w", data_type=1, dims=[2, 3], data_location=1)
        for key, value in (("location", location), ("offset", offset)):
            tensor.external_data.add(key=key, value=value)
        (tmp_path / "w.bin").write_bytes(bytes(24))
        ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in ("x", "y")]
        graph = helper.make_graph(
            [helper.make_node("Add", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], [tensor]
        )
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
        with pytest.raises(ModelError, match="external data of tensor 'w'") as caught:
            import_model(tmp_path / "m.onnx")
        assert len(str(caught.value)) < 1000
