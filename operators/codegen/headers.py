# SPDX-License-Identifier: Apache-2.0
"""Where the headers of the kernel interface are: what a library of kernels is compiled against."""

from __future__ import annotations

from pathlib import Path

from onedispatch.transactions.base.errors import InternalError

KERNEL_HEADERS = (
    "kernel.h",
    "kernel_codes.h",
    "kernel_cpp.h",
    "plugin.h",
    "plugin_cpp.h",
    "plugin_place.h",
    "plugin_print.h",
    "plugin_tile.h",
    "plugin_types.h",
)


def include_folder() -> Path:
    """The folder for the compiler's ``-I``: ``onedispatch/kernel.h`` lies in it.

    Raises ``InternalError`` where the installation lacks it.
    """
    folder = Path(__file__).resolve().parents[2] / "cpp_ext" / "include"
    if not all((folder / "onedispatch" / name).is_file() for name in KERNEL_HEADERS):
        raise InternalError(
            "include_folder()", f"no {', '.join(KERNEL_HEADERS)} in {folder}", "", "Reinstall onedispatch"
        )
    return folder
