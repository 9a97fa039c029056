# SPDX-License-Identifier: Apache-2.0
"""A catalog that is open: a folder of files, of which only those are read that a problem needs."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from onedispatch.operators.catalog import tree
from onedispatch.operators.catalog.choice import STAGES, Candidate, offers
from onedispatch.operators.catalog.container import SUFFIX, TEXT_SUFFIX, Opened
from onedispatch.operators.catalog.features import Features
from onedispatch.operators.catalog.files import is_catalog, open_file
from onedispatch.operators.catalog.objects import CodeObjects
from onedispatch.operators.catalog.table import Table
from onedispatch.operators.emission.programs import NestProgram
from onedispatch.transactions import Device
from onedispatch.transactions.base.errors import CatalogError
from onedispatch.transactions.base.handlers import reraise_from_handler
from onedispatch.transactions.base.signature import bounded_repr
from onedispatch.transactions.base.text import counted

_LISTED = 300  # characters of names of files in a message
LAZY, MERGED, FALLBACK = "catalog_lazy_{}", "catalog_{}", "catalog_fallback"


class CatalogWarning(UserWarning):
    """A part of a catalog cannot be used; what is left answers."""


def files_for(folder: Path, device: str) -> list[Path]:
    """The files of a folder for a device, by its name; the first that can be used answers, no other. Links
    that lead nowhere are among them: opening one says so."""
    names = LAZY.format(device), MERGED.format(device), FALLBACK
    paths = (folder / f"{name}{suffix}" for name in names for suffix in (SUFFIX, TEXT_SUFFIX))
    return [path for path in paths if path.exists() or path.is_symlink()]


@dataclass(frozen=True)
class Stats:
    """What of a catalog was read so far."""

    children: int  # files that exist beside parents
    opened: int  # of them
    tables: int
    decoded: int  # solutions
    bytes: int  # of the files that are open
    programs: int = 0  # code objects that were loaded


@dataclass(frozen=True)
class Asked:
    """A table or a method that a problem's walk led to."""

    leaf: tree.Leaf
    table: Table | None


class Catalog:
    """Tuned solutions for one or more devices.

    Args:
        path: a file (a parent, a child or a merged one; .yaml too), or a folder of such files.

    Raises:
        CatalogError: there is no such file, it is damaged, or a folder has none.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not isinstance(path, str | os.PathLike):
            raise CatalogError("Catalog", bounded_repr(path), "a path")
        # Absolute: children are opened later, when the working folder may be another.
        self.path = os.path.abspath(os.fspath(path))
        self._files: dict[str, Opened | None] = {}
        self._tables: dict[tuple[str, str], Table | None] = {}
        self._found: dict[str, Opened | None] = {}  # by the device's identity
        self._single = None if os.path.isdir(self.path) else open_file(self.path)
        self._objects: dict[str, CodeObjects | None] = {}
        self._warned = set[str]()
        if self._single is None and not self.files:
            raise self._nothing("no catalog in it")

    @property
    def folder(self) -> Path:
        path = Path(self.path)
        return path if self._single is None else path.parent

    @property
    def files(self) -> list[Path]:
        """The files that devices are looked up in: parents and merged ones."""
        if self._single is not None:
            return [Path(self.path)]
        try:
            found = sorted(p for p in Path(self.path).iterdir() if is_catalog(p))
        except OSError as error:
            reraise_from_handler(error)
            raise self._nothing(error.strerror or str(error)) from error
        return [p for p in found if not p.stem.startswith(("catalog_type_", FALLBACK))]

    @property
    def devices(self) -> list[str]:
        """Names of the devices that it has files of."""
        return sorted({p.stem.removeprefix("catalog_").removeprefix("lazy_") for p in self.files})

    def _nothing(self, given: str) -> CatalogError:
        return CatalogError(
            self.path,
            given,
            f"such a file, or a folder of {' or '.join(n.format('DEVICE') + SUFFIX for n in (LAZY, MERGED))}",
            "write one with `onedispatch catalog build`",
        )

    # -- selection ---------------------------------------------------------------------------

    def asked(self, seen: Features, tell: tree.Tell | None = None) -> list[Asked]:
        """The tables and methods for a problem, in order; children that it needs are opened.

        A child that is missing or damaged gives way to the next row, with a ``CatalogWarning``.
        """
        return [
            one
            for opened in self._roots(seen.device, tell)
            for one in self._leaves(opened, opened.tree, seen, tell, 0)
        ]

    def offers(
        self, asked: Iterable[Asked], seen: Features, stage: str, pins: frozenset[str]
    ) -> list[Candidate]:
        """What the tables among ``asked`` offer at a stage."""
        found: list[Candidate] = []
        for one in asked:
            if one.table is None:
                continue
            try:
                found += offers(one.table, seen, stage, pins)
            except CatalogError as error:
                self._warn(f"{error.statement()}. The next row answers.")
        return found

    def find_all(self, seen: Features) -> list[Candidate]:
        """What fits a problem, in the order of choice."""
        asked = self.asked(seen)
        return [one for stage in STAGES[1:] for one in self.offers(asked, seen, stage, frozenset())]

    def _leaves(
        self,
        opened: Opened,
        node: tree.Node,
        seen: Features,
        tell: tree.Tell | None,
        depth: int,
        above: tuple[str, ...] = (),  # paths of the files that led to this one
    ) -> Iterator[Asked]:
        for leaf in tree.leaves(node, seen, tell, depth):
            if isinstance(leaf, tree.MethodLeaf):
                yield Asked(leaf, None)
            elif leaf.name in opened.tables:
                table = self._table(opened, leaf.name)
                if table is not None:
                    yield Asked(leaf, table)
            else:
                child = self.child(opened, leaf.name)
                if tell is not None:
                    tell(depth + 1, f"child {leaf.name}", "opened" if child else "cannot be used")
                above_it = *above, opened.path
                if child is not None and child.path in above_it:
                    self._warn(f"{child.path} is a child of its own. The next row answers.")
                elif child is not None:
                    yield from self._leaves(child, child.tree, seen, tell, depth + 2, above_it)

    def _table(self, opened: Opened, name: str) -> Table | None:
        key = opened.path, name
        if key not in self._tables:
            self._tables[key] = None
            try:
                self._tables[key] = Table(opened.tables[name], opened.path, name)
            except CatalogError as error:
                self._warn(f"{error.statement()}. The next row answers.")
        return self._tables[key]

    def program(self, digest: bytes) -> NestProgram | None:
        """The code object of a program, from the files of devices that were looked up so far.

        Objects of another source than this package's are left alone; those that are missing or damaged are,
        with a ``CatalogWarning``.
        """
        known = [self._single, *self._found.values()]
        every = (self._objects_of(one) for one in known if one is not None and one.objects)
        return next((p for one in every if one is not None and (p := one.find(digest)) is not None), None)

    def about_objects(self, device: Device) -> str:
        """What code objects a device has here, in words."""
        named = [one for one in self._roots(device, None) if one.objects]
        found = [one for opened in named if (one := self._objects_of(opened)) is not None]
        if found:
            count = sum(one.objects for one in found)
            return f"{counted(count, 'code object')}, loaded where they are chosen"
        there = "code objects of another source, or damaged ones" if named else "no code objects"
        return f"{there}: programs are emitted"

    def _objects_of(self, opened: Opened) -> CodeObjects | None:
        path = str(Path(opened.path).parent / opened.objects)
        if path not in self._objects:
            self._objects[path] = None
            try:
                found = CodeObjects(path)
            except CatalogError as error:
                self._warn(f"{error.statement()}. Programs are emitted.")
            else:
                self._objects[path] = found if found.is_of_this_source else None
        return self._objects[path]

    # -- files -------------------------------------------------------------------------------

    def _roots(self, device: Device, tell: tree.Tell | None) -> Iterator[Opened]:
        """The file of a device; of a folder without one, its fallback child."""
        if self._single is not None:
            yield self._single
            return
        if device.identity not in self._found:
            self._found[device.identity] = self._root(device)
        found = self._found[device.identity]
        if tell is not None:
            known = ", ".join(self.devices)
            tell(0, f"file for {device.name}", found.path if found else f"none; files for {known}")
        if found is not None:
            yield found

    def _root(self, device: Device) -> Opened | None:
        found = map(self._opened, files_for(self.folder, device.name))
        return next((opened for opened in found if opened is not None), None)

    def child(self, parent: Opened, name: str) -> Opened | None:
        """The child of a parent, opened now; None with a warning where it cannot be used."""
        known = parent.children.get(name)
        if known is None:
            self._warn(f"{parent.path}: no child and no table {name!r}. The next row answers.")
            return None
        opened = self._opened(Path(parent.path).parent / known.file)
        if opened is None or (len(opened.data) == known.size and opened.name == name):
            return opened
        there, wanted = counted(len(opened.data), "byte"), counted(known.size, "byte")
        text = (
            f"{opened.path}: {opened.name!r} of {there}, but {parent.path} was built with "
            f"{name!r} of {wanted}. Build them together. The next row answers."
        )
        self._warn(text)
        self._files[opened.path] = None
        return None

    def _opened(self, path: Path) -> Opened | None:
        name = str(path)
        if name not in self._files:
            try:
                self._files[name] = open_file(name)
            except CatalogError as error:
                self._files[name] = None
                here = ", ".join(sorted(p.name for p in path.parent.glob("*")))[:_LISTED]
                searched = f"Searched {path.parent}, which has: {here or 'nothing'}"
                self._warn(f"{error.statement()}. {searched}. The next row answers.")
        return self._files[name]

    def _warn(self, text: str) -> None:
        """Warns, once: many problems find the same damage."""
        if text not in self._warned:
            self._warned.add(text)
            warnings.warn(text, CatalogWarning, stacklevel=3)

    def names(self) -> set[str]:
        """The names of all solutions: every file is opened, and every solution decoded."""
        self.prefetch()
        tables = [table for table in self._tables.values() if table is not None]
        return {table.solution(number).name for table in tables for number in range(table.solutions)}

    def prefetch(self) -> None:
        """Opens every file and its children, and checks what selection checks when it first needs it."""
        for path in self.files:
            parent = self._single or self._opened(path)
            if parent is None:
                continue
            for opened in (parent, *(self.child(parent, name) for name in parent.children)):
                for table in opened.tables if opened is not None else ():
                    assert opened is not None
                    self._table(opened, table)

    def stats(self) -> Stats:
        """What was read so far."""
        parents = [self._single] if self._single else [one for one in self._found.values() if one]
        children = {str(Path(p.path).parent / c.file) for p in parents for c in p.children.values()}
        opened = {name: one for name, one in self._files.items() if one is not None}
        opened |= {one.path: one for one in parents}
        tables = [table for table in self._tables.values() if table is not None]
        return Stats(
            len(children),
            len(children & opened.keys()),
            len(tables),
            sum(table.decoded for table in tables),
            sum(len(one.data) for one in opened.values()),
            sum(one.loaded for one in self._objects.values() if one is not None),
        )
