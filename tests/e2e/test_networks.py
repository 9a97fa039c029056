# SPDX-License-Identifier: Apache-2.0
"""Real networks with random weights, strictly on the device, beside onnxruntime."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import onedispatch as od
from onedispatch.dispatch.tools import zoo
from onedispatch.dispatch.tools.checking import check_model
from tests.e2e import figures
from tests.e2e.figures import EXPORTED, NETWORKS

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

# These run in `make test`, the others in `make nightly`: convolutions with residuals and depthwise ones, a
# language model's step.
DAILY = {"mobilenet_v2", "llama_step"}
TABLE = [
    pytest.param(
        *network,
        id="-".join(Path(str(part)).stem for part in network),
        marks=[] if Path(network[0]).stem in DAILY and network[1:] != (3, None) else [pytest.mark.nightly],
    )
    for network in (*NETWORKS, *EXPORTED)
]
WITHIN = {"fp32": 1e-3, "bf16": 0.05}  # of the largest value of an output


def test_every_light_network_is_among_them() -> None:
    assert {name for name, _, _ in NETWORKS} == set(zoo.light_models())


def test_every_family_of_networks_is_among_them() -> None:
    assert len(EXPORTED) >= 14


@pytest.mark.slow
@pytest.mark.parametrize(("name", "batch", "image"), TABLE)
def test_a_network_in_one_dispatch(name: str, batch: int | None, image: int | None) -> None:
    model = zoo.randomised(zoo.find_model(name), seed=3, batch=batch, image=image)
    feed = zoo.random_input(model, seed=4)
    runtime = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = runtime.run(None, feed)
    del runtime
    for precision in figures.precisions_of(name, batch, image):
        compiled = od.compile(model, precision=precision, fallback="error")
        assert [str(finding) for finding in check_model(compiled)] == []
        session = od.InferenceSession(compiled)
        for ours, theirs in zip(session.run(None, feed), wanted, strict=True):
            assert theirs.std() > 0 and ours.shape == theirs.shape
            assert np.abs(ours - theirs).max() < WITHIN[precision] * np.abs(theirs).max()
        assert session.last_run is not None and session.last_run.dispatches == 1
        assert {p.device for p in session.placement} <= {"npu", "folded"}
        figures.compare((figures.network_name(name, batch, image, precision), "npu2"), session.last_run)


@pytest.mark.slow
def test_bench_of_resnet50_keeps_its_promises() -> None:
    """Compile time (of the processor: machines are busy at times), memory, error."""
    command = [sys.executable, "-m", "onedispatch.dispatch.cli", "bench", "light_resnet50", "--json"]
    done = subprocess.run([*command, "--runs", "3"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    print(result)
    assert result["compile_cpu_seconds"] < 10
    assert result["peak_bytes"] < 4 * result["model_bytes"] + 500e6
    assert result["largest_error"] < 1e-3
    assert result["dispatches"] == 1


def test_scratch_is_near_its_lower_bound() -> None:
    compiled = od.compile(zoo.randomised(zoo.find_model("light_squeezenet")), fallback="error")
    (executable,) = compiled.executables.values()
    (step,) = executable.device_steps
    assert step.scratch_bound <= step.sizes[2] <= 1.2 * step.scratch_bound


def test_random_weights_are_seeded() -> None:
    model = zoo.find_model("light_squeezenet")
    one, two, other = (zoo.randomised(model, seed).SerializeToString() for seed in (1, 1, 2))
    assert one == two != other
