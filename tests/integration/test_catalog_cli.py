# SPDX-License-Identifier: Apache-2.0
"""``onedispatch catalog``: every subcommand, as people and as scripts use it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from click.testing import Result
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli.commands import app
from onedispatch.operators.catalog.log import append
from tests.integration.catalogs import NPU2, rows
from tests.integration.test_operators_solution import chain


def command(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(one) for one in arguments])


def data(*arguments: str | Path, code: int = 0) -> Any:
    result = command(*arguments, "--json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "tuned.jsonl"
    append(path, rows())
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(chain(), path)
    return path


def test_build_says_what_it_wrote(log: Path, tmp_path: Path) -> None:
    made = data("catalog", "build", log, "-o", tmp_path / "c")
    assert [row["device"].partition("@")[0] for row in made] == ["npu1", "npu2"]
    assert sum(row["problems"] for row in made) == len(rows())
    assert {path.name for path in (tmp_path / "c").glob("catalog_lazy*")} == {
        "catalog_lazy_npu1.odcat",
        "catalog_lazy_npu2.odcat",
    }
    again = command("catalog", "build", log, "-o", tmp_path / "c")
    assert again.exit_code == 0 and "problems" in again.output


def test_forms_turn_into_each_other(log: Path, tmp_path: Path) -> None:
    command("catalog", "build", log, "-o", tmp_path / "lazy")
    parents = sorted((tmp_path / "lazy").glob("catalog_lazy*"))
    assert command("catalog", "merge", *parents, "-o", tmp_path / "m", "--format", "yaml").exit_code == 0
    merged = sorted((tmp_path / "m").glob("*.yaml"))
    assert command("catalog", "split", *merged, "-o", tmp_path / "again").exit_code == 0
    for parent in parents:
        assert data("catalog", "diff", parent, tmp_path / "again" / parent.name) == []
        assert (tmp_path / "again" / parent.name).read_bytes() == parent.read_bytes()


def test_diff_shows_problems_that_differ(log: Path, tmp_path: Path) -> None:
    command("catalog", "build", log, "-o", tmp_path / "c", "--merged")
    some = tmp_path / "some.jsonl"
    append(some, [row for row in rows() if row.problem.device == NPU2.identity][1:])
    command("catalog", "build", some, "-o", tmp_path / "d", "--merged")
    files = [tmp_path / folder / "catalog_npu2.odcat" for folder in ("c", "d")]
    (difference,) = data("catalog", "diff", *files, code=1)
    assert difference["second"] == "-" and "cycles" in difference["first"]


def test_lint_fails_where_selection_would(log: Path, tmp_path: Path) -> None:
    command("catalog", "build", log, "-o", tmp_path / "c")
    assert data("catalog", "lint", tmp_path / "c") == []
    next((tmp_path / "c").glob("catalog_type*npu2*")).unlink()
    (finding,) = data("catalog", "lint", tmp_path / "c", code=1)
    assert finding["level"] == "error" and "No such file" in finding["text"]
    assert command("catalog", "lint", tmp_path / "nowhere").exit_code == 1


def test_explain_walks_to_each_solution(log: Path, model: Path, tmp_path: Path) -> None:
    command("catalog", "build", log, "-o", tmp_path / "c")
    walks = data("catalog", "explain", model, "--catalog", tmp_path / "c", "--catalog", "none")
    assert walks and all(walk["method"] == "search" and walk["chosen"] is None for walk in walks)
    shown = " ".join(command("catalog", "explain", model, "--catalog", tmp_path / "c").output.split())
    assert "Hardware npu2@" in shown and "chosen: by search" in shown and "no code objects" in shown
    wrong = command("catalog", "explain", model, "--only", "nothing")
    assert wrong.exit_code == 1 and isinstance(wrong.exception, od.InputError)
    problems = tmp_path / "problems.json"
    problems.write_text(
        json.dumps([row.problem.to_data() for row in rows() if row.problem.device == NPU2.identity])
    )
    walks = data("catalog", "explain", problems, "--catalog", tmp_path / "c")
    assert {walk["chosen"]["how"] for walk in walks} == {"exact"}
    assert all(walk["chosen"]["measured"] and walk["searched_cycles"] > 0 for walk in walks)


def test_a_problem_is_pinned_and_then_solved_so(tmp_path: Path) -> None:
    row = next(row for row in rows() if row.problem.device == NPU2.identity)
    problem, solution, pins = tmp_path / "p.json", tmp_path / "s.json", tmp_path / "pins.yaml"
    problem.write_text(json.dumps(row.problem.to_data()))
    solution.write_text(json.dumps(row.solution.to_data()))
    said = command("catalog", "pin", problem, solution, "-o", pins)
    assert said.exit_code == 0 and row.solution.name in said.output
    (walk,) = data("catalog", "explain", problem, "--catalog", pins, "--catalog", "none")
    assert walk["chosen"]["how"] == "exact" and walk["solution"] == row.solution.to_data()
    solution.write_text(json.dumps(row.solution.to_data() | {"k_tile": 1 << 20}))
    wrong = command("catalog", "pin", problem, solution, "-o", pins)
    assert wrong.exit_code == 1 and isinstance(wrong.exception, od.SolutionError)


def test_programs_are_built_ahead(log: Path, model: Path, tmp_path: Path) -> None:
    data("catalog", "build", log, "-o", tmp_path / "c", "--prebuild", model)
    shown = command("catalog", "explain", model, "--catalog", tmp_path / "c", "--catalog", "none").output
    assert "loaded where they are chosen" in shown
    timed = data("time", model, "--catalog", tmp_path / "c", "--catalog", "none")
    assert timed["report"]["cycles"] == od.compile(chain(), catalog="none").timing().cycles
