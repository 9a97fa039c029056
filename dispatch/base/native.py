# SPDX-License-Identifier: Apache-2.0
"""Imports the simulator's C++ extension; no other file does."""

from onedispatch.cpp_ext import _core as core
from onedispatch.operators.plugin.native import provide

__all__ = ["core"]

provide(core)
