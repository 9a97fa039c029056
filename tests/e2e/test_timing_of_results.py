# SPDX-License-Identifier: Apache-2.0
"""Results do not depend on when things happen: the same transaction on arrays that are fast and slow in turn.

What orders two accesses of a memory has to be a lock, a stream or a wait, and no habit of the clock: with
packets that come late, tasks that are pushed at once, memory, streams, descriptors or kernels that are slow,
each run has the bits of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

import onedispatch as od
from onedispatch.dispatch.tools import zoo
from onedispatch.transactions import Device
from tests.ops.case import Case
from tests.ops.cases import CASES
from tests.tables import each_case, operator_and_device, operator_of, sampled

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

AT_ONCE = {f"controller__{one}_cycles": 1.0 for one in ("write", "blockwrite", "maskwrite", "other")}
AT_ONCE |= {"controller__clock_mhz": 1e5, "controller__blockwrite_word_cycles": 0.1}
SLOW: dict[str, Mapping[str, float]] = {
    "controller": {"controller__clock_mhz": 1.0},
    "control packets": {"stream__control_packet_cycles": 4e3},
    "memory": {"ddr__gigabytes_per_second": 0.05},
    "shim": {"dma__shim_words_per_cycle": 0.01},
    "streams": {"dma__words_per_cycle": 0.002},
    "links": {"stream__hop_link_cycles": 3e3},
    "reads": {"dma__shim_mm2s_first_cycles": 2e5, "dma__shim_mm2s_bd_cycles": 2e4},
    "writes": {"dma__shim_s2mm_first_cycles": 3e5, "dma__shim_s2mm_bd_cycles": 3e4},
    "descriptors": {
        "dma__channel_start_cycles": 3e4,
        "dma__bd_setup_cycles": 2e4,
        "dma__bd_chain_cycles": 5e3,
    },
    "kernels": {"kernel__call_cycles": 2e5},
}
VARIANTS = [
    {},
    *SLOW.values(),
    AT_ONCE,
    *({**AT_ONCE, **one} for name, one in SLOW.items() if name != "controller"),
]
EVERY = 40  # of the cases of an operator and its types one in so many; `make nightly` runs all


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Mapping[str, float]], None]:
    """Sets what devices opened from now on take for things."""
    said: dict[str, float] = {}
    plain = Device.description
    monkeypatch.setattr(Device, "description", lambda self: plain(self.with_constants(**said)))

    def take(changes: Mapping[str, float]) -> None:
        said.clear()
        said.update(changes)

    return take


def check(
    compiled: od.CompiledModel,
    feed: Mapping[str, np.ndarray],
    timed: Callable[[Mapping[str, float]], None],
) -> None:
    found, cycles = [], set[int]()
    for changes in VARIANTS:
        timed(changes)
        session = od.InferenceSession(compiled, record=False)
        found.append([np.asarray(one).tobytes() for one in session.run(None, dict(feed))])
        assert session.last_run is not None
        cycles.add(session.last_run.cycles)
    timed({})
    for changes, results in zip(VARIANTS, found, strict=True):
        assert results == found[0], changes
    assert len(cycles) > 2


@pytest.mark.daily(4)
@each_case(sampled(CASES, operator_of, EVERY), group=operator_and_device)
def test_operators(case: Case, timed: Callable[[Mapping[str, float]], None]) -> None:
    check(od.compile(case.model, device=case.device, fallback="error"), case.feed, timed)


@pytest.mark.daily(3)
@pytest.mark.slow
@pytest.mark.parametrize("device", ["npu2", "npu2_1col", "npu1"])
@pytest.mark.parametrize("name", ["light_shufflenet", "light_squeezenet"])
def test_networks(name: str, device: str, timed: Callable[[Mapping[str, float]], None]) -> None:
    model = zoo.randomised(zoo.find_model(name), seed=3)
    check(od.compile(model, device=device, fallback="error"), zoo.random_input(model, seed=4), timed)
