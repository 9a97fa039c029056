# SPDX-License-Identifier: Apache-2.0
"""Device files with something wrong or odd in them: a typed error that names it, or a device on which
models run with right answers and a clock that counts."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

import onedispatch as od
from onedispatch.transactions import find_device
from onedispatch.transactions.machine.device import vocabulary
from onedispatch.transactions.machine.geometry import accepted_range
from tests.devices import device_file
from tests.ops.case import Case, case, check, f32, weight
from tests.tables import NIGHTLY, examples

MODELS = [
    case("MatMul", f32(18, 40), weight(40, 33)),
    case("Conv", f32(1, 3, 9, 11), weight(4, 3, 3, 3), pads=[1, 1, 1, 1]),
    case("Softmax", f32(9, 21)),
]
CLOCK_END = 1 << 62
SEEDS = range(examples(320))
RUN_EVERY = 8  # of the keys; `make nightly` runs a model at the bounds of each


def runs(path: Path, one: Case) -> bool:
    """Whether the model ran, and then rightly; a typed error is none of this package's own faults."""
    try:
        session = od.InferenceSession(one.model, device=path, fallback="error")
    except (od.DeviceError, od.UnsupportedModelError):
        return False
    for actual, expected in zip(session.run(None, one.feed), one.expected, strict=True):
        check(actual, expected, one.allowed)
    assert session.last_run is not None and 0 < session.last_run.cycles < CLOCK_END
    assert 0 < session.last_run.seconds < float("inf")
    return True


@pytest.mark.daily(3)
@pytest.mark.parametrize("key", vocabulary())
def test_each_value_at_its_bounds(key: str, tmp_path: Path) -> None:
    """Both readers take what the table says, and no more; on what they take, a model runs or is refused."""
    bound = accepted_range(key)
    assert bound is not None
    unit = bound.multiple or 1e-6
    wrong: list[object] = [bound.lowest - unit, bound.highest + unit, -bound.highest, 1e18]
    for value in (*wrong, "nan", "inf", '"8"', "true"):
        path = device_file(tmp_path, "wrong", {key: value})
        for read in (find_device, lambda p: od.xrt.device(0, p)):
            with pytest.raises(od.DeviceError) as caught:
                read(path)
            text = str(caught.value)
            assert "wrong" in text and key in text and "accepted: " in text, text
    for value in (bound.lowest, bound.highest):
        path = device_file(tmp_path, "right", {"core.stack_bytes": 0, key: value})
        assert od.xrt.device(0, path).name == find_device(path).name == "right"
        if NIGHTLY or vocabulary().index(key) % RUN_EVERY == 0:
            runs(path, MODELS[0])


def _number(choose: random.Random, lines: list[str]) -> None:
    at = choose.choice([i for i, line in enumerate(lines) if line[-1].isdigit()])
    key, _, value = lines[at].partition(" = ")
    odd = ["0", "1", "-1", "0.5", "1e-9", "1e9", "1e300", "nan", "inf", "''", '"x"', "[1]", "{}", "2026-11-2"]
    scaled = [str(float(value) * factor) for factor in (0.25, 0.5, 2, 3, 10, 1000)]
    lines[at] = f"{key} = {choose.choice(odd + scaled)}"


def _several(choose: random.Random, lines: list[str]) -> None:
    """Numbers of all sections, within their bounds: devices that do not exist."""
    section = ""
    for at, line in enumerate(lines):
        section = line.strip("[]") if line.startswith("[") else section
        key, equals, value = line.partition(" = ")
        bound = accepted_range(f"{section}.{key}") if equals else None
        if bound is None or choose.random() < 0.7:
            continue
        number = float(value) * choose.choice((0.5, 1, 2, 4))
        number = min(max(number, bound.lowest), bound.highest)
        lines[at] = f"{key} = {number:g}"


def _key(choose: random.Random, lines: list[str]) -> None:
    at = choose.randrange(len(lines))
    cut = choose.randrange(max(len(lines[at]), 1))
    lines[at] = lines[at][:cut] + choose.choice(["", "x", "=", "[", '"', "é", "\x00"]) + lines[at][cut + 1 :]


def _lines(choose: random.Random, lines: list[str]) -> None:
    at, other = choose.randrange(len(lines)), choose.randrange(len(lines))
    match choose.randrange(4):
        case 0:
            del lines[at]
        case 1:
            lines.insert(other, lines[at])
        case 2:
            lines[at], lines[other] = lines[other], lines[at]
        case _:
            del lines[at:]


CHANGES: tuple[Callable[[random.Random, list[str]], None], ...] = (_number, _several, _key, _lines)


@pytest.mark.parametrize("seed", SEEDS)
def test_files_changed_at_random(seed: int, tmp_path: Path) -> None:
    choose = random.Random(seed)
    lines = find_device(choose.choice(["npu1_2col", "npu2_1col", "npu2_3col"])).description().splitlines()
    lines[1] = "note = 'changed'"  # a file's name is its device's
    CHANGES[seed % len(CHANGES)](choose, lines)
    path = tmp_path / "changed.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    for read in (find_device, lambda p: od.xrt.device(0, p)):
        try:
            read(path)
        except od.DeviceError as error:
            assert "changed" in str(error), error
    runs(path, MODELS[seed % len(MODELS)])


def test_errors_say_what_is_meant(tmp_path: Path) -> None:
    for text, says in (
        (
            "[clock]\narray_mhZ = 5\n",
            "clock.array_mhZ; accepted: keys of [clock]: array_mhz, note. Write clock.",
        ),
        ("[colour]\nred = 1\n", "section [colour]; accepted: [device], [core]"),
        ("[kernel]\nf32_lanes = '16'\n", "kernel.f32_lanes = '16'; accepted: 1 to 4096"),
        ("[kernel]\nf32_mul_cycles = -19\n", "kernel.f32_mul_cycles = -19; accepted: numbers from 0 to"),
        (
            "[core]\ndata_memory_bytes = 1024\nstack_bytes = 1024\n",
            "core.stack_bytes = 1024; accepted: less than core.data_memory_bytes",
        ),
        ("[ddr]\nburst_bytes = 65\n", "ddr.burst_bytes = 65; accepted: 4, 8, 16"),
    ):
        (tmp_path / "mine.toml").write_text(f"[device]\nbase = 'npu2'\n{text}")
        with pytest.raises(od.DeviceError) as caught:
            find_device(tmp_path / "mine.toml")
        assert "mine.toml" in str(caught.value) and says in str(caught.value)
    with pytest.raises(od.DeviceError, match=r"clock\.array_mhz = nan"):
        find_device("npu2").with_constants(clock__array_mhz=float("nan"))
    opened = od.xrt.device(0, "npu2")
    with pytest.raises(od.DeviceError, match=r"clock\.array_mhz"):
        opened.set_constant("clock.array_mhz", -1.0)
