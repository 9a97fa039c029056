# SPDX-License-Identifier: Apache-2.0
"""The transaction format: what is sent to the array, and everything known about its bytes.

Nouns, in the order in which one meets them:
    Device              geometry and constants of an NPU or of a column partition
    ShimBd, MemBd, CoreBd   buffer descriptors: what a DMA moves, in which order, under which locks
    TransactionBuilder  appends operations (WRITE, BLOCKWRITE, MASKPOLL, DDR_PATCH, TCT...)
    Transaction         reads one: operations, listing, checks; ``to_bytes`` loses nothing
    ArgMap, ArgKind     which region of an operator's argument is which tensor
    Bindings, fuse      where the planner put the regions; many transactions become one
    ControlPackets      writes that travel as packets; ``merged`` puts them where they are sent
    Xclbin              the container of overlays that a hardware context loads

``format.spec`` is the table of opcodes, ``machine.registers`` the table of registers; all else
follows from them, the C++ header too. The package imports nothing of the rest of OneDispatch.
"""

import importlib
from typing import TYPE_CHECKING, Any

from onedispatch.transactions.analysis.transaction import Operation, Transaction
from onedispatch.transactions.analysis.validation import Finding, FindingKind, Severity
from onedispatch.transactions.arguments.argmap import ArgKind, ArgMap
from onedispatch.transactions.arguments.relocation import Bindings
from onedispatch.transactions.base.errors import (
    CompiledModelError,
    DeviceError,
    InputError,
    InternalError,
    ModelError,
    OneDispatchError,
    OperatorError,
    ResourceError,
    SimulationError,
    TransactionError,
    UnsupportedModelError,
)
from onedispatch.transactions.format.builder import TransactionBuilder, tile_address
from onedispatch.transactions.format.xclbin import Xclbin
from onedispatch.transactions.fusion.fuse import fuse
from onedispatch.transactions.machine.bd import (
    CoreBd,
    MemBd,
    ShimBd,
    circuit_master,
    lock_request_offset,
    packet_header,
    packet_master,
    queue_word,
    switch_merge,
    switch_slave,
    switch_slot,
)
from onedispatch.transactions.machine.device import Device, device_names, find_device
from onedispatch.transactions.packets.control_packets import ControlPackets

if TYPE_CHECKING:
    from onedispatch.transactions.analysis.diff import Difference
    from onedispatch.transactions.analysis.explain import Explanation
    from onedispatch.transactions.packets.merge import Merged, merged

__all__ = [  # noqa: RUF022 (grouped by what they are for)
    # devices
    "Device",
    "device_names",
    "find_device",
    # writing
    "TransactionBuilder",
    "tile_address",
    "ShimBd",
    "MemBd",
    "CoreBd",
    "queue_word",
    "lock_request_offset",
    "packet_header",
    "circuit_master",
    "packet_master",
    "switch_slave",
    "switch_merge",
    "switch_slot",
    # reading
    "Transaction",
    "Operation",
    "Finding",
    "FindingKind",
    "Severity",
    "Explanation",
    "Difference",
    # fusing
    "ArgKind",
    "ArgMap",
    "Bindings",
    "fuse",
    # control packets
    "ControlPackets",
    "Merged",
    "merged",
    # containers
    "Xclbin",
    # errors
    "OneDispatchError",
    "ModelError",
    "UnsupportedModelError",
    "InputError",
    "OperatorError",
    "TransactionError",
    "SimulationError",
    "DeviceError",
    "CompiledModelError",
    "ResourceError",
    "InternalError",
]

# Loaded on first use: name -> module. Compiling asks for none of them.
_LAZY = {
    "Difference": "analysis.diff",
    "Explanation": "analysis.explain",
    "Merged": "packets.merge",
    "merged": "packets.merge",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
