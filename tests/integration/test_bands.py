# SPDX-License-Identifier: Apache-2.0
"""Chains in bands: what memory tiles have no room for stays there a part at a time, with the same results."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli import app
from onedispatch.dispatch.compiler.grouping import Banded
from onedispatch.operators.plugin import registrations
from onedispatch.operators.scheduling.bands import BandedNest, Stripe, cut_into_rows
from onedispatch.operators.scheduling.buffer import Buffer
from onedispatch.operators.scheduling.keeping import in_buffers
from tests.devices import device_file
from tests.integration.test_grouping import grouping_of
from tests.integration.test_groups import check_same, feed_of, model_of
from tests.ops.case import case, check_beside_onnxruntime, f32
from tests.ops.lowered import lower

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(5)
SMALL = {"memory_tile.memory_bytes": 131072, "device.columns": 2}  # 256 KiB in all


def weights(*shape: int) -> Array:
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


BLOCK = (
    "a = Conv(x, e) b = Clip(a, low, high)"
    " c = Conv <pads = [1, 1, 1, 1], group = 64, strides = [%d, %d]> (b, d)"
)
CLIP = {"low": np.float32(0), "high": np.float32(6)}
INVERTED = {"e": weights(64, 16, 1, 1), "d": weights(64, 1, 3, 3), "p": weights(16, 64, 1, 1), **CLIP}
CHAINS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "an inverted bottleneck": (
        "g (float[1, 16, 64, 64] x) => (float[1, 16, 64, 64] y)"
        f" {{ {BLOCK % (1, 1)} f = Conv(c, p) y = Add(f, x) }}",
        INVERTED,
    ),
    "with strides": (
        f"g (float[1, 16, 64, 64] x) => (float[1, 16, 32, 32] y) {{ {BLOCK % (2, 2)} y = Conv(c, p) }}",
        INVERTED,
    ),
    "rows that bands do not divide": (
        f"g (float[1, 16, 58, 62] x) => (float[1, 16, 58, 62] y) {{ {BLOCK % (1, 1)} y = Conv(c, p) }}",
        INVERTED,
    ),
    "attention": (
        "g (float[1, 512, 64] q, float[1, 64, 512] k, float[1, 512, 64] v) => (float[1, 512, 64] y)"
        " { s = MatMul(q, k) p = Softmax(s) y = MatMul(p, v) }",
        {},
    ),
    "heads": (
        "g (float[8, 192, 32] q, float[8, 32, 192] k, float[8, 192, 32] v) => (float[8, 192, 32] y)"
        " { s = MatMul(q, k) t = Mul(s, f) p = Softmax(t) y = MatMul(p, v) }",
        {"f": np.float32(0.25)},
    ),
    "an MLP": (
        "g (float[512, 64] x) => (float[512, 64] y) { a = MatMul(x, u) b = Relu(a) y = MatMul(b, w) }",
        {"u": weights(64, 256), "w": weights(256, 64)},
    ),
    "elements": (
        "g (float[640, 256] x) => (float[640, 256] y) { a = Tanh(x) b = Softmax(a) y = Mul(b, b) }",
        {},
    ),
    "images of a batch": (
        "g (float[6, 16, 32, 32] x) => (float[6, 16, 16, 16] y)"
        " { a = Conv <pads = [1, 1, 1, 1]> (x, w) b = Relu(a) c = Conv <pads = [1, 1, 1, 1]> (b, w)"
        " y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (c) }",
        {"w": weights(16, 16, 3, 3)},
    ),
    "names of the same bytes": (
        "g (float[512, 64] x) => (float[512, 64] y) { a = MatMul(x, u) r = Reshape(a, n) b = Relu(r)"
        " s = Reshape(b, m) y = MatMul(s, w) }",
        {
            "u": weights(64, 256),
            "w": weights(256, 64),
            "n": np.array([1, 512, 256]),
            "m": np.array([512, 256]),
        },
    ),
    "what others read comes before": (
        "g (float[8, 192, 32] q, float[8, 32, 192] k, float[8, 192, 32] v)"
        " => (float[8, 192, 32] y, float[8, 192, 32] z)"
        " { s = MatMul(q, k) z = Neg(v) p = Softmax(s) o = Abs(z) y = MatMul(p, o) }",
        {},
    ),
}


def check_banded(model: onnx.ModelProto, device: Any, precision: str) -> tuple[Banded, ...]:
    """The same as without groups; less passes device memory where chains run in bands."""
    on = check_same(model, device, precision)
    banded = grouping_of(on).banded
    if banded:
        off = od.compile(model, device, precision, "error", groups="off")
        assert on.timing().ddr_bytes_written < off.timing().ddr_bytes_written
        assert on.timing().cycles < off.timing().cycles
        assert all(one.bands > 1 and one.saved_cycles > 0 for one in banded)
    return banded


@pytest.mark.daily(4)
@pytest.mark.parametrize("name", CHAINS)
def test_same_bits(tmp_path: Path, name: str) -> None:
    model, device = model_of(*CHAINS[name]), device_file(tmp_path, "small", SMALL)
    found = {precision: check_banded(model, device, precision) for precision in ("fp32", "bf16")}
    assert any(found.values()), "it runs in bands in one of them"


QUANTISED = """g (uint8[1, 16, 72, 72] x) => (uint8[1, 16, 72, 72] y)
{ a = QLinearConv(x, s, z, e, ws, wz, s, z)
  b = QLinearConv <pads = [1, 1, 1, 1], group = 64> (a, s, z, d, ws, wz, s, z)
  y = QLinearConv(b, s, z, p, ws, wz, s, z) }"""


def integers(*shape: int) -> Array:
    return RNG.integers(-60, 61, shape).astype(np.int8)


def test_integers(tmp_path: Path) -> None:
    constants = {"e": integers(64, 16, 1, 1), "d": integers(64, 1, 3, 3), "p": integers(16, 64, 1, 1)}
    scales = {"s": np.float32(0.05), "z": np.uint8(128), "ws": np.float32(0.01), "wz": np.int8(0)}
    model, device = model_of(QUANTISED, constants | scales), device_file(tmp_path, "small", SMALL)
    off, on = (od.compile(model, device, fallback="error", groups=groups) for groups in ("off", "on"))
    feed = {"x": RNG.integers(0, 256, (1, 16, 72, 72)).astype(np.uint8)}
    wanted, found = (od.InferenceSession(one).run(None, feed)[0] for one in (off, on))
    np.testing.assert_array_equal(found, wanted)
    check_beside_onnxruntime(model, feed, [found], "fp32")
    assert grouping_of(on).banded


def banded(tmp_path: Path, name: str = "with strides", **options: Any) -> od.CompiledModel:
    return od.compile(model_of(*CHAINS[name]), device_file(tmp_path, "small", SMALL), **options)


def test_halos_are_work(tmp_path: Path) -> None:
    """Each band makes the rows that windows of it reach itself, and every operator of it has its commands."""
    off, on = (banded(tmp_path, groups=groups).timing() for groups in ("off", "on"))
    (chain,) = grouping_of(banded(tmp_path)).banded
    expanded = [
        sum(op.macs for step in (one.latest[1].device_steps if one.latest else ()) for op in step.ops)
        for one in (banded(tmp_path, groups=groups) for groups in ("off", "on"))
    ]
    assert expanded[1] > expanded[0]
    assert len(on.ops) == len(off.ops) + (chain.bands - 1) * len(chain.operators) + 1
    assert all(op.cycles > 0 for op in on.ops)


def test_reports_say_which(tmp_path: Path) -> None:
    onnx.save(model_of(*CHAINS["attention"]), source := tmp_path / "m.onnx")
    command = [
        "inspect",
        str(source),
        "--device",
        str(device_file(tmp_path, "small", SMALL)),
        "--precision",
        "bf16",
    ]
    run = CliRunner().invoke
    (row,) = json.loads(run(app, [*command, "--json"], catch_exceptions=False).stdout)
    (chain,) = row["grouping"]["banded"]
    assert chain["bands"] > 1 and chain["saved_cycles"] > 0 and len(chain["operators"]) > 1
    text = run(app, [*command, "--full"], catch_exceptions=False).stdout
    assert "Chains in bands" in text and f"run in {chain['bands']} bands: " in text
    assert "1 chain in bands" in text and "//band 0" not in {
        one["tensor"] for one in row["grouping"]["passed"]
    }


def test_files_keep_it(tmp_path: Path) -> None:
    compiled = banded(tmp_path)
    compiled.save(tmp_path / "m.od")
    loaded = od.load(tmp_path / "m.od")
    assert grouping_of(loaded) == grouping_of(compiled)
    assert loaded.timing().cycles == compiled.timing().cycles


@pytest.fixture
def doubled() -> Iterator[None]:
    @od.kernel("bands::double", inputs="x", outputs="y")
    class Double:
        def infer(self, n: Any) -> Any:
            return {"y": n["x"].like()}

        def body(self, t: Any) -> None:
            t.y[:] = t.x + t.x

    od.maps("Double", domain="bands")(Double)
    yield
    registrations.forget(__file__)


@pytest.mark.usefixtures("doubled")
def test_operators_from_outside_run_whole(tmp_path: Path) -> None:
    head = (
        '<ir_version: 8, opset_import: ["" : 17, "bands" : 1]> g (float[640, 256] x) => (float[640, 256] y)'
    )
    made = parser.parse_model(f"{head} {{ a = Tanh(x) b = bands.Double(a) c = Softmax(b) y = Mul(c, c) }}")
    compiled = od.compile(made, device_file(tmp_path, "small", SMALL), fallback="error")
    (chain,) = grouping_of(compiled).banded
    assert not any("Double" in name for name in chain.operators)
    (x,) = feed_of(made, 0).values()
    (y,) = od.InferenceSession(compiled).run(None, {"x": x})
    e = np.exp(2 * np.tanh(x))
    np.testing.assert_allclose(y, (e / e.sum(axis=1, keepdims=True)) ** 2, rtol=1e-5)


@pytest.mark.parametrize(
    ("signature", "constants"),
    [
        # Every row of the last result takes all of what lies between.
        ("g (float[512, 64] x) => (float[64, 64] y) { a = Tanh(x) t = Transpose(a) y = MatMul(t, x) }", {}),
        # It is read elsewhere, too.
        (
            "g (float[640, 256] x) => (float[640, 256] a, float[640, 256] y) { a = Tanh(x) y = Softmax(a) }",
            {},
        ),
    ],
)
def test_what_no_band_makes(tmp_path: Path, signature: str, constants: dict[str, Any]) -> None:
    compiled = od.compile(model_of(signature, constants), device_file(tmp_path, "small", SMALL))
    assert not grouping_of(compiled).banded


def test_columns_that_begin_elsewhere_in_their_shares() -> None:
    """A band of 56 rows reads 84, from row 14 on: the second column's begin with its share, so that columns
    have descriptors of their own."""
    ((_, operator),) = lower(case("Tanh", f32(84, 16))).ops
    nest, rows = cut_into_rows(operator.plain_nests[0], 84 * 16)
    band = BandedNest(nest, rows.dim, 14 * 16, 70 * 16).made({0: Stripe(84 * 16, 0, 84 * 16)})
    held = in_buffers(band, {0: Buffer(84 * 16, 42 * 16, 42 * 16)}, 0)
    assert held.split is not None and held.split.members == 28 * 16
    assert held.halo is not None and held.halo.name == held.strided_inputs[0].name
