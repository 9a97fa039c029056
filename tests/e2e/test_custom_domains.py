# SPDX-License-Identifier: Apache-2.0
"""Models with nodes of custom domains, from the decorated class to the command line: on the simulated array,
on the host, in saved files. Both places run one body, behind one interface, and give the same bits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli import app
from onedispatch.operators.plugin import registrations
from tests.plugins import model, node_model, value

Array = np.ndarray[Any, Any]
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


pytestmark = pytest.mark.usefixtures("no_plugins")


def scale_add(name: str = "acme::scale_add", **more: Any) -> None:
    @od.kernel(name, inputs="x y", outputs="z", scalars={"a": "f32"}, **more)
    class ScaleAdd:
        def infer(self, n: Any) -> Any:
            return {"z": n["x"].like()}

        def index_space(self, n: Any) -> Any:
            return n["x"].shape

        def access(self, n: Any) -> Any:
            return n.elementwise("x", "y", "z")

        def body(self, t: Any) -> None:
            t.z[:] = t.a * t.x + t.y

    od.maps("ScaleAdd", domain="acme")(ScaleAdd)


def table_lookup(**more: Any) -> None:
    """Everything that an instance may have: a table, scratch, pads, fills, several outputs, narrow types."""

    @od.kernel(
        "acme::lookup",
        inputs=[od.In("x", "i8", pad=1.0)],
        outputs=[od.Out("z", "bf16"), od.Out("sums", "f32", fill=-1.0)],
        scalars={"bias": ("i32", 2)},
        aux="table:f32",
        scratch="kept:f32",
        **more,
    )
    class Lookup:
        def infer(self, n: Any) -> Any:
            rows, width = n["x"].shape
            n.aux("table", np.arange(256) / 8)
            n.scratch("kept", (rows * width,))
            return {"z": ("bf16", (rows, width)), "sums": ("f32", (rows, 3))}

        def index_space(self, n: Any) -> Any:
            return (n["x"].shape[0],)

        def access(self, n: Any) -> Any:
            return {
                **n.access("x", n.dim(0, start=-1, end=1), n.whole()),
                **n.access("z", n.dim(0), n.whole()),
                **n.access("sums", n.dim(0), n.whole()),
            }

        def body(self, t: Any) -> None:
            values = t.table[t.x.astype(np.int64) + t.bias]
            t.z[:] = values[1:-1].astype(BFLOAT16)
            for row in range(t.shape[0]):
                t.kept[0] = values[row : row + 3].sum()
                t.sums[row, 0] = t.kept[0]

    od.maps("Lookup", domain="acme")(Lookup)


def chain(shape: Any = (5, 7)) -> ModelProto:
    nodes = [
        helper.make_node("ScaleAdd", ["x", "y"], ["z"], domain="acme", name="first", a=2.0),
        helper.make_node("Relu", ["z"], ["r"], name="relu"),
        helper.make_node("ScaleAdd", ["r", "x"], ["w"], domain="acme", name="last", a=-0.5),
    ]
    return model(nodes, [value("x", shape), value("y", shape)], [value("w", shape)])


def feed(*shape: int) -> dict[str, Array]:
    rng = np.random.default_rng(3)
    return {name: rng.standard_normal(shape).astype(np.float32) for name in ("x", "y")}


def answer(x: Array, y: Array) -> Array:
    return np.float32(-0.5) * np.maximum(np.float32(2) * x + y, 0) + x


def test_a_chain_is_one_dispatch() -> None:
    scale_add()
    arrays = feed(5, 7)
    session = od.InferenceSession(chain(), fallback="error")
    np.testing.assert_array_equal(session.run(None, arrays)[0], answer(**arrays))
    assert session.last_run is not None and session.last_run.dispatches == 1
    rows = {row.name: row for row in session.last_run.ops}
    assert rows["first"].op_type == rows["last"].op_type == "acme::scale_add@1"
    assert all(row.cycles > 0 for row in rows.values())
    assert [row.reason for row in session.placement if row.op_type == "ScaleAdd"] == [
        "as acme::scale_add@1"
    ] * 2


def test_values_beside_the_host(tmp_path: Path) -> None:
    """The host infers no custom kernel: what they make has the type that they say."""
    scale_add()
    path = tmp_path / "m.onnx"
    onnx.save(chain(), path)
    result = CliRunner().invoke(app, ["run", str(path), "--random", "--compare", "--json"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["comparison"]["rows"]
    assert {row["value"]: row["error"] for row in rows} == {"z": 0, "r": 0, "w": 0}


def test_open_dimensions_take_what_comes() -> None:
    scale_add()
    session = od.InferenceSession(chain(("N", 4)), fallback="error")
    for rows in (1, 6):
        arrays = feed(rows, 4)
        np.testing.assert_array_equal(session.run(None, arrays)[0], answer(**arrays))


def both_places(kernel: Any, proto: ModelProto, given: dict[str, Array]) -> tuple[list[Array], list[Array]]:
    """Outputs of the array and of the host."""
    found = []
    for devices in (None, "npu1"):
        kernel(devices=devices)
        session = od.InferenceSession(proto, device="npu2")
        places = {row.device for row in session.placement if row.op_type in ("ScaleAdd", "Lookup")}
        assert places == {"npu" if devices is None else "cpu"}
        if devices:
            assert any("the kernel's own body" in row.reason for row in session.placement)
        found.append(session.run(None, given))
        registrations.forget()
    return found[0], found[1]


def test_the_host_gives_the_bits_of_the_array() -> None:
    arrays = feed(5, 7)
    for one, other in zip(*both_places(scale_add, chain(), arrays), strict=True):
        np.testing.assert_array_equal(one, other)


def test_tables_scratch_pads_and_fills_on_the_host() -> None:
    node = helper.make_node("Lookup", ["x"], ["z", "sums"], domain="acme", name="n0", bias=3)
    outputs = [value("z", None, TensorProto.BFLOAT16), value("sums", None)]
    proto = model([node], [value("x", [6, 5], TensorProto.INT8)], outputs)
    x = np.random.default_rng(1).integers(0, 100, (6, 5)).astype(np.int8)
    array, host = both_places(table_lookup, proto, {"x": x})
    padded = np.pad(x.astype(np.int64), ((1, 1), (0, 0)), constant_values=1) + 3
    table = (np.arange(256) / 8).astype(np.float32)
    sums = np.full((6, 3), -1, np.float32)
    sums[:, 0] = [table[padded[i : i + 3]].sum() for i in range(6)]
    for found in (array, host):
        assert found[0].dtype == BFLOAT16
        np.testing.assert_array_equal(found[0], table[padded[1:-1]].astype(BFLOAT16))
        np.testing.assert_array_equal(found[1], sums)


def test_a_body_that_raises_on_the_host_is_an_error_with_its_cause() -> None:
    @od.kernel("acme::broken", inputs="x", outputs="z", devices="npu1")
    class Broken:
        def body(self, t: Any) -> None:
            raise ZeroDivisionError("by design")

    od.maps("ScaleAdd", domain="acme")(Broken)
    session = od.InferenceSession(node_model("ScaleAdd", [3]))
    for _ in range(2):  # the session goes on
        with pytest.raises(
            od.KernelRuntimeFailureError, match=r"acme::broken@1.*ZeroDivisionError: by design"
        ):
            session.run(None, {"x": np.zeros(3, np.float32)})


def test_what_is_too_large_for_a_core_runs_on_the_host() -> None:
    """Every member may read all of x: a core holds 64 KB."""

    @od.kernel("acme::sum_all", inputs="x y", outputs="z", scalars={"a": "f32"})
    class SumAll:
        def infer(self, n: Any) -> Any:
            return {"z": n["y"].like()}

        def access(self, n: Any) -> Any:
            return {**n.access("x", None, None), **n.elementwise("y", "z")}

        def body(self, t: Any) -> None:
            t.z[:] = t.a * t.x.sum(dtype=np.float32) + t.y

    od.maps("ScaleAdd", domain="acme")(SumAll)
    node = helper.make_node("ScaleAdd", ["x", "y"], ["z"], domain="acme", name="n0", a=1.0)
    for rows, place in ((4, "npu"), (4096, "cpu")):
        proto = model([node], [value("x", [rows, 16]), value("y", [8])], [value("z", [8])])
        session = od.InferenceSession(proto)
        x, y = np.ones((rows, 16), np.float32), np.arange(8, dtype=np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x, "y": y})[0], 16 * rows + y)
        (row,) = session.placement
        assert row.device == place
    assert "operand x" in row.reason and "262,144 bytes" in row.reason
    with pytest.raises(od.UnsupportedModelError, match=r"n0 .*operand x"):
        od.compile(proto, fallback="error")


def test_casts_on_the_array() -> None:
    scale_add()
    shape = (4, 6)
    node = helper.make_node("ScaleAdd", ["x", "y"], ["z"], domain="acme", name="n0", a=2.0)
    inputs = [value(name, shape, BFLOAT16) for name in "xy"]
    proto = model([node], inputs, [value("z", None, BFLOAT16)])
    with pytest.raises(od.KernelDtypeError, match="given bf16; accepted: f32"):
        od.compile(proto)
    session = od.InferenceSession(proto, cast_policy="f32")
    x, y = (a.astype(BFLOAT16) for a in feed(*shape).values())
    (found,) = session.run(None, {"x": x, "y": y})
    np.testing.assert_array_equal(found, (2 * x.astype(np.float32) + y.astype(np.float32)).astype(BFLOAT16))
    casts = [row for row in session.placement if row.op_type == "Cast"]
    assert len(casts) == 3 and all("inserted by cast_policy" in row.reason for row in casts)


# -- saved models ---------------------------------------------------------------------------------

FILE = """
import numpy as np
import onedispatch as od

@od.kernel("acme::scale_add", inputs="x y", outputs="z", scalars={"a": "f32"}%s)
class ScaleAdd:
    def infer(self, n):
        return {"z": n["x"].like()}

    def body(self, t):
        t.z[:] = t.a * t.x + t.y

od.maps("ScaleAdd", domain="acme")(ScaleAdd)
"""


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    (tmp_path / "acme_kernels.py").write_text(FILE % "")
    return tmp_path / "acme_kernels.py"


@pytest.mark.parametrize("more", ["", ', devices="npu1"'], ids=["array", "host"])
def test_a_saved_model_names_its_kernels(more: str, plugin: Path, tmp_path: Path) -> None:
    plugin.write_text(FILE % more)
    compiled = od.compile(chain(), plugins=[str(plugin)])
    (used,) = next(iter(compiled.executables.values())).kernels
    assert (used.name, used.origin) == ("acme::scale_add@1", "acme_kernels.py")
    assert used.nodes == (("first", "last") if more else ())
    compiled.save(tmp_path / "m.od")
    arrays = feed(5, 7)
    loaded = od.load(tmp_path / "m.od")
    np.testing.assert_array_equal(od.InferenceSession(loaded).run(None, arrays)[0], answer(**arrays))
    od.plugins.reset()
    with pytest.raises(od.KernelNotFoundError) as refused:
        od.load(tmp_path / "m.od")
    for said in ("acme::scale_add@1", f"0x{used.digest:08X}", "acme_kernels.py", "plugins=[...]"):
        assert said in str(refused.value)
    again = od.load(tmp_path / "m.od", plugins=[str(plugin)])
    np.testing.assert_array_equal(od.InferenceSession(again).run(None, arrays)[0], answer(**arrays))


def test_a_saved_graph_needs_its_plugin_too(plugin: Path, tmp_path: Path) -> None:
    od.compile(chain(("N", 4)), plugins=[str(plugin)]).save(tmp_path / "m.od")
    od.plugins.reset()
    with pytest.raises(od.UnknownOperatorError, match=r"acme\.ScaleAdd"):
        od.load(tmp_path / "m.od")
    session = od.InferenceSession(od.load(tmp_path / "m.od", plugins=[str(plugin)]))
    arrays = feed(3, 4)
    np.testing.assert_array_equal(session.run(None, arrays)[0], answer(**arrays))


def test_compiling_is_deterministic_wherever_the_plugin_lies(plugin: Path, tmp_path: Path) -> None:
    """Two processes, two folders, one file."""
    chain_path = tmp_path / "chain.onnx"
    chain_path.write_bytes(chain().SerializeToString())
    found = []
    for name in ("a", "b"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "acme_kernels.py").write_text(plugin.read_text())
        file, target = str(folder / "acme_kernels.py"), str(folder / "m.od")
        code = (
            f"import onedispatch as od; od.compile({str(chain_path)!r}, plugins=[{file!r}]).save({target!r})"
        )
        subprocess.run([sys.executable, "-c", f"import onedispatch as od; {code}"], check=True, timeout=300)
        found.append((folder / "m.od").read_bytes())
    assert found[0] == found[1]


# -- the command line -----------------------------------------------------------------------------


def onedispatch(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "onedispatch.dispatch.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_inspect_shows_kernels_and_what_they_declare(plugin: Path, tmp_path: Path) -> None:
    plugin.write_text(FILE % ', deterministic=False, in_place={"z": "x"}')
    path = tmp_path / "chain.onnx"
    path.write_bytes(chain().SerializeToString())
    done = onedispatch("inspect", str(path), "--plugin", str(plugin), "--json")
    assert done.returncode == 0, done.stderr
    (kernel,) = json.loads(done.stdout)[0]["kernels"]
    assert (kernel["name"], kernel["origin"], kernel["nodes"]) == ("acme::scale_add@1", "acme_kernels.py", [])
    assert "not to be deterministic" in kernel["notes"][0] and "takes the memory of x" in kernel["notes"][1]
    told = onedispatch("inspect", str(path), "--plugin", str(plugin))
    assert "Custom kernels" in told.stdout and "warning: it is declared" in told.stdout


def test_the_cast_policy_of_the_command_line(plugin: Path, tmp_path: Path) -> None:
    node = helper.make_node("ScaleAdd", ["x", "x"], ["z"], domain="acme", name="n0", a=2.0)
    ends = [[value(name, [4], np.float16)] for name in "xz"]
    path = tmp_path / "half.onnx"
    path.write_bytes(model([node], *ends).SerializeToString())
    refused = onedispatch("run", str(path), "--plugin", str(plugin), "--random")
    assert refused.returncode != 0 and "cast_policy" in refused.stderr
    done = onedispatch(
        "run", str(path), "--plugin", str(plugin), "--random", "--cast-policy", "f32", "--json"
    )
    assert done.returncode == 0, done.stderr
    kinds = [row["op_type"] for row in json.loads(done.stdout)["report"]["ops"]]
    assert "acme::scale_add@1" in kinds
