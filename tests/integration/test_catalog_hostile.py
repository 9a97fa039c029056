# SPDX-License-Identifier: Apache-2.0
"""Catalogs that were made to do harm: right checksums, wrong content. They are typed errors, or give way."""

from __future__ import annotations

import hashlib
import os
import struct
import threading
import tracemalloc
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import inf, nan
from pathlib import Path
from typing import Any

import msgpack
import pytest
import zstandard

import onedispatch as od
from onedispatch.dispatch.tuning.tune import tune
from onedispatch.operators.catalog import objects
from onedispatch.operators.catalog.build import library_of, merged, programs_of, write
from onedispatch.operators.catalog.catalog import Catalog, CatalogWarning
from onedispatch.operators.catalog.container import Child, Library
from onedispatch.operators.catalog.layers import selector_of
from onedispatch.operators.catalog.lint import lint
from onedispatch.operators.catalog.log import append, read
from onedispatch.operators.catalog.objects import CodeObjects
from onedispatch.operators.catalog.predicates import Always, Size
from onedispatch.operators.catalog.selector import CatalogSearch
from onedispatch.operators.catalog.table import Rule, TableData, encode
from onedispatch.operators.catalog.text import text_of
from onedispatch.operators.catalog.tree import MethodLeaf, TableLeaf
from onedispatch.operators.emission import emitter
from onedispatch.operators.emission.programs import NestProgram, recorded, source_digest
from onedispatch.operators.scheduling.search import search
from tests.integration.catalogs import NPU2, resized, rows, written
from tests.integration.test_operators_solution import chain

ROW = next(row for row in rows() if row.problem.device == NPU2.identity)
HEAD = b'{"crc32":"025da657","format":"onedispatch tuning log","version":1}\n'
(NAME,) = merged([ROW])[0].tables


def entry_table(**changes: Any) -> TableData:
    """The table of one row, at a neighbour's place, whose fields are changed."""
    (entry,) = merged([ROW])[0].tables[NAME].entries
    return TableData((replace(entry, problem=bytes(16), **changes),))


def one_table(table: TableData) -> Library:
    """A merged catalog of one table."""
    return Library("merged", "hostile", NPU2.identity, TableLeaf(NAME), {NAME: table})


@contextmanager
def encoded(monkeypatch: pytest.MonkeyPatch, block: bytes) -> Iterator[None]:
    """Catalogs are written with this block in place of their tables."""
    with monkeypatch.context() as patched:
        patched.setattr("onedispatch.operators.catalog.container.encode", lambda _: block)
        yield


def searched_with_warnings(path: Path, expected: str, times: int = 1) -> None:
    """Selection by ``path`` warns so often, and answers what the search does."""
    selector = CatalogSearch([Catalog(path)])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for problem in (ROW.problem, resized(31, 32, 33)):
            selector.select(problem, NPU2)
        assert selector.select(ROW.problem, NPU2) == search(ROW.problem.nest, NPU2)
    assert [expected in str(one.message) for one in caught] == [True] * times


# -- tables ----------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [0.0, -1.0, nan, inf])
@pytest.mark.parametrize("field", ["cycles", "estimated", "least"])
def test_cycles_that_are_none_give_way(field: str, wrong: float, tmp_path: Path) -> None:
    path = tmp_path / "c.odcat"
    path.write_bytes(one_table(entry_table(**{field: wrong})).to_bytes())
    searched_with_warnings(path, "more than 0, and finite")


def with_checksum(block: bytearray) -> bytes:
    """The block of one row, with the checksum of what it says now."""
    at, (_, count, families, solutions, rules, sizes, _, _) = 32, struct.unpack_from("<8I", block)
    for part in (16 * count, 32 * count, 32 * families, 4 * count, 8 * sizes, rules, 8 * (solutions + 1)):
        at += part + -part % 8
    struct.pack_into("<I", block, 24, zlib.crc32(block[32:at]))
    return bytes(block)


# Where a number stands in the block of one row, and what is wrong then.
NUMBERS = {
    "a row's solution": (48, "of 1"),
    "a family's first member": (96, "a family of 1 row from 4294967295"),
    "a family's members": (100, "a family of 4,294,967,295 rows"),
    "a family's sizes": (104, "a family of 4294967295 sizes"),
    "a family's first extent": (108, "a family of 1 row"),
    "a member's row": (112, "row 4294967295 of 1"),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_beyond_a_table_give_way(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at, expected = NUMBERS[name]
    block = bytearray(encode(entry_table()))
    struct.pack_into("<I", block, at, 0xFFFFFFFF)
    path = tmp_path / "c.odcat"
    with encoded(monkeypatch, with_checksum(block)):
        path.write_bytes(one_table(TableData()).to_bytes())
    searched_with_warnings(path, expected)


ANY = {"is": "Always"}
RULES: dict[str, tuple[Any, str]] = {
    "no list": (5, "a list"),
    "nothing": (None, "a list"),
    "no rule": ([7], "when, solution and rank"),
    "a solution's text": ([{"when": ANY, "solution": "x", "rank": 0}], "whole numbers"),
    "no rank": ([{"when": ANY, "solution": 0, "rank": nan}], "whole numbers"),
    "a negative number": ([{"when": ANY, "solution": -1, "rank": 0}], "0 or more"),
    "a large number": ([{"when": ANY, "solution": 1 << 63, "rank": 0}], "0 or more"),
}


@pytest.mark.parametrize("name", RULES)
def test_rules_that_are_none_give_way(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, expected = RULES[name]
    packb, path = msgpack.packb, tmp_path / "c.odcat"
    with monkeypatch.context() as patched:
        patched.setattr(msgpack, "packb", lambda x: packb(data if isinstance(x, list) else x))
        block = encode(TableData((), (Rule(Always(), ROW.solution),)))
    with encoded(monkeypatch, block):
        path.write_bytes(one_table(TableData()).to_bytes())
    searched_with_warnings(path, expected)


def test_a_child_that_leads_back_to_its_parent_gives_way(tmp_path: Path) -> None:
    for name, other in ("ab", "ba"):
        library = Library("child", name, "", TableLeaf(other), {}, {})
        size = len(library.to_bytes())
        for _ in range(3):  # its own size is part of what the other says
            child = Child(f"{other}.odcat", size, 0, 0)
            size = len(replace(library, children={other: child}).to_bytes())
        (tmp_path / f"{name}.odcat").write_bytes(replace(library, children={other: child}).to_bytes())
    searched_with_warnings(tmp_path / "a.odcat", "a child of its own")


def test_a_table_that_is_not_there_is_told_of_once(tmp_path: Path) -> None:
    path = tmp_path / "c.odcat"
    path.write_bytes(Library("merged", "c", "", TableLeaf("nowhere")).to_bytes())
    searched_with_warnings(path, "no child and no table 'nowhere'")


# -- text ------------------------------------------------------------------------------------


def text() -> str:
    table = TableData(entry_table().entries, (Rule(Size("m", 7777), ROW.solution, 88),))
    return text_of(one_table(table))


BIG = 1 << 70
TEXTS = {
    "a date": ("catalog: 1", "catalog: 2020-99-99", "no YAML"),
    "a tag": ("catalog: 1", "catalog: !!int one", "no YAML"),
    "a truth": ("catalog: 1", "catalog: !!bool maybe", "no YAML"),
    "many digits": ("catalog: 1", f"catalog: {'9' * 5000}", "no YAML"),
    "true": ("catalog: 1", "catalog: true", "catalog: True"),
    "a rank": ("rank: 88", f"rank: {BIG}", "64 bits"),
    "a bound": ("least: 7777", f"least: {BIG}", "64 bits"),
    "sizes": (f"sizes: [{ROW.problem.dims[0].extent}", f"sizes: [{BIG}", "64 bits"),
    "cycles": (f"cycles: {float(ROW.cycles)}", f"cycles: {10**400}", "finite"),
    "no cycles": (f"cycles: {float(ROW.cycles)}", "cycles: .nan", "finite"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_text_that_numbers_cannot_hold_is_a_typed_error(name: str, tmp_path: Path) -> None:
    before, after, expected = TEXTS[name]
    path, whole = tmp_path / "c.yaml", text()
    assert whole.count(before) == 1
    path.write_text(whole.replace(before, after))
    with pytest.raises(od.CatalogError, match=expected) as caught:
        Catalog(path)
    assert str(caught.value).startswith(str(path))


def test_problems_of_a_family_have_as_many_sizes(tmp_path: Path) -> None:
    path, whole = tmp_path / "c.yaml", text()
    *_, line = whole.strip().splitlines()
    size = ROW.problem.dims[0].extent
    other = line.replace("problem: '00", "problem: '01").replace(f"sizes: [{size},", "sizes: [")
    path.write_text(f"{whole}{other}\n")
    with pytest.raises(od.CatalogError, match="as others of its family"):
        Catalog(path)


def test_aliases_do_not_multiply(tmp_path: Path) -> None:
    """Each line would stand for four of the one before."""
    lines = ["x0: &p0 {is: Always}"]
    lines += [f"x{i}: &p{i} {{is: And, of: [{', '.join([f'*p{i - 1}'] * 4)}]}}" for i in range(1, 30)]
    path = tmp_path / "c.yaml"
    path.write_text("\n".join(lines) + "\n" + text())
    with pytest.raises(od.CatalogError, match="an alias"):
        Catalog(path)


# -- places ----------------------------------------------------------------------------------


def test_children_are_found_from_another_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "catalogs", lazy=True)
    monkeypatch.chdir(tmp_path)
    selector = CatalogSearch([Catalog("catalogs")])
    monkeypatch.chdir("/")
    assert selector.select(ROW.problem, NPU2) == ROW.solution
    assert selector.counts == {"exact": 1}


def test_a_folder_that_went_is_a_typed_error(tmp_path: Path) -> None:
    catalog = Catalog(written(tmp_path / "catalogs", lazy=True))
    os.rename(tmp_path / "catalogs", tmp_path / "elsewhere")
    with pytest.raises(od.CatalogError, match="No such file"):
        catalog.prefetch()


def test_text_that_is_edited_where_it_lies_is_read_again(tmp_path: Path) -> None:
    path = written(tmp_path, lazy=False, form="yaml") / "catalog_npu2.yaml"
    before = selector_of([str(tmp_path), "none"])
    assert selector_of([str(tmp_path), "none"]) is before
    with path.open("a") as file:
        file.write("# edited\n")
    os.utime(path, ns=(1, 1))  # clocks may step too coarsely to show the change
    assert selector_of([str(tmp_path), "none"]) is not before


# -- code objects ----------------------------------------------------------------------------


def programs(count: int) -> dict[bytes, NestProgram]:
    return {bytes([n]) * 16: NestProgram(bytes([n]) * 5000, bytes(n), (b"block",)) for n in range(count)}


def test_threads_load_code_objects_at_once(tmp_path: Path) -> None:
    known, wrong = programs(40), list[bytes]()
    (tmp_path / "o.odobj").write_bytes(objects.encode(known))
    found = CodeObjects(str(tmp_path / "o.odobj"))

    def load() -> None:
        for _ in range(50):
            wrong.extend(key for key, program in known.items() if found.find(key) != program)

    threads = [threading.Thread(target=load) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("content", [5, [b"t", b"p"], ["t", b"p", []], [b"t", b"p", [1]], [b"t", b"p", 1]])
def test_objects_that_are_no_programs_are_emitted(content: Any, tmp_path: Path) -> None:
    packed = msgpack.packb(content)
    path = tmp_path / "o.odobj"
    path.write_bytes(objects_of(packed, zstandard.ZstdCompressor().compress(packed)))
    with pytest.warns(objects.CodeObjectWarning, match="emitted"):
        assert CodeObjects(str(path)).find(bytes(16)) is None


def test_an_object_that_claims_to_be_large_is_not_unpacked(tmp_path: Path) -> None:
    claimed = struct.pack("<IBQ", zstandard.MAGIC_NUMBER, 0b11100000, 1 << 45)
    path = tmp_path / "o.odobj"
    path.write_bytes(objects_of(b"", claimed + bytes(8)))
    with pytest.warns(objects.CodeObjectWarning, match="emitted"):
        assert CodeObjects(str(path)).find(bytes(16)) is None


def objects_of(packed: bytes, frame: bytes) -> bytes:
    """A file of one object, whose digest is that of ``packed``."""
    content = hashlib.blake2b(packed, digest_size=16).digest()
    index = bytes(16) + struct.pack("<II", 0, 0) + content + struct.pack("<QQ", 0, len(frame))
    source = bytes.fromhex(source_digest())
    size = 56 + len(index) + len(frame)
    head = struct.pack("<8sIIQ16sIIII", objects.MAGIC, 1, zlib.crc32(index), size, source, 1, 1, 0, 0)
    return head + index + frame


def test_splitting_takes_code_objects_along(tmp_path: Path) -> None:
    known = programs(3)
    (library,) = merged([ROW])
    paths = write([library], tmp_path / "merged", lazy=False, programs={library.device: known})
    whole = paths[library.device][-1]
    device, found = programs_of(whole)
    assert (device, found) == (library.device, known)
    write([library_of(whole)], tmp_path / "lazy", lazy=True, programs={device: found})
    assert programs_of(tmp_path / "lazy" / "catalog_lazy_npu2.odcat") == (device, known)
    write([library_of(whole)], tmp_path / "none", lazy=True)
    assert programs_of(tmp_path / "none" / "catalog_lazy_npu2.odcat") == (device, {})


# -- what lint and logs say ------------------------------------------------------------------


def test_lint_finds_files_that_are_never_asked_and_objects_that_went(tmp_path: Path) -> None:
    (library,) = merged([ROW])
    write([library], tmp_path, lazy=False, programs={library.device: programs(2)})
    assert not lint(tmp_path)
    write([library], tmp_path, lazy=True)
    (shadowed,) = lint(tmp_path)
    assert shadowed.text == "never asked: catalog_lazy_npu2.odcat comes first"
    assert shadowed.file.endswith("catalog_npu2.odcat")
    (tmp_path / "catalog_objects_npu2.odobj").unlink()
    assert ["code objects" in one.text for one in lint(tmp_path)] == [True, False]


def test_a_link_that_leads_nowhere_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands behind it in the folder answers; lint finds it. Another device's changes nothing."""
    (library,) = merged([ROW])
    write([library], tmp_path, lazy=False)
    for name in ("catalog_lazy_npu2.odcat", "catalog_npu1.yaml"):
        (tmp_path / name).symlink_to(tmp_path / "gone" / name)
    monkeypatch.setenv("ONEDISPATCH_CATALOG", f"{tmp_path}:none")
    with pytest.warns(CatalogWarning, match=r"catalog_lazy_npu2\.odcat: No such file.*The next row answers"):
        assert selector_of().select(ROW.problem, NPU2) == ROW.solution
    broken = {Path(one.file).name for one in lint(tmp_path) if "No such file" in one.text}
    assert broken == {"catalog_lazy_npu2.odcat", "catalog_npu1.yaml"}


@pytest.mark.parametrize("head", [b"", HEAD])
def test_a_packed_log_is_unpacked_as_far_as_it_is_one(tmp_path: Path, head: bytes) -> None:
    path = tmp_path / "t.jsonl.zst"
    path.write_bytes(zstandard.ZstdCompressor().compress(head + bytes(3 << 26)))
    tracemalloc.start()
    with pytest.raises(od.CatalogError, match="more than 1,048,576 bytes in a line"):
        read(path)
    assert tracemalloc.get_traced_memory()[1] < 1 << 27
    tracemalloc.stop()


def test_a_packed_log_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(tmp_path / "log", [ROW, ROW])
    text = (tmp_path / "log").read_bytes()
    (tmp_path / "log.zst").write_bytes(zstandard.ZstdCompressor().compress(text))
    monkeypatch.setattr("onedispatch.operators.catalog.log.MOST_UNPACKED", len(text))
    assert read(tmp_path / "log.zst") == [ROW, ROW]
    monkeypatch.setattr("onedispatch.operators.catalog.log.MOST_UNPACKED", len(text) - 1)
    with pytest.raises(od.CatalogError, match="bytes unpacked; accepted: a log"):
        read(tmp_path / "log.zst")


def test_nothing_is_appended_to_packed_logs(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.zst"
    with pytest.raises(od.CatalogError, match="one that is not packed"):
        append(path, [ROW])
    with pytest.raises(od.CatalogError, match="one that is not packed"):
        tune({ROW.problem: 1}, "npu2", 0, log=path)
    assert not path.exists()


# -- what one compile may take of another ------------------------------------------------------


def test_code_objects_reach_the_compiles_alone_that_ask_their_catalog(tmp_path: Path) -> None:
    """An object with another program under the right key: compiles that ask its catalog get it."""
    with recorded() as programs:
        emitter._PROGRAMS.clear()
        clean = od.compile(chain(), catalog="none").device_step.params
    wrong = {key: replace(one, params=bytes(len(one.params))) for key, one in programs.items()}
    write(merged(rows()), tmp_path, lazy=False, programs={NPU2.identity: wrong})
    emitter._PROGRAMS.clear()
    assert od.compile(chain(), catalog=tmp_path).device_step.params != clean
    assert od.compile(chain(), catalog="none").device_step.params == clean


def test_a_pin_that_no_catalog_has_is_warned_of(tmp_path: Path) -> None:
    write(merged(rows()), tmp_path, lazy=False)
    with pytest.warns(CatalogWarning, match="pin 0123456789abcdef: no catalog"):
        od.CatalogSearch([od.Catalog(tmp_path)], ["0123456789abcdef"])
    with pytest.raises(od.SolutionError, match="16 hexadecimal"):
        od.CatalogSearch(pins=["x"])
    with pytest.raises(od.CatalogError, match="a path"):
        od.Catalog(5)  # type: ignore[arg-type]


def test_the_plain_method_takes_tiles_that_are_worth_a_call(tmp_path: Path) -> None:
    library = Library("merged", "catalog_npu2", NPU2.identity, MethodLeaf("plain"))
    (tmp_path / "c.odcat").write_bytes(library.to_bytes())
    problem = resized(512, 512, 512)
    solution = CatalogSearch([od.Catalog(tmp_path / "c.odcat")]).select(problem, NPU2)
    assert solution.mapping.columns == 1 and min(*solution.tiles, solution.k_tile) >= 8
    assert od.measure(problem, solution, NPU2) > 0
