# SPDX-License-Identifier: Apache-2.0
"""``onedispatch kernel new``: a kernel that works, with its tests and what installs it as a package."""

from __future__ import annotations

import shlex
from pathlib import Path

from onedispatch.dispatch.plugins.scaffold import (
    FLAGS,
    MAIN,
    OWN_TESTS,
    PROJECT,
    Written,
    filled,
    model_text,
    packages,
    parts,
    write_new,
)
from onedispatch.operators.plugin.registrations import camel_case

KERNEL = "scale_add"  # where nothing else is asked for

BUILD = f'g++ {" ".join(FLAGS)} -I"$$(onedispatch kernel include)" $space.cpp -o $space/lib$space.so'

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
        flags = [$flags, f"-I{od.plugins.include_folder()}"]
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

TEST = '''\
"""$operator on the simulated array, beside NumPy."""

$imports
import numpy as np
import onedispatch as od
from onnx import ModelProto, TensorProto, helper

$set_up

$model

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


$main'''


def write(name: str, language: str, folder: Path | None = None) -> Written:
    """Writes the files of a new kernel into ``folder``, or one that is called as its namespace.

    ``name``: ``acme``, or with the kernel's own name ``acme::blur``. ``language``: ``cpp`` or ``python``.
    Raises ``InputError`` for names that kernels or modules cannot have, and where one of the files exists.
    """
    space, kernel = parts("kernel new", name, KERNEL)
    place = Path(space) if folder is None else folder
    texts = _cpp(space) if language == "cpp" else _python(space)
    words = {"space": space, "kernel": kernel, "operator": camel_case(kernel), "what": "Kernels"}
    files = {place / path.replace("$space", space): filled(text, words) for path, text in texts.items()}
    write_new("kernel new", files)
    build = [filled(BUILD, words)] if language == "cpp" else []
    commands = [f"cd {shlex.quote(str(place))}", *build, f"python test_{space}.py", "pip install ."]
    return Written(tuple(files), tuple(commands))


def _test(set_up: str, imports: str) -> str:
    words = {
        "$set_up": set_up,
        "$imports": imports,
        "$model": model_text("xy", "z"),
        "$main": MAIN.replace("$run", OWN_TESTS),
        "$flags": ", ".join(f'"{flag}"' for flag in FLAGS),
    }
    text = TEST
    for word, by in words.items():
        text = text.replace(word, by)
    return text


def _cpp(space: str) -> dict[str, str]:
    return {
        "$space.cpp": CPP.replace("$build", BUILD),
        "$space/__init__.py": CPP_PACKAGE,
        "test_$space.py": _test(
            CPP_SET_UP, "import subprocess\nimport sys\nimport unittest\nfrom pathlib import Path\n"
        ),
        "pyproject.toml": PROJECT.replace("$entry", f"{space}:libraries").replace(
            "$modules", packages(space)
        ),
    }


def _python(space: str) -> dict[str, str]:
    return {
        "$space.py": PYTHON,
        "test_$space.py": _test(PYTHON_SET_UP, "import sys\nimport unittest\nfrom pathlib import Path\n"),
        "pyproject.toml": PROJECT.replace("$entry", space).replace("$modules", f'py-modules = ["{space}"]'),
    }
