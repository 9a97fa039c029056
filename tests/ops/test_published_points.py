# SPDX-License-Identifier: Apache-2.0
"""Modelled products at published tiles beside measurements; ``tests.bench.gemm_points`` prints them all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli import app
from onedispatch.dispatch.tools.published import RESNET50, measurements
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.select import SEARCH
from onedispatch.operators.scheduling.solution import Solution
from onedispatch.transactions import Device
from tests.bench import gemm_points, stream_points
from tests.bench.gemm_points import POINTS, Point, Tiled, at_their_tile, tops


@pytest.mark.daily(2)
@pytest.mark.parametrize("name", ["P7", "P11"])
def test_modelled_throughput_is_near_the_measured_one(name: str) -> None:
    point = POINTS[name]
    assert abs(at_their_tile(point, constant=True) / point.tops - 1) < 0.06


class _Misplaced(Tiled):
    """A tile with the mapping that the search finds for another one."""

    def select(self, problem: Problem, device: Device) -> Solution:
        m, k, n = self.tile or (0, 0, 0)
        return replace(SEARCH.select(problem, device), tiles=(m, n), k_tile=k)


def test_a_tile_is_mapped_for_itself() -> None:
    """2 x 48 tiles: the mapping of the tile that the search finds leaves cores idle with this one."""
    point = Point("npu2", "int32", (192, 512, 4608), (96, 64, 96), 1.0)
    misplaced = tops(point.device, point.out, point.size, True, _Misplaced(point.tile), "narrow")
    assert at_their_tile(point, constant=True) > 1.05 * misplaced


@pytest.mark.parametrize("name", ["npu1", "npu2"])
def test_tiles_of_63_kilobytes_run(name: str) -> None:
    """2 m k + 2 k n + m n elements, the last ones in the type of the results: 64,512 bytes."""
    m, k, n = 96, 120, 96  # of int8 into int16
    assert 2 * m * k + 2 * k * n + 2 * m * n == 64_512
    assert at_their_tile(Point(name, "int16", (2 * 96 * 4, 4 * 120, 96 * 8), (m, k, n), 1.0), True) > 0


def test_points_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "points.json"
    point = {"device": "npu1", "dtype": "i8-i16", "m": 32, "k": 64, "n": 32, "M": 256, "K": 128, "N": 256}
    file.write_text(json.dumps([{**point, "tops": 0.5}, {**point, "dtype": "bf16", "tops": 0.5, "id": "Q"}]))
    gemm_points.main(["points", "--file", str(file)])
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(
        "#0 npu1 int16 256x128x256: published 0.50 TOPS, published tile 32x64x32, B constant "
    )
    assert ", B computed " in first
    assert second.startswith("Q npu1 bfloat16 ")


@pytest.mark.parametrize("name", ["P32", "P34", "P38d", "P39"])
def test_modelled_streams_are_near_the_measured_ones(name: str) -> None:
    point = stream_points.POINTS[name]
    assert abs(stream_points.modelled(point) / point.microseconds - 1) < 0.1


@pytest.mark.nightly
def test_what_was_measured_stands_beside_what_is_modelled() -> None:
    result = CliRunner().invoke(app, ["bench", "--published", "--json"], catch_exceptions=False)
    rows = json.loads(result.stdout)
    assert len(rows) == len(measurements()) and all(row["source"] and row["differs"] for row in rows)
    for row in rows:
        assert row["ratio"] == pytest.approx((row["modelled"] + row["launch"]) / row["published"])
    assert 1 < next(row["ratio"] for row in rows if row["name"] == RESNET50) < 2


@pytest.mark.parametrize("given", [["bench"], ["bench", "--published", "light_resnet50"]])
def test_a_benchmark_has_a_model_or_what_was_measured(given: list[str]) -> None:
    with pytest.raises(od.InputError, match="bench"):
        CliRunner().invoke(app, given, catch_exceptions=False)


def test_points_of_a_file_that_are_none_are_named_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fine = {"device": "npu2", "dtype": "i8-i32", "m": 64, "k": 64, "n": 64, "M": 128, "K": 128, "N": 128}
    fine["tops"] = 1.0
    rows = [
        {key: value for key, value in fine.items() if key != "tops"},
        fine | {"dtype": "i3"},
        fine | {"m": 0, "id": "zero"},
        fine | {"m": 4096, "n": 4096, "M": 8192, "N": 8192},
        3,
        fine,
    ]
    file = tmp_path / "points.json"
    file.write_text(json.dumps(rows))
    with pytest.raises(SystemExit) as ended:
        gemm_points.main(["points", "--file", str(file)])
    assert ended.value.code == 1
    said = capsys.readouterr().out
    assert "#0: a point: given" in said and "without tops" in said
    assert "#1: dtype of a point: given 'i3'; accepted: i8-i8" in said
    assert "zero: m of a point: given 0; accepted: a whole number above 0" in said
    assert "#3: " in said and "#4: a point: given 3" in said
    assert "#5 npu2 int32 128x128x128: published 1.00 TOPS" in said
    with pytest.raises(SystemExit) as ended:
        gemm_points.main(["P99"])
    assert ended.value.code == 2
