# SPDX-License-Identifier: Apache-2.0
"""Device descriptions read by Python and by the C++ runtime: the same values, the same refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

import onedispatch as od
from onedispatch.dispatch.runtime.device import core
from onedispatch.transactions import DeviceError, find_device
from onedispatch.transactions.machine.device import read_text
from onedispatch.transactions.machine.geometry import GEOMETRY_RANGES, AcceptedRange
from tests.devices import FILES, device_file, device_of


@pytest.mark.parametrize("bound", GEOMETRY_RANGES.values(), ids=lambda bound: bound.key)
def test_what_registers_cannot_address_is_refused(bound: AcceptedRange, tmp_path: Path) -> None:
    """By Python, which reads files for everything, and by C++, which reads them for host programs."""
    wrong = [bound.lowest - 1, bound.highest + bound.multiple, 2 * bound.highest, bound.lowest + 0.5]
    wrong += [bound.lowest + 1] if bound.multiple > 1 else [3] if bound.doubling else []
    for value in wrong:
        path = device_file(tmp_path, "wrong", {bound.key: value})  # type: ignore[dict-item]
        with pytest.raises(DeviceError) as caught:
            find_device(path)
        assert f"{bound.key} = {value:g}; accepted: {bound}" in str(caught.value)
        with pytest.raises(DeviceError) as caught:
            od.xrt.device(0, path)
        assert f"{bound.key} = {value:f}; accepted: {bound}" in str(caught.value)
    for value in (bound.lowest, bound.highest):
        path = device_file(tmp_path, "right", {"core.stack_bytes": 0, bound.key: int(value)})
        find_device(path)
        od.xrt.device(0, path)


@pytest.mark.parametrize("name", ["npu1", "npu2_3col", *FILES])
def test_descriptions_say_everything(name: str) -> None:
    device = device_of(name) if name in FILES else find_device(name)
    assert read_text(device.description(), "the text")[0] == device
    simulated = core.device.from_description(device.description())
    assert (simulated.name, simulated.columns, simulated.core_rows, simulated.xrt_name) == (
        device.name,
        device.columns,
        device.core_rows,
        device.xrt_name,
    )
    head = {"device.columns", "device.core_rows", "device.device_generation"}
    assert {k: v for k, v in simulated.constants.items() if k not in head} == device.constants
