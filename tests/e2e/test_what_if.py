# SPDX-License-Identifier: Apache-2.0
"""``onedispatch time --devices --batch --sweep``: each row is what a model costs, compiled for it alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli import app, output
from onedispatch.dispatch.tools import zoo
from onedispatch.dispatch.tools.what_if import parse_batches, parse_sweeps, varied
from onedispatch.transactions import find_device
from tests.devices import device_text
from tests.host_nodes import on_host

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

Dims = list[int | str]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(output.console, "_width", 400)
    monkeypatch.chdir(tmp_path)


def network(batch: int | str, target: list[int] | None = None, *, host: bool = False) -> onnx.ModelProto:
    """A convolution, its result as rows by a Reshape to ``target``, and a product of these."""
    rng = np.random.default_rng(2)
    weights: dict[str, Any] = {
        "w": rng.standard_normal((8, 3, 3, 3)).astype(np.float32),
        "v": rng.standard_normal((512, 10)).astype(np.float32),
        "t": np.int64(target or [-1, 512]),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="conv", pads=[1, 1, 1, 1]),
        *(on_host("a", "b") if host else [helper.make_node("Relu", ["a"], ["b"], name="relu")]),
        helper.make_node("Reshape", ["b", "t"], ["c"], name="rows"),
        helper.make_node("MatMul", ["c", "v"], ["y"], name="product"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 10])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["time", *arguments])


def rows(model: onnx.ModelProto, *arguments: str) -> list[dict[str, Any]]:
    onnx.save(model, "m.onnx")
    result = invoke("m.onnx", *arguments, "--json")
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)["rows"]
    return found


def costs(row: dict[str, Any]) -> tuple[float, ...]:
    assert not row["error"], row
    return row["cycles"], row["us"], row["ddr_bytes"], row["ddr_burst_bytes"], row["dispatches"]


def expected(model: Any, device: str = "npu2", **options: Any) -> tuple[float, ...]:
    """The same of a model that is compiled by itself."""
    report = od.compile(model, device, **options).timing()
    traffic = report.ddr_bytes_read + report.ddr_bytes_written
    return report.cycles, report.seconds * 1e6, traffic, report.ddr_burst_bytes, report.dispatches


def test_rows_are_separate_timings_of_every_device_and_batch() -> None:
    Path("my.toml").write_text(device_text({"device.columns": 3, "ddr.gigabytes_per_second": 5}))
    devices = ["npu1", "npu2_2col", "my.toml"]
    found = rows(network("N"), "--devices", ",".join(devices), "--batch", "1,4,9")
    assert [(row["device"], row["batch"]) for row in found] == [(d, b) for d in devices for b in (1, 4, 9)]
    for row in found:
        shapes = {"x": (row["batch"], 3, 8, 8)}
        assert costs(row) == expected(network("N"), row["device"], shapes=shapes)
        assert row["us_per_sample"] == row["us"] / row["batch"]
        assert row["macs"] == row["batch"] * (64 * 8 * 27 + 512 * 10)
    assert len({row["cycles"] for row in found}) == 9


@pytest.mark.parametrize("target", [[-1, 512], [2, 512], [2, -1], [0, 512]])
def test_a_batch_that_the_model_states_is_replaced(target: list[int]) -> None:
    found = rows(network(2, target), "--batch", "2,5")
    for row in found:
        assert costs(row) == expected(network(row["batch"], [row["batch"], 512]))


def test_light_models_have_batches() -> None:
    found = json.loads(invoke("light_squeezenet", "--batch", "2", "--json").stdout)["rows"]
    model = zoo.randomised(zoo.find_model("light_squeezenet"), batch=2)
    assert [costs(row) for row in found] == [expected(model)]


def test_the_table_of_the_page_is_what_is_printed() -> None:
    page = (Path(__file__).parents[2] / "dispatch" / "GATING.md").read_text(encoding="utf-8")
    command, _, table = page.partition("```text\n$ onedispatch time ")[2].partition("```")[0].partition("\n")
    assert invoke(*command.split()).stdout == table


def test_a_row_that_does_not_fit_says_why_and_others_go_on() -> None:
    onnx.save(network(1, [16, 32]), "m.onnx")  # which takes samples apart: no product follows
    onnx.save(network(1, [1, 512]), "fits.onnx")
    result = invoke("m.onnx", "--batch", "1,2")
    assert result.exit_code == 1
    result = invoke("fits.onnx", "--sweep", "core.data_memory_bytes=1024,65536", "--json")
    small, usual = json.loads(result.stdout)["rows"]
    assert result.exit_code == 0 and small["error"] and costs(usual) == expected("fits.onnx")
    text = invoke("fits.onnx", "--sweep", "core.data_memory_bytes=1024,65536").stdout
    assert "does not fit" in text and f"npu2, 1024: {small['error']}" in text


def save_graph(nodes: list[onnx.NodeProto], inputs: dict[str, Dims], output: Dims | None) -> None:
    """As m.onnx; ``t`` is a constant, [2, 4]."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in inputs.items()]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, output)
    graph = helper.make_graph(nodes, "g", values, [y], [numpy_helper.from_array(np.int64([2, 4]), "t")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "m.onnx")


@pytest.mark.parametrize(
    ("op_type", "inputs", "output", "said"),
    [
        ("ReduceSum", ["x"], [1, 1], "output 'y' has shape [1, 1] for a batch of 3"),
        ("Reshape", ["x", "t"], [2, 4], "elements"),
    ],
)
def test_a_graph_that_keeps_its_batch_is_refused(
    op_type: str, inputs: list[str], output: Dims, said: str
) -> None:
    save_graph([helper.make_node(op_type, inputs, ["y"])], {"x": [1, 8]}, output)
    assert invoke("m.onnx", "--batch", "1").exit_code == 0
    result = invoke("m.onnx", "--batch", "3")
    assert result.exit_code == 1 and said in result.stdout, result.output


@pytest.mark.parametrize("sizes", [(2, 3), ("N", "M")])
def test_inputs_without_a_common_leading_dimension_are_refused(sizes: tuple[int | str, int | str]) -> None:
    inputs: dict[str, Dims] = {name: [size, 8] for name, size in zip("ab", sizes, strict=True)}
    save_graph([helper.make_node("Concat", ["a", "b"], ["y"], axis=0)], inputs, None)
    error = invoke("m.onnx", "--batch", "2").exception
    assert isinstance(error, od.InputError) and "inputs with one leading dimension" in str(error)


def test_columns_are_partitions_and_more_are_a_larger_array() -> None:
    found = rows(network(8), "--devices", "npu1", "--sweep", "columns=1..4", "--sweep", "core_rows=2,4")
    swept = [(row["swept"]["device.columns"], row["swept"]["device.core_rows"]) for row in found]
    assert swept == [(c, r) for c in (1, 2, 3, 4) for r in (2, 4)]
    for row in found[1::2]:
        columns = int(row["swept"]["device.columns"])
        assert costs(row) == expected(network(8), "npu1" if columns == 4 else f"npu1_{columns}col")
    Path("wide.toml").write_text(device_text({"device.columns": 6}, "npu1"))
    (wide,) = rows(network(8), "--devices", "npu1", "--sweep", "columns=6")
    assert costs(wide) == expected(network(8), "wide.toml")


def test_keys_of_device_files_are_swept() -> None:
    found = rows(network(64), "--device", "npu1", "--sweep", "gigabytes_per_second=0.25..64:x16")
    cycles = []
    for row in found:
        rate = row["swept"]["ddr.gigabytes_per_second"]
        Path("my.toml").write_text(device_text({"ddr.gigabytes_per_second": rate}, "npu1"))
        assert costs(row) == expected(network(64), "my.toml")
        cycles.append(row["cycles"])
    assert len(cycles) == 3 and cycles == sorted(cycles, reverse=True) and cycles[0] > 2 * cycles[-1]
    assert found[0]["bound_by"].startswith("memory ") and not found[-1]["bound_by"].startswith("memory ")


def test_options_of_compiling_hold_in_every_row() -> None:
    onnx.save(network(8), "m.onnx")
    for options in ({"precision": "bf16"}, {"groups": "off"}, {"catalog": "none"}):
        ((name, value),) = options.items()
        (row,) = rows(network(8), "--devices", "npu2", f"--{name}", value)
        assert costs(row) == expected(network(8), **options)


def test_nodes_on_the_host_are_counted_and_their_products_are_not() -> None:
    (row,) = rows(network(1, host=True), "--devices", "npu2")
    assert row["host_nodes"] == 2 and row["macs"] == 64 * 8 * 27 + 512 * 10 and row["dispatches"] == 2


def test_open_dimensions_are_ones_or_what_shape_says() -> None:
    (row,) = rows(network("N"), "--devices", "npu2")
    assert costs(row) == expected(network(1)) and row["us_per_sample"] is None
    (row,) = rows(network("N"), "--devices", "npu2", "--shape", "x=7,3,8,8")
    assert costs(row) == expected(network(7))
    (row,) = rows(network("N"), "--shape", "x=7,3,8,8", "--batch", "3")
    assert costs(row) == expected(network(3))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--sweep", "columns"], "--sweep: given 'columns'; accepted: key=values"),
        (["--sweep", "column=1"], "Did you mean 'device.columns'?"),
        (["--sweep", "ddr.gigabyte_per_second=1"], "Did you mean 'ddr.gigabytes_per_second'?"),
        (["--sweep", "locks=1"], "accepted: core.locks, memory_tile.locks, shim.locks"),
        (["--sweep", "columns=1", "--sweep", "device.columns=2"], "device.columns once more"),
        (["--sweep", "columns=8..1"], "ranges that begin with their smaller end"),
        (["--sweep", "columns=1..8:0"], "ranges that begin with their smaller end"),
        (["--sweep", "columns=1..8:x1"], "ranges that begin with their smaller end"),
        (["--sweep", "columns=1,,2"], "a list with commas, without gaps"),
        (["--sweep", "columns=a"], "values such as 32768,65536"),
        (["--sweep", "ddr.gigabytes_per_second=0..1:0.0001"], "up to 1,000 values"),
        (["--sweep", "columns=1..40", "--sweep", "core_rows=1..30"], "1,200 combinations"),
        (["--batch", "0"], "whole numbers from 1 to"),
        (["--batch", "1.5"], "whole numbers from 1 to"),
        (["--devices", "npu1,npu9"], "'npu9'"),
        (["--device", "npu1", "--devices", "npu2"], "one beside --device"),
        (["--devices", "npu1", "--precision", "fp8"], "'fp8'"),
    ],
)
def test_questions_that_are_none_are_refused(arguments: list[str], said: str) -> None:
    onnx.save(network(1), "m.onnx")
    error = invoke("m.onnx", *arguments).exception
    assert isinstance(error, od.InputError | od.DeviceError) and said in str(error), error


def test_compiled_models_have_one_device() -> None:
    od.compile(network(1)).save("m.od")
    error = invoke("m.od", "--devices", "npu1").exception
    assert isinstance(error, od.InputError) and "the ONNX file, which is compiled for each" in str(error)


def test_values_and_ranges() -> None:
    (sweep,) = parse_sweeps(["core.data_memory_bytes=1024,16384..65536:x2,1024"])
    assert sweep.values == (1024, 16384, 32768, 65536)
    assert parse_sweeps(["gigabytes_per_second=30..121:30"])[0].values == (30, 60, 90, 120)
    assert parse_sweeps(["gigabytes_per_second=0.1..0.3:0.1"])[0].values == (0.1, 0.2, 0.3)
    assert parse_batches(["1..3", "8"]) == [1, 2, 3, 8]


def test_varied_devices_are_those_of_files_and_refuse_what_files_may_not_say() -> None:
    npu2 = find_device("npu2")
    assert varied(npu2, {}) is npu2
    assert varied(npu2, {"device.columns": 4.0}) == find_device("npu2_4col")
    assert varied(npu2, {"core.locks": 8.0}) == npu2.with_constants(core__locks=8.0)
    for key, value in {"device.columns": 0.0, "device.core_rows": 2.5, "core.stack_bytes": 65536.0}.items():
        with pytest.raises(od.DeviceError):
            varied(npu2, {key: value})


def macs_of(signature: str, node: str) -> int:
    text = f'<ir_version: 8, opset_import: ["": 17]> g {signature} {{ [n] y = {node} }}'
    profile = od.compile(onnx.parser.parse_model(text), fallback="error").timing().profile
    assert profile is not None and all(row.macs == 0 or row.nodes == ("n",) for row in profile.rows)
    return profile.macs


@pytest.mark.parametrize(
    ("signature", "node", "macs"),
    [
        (
            "(float[2,6,9,9] x, float[4,3,3,3] w) => (float[2,4,4,4] y)",
            "Conv<group=2, strides=[2,2]>(x, w)",
            2 * 4 * 16 * 27,
        ),
        (
            "(float[1,4,5,5] x, float[4,2,3,3] w) => (float[1,2,7,7] y)",
            "ConvTranspose(x, w)",
            2 * 49 * 4 * 9,
        ),
        ("(float[5,1,3,4] x, float[2,4,6] w) => (float[5,2,3,6] y)", "MatMul(x, w)", 5 * 2 * 3 * 6 * 4),
        ("(float[4] x, float[4] w) => (float y)", "MatMul(x, w)", 4),
        ("(float[7,3] x, float[5,7] w) => (float[3,5] y)", "Gemm<transA=1, transB=1>(x, w)", 3 * 5 * 7),
        (
            "(float[6,2,3] x, float[1,16,3] w, float[1,16,4] r) => (float[6,1,2,4] y)",
            "LSTM<hidden_size=4>(x, w, r)",
            6 * 2 * 16 * 7,
        ),
        (
            "(float[2,3,4] x, float[2,4,5] w) => (float[2,3,5] y)",
            'Einsum<equation="bij,bjk->bik">(x, w)',
            2 * 3 * 4 * 5,
        ),
        ("(float[2,3] x, float[2,3] w) => (float[2,3] y)", "Mul(x, w)", 0),
    ],
)
def test_macs_are_counted_by_hand(signature: str, node: str, macs: int) -> None:
    assert macs_of(signature, node) == macs
