# SPDX-License-Identifier: Apache-2.0
"""What there is to be scheduled, as a key: equal problems have equal solutions, in every process.

A ``Problem`` is data alone. Catalogs store solutions under its ``digest``; a tuner sends it to other
processes, where ``nest`` and the device are all that a search needs.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, fields, replace
from typing import Any

from onedispatch.operators.declarations.kernel import Kernel, Scalar
from onedispatch.operators.declarations.registry import all_kernels
from onedispatch.operators.scheduling.index_space import Dim, Operand, Packed
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.operators.scheduling.plain import digest_of, plain, read
from onedispatch.transactions import Device
from onedispatch.transactions.base.cached import cached_property
from onedispatch.transactions.base.errors import SolutionError

DIGEST_BYTES = 16


@dataclass(frozen=True)
class Problem:
    """A nest on a device, without what no choice depends on.

    Where tensors lie in device memory and which input they are does not matter, nor do scalars that
    the kernel's cost does not read; of functions that cost the same, the first stands for all.
    ``declaration`` is the kernel's digest, ``device`` a name and the digest of the device's description.
    """

    kernel: str
    declaration: int
    dims: tuple[Dim, ...]
    inputs: tuple[Operand | Packed, ...]
    outputs: tuple[Operand, ...]
    roles: tuple[tuple[str, int], ...]
    scalars: tuple[tuple[str, float | str], ...]
    k_extent: int
    k_multiple: int
    k_whole: bool
    occupied: int
    k_step: int
    device: str

    @classmethod
    def of(cls, nest: Nest, device: Device) -> Problem:
        if nest.kernel.members:
            _MEMBER_KERNELS[nest.kernel.name, nest.kernel.digest] = nest.kernel
        return cls(
            nest.kernel.name,
            nest.kernel.digest,
            nest.dims,
            tuple(_placeless(x, 0) if isinstance(x, Operand) else x for x in nest.inputs),
            tuple(_placeless(x, x.tensor) for x in nest.outputs),
            tuple(sorted(nest.roles.items())),
            _priced_scalars(nest),
            nest.k_extent,
            nest.k_multiple,
            nest.k_whole,
            nest.occupied,
            nest.k_step,
            device.identity,
        )

    @cached_property
    def nest(self) -> Nest:
        """A nest of this problem. Raises ``SolutionError`` for kernels not declared (so) or without work."""
        nest = Nest(
            _kernel(self.kernel, self.declaration),
            self.dims,
            self.inputs,
            self.outputs,
            dict(self.roles),
            dict(self.scalars),
            self.k_extent,
            self.k_multiple,
            self.k_whole,
            self.occupied,
            self.k_step,
        )
        if nest.is_empty:
            extents = str([dim.extent for dim in self.dims])
            raise SolutionError(f"problem of {self.kernel}", f"extents {extents}", "1 or more of each")
        return nest

    @property
    def in_device_memory(self) -> Problem:
        """The same where nothing stays in memory tiles."""
        inputs = tuple(replace(x, buffer=None) if isinstance(x, Operand) else x for x in self.inputs)
        outputs = tuple(replace(x, buffer=None) for x in self.outputs)
        return replace(self, inputs=inputs, outputs=outputs, occupied=0)

    @cached_property
    def digest(self) -> str:
        """32 hexadecimal digits, the same in every process and on every machine."""
        return digest_of(self, DIGEST_BYTES)

    def __getstate__(self) -> dict[str, Any]:
        # Problems go to other processes; kernels, which nests name, have functions that cannot.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def to_data(self) -> dict[str, Any]:
        """The problem as dictionaries, lists, strings and numbers."""
        return dict(plain(self))

    @classmethod
    def from_data(cls, data: Any) -> Problem:
        """What ``to_data`` made. Raises ``SolutionError`` for whatever else it may be."""
        return read(cls, data, "problem")

    def check_device(self, device: Device) -> None:
        """Raises ``SolutionError`` for another device than that of the problem."""
        if device.identity != self.device:
            raise SolutionError(f"problem of {self.kernel}", device.identity, self.device, "use that device")


def _placeless(operand: Operand, tensor: int) -> Operand:
    """``operand``, of that number, without what says where it lies."""
    buffer = None if operand.buffer is None else replace(operand.buffer, at=0)
    return replace(operand, tensor=tensor, offset=0, buffer=buffer)


def _priced_scalars(nest: Nest) -> tuple[tuple[str, float | str], ...]:
    """The scalars that cost and scratch read, and of each table the first function that costs the same."""
    kernel = nest.kernel
    found: list[tuple[str, float | str]] = []
    if kernel.members:  # whether output chunks are filled; NaN, which equals nothing, says that they are not
        for output in kernel.outputs:
            value = nest.scalars.get(f"fill_{output.name}")
            if value is not None and value == value:
                found.append((f"fill_{output.name}", 0.0))
    exact, read = kernel.scratch.names, kernel.scratch.names | kernel.cost.names
    for scalar in kernel.scalars:
        if scalar.table is not None:
            name = nest.function(scalar).name
            found.append((scalar.name, name if scalar.name in exact else _representative(nest, scalar, name)))
        elif scalar.name in read:
            found.append((scalar.name, float(nest.scalars.get(scalar.name, scalar.default or 0))))
    return tuple(sorted(found))


_REPRESENTATIVES: dict[tuple[str, int, str, str, str], str] = {}


def _representative(nest: Nest, scalar: Scalar, function: str) -> str:
    """The first function of a scalar's table that costs what ``function`` costs and takes the elements."""
    seen = nest.bound.get(nest.kernel.seen_by(scalar).name)
    dtype = "" if seen is None else seen.dtype.name
    key = (nest.kernel.name, nest.kernel.digest, scalar.name, function, dtype)
    if key not in _REPRESENTATIVES:
        wanted = _priced(nest, scalar.name, function)
        _REPRESENTATIVES[key] = next(
            row.name
            for row in (scalar.table.rows if scalar.table else ())
            if row.name == function
            or ((not dtype or row.takes(dtype)) and _priced(nest, scalar.name, row.name) == wanted)
        )
    return _REPRESENTATIVES[key]


def _priced(nest: Nest, name: str, function: str) -> tuple[object, ...]:
    other = copy(nest)
    object.__setattr__(other, "scalars", {**nest.scalars, name: function})
    return other.priced


# Custom kernels that problems were made of: they are no part of those that the package declares.
_MEMBER_KERNELS: dict[tuple[str, int], Kernel] = {}


def _kernel(name: str, declaration: int) -> Kernel:
    if (name, declaration) in _MEMBER_KERNELS:
        return _MEMBER_KERNELS[name, declaration]
    kernels = all_kernels()
    for kernel in kernels:
        if kernel.name == name and kernel.digest == declaration:
            return kernel
    known = ", ".join(f"{k.name} ({k.digest:08x})" for k in kernels)
    raise SolutionError(
        "problem", f"kernel {name} ({declaration:08x})", known, "use the version that wrote the problem"
    )
