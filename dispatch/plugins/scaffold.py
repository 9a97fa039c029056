# SPDX-License-Identifier: Apache-2.0
"""What ``kernel new`` and ``layer new`` share: names, how files are written, tests, a package's text."""

from __future__ import annotations

import keyword
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template

from onedispatch.operators.declarations.kernel import MAX_NAME_BYTES
from onedispatch.operators.plugin.registrations import OURS, camel_case
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.files import write_file
from onedispatch.transactions.base.text import counted

FLAGS = ("-O2", "-std=c++17", "-shared", "-fPIC")  # of a compiler that makes a library of bodies
_PART = re.compile(r"[a-z][a-z0-9_]*")
# Modules that the files which are written import, or their tools.
_NEEDED = frozenset({"numpy", "onedispatch", "onnx", "pytest", "setuptools"})

MODEL = '''\
def model(shape: list[int], dtype: int = TensorProto.FLOAT, **attributes: float) -> ModelProto:
    """$result = $operator($operands)"""
    $tensors = (helper.make_tensor_value_info(name, dtype, shape) for name in "$names")
    node = helper.make_node("$operator", [$quoted], ["$result"], domain="$space", **attributes)
    graph = helper.make_graph([node], "test", [$operands], [$result])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("$space", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)
'''

# By unittest, which is Python's own; pytest runs such classes too.
MAIN = """\
if __name__ == "__main__":
    result = $run
    failed = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - failed} passed, {failed} failed")
    sys.exit(bool(failed))
"""
OWN_TESTS = "unittest.main(exit=False).result"

PROJECT = """\
[build-system]
requires = ["setuptools>=64"]
build-backend = "setuptools.build_meta"

[project]
name = "$space"
version = "0.1.0"
description = "$what of $space for OneDispatch"
dependencies = ["onedispatch"]

[project.entry-points."onedispatch.plugins"]
$space = "$entry"

[tool.setuptools]
$modules
"""


@dataclass(frozen=True)
class Written:
    """What was written, and how to go on."""

    files: tuple[Path, ...]
    commands: tuple[str, ...]


def filled(text: str, words: Mapping[str, str]) -> str:
    return Template(text).substitute(words)


def model_text(inputs: str, result: str) -> str:
    """The function of a test that makes a model of one node; its words are left to be filled in."""
    names = [*inputs, result]
    words = {
        "tensors": ", ".join(names),
        "names": "".join(names),
        "quoted": ", ".join(f'"{name}"' for name in inputs),
        "operands": ", ".join(inputs),
        "result": result,
    }
    return Template(MODEL).safe_substitute(words)


def packages(space: str) -> str:
    """Of ``PROJECT``: a package with the libraries that lie in it."""
    return f'packages = ["{space}"]\npackage-data = {{ {space} = ["*.so"] }}'


def write_new(where: str, texts: Mapping[Path, str], remedy: str = "take another --folder") -> None:
    """Writes files that are not there yet, or none.

    Raises ``InputError`` that names every file which exists, and where one cannot be written.
    """
    there = [str(file) for file in texts if os.path.lexists(file)]
    if there:
        one = len(there) == 1
        given = f"{', '.join(there)}, which exist{'s' if one else ''}"
        raise InputError(where, given, f"a place without {'it' if one else 'them'}", remedy)
    done: list[Path] = []
    try:
        for file, text in texts.items():
            _make_folder(where, file.parent)
            write_file(file, text.encode())
            done.append(file)
    except InputError:
        for file in done:
            file.unlink(missing_ok=True)
        raise


def parts(where: str, name: str, standard: str) -> tuple[str, str]:
    """Namespace and name of ``acme::blur``; of ``acme`` the latter is ``standard``.

    Raises ``InputError`` for names that neither kernels nor modules and classes can have.
    """
    space, colons, own = name.partition("::")
    own = own if colons else standard
    accepted = "a namespace (acme), or namespace::name (acme::blur), of lower-case letters, digits and _"
    if not _PART.fullmatch(space) or not _PART.fullmatch(own):
        raise InputError(where, repr(name), accepted)
    if space == OURS:
        raise InputError(where, repr(name), f"another namespace than {OURS!r}, which is ours")
    size = len(f"{space}::{own}".encode())
    if size > MAX_NAME_BYTES:
        given = f"{space}::{own}, {counted(size, 'byte')}"
        raise InputError(where, given, f"names of at most {MAX_NAME_BYTES} bytes")
    taken = keyword.iskeyword(space) or space in sys.stdlib_module_names or space in _NEEDED
    if taken:
        raise InputError(where, repr(name), f"a namespace that is no module already, as {space!r} is")
    if keyword.iskeyword(camel_case(own)):
        accepted = f"a name whose class is no word of Python's, as {camel_case(own)} is"
        raise InputError(where, repr(name), accepted)
    return space, own


def _make_folder(where: str, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(where, f"{folder}: {reason}", "a folder that can be made") from error
