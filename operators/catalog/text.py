# SPDX-License-Identifier: Apache-2.0
"""Catalogs as YAML, for people: the same data, one solution a line.

Reading uses YAML's safe loader: it makes dictionaries, lists, strings and numbers, and runs nothing.
"""

from __future__ import annotations

from typing import Any

import yaml

from onedispatch.operators.catalog import tree
from onedispatch.operators.catalog.container import KINDS, VERSION, Child, Library
from onedispatch.operators.catalog.predicates import predicate_of
from onedispatch.operators.catalog.table import CYCLES, DIGEST, Entry, Rule, TableData, is_cycles
from onedispatch.operators.scheduling.exact import WORD_BITS, is_word
from onedispatch.operators.scheduling.solution import Solution
from onedispatch.transactions.base.errors import CatalogError, SolutionError, statement_of
from onedispatch.transactions.base.signature import bounded_repr, matches_hint
from onedispatch.transactions.base.text import counted

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
# What PyYAML raises; for scalars whose tag says more than they are, what its conversions raise.
_NO_YAML = yaml.YAMLError, ValueError, LookupError, ArithmeticError, AttributeError, TypeError
_WIDE = 1 << 16  # a row stays on its line


def text_of(library: Library) -> str:
    """The catalog as YAML."""
    data = {
        "catalog": VERSION,
        "kind": library.kind,
        "name": library.name,
        "device": library.device,
        "made_by": library.made_by,
        "objects": library.objects,
        "tree": tree.to_data(library.tree),
    }
    if library.children:
        data["children"] = {
            name: {"file": c.file, "size": c.size, "crc": c.crc, "rows": c.rows}
            for name, c in sorted(library.children.items())
        }
    head: str = yaml.dump(data, Dumper=_DUMPER, sort_keys=False, width=110)
    return head + "".join(_table_text(name, table) for name, table in sorted(library.tables.items()))


def _table_text(name: str, table: TableData) -> str:
    lines = [f"---\ntable: {_line(name)}"]
    if table.rules:
        lines += ["rules:", *(f"- {_line(_rule_data(rule))}" for rule in table.rules)]
    if table.entries:
        lines += ["entries:", *(f"- {_line(_entry_data(entry))}" for entry in table.entries)]
    return "\n".join(lines) + "\n"


def _line(value: Any) -> str:
    text: str = yaml.dump(value, Dumper=_DUMPER, default_flow_style=True, sort_keys=False, width=_WIDE)
    return text.removesuffix("...\n").rstrip("\n")


def _rule_data(rule: Rule) -> dict[str, Any]:
    return {"when": rule.when.to_data(), "rank": rule.rank, "solution": rule.solution.to_data()}


def _entry_data(entry: Entry) -> dict[str, Any]:
    return {
        "problem": entry.problem.hex(),
        "family": entry.family.hex(),
        "sizes": list(entry.extents),
        "cycles": entry.cycles,
        "estimated": entry.estimated,
        "least": entry.least,
        "name": entry.solution.name,
        "solution": entry.solution.to_data(),
    }


def library_of(data: bytes, path: str) -> Library:
    """The catalog of a YAML file. Raises ``CatalogError`` that names the part that is none."""
    documents = _documents(data, path)
    if not documents:
        raise CatalogError(path, "an empty file", "a catalog's YAML")
    head, *tables = documents
    where = f"{path}, head"
    _check(head, {"catalog": int, "kind": str, "name": str, "device": str, "tree": dict}, where)
    if head["catalog"] != VERSION or head["kind"] not in KINDS:
        given = f"catalog {head['catalog']}, kind {head['kind']!r}"
        raise CatalogError(where, given, f"{VERSION}; {', '.join(KINDS)}", "build it with this version")
    found: dict[str, TableData] = {}
    for number, table in enumerate(tables):
        _check(table, {"table": str}, f"{path}, document {number + 2}")
        if table["table"] in found:
            raise CatalogError(path, f"table {table['table']!r} twice", "each name once", "rename one")
        found[table["table"]] = _table(table, f"{path}, table {table['table']}")
    children = head.get("children", {})
    _check(children, {}, f"{path}, children")
    return Library(
        head["kind"],
        head["name"],
        head["device"],
        tree.from_data(head["tree"], f"{path}, tree"),
        found,
        {name: _child(child, f"{path}, child {name}") for name, child in children.items()},
        str(head.get("made_by", "")),
        str(head.get("objects", "")),
    )


def _documents(data: bytes, path: str) -> list[Any]:
    try:
        # A few lines of aliases of aliases stand for more than memory holds.
        if b"*" in data and any(isinstance(one, yaml.AliasEvent) for one in yaml.parse(data, _LOADER)):
            raise CatalogError(path, "an alias, *NAME", "parts that are written out", "copy what it names")
        return list(yaml.load_all(data, Loader=_LOADER))
    except _NO_YAML as error:
        raise CatalogError(path, f"no YAML: {statement_of(error)}", "a catalog's YAML") from error


def _child(data: Any, where: str) -> Child:
    _check(data, {"file": str, "size": int, "crc": int, "rows": int}, where)
    return Child(data["file"], data["size"], data["crc"], data["rows"])


def _table(data: dict[str, Any], where: str) -> TableData:
    entries, rules = data.get("entries", []), data.get("rules", [])
    if not isinstance(entries, list) or not isinstance(rules, list):
        raise CatalogError(where, "entries or rules that are no list", "lists")
    found = [_entry(one, f"{where}, entry {i}") for i, one in enumerate(entries)]
    seen: dict[bytes, int] = {}
    sizes: dict[bytes, int] = {}
    for number, entry in enumerate(found):
        if seen.setdefault(entry.problem, number) != number:
            given = f"problem {entry.problem.hex()} in entries {seen[entry.problem]} and {number}"
            raise CatalogError(where, given, "each problem once", "delete one")
        if sizes.setdefault(entry.family, len(entry.extents)) != len(entry.extents):
            accepted = f"{sizes[entry.family]}, as others of its family"
            raise CatalogError(f"{where}, entry {number}", counted(len(entry.extents), "size"), accepted)
    return TableData(tuple(found), tuple(_rule(one, f"{where}, rule {i}") for i, one in enumerate(rules)))


def _entry(data: Any, where: str) -> Entry:
    numbers = {"cycles": float, "estimated": float, "least": float}
    _check(data, {"problem": str, "family": str, "sizes": list, "solution": dict} | numbers, where)
    for key in numbers:
        if not is_cycles(data[key]):
            raise CatalogError(f"{where}.{key}", bounded_repr(data[key]), CYCLES)
    if not all(_is_whole(size) for size in data["sizes"]):
        raise CatalogError(where, bounded_repr(data["sizes"]), f"whole numbers of {WORD_BITS} bits")
    solution = _solution(data["solution"], where)
    if data.get("name", solution.name) != solution.name:
        remedy = "delete its name, or put back the solution that it names"
        raise CatalogError(where, f"a solution called {data['name']!r}", solution.name, remedy)
    problem, family = (_digest(data[key], f"{where}.{key}") for key in ("problem", "family"))
    return Entry(problem, family, tuple(data["sizes"]), solution, *(data[key] for key in numbers))


def _rule(data: Any, where: str) -> Rule:
    _check(data, {"when": dict, "solution": dict}, where)
    rank = data.get("rank", 0)
    if not _is_whole(rank):
        raise CatalogError(f"{where}.rank", bounded_repr(rank), f"a whole number of {WORD_BITS} bits")
    return Rule(predicate_of(data["when"], where), _solution(data["solution"], where), rank)


def _solution(data: Any, where: str) -> Solution:
    try:
        return Solution.from_data(data)
    except SolutionError as error:
        raise CatalogError(f"{where}, {error.where}", error.given, error.accepted, error.remedy) from error


def _digest(text: str, where: str) -> bytes:
    try:
        digest = bytes.fromhex(text)
    except ValueError:
        digest = b""
    if len(digest) != DIGEST:
        raise CatalogError(where, bounded_repr(text), f"{2 * DIGEST} hexadecimal digits")
    return digest


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and is_word(value)


def _check(data: Any, wanted: dict[str, Any], where: str) -> None:
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise CatalogError(where, bounded_repr(data), f"a dictionary of {', '.join(wanted)}")
    for key, kind in wanted.items():
        fits = key in data and matches_hint(data[key], kind) and not isinstance(data[key], bool)
        if not fits or (kind is int and not _is_whole(data[key])):
            given = f"{key}: {bounded_repr(data[key])}" if key in data else f"no {key}"
            raise CatalogError(where, given, f"{key}, {kind.__name__}")
