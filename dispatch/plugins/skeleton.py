# SPDX-License-Identifier: Apache-2.0
"""``onedispatch kernel new``: a kernel that works, with its tests and what installs it as a package."""

from __future__ import annotations

import keyword
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from string import Template

from onedispatch.operators.declarations.kernel import MAX_NAME_BYTES
from onedispatch.operators.plugin.catalog import OURS, camel_case
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.files import write_file
from onedispatch.transactions.base.text import counted

KERNEL = "scale_add"  # where nothing else is asked for
_PART = re.compile(r"[a-z][a-z0-9_]*")
# Modules that the skeleton's own files import, or their tools.
_NEEDED = frozenset({"numpy", "onedispatch", "onnx", "pytest", "setuptools"})

BUILD = (
    'g++ -O2 -std=c++17 -shared -fPIC -I"$$(onedispatch kernel include)" $space.cpp -o $space/lib$space.so'
)

CPP = """\
// Kernels of $space. Built by:
//   $build
#include "onedispatch/plugin_cpp.h"

namespace {

// z = a*x + y, element by element: the node $operator of domain "$space".
struct $operator {
  static void declare(od::Declare& d) {
    d.name("$space::$kernel").summary("z = a*x + y");
    d.in("x").in("y").out("z").scalar("a", od::f32, 1.0);
  }
  static void place(od::Place& n) {
    n.out("z", n.in("x"));
    n.index_space(n.in("x").shape);
    n.elementwise("x y z");
  }
  void run(const od::Tile& t) const {
    const float a = t.scalar<float>("a");
    t.map([a](float x, float y) { return a * x + y; }, t.out<float>("z"), t.in<float>("x"), t.in<float>("y"));
  }
};

}  // namespace

OD_PLUGIN_LIBRARY("$space", $operator)
"""

CPP_PACKAGE = '''\
"""Kernels of $space for OneDispatch, which finds them by the entry point in pyproject.toml."""

from pathlib import Path


def libraries() -> list[Path]:
    return [Path(__file__).with_name("lib$space.so")]
'''

CPP_SET_UP = '''\
HERE = Path(__file__).resolve().parent
SOURCE, LIBRARY = HERE / "$space.cpp", HERE / "$space" / "lib$space.so"


def setUpModule() -> None:
    """Loads the library, compiled where it is older than its source."""
    if not LIBRARY.exists() or LIBRARY.stat().st_mtime < SOURCE.stat().st_mtime:
        flags = ["-O2", "-std=c++17", "-shared", "-fPIC", f"-I{od.plugins.include_folder()}"]
        subprocess.run(["g++", *flags, str(SOURCE), "-o", str(LIBRARY)], check=True)
    od.plugins.load(LIBRARY)
'''

PYTHON = '''\
"""Kernels of $space for OneDispatch, which finds them by the entry point in pyproject.toml."""

import onedispatch as od


@od.kernel("$space::$kernel", inputs="x y", outputs="z", scalars={"a": ("f32", 1.0)})
class $operator:
    """z = a*x + y, element by element: the node $operator of domain "$space"."""

    def infer(self, n):
        return {"z": n["x"].like()}

    def index_space(self, n):
        return n["x"].shape

    def access(self, n):
        return n.elementwise("x", "y", "z")

    def body(self, t):
        t.z[:] = t.a * t.x + t.y


od.maps("$operator", domain="$space")($operator)
'''

PYTHON_SET_UP = """\
HERE = Path(__file__).resolve().parent


def setUpModule() -> None:
    od.plugins.load(HERE / "$space.py")
"""

# By unittest, which is Python's own; pytest runs such classes too.
TEST = '''\
"""$operator on the simulated array, beside NumPy."""

$imports
import numpy as np
import onedispatch as od
from onnx import ModelProto, TensorProto, helper

$set_up

def model(shape: list[int], dtype: int = TensorProto.FLOAT, **attributes: float) -> ModelProto:
    """z = $operator(x, y)"""
    x, y, z = (helper.make_tensor_value_info(name, dtype, shape) for name in "xyz")
    node = helper.make_node("$operator", ["x", "y"], ["z"], domain="$space", **attributes)
    graph = helper.make_graph([node], "test", [x, y], [z])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("$space", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


class $operator(unittest.TestCase):
    def check(self, *shape: int) -> None:
        """It computes what NumPy does."""
        rng = np.random.default_rng(0)
        x, y = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
        session = od.InferenceSession(model(list(shape), a=0.5), fallback="error")
        (z,) = session.run(None, {"x": x, "y": y})
        np.testing.assert_array_equal(z, np.float32(0.5) * x + y)
        self.assertGreater(session.last_run.cycles, 0)

    def test_one_element(self) -> None:
        self.check(1)

    def test_one_dimension(self) -> None:
        self.check(7)

    def test_rows(self) -> None:
        self.check(5, 6)

    def test_four_dimensions(self) -> None:
        self.check(2, 3, 4, 5)

    def test_many_tiles(self) -> None:
        self.check(64, 100)

    def test_an_attribute_that_is_left_out_has_its_default(self) -> None:
        x = np.arange(6, dtype=np.float32)
        (z,) = od.InferenceSession(model([6]), fallback="error").run(None, {"x": x, "y": x})
        np.testing.assert_array_equal(z, x + x)

    def test_another_element_type_is_refused(self) -> None:
        with self.assertRaises(od.KernelError):
            od.InferenceSession(model([6], TensorProto.INT32), fallback="error")


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    failed = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - failed} passed, {failed} failed")
    sys.exit(bool(failed))
'''

PROJECT = """\
[build-system]
requires = ["setuptools>=64"]
build-backend = "setuptools.build_meta"

[project]
name = "$space"
version = "0.1.0"
description = "Kernels of $space for OneDispatch"
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


def write(name: str, language: str, folder: Path | None = None) -> Written:
    """Writes the files of a new kernel into ``folder``, or one that is called as its namespace.

    ``name``: ``acme``, or with the kernel's own name ``acme::blur``. ``language``: ``cpp`` or ``python``.
    Raises ``InputError`` for names that kernels or modules cannot have, and where one of the files exists.
    """
    space, kernel = _parts(name)
    place = Path(space) if folder is None else folder
    texts = _cpp(space) if language == "cpp" else _python(space)
    words = {"space": space, "kernel": kernel, "operator": camel_case(kernel)}
    files = {place / path.replace("$space", space): _filled(text, words) for path, text in texts.items()}
    for file in files:
        if file.exists() or file.is_symlink():
            raise InputError(
                "kernel new", f"{file}, which exists", "a place without it", "take another --folder"
            )
    for file, text in files.items():
        _make_folder(file.parent)
        write_file(file, text.encode())
    build = [_filled(BUILD, words)] if language == "cpp" else []
    commands = [f"cd {shlex.quote(str(place))}", *build, f"python test_{space}.py", "pip install ."]
    return Written(tuple(files), tuple(commands))


def _cpp(space: str) -> dict[str, str]:
    modules = f'packages = ["{space}"]\npackage-data = {{ {space} = ["*.so"] }}'
    imports = "import subprocess\nimport sys\nimport unittest\nfrom pathlib import Path\n"
    return {
        "$space.cpp": CPP.replace("$build", BUILD),
        "$space/__init__.py": CPP_PACKAGE,
        "test_$space.py": TEST.replace("$set_up", CPP_SET_UP).replace("$imports", imports),
        "pyproject.toml": PROJECT.replace("$entry", f"{space}:libraries").replace("$modules", modules),
    }


def _python(space: str) -> dict[str, str]:
    return {
        "$space.py": PYTHON,
        "test_$space.py": TEST.replace("$set_up", PYTHON_SET_UP).replace(
            "$imports", "import sys\nimport unittest\nfrom pathlib import Path\n"
        ),
        "pyproject.toml": PROJECT.replace("$entry", space).replace("$modules", f'py-modules = ["{space}"]'),
    }


def _filled(text: str, words: dict[str, str]) -> str:
    return Template(text).substitute(words)


def _parts(name: str) -> tuple[str, str]:
    """Namespace and kernel."""
    space, colons, kernel = name.partition("::")
    kernel = kernel if colons else KERNEL
    accepted = "a namespace (acme), or namespace::kernel (acme::blur), of lower-case letters, digits and _"
    if not _PART.fullmatch(space) or not _PART.fullmatch(kernel):
        raise InputError("kernel new", repr(name), accepted)
    if space == OURS:
        raise InputError("kernel new", repr(name), f"another namespace than {OURS!r}, which is ours")
    size = len(f"{space}::{kernel}".encode())
    if size > MAX_NAME_BYTES:
        given = f"{space}::{kernel}, {counted(size, 'byte')}"
        raise InputError("kernel new", given, f"names of at most {MAX_NAME_BYTES} bytes")
    taken = keyword.iskeyword(space) or space in sys.stdlib_module_names or space in _NEEDED
    if taken:
        raise InputError("kernel new", repr(name), f"a namespace that is no module already, as {space!r} is")
    return space, kernel


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError("kernel new", f"{folder}: {error.strerror}", "a folder that can be made") from error
