# SPDX-License-Identifier: Apache-2.0
"""``models/examples/box_decode.py``: the box decoder of an SSD head as one kernel, switched on by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import onedispatch as od
from tests.tensorflow.evaluator import evaluate
from tests.tensorflow.networks import ssd

PLUGIN = Path(__file__).parents[2] / "models" / "examples" / "box_decode.py"


@pytest.fixture
def plugin() -> Iterator[None]:
    od.plugins.load(PLUGIN)
    yield
    od.plugins.reset()


@pytest.mark.parametrize("device", ["npu1", "npu2_1col"])
def test_the_fused_decoder_computes_the_same_in_less_time(plugin: None, device: str) -> None:
    graph, outputs, feed = ssd()
    names = [str(name) for name in outputs]
    wanted = evaluate(graph, feed, names)
    cycles = []
    for fusions in ([], ["DecodeBbox"]):
        session = od.InferenceSession(graph, device, outputs=names, fusions=fusions, fallback="error")
        found = session.run(None, {str(name): array for name, array in feed.items()})
        for mine, theirs in zip(found, wanted, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
        assert session.last_run is not None and session.last_run.dispatches == 1
        cycles.append(session.last_run.cycles)
        kernels = [row.op_type for row in session.placement]
        assert kernels.count("DecodeBbox") == len(fusions)
    assert cycles[1] < 0.7 * cycles[0]
