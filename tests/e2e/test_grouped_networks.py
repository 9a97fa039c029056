# SPDX-License-Identifier: Apache-2.0
"""Networks with tensors that stay in memory tiles: the same bits as without, and no more modelled cycles."""

from __future__ import annotations

from pathlib import Path

import pytest

import onedispatch as od
from onedispatch.dispatch.tools import zoo

NETWORKS = [
    ("mobilenet_v2", "bf16", "npu1"),
    ("swin_tiny", "bf16", "npu2"),
    ("efficientnet_b0", "bf16", "npu2"),
    ("mobilenet_v2", "fp32", "npu2"),
    ("llama_step", "bf16", "npu2"),
    ("text_line", "fp32", "npu2"),
]


@pytest.mark.daily(3)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "precision", "device"), NETWORKS)
def test_groups_change_no_bit(repository: Path, name: str, precision: str, device: str) -> None:
    proto = zoo.randomised(zoo.find_model(str(repository / "models" / "light" / f"{name}.onnx")))
    feed, found, cycles = zoo.random_input(proto), {}, {}
    for groups in ("off", "on"):
        session = od.InferenceSession(proto, device, precision, groups=groups, record="verify")
        found[groups] = session.run(None, feed)
        assert session.last_run is not None
        cycles[groups] = session.last_run.cycles
        for _ in range(2):  # it is recorded, and played
            assert session.run(None, feed)[0].tobytes() == found[groups][0].tobytes()
        assert session.last_run.recorded == ("verified",)
    for ours, plain in zip(found["on"], found["off"], strict=True):
        assert ours.any() and ours.tobytes() == plain.tobytes()
    assert cycles["on"] <= cycles["off"]
