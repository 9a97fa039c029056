# SPDX-License-Identifier: Apache-2.0
"""Unit tests open no session: onnxruntime and the simulator's extension cannot be imported in them.

What a module of tests imports is checked by tests/arch/test_rooms.py.
"""

from __future__ import annotations

import sys

import pytest

ABSENT = ("onedispatch.cpp_ext._core", "onedispatch.dispatch.base.native", "onnxruntime")


@pytest.fixture(autouse=True)
def no_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes imports of ``ABSENT`` fail, also where a test of another folder imported them before."""
    for name in ABSENT:
        monkeypatch.setitem(sys.modules, name, None)
    # `from package import module` takes the attribute of the package where there is one.
    package = sys.modules.get("onedispatch.cpp_ext")
    monkeypatch.delattr(package, "_core", raising=False)
