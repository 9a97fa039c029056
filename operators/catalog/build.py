# SPDX-License-Identifier: Apache-2.0
"""From a tuner's rows to the files of a catalog, and between their forms.

Both forms of a device come from one tree. *Lazy*: a parent without solutions, a child for every operation,
kernel and set of element types, and a fallback child that serves every device. *Merged*: all of a device in
one file.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from onedispatch.operators.catalog.catalog import FALLBACK, LAZY, MERGED
from onedispatch.operators.catalog.container import SUFFIX, TEXT_SUFFIX, Child, Library, made_by
from onedispatch.operators.catalog.features import ProblemFeatures
from onedispatch.operators.catalog.files import open_file
from onedispatch.operators.catalog.log import Tuned
from onedispatch.operators.catalog.objects import SUFFIX as OBJECTS
from onedispatch.operators.catalog.objects import CodeObjects, encode
from onedispatch.operators.catalog.predicates import Always, And, Hardware, KernelIs, Types
from onedispatch.operators.catalog.table import Entry, Table, TableData, best_entries
from onedispatch.operators.catalog.tree import (
    METHODS,
    Branch,
    ByOperation,
    MethodLeaf,
    Node,
    Rows,
    TableLeaf,
    replaced,
    tables_of,
)
from onedispatch.operators.emission.programs import NestProgram
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.transactions.base.errors import CatalogError
from onedispatch.transactions.base.files import write_file

Form = Literal["yaml", "msgpack"]
Programs = Mapping[str, Mapping[bytes, NestProgram]]  # by device and digest

_METHODS = Rows(tuple(Branch(Always(), MethodLeaf(method)) for method in METHODS))


@dataclass(frozen=True)
class _Place:
    """Where in the tree problems of one kind go."""

    operation: str
    kernel: str
    types: tuple[str, ...]

    @classmethod
    def of(cls, seen: ProblemFeatures) -> _Place:
        return cls(seen.operation, seen.kernel, seen.types)

    def table(self, device: str) -> str:
        """The name of its table: element types, operation and kernel, device."""
        operation = "".join(c if c.isalnum() else "_" for c in self.operation)
        kernel = self.kernel.split("::")[-1].replace("@", ".").replace("#", ".")
        named = "" if self.operation == self.kernel.partition("#")[0] else f"{operation}_"
        return f"type_{'_'.join(self.types)}_{named}{kernel}_{device}"


def merged(rows: Iterable[Tuned]) -> list[Library]:
    """One library per device, by name, of the best row of every problem."""
    by_device: dict[str, dict[_Place, list[Entry]]] = defaultdict(lambda: defaultdict(list))
    best: dict[Problem, Tuned] = {}
    least: dict[Problem, float] = {}
    for row in rows:
        least[row.problem] = min(row.estimated, least.get(row.problem, row.estimated))
        known = best.setdefault(row.problem, row)
        if row.cycles <= known.cycles and _order(row) < _order(known):
            best[row.problem] = row
    for row in best.values():
        seen = ProblemFeatures(row.problem)
        by_device[row.problem.device][_Place.of(seen)].append(_entry(row, seen, least[row.problem]))
    return [_library(device, by_device[device]) for device in sorted(by_device)]


def _order(row: Tuned) -> tuple[int, str]:
    return row.cycles, row.solution.name


def _entry(row: Tuned, seen: ProblemFeatures, least: float) -> Entry:
    digest = bytes.fromhex(row.problem.digest)
    return Entry(digest, seen.family, seen.extents, row.solution, float(row.cycles), row.estimated, least)


def _library(device: str, places: Mapping[_Place, Sequence[Entry]]) -> Library:
    name = device.partition("@")[0]
    operations: dict[str, list[Branch]] = defaultdict(list)
    tables: dict[str, TableData] = {}
    for place in sorted(places, key=lambda p: (p.operation, p.kernel, p.types)):
        table = place.table(name)
        tables[table] = TableData(best_entries(places[place]))
        when = And((KernelIs(place.kernel), Types(place.types)))
        operations[place.operation].append(Branch(when, TableLeaf(table)))
    tuned = ByOperation({operation: Rows(tuple(rows)) for operation, rows in operations.items()})
    root = Rows((Branch(Hardware(device), tuned), Branch(Always(), _METHODS)))
    return Library("merged", MERGED.format(name), device, root, tables, made_by=made_by())


# -- forms -------------------------------------------------------------------------------------


def split(library: Library) -> tuple[Library, dict[str, bytes]]:
    """A merged library as a parent and the bytes of its children, by the names of their files."""
    files: dict[str, bytes] = {}
    children: dict[str, Child] = {}
    for name, table in sorted(library.tables.items()):
        child = Library(
            "child", name, library.device, TableLeaf(name), {name: table}, made_by=library.made_by
        )
        file, data = f"catalog_{name}{SUFFIX}", child.to_bytes()
        files[file] = data
        children[name] = Child(file, len(data), zlib.crc32(data), len(table.entries) + len(table.rules))
    data = fallback(library.made_by).to_bytes()
    files[f"{FALLBACK}{SUFFIX}"] = data
    children[FALLBACK] = Child(f"{FALLBACK}{SUFFIX}", len(data), zlib.crc32(data), 0)
    root = replaced(library.tree, _METHODS, TableLeaf(FALLBACK))
    name = LAZY.format(library.device.partition("@")[0])
    return replace(library, kind="parent", name=name, tree=root, tables={}, children=children), files


def fallback(made: str = "") -> Library:
    """The child for what is not tuned, on every device: the search, and behind it plain tiles."""
    return Library("child", FALLBACK, "", _METHODS, made_by=made or made_by())


def library_of(path: Path) -> Library:
    """A catalog's file as a merged library, its children read; its code objects are ``programs_of`` it.

    Raises ``CatalogError`` where a child is missing or damaged.
    """
    opened = open_file(path)
    tables = {name: Table(block, str(path), name).to_data() for name, block in opened.tables.items()}
    for name, child in opened.children.items():
        below = open_file(path.parent / child.file)
        if below.name != name or (below.crc, len(below.data)) != (child.crc, child.size):
            raise CatalogError(below.path, f"another file than {path} names", name, "build both together")
        tables |= {n: Table(block, below.path, n).to_data() for n, block in below.tables.items()}
    device = opened.device.partition("@")[0]
    kind, name = ("child", opened.name) if opened.kind == "child" else ("merged", MERGED.format(device))
    root = replaced(opened.tree, TableLeaf(FALLBACK), _METHODS)
    lost = sorted(set(tables_of(root)) - tables.keys())
    if lost:
        raise CatalogError(str(path), f"no tables {', '.join(lost)}", "every table that its tree names")
    return Library(kind, name, opened.device, root, tables, made_by=opened.made_by)


def programs_of(path: Path) -> tuple[str, Mapping[bytes, NestProgram]]:
    """The device of a catalog's file, and the code objects that it names; none of another source.

    Raises ``CatalogError`` where their file is missing or damaged.
    """
    opened = open_file(path)
    found = CodeObjects(str(path.parent / opened.objects)) if opened.objects else None
    return opened.device, found.to_data() if found is not None and found.is_of_this_source else {}


def joined(libraries: Sequence[Library]) -> Library:
    """Libraries of one device as one: of a problem in several, the entry with the fewest cycles.

    Raises ``CatalogError`` for libraries of several devices.
    """
    devices = sorted({one.device for one in libraries})
    for one in libraries:
        if not one.device:
            raise CatalogError(one.name, "a child of every device", "parents, merged files, children of one")
    if len(devices) != 1:
        raise CatalogError("catalogs to merge", ", ".join(devices) or "none", "files of one device")
    tables: dict[str, TableData] = {}
    for library in libraries:
        for name, table in library.tables.items():
            before = tables.get(name, TableData())
            rules = tuple(dict.fromkeys((*before.rules, *table.rules)))
            tables[name] = TableData(best_entries((*before.entries, *table.entries)), rules)
    root = libraries[0].tree
    for other in libraries[1:]:
        root = _joined_trees(root, other.tree)
    return replace(libraries[0], tree=root, tables=tables)


def _joined_trees(one: Node, other: Node) -> Node:
    """Two trees as one: rows with the same predicate are joined, others follow."""
    if isinstance(one, ByOperation) and isinstance(other, ByOperation):
        operations = dict(one.operations)
        for name, node in other.operations.items():
            operations[name] = _joined_trees(operations[name], node) if name in operations else node
        return ByOperation(dict(sorted(operations.items())))
    if not isinstance(one, Rows) or not isinstance(other, Rows):
        return one if one == other else Rows((Branch(Always(), one), Branch(Always(), other)))
    rows = {row.when: row.then for row in one.rows}
    if one == _METHODS or len(rows) != len(one.rows):
        return one
    fresh = {row.when: row.then for row in other.rows}
    both = {when: _joined_trees(node, fresh[when]) if when in fresh else node for when, node in rows.items()}
    added = {when: node for when, node in fresh.items() if when not in rows}
    last = {when: both.pop(when) for when in list(both) if isinstance(when, Always)}
    return Rows(tuple(Branch(when, node) for when, node in (both | added | last).items()))


def write(
    libraries: Iterable[Library],
    folder: Path,
    *,
    lazy: bool,
    form: Form = "msgpack",
    programs: Programs | None = None,
) -> dict[str, list[Path]]:
    """Writes merged libraries to ``folder``, with ``programs`` as their code objects; the files of each by
    its device. Children come first, so that no parent ever names what is not there.

    Raises ``CatalogError`` where a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written: dict[str, list[Path]] = {}
    content: dict[Path, bytes] = {}
    for library in libraries:
        made = _with_objects(library, (programs or {}).get(library.device, {}))
        files = {folder / name: data for name, data in _files_of(*made, lazy, form).items()}
        written[library.device] = list(files)
        content |= files
    parents = {files[-1] for files in written.values()}
    for path in sorted(content, key=lambda path: (path in parents, path)):
        write_file(path, content[path], CatalogError)
    return written


def _with_objects(
    library: Library, programs: Mapping[bytes, NestProgram]
) -> tuple[Library, dict[str, bytes]]:
    """A library that names its file of code objects, and that file; without programs, as it is."""
    if not programs:
        return library, {}
    name = f"catalog_objects_{library.device.partition('@')[0]}{OBJECTS}"
    return replace(library, objects=name), {name: encode(programs)}


def _files_of(library: Library, files: dict[str, bytes], lazy: bool, form: Form) -> dict[str, bytes]:
    """The files of a library by their names, others first; what selection opens first is the last."""
    if lazy:
        library, children = split(library)
        files = files | children
    if form == "yaml":
        from onedispatch.operators.catalog.text import text_of  # YAML is slow to import

        return files | {f"{library.name}{TEXT_SUFFIX}": text_of(library).encode()}
    return files | {f"{library.name}{SUFFIX}": library.to_bytes()}
