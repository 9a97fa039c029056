# SPDX-License-Identifier: Apache-2.0
"""The simulator's C++ extension: the only file that imports it."""

from onedispatch.cpp_ext import _core as core
from onedispatch.operators.plugin.native import provide

__all__ = ["core"]

provide(core)
