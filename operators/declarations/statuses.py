# SPDX-License-Identifier: Apache-2.0
"""What functions of kernels and kernel libraries answer: one row per status, its code is fixed for good.

The codes of ``OD_...`` in ``kernel_codes.h`` come from here. A code that has no row is itself an error.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Status:
    """``summary`` completes "the kernel says: "."""

    name: str
    code: int
    summary: str


STATUSES = (
    Status("ok", 0, "done"),
    Status("not_supported", -1, "nothing that this kernel does"),
    Status("parameter_invalid", -2, "a value that it does not accept"),
    Status("runtime_failure", -3, "the call failed"),
    Status("out_of_memory", -4, "the host has no memory left"),
    Status("abi_version", -5, "another version of the kernel interface"),
    Status("size_mismatch", -6, "structures of other sizes"),
    Status("null_pointer", -7, "a pointer that must not be null"),
    Status("declaration_invalid", -8, "a declaration that cannot stand"),
    Status("name_conflict", -9, "a name or digest that is taken"),
    Status("not_found", -10, "no such kernel"),
    Status("buffer_too_small", -11, "room for fewer than there are"),
    Status("dtype", -12, "element types that do not go together"),
    Status("layout", -13, "chunks that lie in a way that it does not walk"),
)
