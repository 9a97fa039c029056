# SPDX-License-Identifier: Apache-2.0
"""A device that has recorded a run, and one that never did: after a change both do the same.

One word changes between two runs: of instructions, constants or parameters (blocks and control packets), of a
lock or another register, or a constant of the device. The next run, and those after the change is taken back,
must leave the same device memory, report and errors on both.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, parser

import onedispatch as od
from onedispatch.dispatch.base.native import core
from onedispatch.dispatch.compiler.executable import DeviceStep
from onedispatch.dispatch.runtime.device import DeviceSession
from onedispatch.operators.emission.overlay import overlay_xclbin
from onedispatch.transactions import (
    OneDispatchError,
    Transaction,
    TransactionBuilder,
    Xclbin,
    find_device,
)
from onedispatch.transactions.format.spec import KERNEL_OPCODE

DEVICE = find_device("npu2_1col")  # whose tiles are all in use
NETWORKS: dict[str, tuple[str, dict[str, tuple[int, ...]]]] = {
    "image": (
        "g (float[1, 3, 8, 8] x) => (float[1, 8, 4, 4] y)"
        " { c = Conv <pads = [1, 1, 1, 1]> (x, w) r = Relu(c)"
        " y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r) }",
        {"w": (8, 3, 3, 3)},
    ),
    "product": (
        "g (float[20, 24] x) => (float[20, 40] y) { p = MatMul(x, w) y = Softmax(p) }",
        {"w": (24, 40)},
    ),
    "elements": (
        "g (float[2, 16, 32] x) => (float[2, 16, 32] y) { s = Mul(x, w) t = Tanh(s) y = Add(t, x) }",
        {"w": (32,)},
    ),
    "recurrent": (
        "g (float[4, 1, 12] x) => (float[4, 1, 1, 8] y) { y = LSTM <hidden_size = 8> (x, w, r) }",
        {"w": (1, 32, 12), "r": (1, 32, 8)},
    ),
}
KINDS = ("instructions", "constants", "parameters", "lock", "register", "constant of the device")
_BUFFERS = {"instructions": 1, "constants": 6, "parameters": 7}  # arguments of the kernel
_FORM = struct.Struct("<BBIIB")
NOT_COMPARED = ("recorded", "calls_made")  # of a report: what says how a run was made

Outcome = Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """One word; ``place`` is where, of 2 ** 32, and ``value`` is not 0."""

    network: str
    kind: str
    place: int
    value: int
    runs: int  # before it: with two the recording is there, with more it was played

    @classmethod
    def from_bytes(cls, data: bytes) -> Change:
        network, kind, place, value, runs = _FORM.unpack(data[: _FORM.size].ljust(_FORM.size, b"\0"))
        name = [*NETWORKS][network % len(NETWORKS)]
        return cls(name, KINDS[kind % len(KINDS)], place, value or 1, 2 + runs % 3)

    def to_bytes(self) -> bytes:
        names = [*NETWORKS].index(self.network), KINDS.index(self.kind)
        return _FORM.pack(*names, self.place, self.value, self.runs - 2)

    def index(self, count: int) -> int:
        return self.place * count >> 32


def seeds() -> dict[str, bytes]:
    """A change of each kind for each network."""
    places = np.random.default_rng(5).integers(0, 1 << 32, (len(NETWORKS), len(KINDS), 2))
    return {
        f"{network}-{kind}".replace(" ", "-"): Change(network, kind, *map(int, at), 3).to_bytes()
        for network, of_network in zip(NETWORKS, places, strict=True)
        for kind, at in zip(KINDS, of_network, strict=True)
    }


@cache
def step_of(network: str) -> DeviceStep:
    text, weights = NETWORKS[network]
    proto: onnx.ModelProto = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    rng = np.random.default_rng(1)
    for name, shape in weights.items():
        proto.graph.initializer.append(numpy_helper.from_array(rng.standard_normal(shape, np.float32), name))
    return od.compile(proto, DEVICE.name, fallback="error").device_step


class Machine:
    """A device with the buffers of a step."""

    def __init__(self, step: DeviceStep) -> None:
        self._session = DeviceSession(DEVICE, threads=1, record="on")
        self._kernel = self._session.kernel(step.image)
        self._latest: Any = None  # run
        instructions = self._buffer(np.frombuffer(step.transaction, np.uint8), len(step.transaction))
        given = [np.zeros(0, np.uint8) for _ in step.sizes]
        given[3], given[4] = step.const, np.frombuffer(step.params, np.uint8)
        self._data = [self._buffer(one, size) for one, size in zip(given, step.sizes, strict=True)]
        self.arguments = (KERNEL_OPCODE, instructions, len(step.transaction), *self._data)

    def _buffer(self, data: np.ndarray[Any, Any], size: int) -> Any:
        made = core.bo(self._session.device, max(size, 4), core.bo.host_only)
        if data.size:
            made.write(data)
        return made

    def words(self, argument: int) -> np.ndarray[Any, Any]:
        image = np.frombuffer(self.arguments[argument].map(), np.uint8)
        return image[: image.size // 4 * 4].view(np.uint32)

    def run(self, seed: int) -> Outcome:
        """With other input than that of other seeds."""
        values = np.random.default_rng(seed).standard_normal(self._data[0].size() // 4).astype(np.float32)
        self._data[0].write(values)
        return self._outcome(self.arguments)

    def recorded_in_run(self, seed: int) -> str:
        """How such a run was made."""
        self.run(seed)
        recorded: str = self._latest.report()["recorded"]
        return recorded

    def run_beside(self, transaction: bytes) -> Outcome:
        """A transaction of its own, in the same context."""
        buffer = self._buffer(np.frombuffer(transaction, np.uint8), len(transaction))
        return self._outcome((KERNEL_OPCODE, buffer, len(transaction)))

    def set_constant(self, change: Change) -> None:
        """For contexts that are made from now on: not for this one."""
        constants = {key: value for key, value in self._session.device.constants.items() if value > 0}
        key = sorted(constants)[change.index(len(constants))]
        try:
            self._session.device.set_constant(key, constants[key] * (1 + change.value / 2**32))
        except OneDispatchError:  # a size of the device
            return

    def _outcome(self, arguments: Sequence[Any]) -> Outcome:
        seen: dict[str, Any] = {}
        try:
            self._latest = self._kernel(*arguments)
            self._latest.wait()
            report = self._latest.report()
            seen["report"] = {key: value for key, value in report.items() if key not in NOT_COMPARED}
            seen["prints"] = self._latest.prints()
        except OneDispatchError as error:
            seen["error"] = type(error).__name__, str(error)
        memory = [bytes(one.map()) for one in self._data]
        return {**seen, **{f"buffer {index}": one for index, one in enumerate(memory)}}


def outcomes(change: Change, runs: int) -> Iterator[Outcome]:
    """What each run says after ``runs`` of the same kind: changed, and as it was before."""
    machine = Machine(step_of(change.network))
    for _ in range(runs):
        machine.run(0)
    if change.kind in _BUFFERS:
        words = machine.words(_BUFFERS[change.kind])
        at = change.index(words.size)
        words[at] ^= np.uint32(change.value)
        yield machine.run(1)
        words[at] ^= np.uint32(change.value)
    elif change.kind == "constant of the device":
        machine.set_constant(change)
        yield machine.run(1)
    else:
        yield machine.run_beside(_write(change))
        yield machine.run(1)
    yield machine.run(2)
    yield machine.run(3)


@cache
def written(network: str, locks: bool) -> list[tuple[int, int]]:
    """Addresses that the overlay writes, and words: of locks, or of everything else."""
    overlay = Xclbin.from_bytes(overlay_xclbin(DEVICE, step_of(network).image)).pdis[0]
    found = []
    for op in Transaction.from_bytes(overlay).ops:
        block = "" if op.register is None else op.register.block.name
        if block and (block == "LOCK_VALUE") == locks and block != "PROGRAM_MEMORY":  # of cores that run
            words = op.words or (op.fields.get("value", 0),)
            found += [(op.reg + 4 * index, int(word)) for index, word in enumerate(words)]
    return found


def _write(change: Change) -> bytes:
    """A transaction that writes one register which the overlay has written."""
    known = written(change.network, change.kind == "lock")
    address, word = known[change.index(len(known))]
    builder = TransactionBuilder.for_device(DEVICE)
    builder.write(address, (word ^ change.value) & 0xFFFFFFFF if change.kind != "lock" else change.value % 4)
    return builder.to_bytes()


def difference(change: Change) -> str:
    """What the device that has recorded does otherwise; empty if nothing."""
    pairs = zip(outcomes(change, change.runs), outcomes(change, 1), strict=True)
    for index, (recorded, fresh) in enumerate(pairs):
        for key in sorted({*recorded, *fresh}):
            if recorded.get(key) != fresh.get(key):
                shown = f"{_shown(recorded, key)} beside {_shown(fresh, key)}"
                return f"{change}: run {index} after it, {key}: {shown}"
    return ""


def _shown(outcome: Outcome, key: str) -> str:
    value = outcome.get(key, "nothing")
    return f"{len(value)} other bytes" if isinstance(value, bytes) else str(value)[:600]


def run(data: bytes) -> None:
    """The fuzz target."""
    found = difference(Change.from_bytes(data))
    assert not found, found
