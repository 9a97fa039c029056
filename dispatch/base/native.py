# SPDX-License-Identifier: Apache-2.0
"""The simulator's C++ extension: the only file that imports it."""

from onedispatch.cpp_ext import _core as core

__all__ = ["core"]
