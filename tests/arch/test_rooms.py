# SPDX-License-Identifier: Apache-2.0
"""What each folder of tests may need: tests/unit neither onnxruntime nor the simulator's extension."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

IMPORTS = """
import importlib, sys
sys.path.insert(0, ".")
for absent in ("onedispatch.cpp_ext._core", "onnxruntime"):
    sys.modules[absent] = None
for module in sys.argv[1:]:
    importlib.import_module(module)
"""


def test_unit_tests_import_neither_the_extension_nor_onnxruntime(repository: Path) -> None:
    modules = [
        f"tests.unit.{path.stem}" for path in sorted((repository / "tests" / "unit").glob("test_*.py"))
    ]
    assert modules
    command = [sys.executable, "-c", IMPORTS, *modules]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"move the file named here to tests/integration:\n{done.stderr}"
