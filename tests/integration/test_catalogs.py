# SPDX-License-Identifier: Apache-2.0
"""Catalogs choose what was tuned, in every form alike; what is broken or missing gives way, and says so."""

from __future__ import annotations

import os
import pickle
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import onedispatch as od
from onedispatch.operators.catalog import layers as layering
from onedispatch.operators.catalog import objects
from onedispatch.operators.catalog.build import joined, library_of, merged, write
from onedispatch.operators.catalog.catalog import Catalog, CatalogWarning
from onedispatch.operators.catalog.choice import refusal_of
from onedispatch.operators.catalog.container import Library, open_bytes
from onedispatch.operators.catalog.features import Features, ProblemFeatures
from onedispatch.operators.catalog.lint import lint
from onedispatch.operators.catalog.log import Tuned
from onedispatch.operators.catalog.objects import CodeObjects, encode
from onedispatch.operators.catalog.predicates import Always, Size
from onedispatch.operators.catalog.selector import CatalogSearch
from onedispatch.operators.catalog.table import Rule, Table
from onedispatch.operators.catalog.text import library_of as read_text
from onedispatch.operators.catalog.text import text_of
from onedispatch.operators.catalog.tree import Rows
from onedispatch.operators.emission import emitter
from onedispatch.operators.emission.programs import NestProgram, recorded
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.search import search
from onedispatch.operators.scheduling.select import SEARCH
from onedispatch.operators.scheduling.solution import Mapping, Solution
from tests.integration.catalogs import DEVICES, NPU1, NPU2, problems, resized, rows, written
from tests.integration.test_operators_solution import chain
from tests.ops.case import run_onnxruntime
from tests.tables import NIGHTLY

FORMS = {
    "lazy": (True, "msgpack"),
    "merged": (False, "msgpack"),
    "lazy yaml": (True, "yaml"),
    "yaml": (False, "yaml"),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {name: tmp_path_factory.mktemp(name.replace(" ", "_")) for name in FORMS}
    for name, (lazy, form) in FORMS.items():
        written(made[name], lazy=lazy, form=form)
    return made


def plain_solution(tiles: tuple[int, int] = (8, 8), k_tile: int = 8) -> Solution:
    return Solution("od::gemm@1", Mapping(None, None, 1, frozenset(), False, (0, 1)), tiles, k_tile)


# -- what is chosen --------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_a_tuned_problem_gets_its_row(folders: dict[str, Path], form: str) -> None:
    catalog = Catalog(folders[form])
    selector = CatalogSearch([catalog])
    for row in rows():
        assert selector.select(row.problem, DEVICES[row.problem.device]) == row.solution
    assert selector.counts == {"exact": len(rows())}
    assert catalog.stats().decoded == len({(r.problem.device, r.solution) for r in rows()})


def test_plans_take_rows_of_problems_that_they_ask_about(folders: dict[str, Path]) -> None:
    """And their least estimate, which is compared with estimates of other solutions; the rest is sketched."""
    selector = CatalogSearch([Catalog(folders["lazy"])])
    for row in rows():
        nest, device = row.problem.nest, DEVICES[row.problem.device]
        least = min(one.estimated for one in rows() if one.problem == row.problem)
        assert selector.sketch(nest, device) == (row.solution, least)
    far = resized(3000, 8, 8)
    assert selector.sketch(far.nest, NPU2) == SEARCH.sketch(far.nest, NPU2)


def test_every_form_chooses_alike(folders: dict[str, Path]) -> None:
    """Rows, neighbours and methods, in their order, of ten thousand problems (`make nightly`); the search
    itself is the same in all."""
    catalogs = [Catalog(folders[form]) for form in FORMS]
    kinds = {"exact": 0, "nearest": 0, "method": 0}
    for problem in [*problems(9_976 if NIGHTLY else 2_000, seed=1), *(row.problem for row in rows())]:
        seen = Features(problem, DEVICES[problem.device])
        answers = {_answer(catalog, seen) for catalog in catalogs}
        assert len(answers) == 1
        kinds[answers.pop()[0]] += 1
    assert kinds["exact"] >= len(rows()) and kinds["nearest"] > 100 and kinds["method"] > 100


def _answer(catalog: Catalog, seen: Features) -> tuple[object, ...]:
    """What the tables offer before it is held to the problem: exact, nearest, or the methods."""
    asked = catalog.asked(seen)
    for one in asked:
        row = one.table and one.table.exact(bytes.fromhex(seen.problem.digest))
        if one.table and row:
            return "exact", one.table.solution(row.solution).name
    near = [(one.table, row) for one in asked if one.table for row in one.table.nearest(seen, 4, 0.5)]
    if near:
        return "nearest", *((table.solution(row.solution).name, row.distance) for table, row in near)
    return "method", *(one.leaf for one in asked)


def test_only_the_children_that_are_needed_are_opened(folders: dict[str, Path]) -> None:
    catalog = Catalog(folders["lazy"])
    assert catalog.stats().opened == catalog.stats().tables == 0
    row = rows()[0]
    CatalogSearch([catalog]).select(row.problem, DEVICES[row.problem.device])
    stats = catalog.stats()
    assert (stats.tables, stats.decoded) == (1, 1)
    assert stats.opened == 2 and stats.children == 2  # its table, and the fallback


def test_a_neighbour_answers_with_tiles_that_fit(folders: dict[str, Path]) -> None:
    selector = CatalogSearch([Catalog(folders["merged"])])
    answered = 0
    for row in rows():
        m, n = (dim.extent for dim in row.problem.dims)
        device, activation = DEVICES[row.problem.device], dict(row.problem.scalars)["act"]
        near = resized(m + 1, row.problem.k_extent, n + 1, device, str(activation))
        solution = selector.select(near, device)
        assert not refusal_of(Features(near, device), solution)
        answered += selector.counts.get("nearest", 0)
        walk = selector.explain(near, device)
        if walk.chosen is not None and walk.chosen.how == "nearest":
            assert walk.chosen.solution == solution and walk.chosen.distance > 0
            assert walk.chosen.cycles and not walk.chosen.measured
    assert answered


def test_what_is_far_from_every_row_is_searched(folders: dict[str, Path]) -> None:
    selector = CatalogSearch([Catalog(folders["lazy"])])
    problem = resized(3000, 8, 8)
    assert selector.select(problem, NPU2) == search(problem.nest, NPU2)
    assert selector.counts == {"search": 1} and selector.origin_of(problem) == ""


def test_another_device_gets_the_fallback_child(folders: dict[str, Path], tmp_path: Path) -> None:
    device = NPU2.partition(3)
    problem = resized(64, 64, 64, device)
    selector = CatalogSearch([Catalog(folders["lazy"])])
    assert selector.select(problem, device) == search(problem.nest, device)
    walk = selector.explain(problem, device)
    assert walk.method == "search" and "catalog_fallback" in walk.steps[0].outcome


def test_rules_come_before_neighbours_the_highest_rank_first(tmp_path: Path) -> None:
    (library,) = merged([row for row in rows() if row.problem.device == NPU2.identity])
    (name,) = library.tables
    rules = (
        Rule(Size("m", least=1), plain_solution((4, 8)), 1),
        Rule(Size("m", least=100), plain_solution(), 2),
        Rule(Size("m", least=300), plain_solution((4096, 4096)), 3),  # fits no problem
    )
    table = replace(library.tables[name], rules=rules)
    write([replace(library, tables={name: table})], tmp_path, lazy=False)
    selector = CatalogSearch([Catalog(tmp_path)])
    assert selector.select(resized(50, 64, 64), NPU2) == plain_solution((4, 8))
    assert selector.select(resized(350, 64, 64), NPU2) == plain_solution()
    walk = selector.explain(resized(350, 64, 64), NPU2)
    assert [one.how for one in walk.candidates][:3] == ["rule"] * 3
    assert "tile of m" in walk.candidates[0].refusal and walk.chosen == walk.candidates[1]


def test_a_pinned_solution_is_forced_where_it_fits(folders: dict[str, Path]) -> None:
    row, other = _two_rows()
    selector = CatalogSearch([Catalog(folders["lazy"])], [other.solution.name])
    fits = not refusal_of(Features(row.problem, NPU2), other.solution)
    assert selector.select(other.problem, NPU2) == other.solution
    assert (selector.select(row.problem, NPU2) == other.solution) == fits
    with pytest.raises(od.SolutionError, match="16 hexadecimal digits"):
        od.compile(chain(), pins=["fastest"])


def _two_rows() -> tuple[Tuned, Tuned]:
    first, second, *_ = (row for row in rows() if row.problem.device == NPU2.identity)
    return first, second


# -- layers ----------------------------------------------------------------------------------


def override(folder: Path, problem: Problem, solution: Solution) -> Path:
    """A catalog of one row."""
    write(merged([Tuned(problem, solution, 1, 1.0, "test")]), folder, lazy=False, form="yaml")
    return folder


def test_the_first_layer_with_an_exact_row_wins(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = _two_rows()[0]
    own = override(tmp_path / "own", row.problem, plain_solution())
    assert (
        layering.selector_of((str(own), str(folders["lazy"]))).select(row.problem, NPU2) == plain_solution()
    )
    monkeypatch.setenv("ONEDISPATCH_CATALOG", str(own))
    assert layering.selector_of((str(folders["lazy"]),)).select(row.problem, NPU2) == row.solution
    monkeypatch.setenv("ONEDISPATCH_CATALOG", f"{own}:{folders['lazy']}")
    assert layering.selector_of().select(row.problem, NPU2) == plain_solution()
    assert layering.selector_of(("none",)) is SEARCH


def test_an_exact_row_of_a_later_layer_beats_a_neighbour_of_the_first(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    row = _two_rows()[0]
    m, n = (dim.extent for dim in row.problem.dims)
    near = resized(m + 1, row.problem.k_extent, n, NPU2, str(dict(row.problem.scalars)["act"]))
    own = override(tmp_path, near, plain_solution())
    selector = CatalogSearch([Catalog(own), Catalog(folders["merged"])])
    walk = selector.explain(row.problem, NPU2)
    assert walk.chosen is not None and walk.chosen.solution == row.solution
    assert {one.how for one in walk.candidates} == {"exact", "nearest"}


def test_a_model_is_compiled_by_a_catalog_and_says_so(tmp_path: Path) -> None:
    x = np.random.default_rng(3).standard_normal((1, 4, 12, 12)).astype(np.float32)
    searched = od.compile(chain(), catalog="none", groups="off")
    asked = _Spy()
    od.compile(chain(), selector=asked, groups="off")
    problem, solution = next(iter(asked.asked.items()))
    other = replace(
        solution,
        tiles=tuple(
            max(1, t // 2 // d.multiple * d.multiple)
            for t, d in zip(solution.tiles, problem.dims, strict=True)
        ),
    )
    own = override(tmp_path, problem, other)
    model = od.compile(chain(), catalog=own, groups="off")
    (line,) = (s for op in model.device_step.ops for s in op.schedule if "exact" in s)
    assert other.name in line and model.timing().cycles != searched.timing().cycles
    expected = run_onnxruntime(chain(), {"x": x})[0]
    for one in (searched, model):
        (answer,) = od.InferenceSession(one).run(None, {"x": x})
        np.testing.assert_allclose(answer, expected, rtol=1e-4, atol=1e-5)
    assert pickle.loads(pickle.dumps(model)).options.catalog == (str(own),)
    model.save(tmp_path / "m.od")
    assert od.load(tmp_path / "m.od").device_step.ops == model.device_step.ops
    session = od.InferenceSession(chain(), catalog=own, groups="off")
    assert session.model.device_step.transaction == model.device_step.transaction
    with pytest.raises(od.InputError, match=r"catalog.*compiled already"):
        od.InferenceSession(model, catalog=own)
    with pytest.raises(od.InputError, match="either"):
        od.compile(chain(), catalog=own, selector=asked)


class _Spy:
    def __init__(self) -> None:
        self.asked: dict[Problem, Solution] = {}

    def select(self, problem: Problem, device: object) -> Solution:
        self.asked[problem] = SEARCH.select(problem, NPU2)
        return self.asked[problem]


def test_a_selector_of_catalogs_travels_to_other_processes(folders: dict[str, Path]) -> None:
    selector = CatalogSearch([Catalog(folders["lazy"])], [rows()[1].solution.name])
    again = pickle.loads(pickle.dumps(selector))
    assert again.pins == selector.pins
    assert again.select(rows()[0].problem, NPU1) == rows()[0].solution


# -- files -----------------------------------------------------------------------------------


def test_text_and_bytes_say_the_same(folders: dict[str, Path]) -> None:
    for library in merged(rows()):
        assert read_text(text_of(library).encode(), "a file") == library
        again = open_bytes(memoryview(library.to_bytes()), "a file")
        assert {n: Table(b, "a file", n).to_data() for n, b in again.tables.items()} == library.tables
        assert again.tree == library.tree


def test_splitting_and_joining_give_the_library_back(folders: dict[str, Path]) -> None:
    libraries = {one.device: one for one in merged(rows())}
    for path in sorted(folders["lazy"].glob("catalog_lazy_*")):
        found = library_of(path)
        assert found == libraries[found.device]
    halves = [merged(rows()[:12]), merged(rows()[12:])]
    for one, other in zip(*halves, strict=True):
        assert joined([one, other]) == joined([other, one]) == libraries[one.device]
    with pytest.raises(od.CatalogError, match="files of one device"):
        joined(list(libraries.values()))


def test_of_rows_of_a_problem_the_best_stays(tmp_path: Path) -> None:
    row = _two_rows()[0]
    worse = replace(row, solution=plain_solution(), cycles=row.cycles + 1)
    tied = replace(row, solution=plain_solution(), cycles=row.cycles)
    for several in ([row, worse], [worse, row]):
        (library,) = merged(several)
        assert [e.solution for t in library.tables.values() for e in t.entries] == [row.solution]
    (library,) = merged([row, tied])
    (entry,) = next(iter(library.tables.values())).entries
    assert entry.solution.name == min(row.solution.name, tied.solution.name)


def damaged(data: bytes, rng: random.Random) -> bytes:
    """The file with a bit flipped, cut short, or longer."""
    kind, at = rng.randrange(4), rng.randrange(len(data))
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data + bytes(1 + at % 70)
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def test_damage_is_an_error_or_changes_nothing(tmp_path: Path) -> None:
    """Every bit is under a checksum, or is padding."""
    (library,) = merged([row for row in rows() if row.problem.device == NPU2.identity])
    data, rng = library.to_bytes(), random.Random(5)
    for _ in range(2000):
        try:
            opened = open_bytes(memoryview(damaged(data, rng)), "a file")
            tables = {n: Table(b, "a file", n).to_data() for n, b in opened.tables.items()}
        except od.CatalogError:
            continue
        assert (tables, opened.tree) == (library.tables, library.tree)


def test_a_child_that_is_broken_gives_way_with_a_warning(folders: dict[str, Path], tmp_path: Path) -> None:
    row = _two_rows()[0]
    (child,) = (path for path in folders["lazy"].glob("catalog_type_*npu2*"))
    whole = child.read_bytes()
    cases = {
        "missing": None,
        "truncated": whole[:-9],
        "empty": b"",
        "corrupted": whole[:90] + b"\0" + whole[91:],
    }
    for name, data in cases.items():
        folder = tmp_path / name
        shutil.copytree(folders["lazy"], folder)
        (folder / child.name).unlink()
        if data is not None:
            (folder / child.name).write_bytes(data)
        with pytest.warns(CatalogWarning, match="The next row answers"):
            solution = CatalogSearch([Catalog(folder)]).select(row.problem, NPU2)
        assert solution == search(row.problem.nest, NPU2)
        assert [one.level for one in lint(folder)][:1] == ["error"], name


def test_a_missing_child_names_what_was_searched(folders: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(folders["lazy"], tmp_path / "c")
    (child,) = (tmp_path / "c").glob("catalog_type_*npu2*")
    child.unlink()
    with pytest.warns(CatalogWarning) as caught:
        CatalogSearch([Catalog(tmp_path / "c")]).select(_two_rows()[0].problem, NPU2)
    (text,) = (str(one.message) for one in caught)
    assert child.name in text and str(tmp_path / "c") in text and "catalog_lazy_npu1.odcat" in text


def test_a_child_of_another_build_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(folders["lazy"], tmp_path / "c")
    write(merged(rows()[:4]), tmp_path / "other", lazy=True)
    (child,) = (tmp_path / "other").glob("catalog_type_*npu2*")
    shutil.copy(child, tmp_path / "c" / child.name)
    with pytest.warns(CatalogWarning, match="Build them together"):
        CatalogSearch([Catalog(tmp_path / "c")]).select(_two_rows()[0].problem, NPU2)
    assert any("not the one that it was built with" in one.text for one in lint(tmp_path / "c"))


def test_wrong_places_are_typed_errors(folders: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "text.odcat").write_text("catalog")
    (tmp_path / "empty.odcat").write_bytes(b"")
    (tmp_path / "bad.yaml").write_text("catalog: [")
    for name, message in {
        "absent": "No such file",
        "text.odcat": "no catalog",
        "empty.odcat": "an empty file",
        "bad.yaml": "no YAML",
    }.items():
        with pytest.raises(od.CatalogError, match=message):
            od.compile(chain(), catalog=tmp_path / name)
    empty = tmp_path / "folder"
    empty.mkdir()
    with pytest.raises(od.CatalogError, match="no catalog in it"):
        Catalog(empty)


TEXT_ERRORS = {
    "catalog: 1": ("catalog: 9", "9, kind"),
    "kind: merged": ("kind: mixed", "kind 'mixed'"),
    "is: Hardware": ("is: Weather", "predicate 'Weather'"),
    "is: KernelIs": ("is: Types", "Types without types"),
    "method: search": ("method: guess", "search, plain"),
    "cycles: ": ("cycle: ", "no cycles"),
    "columns: ": ("columns: a", "columns"),
    "problem: ": ("problem: 0", "hexadecimal digits"),
    "name: ": ("name: f", "a solution called"),
}


@pytest.mark.parametrize("text", TEXT_ERRORS)
def test_wrong_text_is_an_error_that_names_the_place(text: str, tmp_path: Path) -> None:
    (library,) = merged([row for row in rows() if row.problem.device == NPU2.identity])
    whole = text_of(library)
    at = whole.rfind(text)
    assert at >= 0
    wrong, message = TEXT_ERRORS[text]
    path = tmp_path / "c.yaml"
    path.write_text(whole[:at] + wrong + whole[at + len(text) :])
    with pytest.raises(od.CatalogError, match=message) as caught:
        Catalog(path)
    assert str(caught.value).startswith(str(path))
    assert lint(path)[0].level == "error"


def test_lint_finds_what_selection_would_stumble_over(tmp_path: Path) -> None:
    (library,) = merged([row for row in rows() if row.problem.device == NPU2.identity])
    bare = replace(library, tree=library.tree.rows[0].then)  # type: ignore[union-attr]
    strange = replace(library, device="npu2@0000000000000000")
    for number, wrong in enumerate((bare, strange)):
        (tmp_path / f"{number}.odcat").write_bytes(wrong.to_bytes())
    assert any("no fallback" in one.text for one in lint(tmp_path / "0.odcat"))
    assert any(
        "npu2@" in one.text and "has its name" in one.text for one in lint(tmp_path / "1.odcat", [NPU2])
    )
    written(tmp_path / "good", lazy=True)
    assert lint(tmp_path / "good", [NPU1, NPU2]) == []


def test_a_catalog_without_a_fallback_is_searched_all_the_same(tmp_path: Path) -> None:
    library = Library("merged", "catalog_npu2", NPU2.identity, Rows(()), {})
    (tmp_path / "c.odcat").write_bytes(library.to_bytes())
    problem = resized(3000, 8, 8)
    assert CatalogSearch([Catalog(tmp_path / "c.odcat")]).select(problem, NPU2) == search(problem.nest, NPU2)


def test_a_file_that_is_cut_short_while_it_is_open_is_damage(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    """Pages that are gone read as zeros: no signal ends the process."""
    script = """
import sys, warnings
import onedispatch as od
from onedispatch.operators.catalog.catalog import Catalog
from onedispatch.operators.catalog.selector import CatalogSearch
from tests.integration.catalogs import NPU2, rows
catalog = Catalog(sys.argv[1])
row = next(r for r in rows() if r.problem.device == NPU2.identity)
open(sys.argv[1], "r+b").truncate(0)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    print(CatalogSearch([catalog]).select(row.problem, NPU2).name == row.solution.name, len(caught))
"""
    path = tmp_path / "catalog_npu2.odcat"
    shutil.copy(folders["merged"] / path.name, path)
    run = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert run.returncode == 0, run.stderr
    found, warned = run.stdout.split()
    assert found == "True" and int(warned) >= 1  # the search's own solution, which rows() have


# -- predicates ------------------------------------------------------------------------------


def test_an_operation_is_a_canonical_einsum() -> None:
    assert ProblemFeatures(resized(8, 8, 8)).operation == "ac,cb->ab"
    assert Always().failure(Features(resized(8, 8, 8), NPU2)) == ""
    assert "m is 8, not 9 or more" in Size("m", least=9).failure(Features(resized(8, 8, 8), NPU2))


def test_families_differ_by_all_but_sizes() -> None:
    one, larger, other = resized(8, 8, 8), resized(80, 16, 24), resized(8, 8, 8, activation="tanh")
    families = [ProblemFeatures(p).family for p in (one, larger, other)]
    assert families[0] == families[1] != families[2]


# -- code objects ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def prebuilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog with the programs of ``chain``."""
    folder = tmp_path_factory.mktemp("prebuilt")
    with recorded() as found:
        emitter._PROGRAMS.clear()
        od.compile(chain(), catalog="none")
    write(merged(rows()), folder, lazy=True, programs={NPU2.identity: found})
    return folder


def compiled(folder: Path) -> tuple[bytes, bytes, int]:
    """Transaction and parameters of ``chain``, and how many programs were code objects."""
    emitter._PROGRAMS.clear()
    catalog = Catalog(folder)
    step = od.compile(chain(), selector=CatalogSearch([catalog])).device_step
    return step.transaction, step.params, catalog.stats().programs


def test_code_objects_are_what_would_be_emitted(prebuilt: Path, folders: dict[str, Path]) -> None:
    *emitted, none = compiled(folders["lazy"])
    *loaded, some = compiled(prebuilt)
    assert loaded == emitted and none == 0 and some > 0


def test_objects_of_another_source_are_left_alone(prebuilt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    *loaded, _ = compiled(prebuilt)
    monkeypatch.setattr(objects, "source_digest", lambda: "00" * 16)
    *emitted, none = compiled(prebuilt)
    assert emitted == loaded and none == 0


def test_damaged_objects_are_emitted_with_a_warning(prebuilt: Path, tmp_path: Path) -> None:
    *loaded, _ = compiled(prebuilt)
    (file,) = prebuilt.glob("*.odobj")
    whole = file.read_bytes()
    first = CodeObjects(str(file))._first
    cases = {
        "an object": whole[: first + 20] + bytes(8) + whole[first + 28 :],
        "the index": whole[:60] + bytes([whole[60] ^ 1]) + whole[61:],
        "the end": whole[:-1],
        "all": b"",
    }
    for name, data in cases.items():
        folder = tmp_path / name
        shutil.copytree(prebuilt, folder)
        (folder / file.name).unlink()
        (folder / file.name).write_bytes(data)
        with pytest.warns(UserWarning, match="emitted"):
            *emitted, _ = compiled(folder)
        assert emitted == loaded, name
    (folder / file.name).unlink()
    with pytest.warns(CatalogWarning, match="Programs are emitted"):
        assert compiled(folder)[:2] == tuple(loaded)


def test_equal_objects_are_stored_once(tmp_path: Path) -> None:
    program = NestProgram(b"transaction" * 9, b"parameters", (b"block", b""))
    keys = [bytes([number]) * 16 for number in range(40)]
    others = {key: replace(program, params=key) for key in keys[20:]}
    path = tmp_path / "o.odobj"
    path.write_bytes(encode({**dict.fromkeys(keys[:20], program), **others}))
    found = CodeObjects(str(path))
    assert (found.count, found.objects) == (40, 21)
    assert [found.find(key) for key in keys] == [program] * 20 + list(others.values())
    assert found.find(b"\xff" * 16) is None
