# SPDX-License-Identifier: Apache-2.0
"""``onedispatch layer build``: a project's parameter header, and libraries older than their sources."""

from __future__ import annotations

import os
import secrets
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from onedispatch.dispatch.plugins.project import FoundLayer, Project, layers_of
from onedispatch.dispatch.plugins.scaffold import FLAGS
from onedispatch.operators.codegen.headers import include_folder
from onedispatch.operators.layers.params_header import GENERATED, Struct, digest, header
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.files import read_file, write_file
from onedispatch.transactions.base.text import counted

COMPILER = "g++"
SECONDS = 600.0  # that one library may take
MOST_BYTES = 1 << 24  # of a header
_HEADERS = ("*.h", "*.hpp")


@dataclass(frozen=True)
class Built:
    """What a build did: ``files`` that it wrote, lines about what it left."""

    files: tuple[Path, ...]
    notes: tuple[str, ...]


def compiled(layers: Iterable[FoundLayer]) -> list[FoundLayer]:
    """Those with a body in C++."""
    return [one for one in layers if one.library is not None]


def header_text(project: Project, layers: Iterable[FoundLayer]) -> str:
    """What the parameter header is to say; "" for a project without bodies in C++."""
    structs = structs_of(project, layers)
    return header(project.space, structs) if structs else ""


def structs_of(project: Project, layers: Iterable[FoundLayer]) -> list[Struct]:
    return [Struct(one.struct(project.space), one.name, one.parameters) for one in compiled(layers)]


def state(layer: FoundLayer) -> str:
    """``not built``, ``older than its source``, or ``built``; "" of a layer without a compiled body."""
    library, source = layer.library, layer.source
    if library is None:
        return ""
    if not library.is_file():
        return "not built"
    return "older than its source" if source is not None and _older(library, source) else "built"


def _older(library: Path, source: Path) -> bool:
    """Whether it, or a header beside it, was changed after the library was built."""
    beside = [path for pattern in _HEADERS for path in source.parent.glob(pattern)]
    times = [path.stat().st_mtime_ns for path in (source, *beside) if path.is_file()]
    return library.stat().st_mtime_ns < max(times, default=0)


def build(project: Project, *, again: bool = False) -> Built:
    """Writes the header where it says something else, and compiles what is older than its sources.

    ``again``: what was generated before is removed first. Raises ``InputError`` where the compiler refuses a
    source (with what it says), a source is missing, and for files in the way that are not generated.
    """
    layers = layers_of(project)
    if again:
        for file in generated(project, layers):
            _remove(file)
    text, files, notes = header_text(project, layers), list[Path](), list[str]()
    if text and _text_of(project.header) != text:
        _check_header(project.header)
        _remove(project.header)  # else it would be a file that this command read
        write_file(project.header, text.encode())
        files.append(project.header)
    for layer in _one_of_each_library(layers):
        library, source = layer.library, layer.source
        assert library is not None
        if source is None or not source.is_file():
            _check_foreign(layer)
            notes.append(f"{library} of {layer.name} is not built here: no source for it")
        elif state(layer) == "built":
            notes.append(f"{library} is newer than its sources")
        else:
            _compile(source, library)
            files.append(library)
    return Built(tuple(files), tuple(notes))


def generated(project: Project, layers: Iterable[FoundLayer]) -> list[Path]:
    """The files that a build wrote, as far as they are there."""
    found = [project.header] if _is_generated(_text_of(project.header)) else []
    made = [one for one in compiled(layers) if one.source is not None and one.source.is_file()]
    libraries = dict.fromkeys(one.library for one in made if one.library is not None)
    return [*found, *(path for path in libraries if path.is_file() or path.is_symlink())]


def disagreements(project: Project, layers: Iterable[FoundLayer]) -> dict[str, str]:
    """Of layers with bodies in C++: in what the header is not what ``Params`` say, by layer."""
    structs = structs_of(project, layers)
    if not structs:
        return {}
    text, remedy = _text_of(project.header), "`onedispatch layer build` writes it"
    if not text:
        return {structs[0].layer: f"there is no {project.header}: {remedy}"}
    apart = [one for one in structs if f"\n{one.text}\n" not in text]
    if f"Digest of Params: {digest(structs)}\n" not in text:
        why = f"{project.header} was made of other Params: {remedy} anew"
    else:
        why = f"{project.header} was edited, which is generated: change Params, and {remedy} anew"
    if text == header(project.space, structs):
        return {}
    return {one.layer: why for one in apart or structs[:1]}


def _one_of_each_library(layers: Iterable[FoundLayer]) -> list[FoundLayer]:
    return list({one.library: one for one in compiled(layers)}.values())


def _check_foreign(layer: FoundLayer) -> None:
    library = layer.library
    assert library is not None
    if not library.is_file():
        accepted = "a library that is there, or libNAME.so with its source NAME.cpp beside the class"
        given = f"library {layer.cls.library!r}: neither {library} nor its source"
        raise InputError(f"layer {layer.name}, {layer.file}", given, accepted)


def _text_of(file: Path) -> str:
    """ "" where there is no such file."""
    if not file.exists() and not file.is_symlink():
        return ""
    return read_file(file, most=MOST_BYTES).decode(errors="replace")


def _is_generated(text: str) -> bool:
    return text.startswith(GENERATED)


def _check_header(file: Path) -> None:
    """Raises ``InputError`` for a file in its place that no build wrote."""
    if file.is_symlink() or (file.exists() and not _is_generated(_text_of(file))):
        what = "a link" if file.is_symlink() else "a file that is not generated"
        accepted = "no file, or the header that a build wrote"
        raise InputError("layer build", f"{file}, {what}", accepted, "move it elsewhere")


def _remove(file: Path) -> None:
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(str(file), error.strerror or str(error), "a file that can be removed") from error


def _compile(source: Path, library: Path) -> None:
    """Makes the library, and puts it in its place as a whole: processes that have the old one keep it."""
    made, begun = library.with_name(f".{secrets.token_hex(8)}.so"), time.time_ns()
    command = [COMPILER, *FLAGS, f"-I{include_folder()}", str(source), "-o", str(made)]
    try:
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=SECONDS,
                stdin=subprocess.DEVNULL,
            )
        except FileNotFoundError as error:
            raise InputError(
                "layer build", f"no {COMPILER}", "a C++ compiler on PATH", "install it"
            ) from error
        except subprocess.TimeoutExpired as error:
            given = f"{source}, which takes more than {counted(int(SECONDS), 'second')}"
            raise InputError("layer build", given, "a source that compiles") from error
        if done.returncode:
            said = done.stderr.strip() or f"{COMPILER} ended with {done.returncode}"
            raise InputError(f"layer build: {source}", f"\n{said}\n", f"C++ that {COMPILER} compiles")
        os.utime(made, ns=(begun, begun))  # a source that was changed meanwhile is newer
        os.replace(made, library)
    except OSError as error:
        given = error.strerror or str(error)
        raise InputError(f"layer build: {library}", given, "a place that can be written") from error
    finally:
        made.unlink(missing_ok=True)
