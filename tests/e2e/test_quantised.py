# SPDX-License-Identifier: Apache-2.0
"""Networks by onnxruntime's own quantiser: strict, in one dispatch, the numbers of onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from sklearn.datasets import load_digits

import onedispatch as od
from onedispatch.dispatch.rules.integers import GROUPS, Group
from onedispatch.operators.declarations import registry
from tests.e2e.quantised_models import (
    NETWORKS,
    SCHEMES,
    Feed,
    Scheme,
    dynamic,
    feeds_of,
    output_scale,
    quantised,
)
from tests.integration.integer_models import AXES, group_model

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")


def reference(model: onnx.ModelProto, feed: Feed, *, as_it_is: bool = False) -> Any:
    """By onnxruntime, which rewrites groups of operators unless ``as_it_is``: those of int8 too."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.qdqisint8allowed", "1")  # else it computes them in floats
    if as_it_is:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feed)[0]


MAPPED = [
    pytest.param(
        group,
        several,
        id=f"{group.op_type}-{group.target}{'-floats' * group.floats}{'-per_channel' * several}",
    )
    for group in GROUPS
    if registry.mapping_for(group.domain, group.target) is not None
    for several in ((False, True) if group.op_type in AXES else (False,))
]


@pytest.mark.parametrize(("group", "several"), MAPPED)
def test_every_group_is_exact(group: Group, several: bool) -> None:
    """Bit for bit what onnxruntime's optimised session computes of the same model."""
    changes: dict[str, Any] = {}
    if several:
        name, axis = AXES[group.op_type]
        bias = {"B": {"constant": False}} if "B" in group.operands else {}
        changes = {name: {"axis": axis}, **bias}
    model = group_model(group, **changes)
    output = "result:uint8" if group.result else "made"
    proto = model.proto(output)
    session = od.InferenceSession(proto, fallback="error")
    assert any(f"rule {group.target}" in row.reason for row in session.placement)
    random = np.random.default_rng(8)
    feed = {
        one.name: random.integers(0, 2 if "bool" in one.type else 255, one.shape).astype(
            bool if "bool" in one.type else one.type.removeprefix("tensor(").removesuffix(")")
        )
        for one in session.get_inputs()
    }
    np.testing.assert_array_equal(session.run(None, feed)[0], reference(proto, feed))


@pytest.mark.daily(3)
@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("network", NETWORKS)
def test_static_quantisation(network: str, scheme: Scheme, tmp_path: Path) -> None:
    """Bit for bit where activations have 8 bits, within one unit of the output's scale where they have 16."""
    floats = NETWORKS[network]()
    model = quantised(floats, scheme, tmp_path, feeds_of(floats, 4, seed=5))
    session = od.InferenceSession(model, fallback="error")
    products = [row for row in session.placement if row.op_type in ("Conv", "Gemm", "MatMul")]
    assert all(row.reason.startswith("rule ") for row in products), products
    (feed,) = feeds_of(floats, 1, seed=6)
    (found,) = session.run(None, feed)
    assert session.last_run is not None and session.last_run.dispatches == 1
    # Beside activations of 16 bits onnxruntime's own groups round them to 8 (from 1.32 on): a hundred units.
    wide = scheme.activations in ("u16", "s16")
    units = (found.astype(np.float64) - reference(model, feed, as_it_is=wide)) / output_scale(model)
    assert np.abs(units).max() <= (1.5 if wide else 0), f"{np.abs(units).max():.2f} units of the output"


@pytest.mark.parametrize("weights", ["s4", "u4"])
@pytest.mark.parametrize("network", NETWORKS)
def test_weights_of_four_bits(network: str, weights: str, tmp_path: Path) -> None:
    """In floats, as by onnxruntime; other constants of four bits too."""
    floats = NETWORKS[network]()
    model = quantised(floats, Scheme("u8", weights), tmp_path, feeds_of(floats, 4, seed=5))
    session = od.InferenceSession(model, fallback="error")
    (feed,) = feeds_of(floats, 1, seed=6)
    units = (session.run(None, feed)[0].astype(np.float64) - reference(model, feed)) / output_scale(model)
    assert np.abs(units).max() < 1.5


@pytest.mark.parametrize("network", NETWORKS)
def test_dynamic_quantisation(network: str, tmp_path: Path) -> None:
    floats = NETWORKS[network]()
    model = dynamic(floats, tmp_path)
    session = od.InferenceSession(model, fallback="error")
    (feed,) = feeds_of(floats, 1, seed=6)
    (found,) = session.run(None, feed)
    assert session.last_run is not None and session.last_run.dispatches == 1
    wanted = reference(model, feed)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=np.abs(wanted).max() / 255)


DIGITS = Path(__file__).resolve().parents[2] / "models" / "digits.onnx"
BATCH = 599  # of 1,797 images


@pytest.mark.daily(3)
@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_digits_are_classified_as_by_onnxruntime(scheme: Scheme, tmp_path: Path) -> None:
    images = (load_digits().images[:, None] / 16).astype(np.float32)
    model = quantised(onnx.load(DIGITS), scheme, tmp_path, [{"image": images[:200]}])
    session = od.InferenceSession(model, fallback="error")
    for first in range(0, len(images), BATCH):
        feed = {"image": images[first : first + BATCH]}
        (found,) = session.run(None, feed)
        np.testing.assert_array_equal(found.argmax(1), reference(model, feed).argmax(1))
