# SPDX-License-Identifier: Apache-2.0
"""``onedispatch layer new``: a layer that works, in a project of its own or one that is there."""

from __future__ import annotations

import shlex
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from onedispatch.dispatch.plugins.project import DESCRIPTION, Project, modules_of
from onedispatch.dispatch.plugins.scaffold import (
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
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.files import is_regular

LAYER = "roll"  # where nothing else is asked for

PACKAGE = '''\
"""Layers of $space for OneDispatch, which finds them by the entry point in pyproject.toml.

Every file of this folder is loaded, but those that begin with an underscore.
"""

from importlib import import_module
from pathlib import Path

for file in sorted(Path(__file__).parent.glob("[!_]*.py")):
    import_module(f"{__name__}.{file.stem}")
'''

GLOBAL = '''\
"""The layer $space::$kernel."""

import onedispatch as od


class $operator(od.Layer):
    """The rows of x, the first of them behind the others: the node $operator of domain "$space"."""

    name = "$space::$kernel"

    class Params:
        rows: int = 1

    def shape(self, n):
        return n["x"].like()

    def global_(self, g):  # moves alone: no core takes part
        size = g.x.shape[0]
        first = self.params.rows % size
        g.copy(g.y[: size - first], g.x[first:])
        if first:
            g.copy(g.y[size - first :], g.x[:first])
'''

LOCAL = '''\
"""The layer $space::$kernel."""

import onedispatch as od


class $operator(od.Layer):
    """The rows of x times a factor, the first of them last: the node $operator of domain "$space"."""

    name = "$space::$kernel"
    force_use_global_layer = True  # global_ says where rows go, and calls local for each part
$library
    class Params:
        rows: int = 1
        factor: float = 1.0

    def shape(self, n):
        return n["x"].like()
$body
    def global_(self, g):
        size = g.x.shape[0]
        first = self.params.rows % size
        g.local(x=g.x[first:], y=g.y[: size - first])
        if first:
            g.local(x=g.x[:first], y=g.y[size - first :])
'''

BODY = """
    def local(self, t):  # of a tile, all of which lies in the core's memory
        t.y[:] = t.params.factor * t.x
"""

LIBRARY = """\
    library = "lib$kernel.so"  # local, compiled of $kernel.cpp by `onedispatch layer build`
"""

CPP = """\
// The local body of $space::$kernel, which `onedispatch layer build` compiles.
#include <cmath>

#include "${space}_params.h"

namespace {

struct $operator {
  static void declare(od::Declare& d) {
    d.name("$space::$kernel").in("x").out("y");
    ${space}_params::$operator::declare(d);
  }
  static void place(od::Place& n) { n.out("y", n.in("x")).index_space(n.in("x").shape).elementwise("x y"); }
  int run(const od::Tile& t) const {
    const ${space}_params::$operator p(t);
    if (!std::isfinite(p.factor)) return OD_PARAMETER_INVALID;
    t.map([&p](float x) { return p.factor * x; }, t.out<float>("y"), t.in<float>("x"));
    return OD_OK;
  }
};

}  // namespace

OD_PLUGIN_LIBRARY("$space::$kernel", $operator)
"""

HEAD = '''\
"""$about"""

import importlib
import sys
import unittest
from pathlib import Path

import numpy as np
import onedispatch as od
from onnx import ModelProto, TensorProto, helper

HERE = Path(__file__).resolve().parent


def setUpModule() -> None:
    """Loads the package, compiled where it is older than its sources."""
    od.plugins.build(HERE)
    importlib.import_module("$space")

'''

CASES = '''\

class $operator(unittest.TestCase):
    def check(self, *shape: int, **attributes: float) -> None:
        """It computes what NumPy does."""
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        session = od.InferenceSession(model(list(shape), **attributes), fallback="error")
        (y,) = session.run(None, {"x": x})
        wanted = np.roll(x, -attributes.get("rows", 1), axis=0)$times
        np.testing.assert_array_equal(y, wanted)
        self.assertGreater(session.last_run.cycles, 0)

    def test_one_element(self) -> None:
        self.check(1)

    def test_one_dimension(self) -> None:
        self.check(7, rows=3)

    def test_rows(self) -> None:
        self.check(5, 6$given)

    def test_rows_stay_where_they_are(self) -> None:
        self.check(5, 6, rows=10)

    def test_four_dimensions(self) -> None:
        self.check(4, 3, 2, 5, rows=-1)

    def test_many_tiles(self) -> None:
        self.check(64, 100, rows=5$given)

    def test_another_parameter_is_refused(self) -> None:
        with self.assertRaises(od.KernelError):
            od.InferenceSession(model([6], colums=1), fallback="error")


'''

ALL = '''\
"""All tests of $space, by `python test_$space.py`; pytest finds those of each layer by itself."""

import importlib
import sys
import unittest
from pathlib import Path

import onedispatch as od

HERE = Path(__file__).resolve().parent


class Package(unittest.TestCase):
    def test_every_file_is_loaded(self) -> None:
        od.plugins.build(HERE)
        package = importlib.import_module("$space")
        for file in (HERE / "$space").glob("[!_]*.py"):
            self.assertTrue(hasattr(package, file.stem), file)


def every_test() -> unittest.TestSuite:
    names = sorted(file.stem for file in HERE.glob("test_$space*.py"))
    return unittest.defaultTestLoader.loadTestsFromNames(names)


'''
ALL_TESTS = "unittest.TextTestRunner().run(every_test())"


@dataclass(frozen=True)
class Wanted:
    """``local``: with a body for a core; ``cpp``: in C++."""

    local: bool = False
    cpp: bool = False


def write(name: str, wanted: Wanted, folder: Path | None = None) -> Written:
    """Writes a layer into the project in ``folder``, which is made where there is none.

    ``name``: ``acme::crop``, or ``acme``. The default of ``folder`` is the current one where that is a
    project of the namespace, else one that is called as the namespace. Raises ``InputError`` for names that
    layers or modules cannot have, and where files exist, of which every one is named.
    """
    space, layer = parts("layer new", name, LAYER)
    place = folder or (Path() if _is_project(Path(), space) else Path(space))
    words = {"space": space, "kernel": layer, "operator": camel_case(layer), "what": "Layers"}
    texts = _layer(wanted)
    if not _is_project(place, space):
        texts = {**_shared(space), **texts}
    files = {place / filled(path, words): filled(text, words) for path, text in texts.items()}
    write_new("layer new", files, "take another name, or another --folder")
    build = ["onedispatch layer build"] if wanted.cpp else []
    commands = [f"cd {shlex.quote(str(place))}", *build, f"python test_{space}.py", "pip install ."]
    return Written(tuple(files), tuple(commands if place != Path() else commands[1:]))


def _is_project(place: Path, space: str) -> bool:
    """Whether the folder has a project of layers of this namespace, to which one more can be added."""
    file = place / DESCRIPTION
    with suppress(InputError):  # what cannot be read is no project, and stays as it is
        return is_regular(file) and space in modules_of(file) and is_regular(place / space / "__init__.py")
    return False


def _shared(space: str) -> dict[str, str]:
    modules = packages(space)
    return {
        DESCRIPTION: PROJECT.replace("$entry", space).replace("$modules", modules),
        "$space/__init__.py": PACKAGE,
        "test_$space.py": ALL + MAIN.replace("$run", ALL_TESTS),
    }


def _layer(wanted: Wanted) -> dict[str, str]:
    local = wanted.local or wanted.cpp
    body, library = ("", LIBRARY) if wanted.cpp else (BODY, "")
    text = LOCAL.replace("$body", body).replace("$library", library) if local else GLOBAL
    times = ' * np.float32(attributes.get("factor", 1))' if local else ""
    cases = CASES.replace("$times", times).replace("$given", ", factor=0.5" if local else "")
    about = "$operator on the simulated array, beside NumPy."
    test = (
        HEAD.replace("$about", about)
        + f"\n{model_text('x', 'y')}\n"
        + cases
        + MAIN.replace("$run", OWN_TESTS)
    )
    source = {"$space/$kernel.cpp": CPP} if wanted.cpp else {}
    return {"$space/$kernel.py": text, **source, "test_${space}_$kernel.py": test}


def test_file(project: Project, layer: str) -> Path:
    """The tests of one layer, as ``write`` calls them."""
    return project.root / f"test_{project.space}_{layer}.py"
