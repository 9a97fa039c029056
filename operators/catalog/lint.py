# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a catalog, before anything uses it: every file read whole, every row checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from onedispatch.operators.catalog import tree
from onedispatch.operators.catalog.catalog import FALLBACK, files_for
from onedispatch.operators.catalog.container import Opened
from onedispatch.operators.catalog.files import is_catalog, open_file
from onedispatch.operators.catalog.objects import CodeObjects
from onedispatch.operators.catalog.predicates import And, KernelIs, Predicate
from onedispatch.operators.catalog.table import Table, TableData
from onedispatch.operators.declarations.registry import all_kernels
from onedispatch.transactions import Device
from onedispatch.transactions.base.errors import CatalogError


@dataclass(frozen=True)
class Finding:
    """``error``: selection cannot use it, or would not as it is meant; ``warning``: it is of no use."""

    level: str
    file: str
    text: str


def lint(path: Path, devices: Sequence[Device] = ()) -> list[Finding]:
    """What is wrong with a file, or with the files of a folder, errors first.

    ``devices``: those that are known; files of others are of no use.
    """
    paths = sorted(p for p in path.iterdir() if is_catalog(p)) if path.is_dir() else [path]
    found = [one for file in paths for one in _of_file(file, devices)]
    if path.is_dir():
        found += _of_folder(path, paths)
    return sorted(found, key=lambda one: (one.level, one.file, one.text))


def _of_folder(folder: Path, paths: Sequence[Path]) -> Iterator[Finding]:
    if not paths:
        yield Finding("error", str(folder), "no catalog in it")
    named: set[str] = set()
    for path in paths:
        try:
            named |= {child.file for child in open_file(path).children.values()}
        except CatalogError:
            continue  # which its own findings say
    for path in paths:
        if path.stem.startswith("catalog_type_") and path.name not in named:
            yield Finding("warning", str(path), "no parent names it")
    for device in sorted({path.stem.removeprefix("catalog_").removeprefix("lazy_") for path in paths}):
        first, *others = [p for p in files_for(folder, device) if p.stem != FALLBACK] or [folder]
        for path in others:
            yield Finding("warning", str(path), f"never asked: {first.name} comes first")


def _of_file(path: Path, devices: Sequence[Device]) -> Iterator[Finding]:
    file = str(path)
    try:
        opened = open_file(path)
    except CatalogError as error:
        yield Finding("error", file, error.statement())
        return
    known = {device.identity for device in devices}
    if opened.device and known and opened.device not in known:
        closest = [one for one in known if one.partition("@")[0] == opened.device.partition("@")[0]]
        text = f"of device {opened.device}, which is none of those known"
        yield Finding("warning", file, text + (f"; {closest[0]} has its name" if closest else ""))
    yield from _of_tree(opened)
    yield from _of_children(opened)
    yield from _of_objects(opened)
    for name, block in opened.tables.items():
        yield from _of_table(file, name, block)


def _of_tree(opened: Opened) -> Iterator[Finding]:
    nodes, names = list(tree.nodes_of(opened.tree)), tree.tables_of(opened.tree)
    for name, times in Counter(names).items():
        if times > 1:
            yield Finding("warning", opened.path, f"table {name} at {times} places of the tree")
        if name not in opened.tables and name not in opened.children:
            yield Finding("error", opened.path, f"the tree names table {name}, which the file does not have")
    for name in sorted((opened.tables.keys() | opened.children.keys()) - set(names)):
        yield Finding("warning", opened.path, f"nothing leads to table {name}")
    methods = any(isinstance(node, tree.MethodLeaf) for node in nodes)
    if opened.kind != "child" and not methods and FALLBACK not in opened.children:
        yield Finding("error", opened.path, "no fallback: a problem that is not tuned has no answer")
    if opened.name == FALLBACK and not methods:
        yield Finding("error", opened.path, "a fallback child without a method")
    for node in nodes:
        for row in node.rows if isinstance(node, tree.Rows) else ():
            yield from _of_predicate(opened, row.when)


def _of_predicate(opened: Opened, predicate: Predicate) -> Iterator[Finding]:
    parts = predicate.of if isinstance(predicate, And) else (predicate,)
    known = {f"{kernel.name}#{kernel.digest:08x}" for kernel in all_kernels()}
    for part in parts:
        if isinstance(part, KernelIs) and part.kernel not in known:
            text = f"of kernel {part.kernel}, which this version does not have: tune again"
            yield Finding("warning", opened.path, text)


def _of_children(opened: Opened) -> Iterator[Finding]:
    for name, child in opened.children.items():
        path = Path(opened.path).parent / child.file
        try:
            below = open_file(path)
        except CatalogError as error:
            yield Finding("error", opened.path, f"child {name}: {error.statement()}")
            continue
        if below.name != name or (below.crc, len(below.data)) != (child.crc, child.size):
            text = f"child {name}: {child.file} is not the one that it was built with"
            yield Finding("error", opened.path, text)


def _of_objects(opened: Opened) -> Iterator[Finding]:
    if opened.objects:
        try:
            CodeObjects(str(Path(opened.path).parent / opened.objects))
        except CatalogError as error:
            yield Finding("warning", opened.path, f"code objects: {error.statement()}")


def _of_table(file: str, name: str, block: memoryview) -> Iterator[Finding]:
    try:
        data = Table(block, file, name).to_data()
    except CatalogError as error:
        yield Finding("error", file, error.statement())
        return
    yield from (Finding("error", file, f"table {name}: {text}") for text in _wrong_rows(data))


def _wrong_rows(data: TableData) -> Iterator[str]:
    problems = Counter(entry.problem for entry in data.entries)
    for problem, times in problems.items():
        if times > 1:
            yield f"problem {problem.hex()} {times} times"
