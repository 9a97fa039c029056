# SPDX-License-Identifier: Apache-2.0
"""The simulated device: one compiled step is one kernel run.

It goes the road that a host application takes on silicon: device, xclbin, hardware context,
kernel, instruction and data buffer objects, one kernel run. The results are what the run
left in the output buffer, and nothing else.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from onedispatch.dispatch.base.host_work import HostWork, T, timed
from onedispatch.dispatch.base.lendable import with_room_behind
from onedispatch.dispatch.base.native import core
from onedispatch.dispatch.compiler.executable import BUFFERS, DeviceStep, Slot
from onedispatch.dispatch.frontend.graph import Array
from onedispatch.dispatch.plugins.engine import register_kernels
from onedispatch.dispatch.runtime.blame import blamed
from onedispatch.dispatch.runtime.built import require_built
from onedispatch.dispatch.runtime.prints import PRINT_BYTES, Print, prints_of
from onedispatch.dispatch.runtime.profile import profile_of
from onedispatch.dispatch.runtime.report import (
    ChannelReport,
    CoreReport,
    OpReport,
    ReloadReport,
    RunReport,
)
from onedispatch.dispatch.runtime.trace import trace_of
from onedispatch.operators.emission.image import Image
from onedispatch.operators.emission.overlay import overlay_xclbin
from onedispatch.transactions import Device
from onedispatch.transactions.base.errors import KernelError, OneDispatchError, SimulationError
from onedispatch.transactions.base.text import counted
from onedispatch.transactions.format.spec import KERNEL_ARGUMENT_OFFSET, KERNEL_OPCODE

_CONTEXTS = 4  # that a session keeps: one for each image that its executables begin with
_CONST = BUFFERS.index("const")
_SMALLEST = 4  # bytes of a buffer object; an empty argument still needs one
_TO_DEVICE = core.xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE
_FROM_DEVICE = core.xclBOSyncDirection.XCL_BO_SYNC_BO_FROM_DEVICE

_COMPLETED = int(core.ert_cmd_state.ERT_CMD_STATE_COMPLETED)  # comparing two of them takes a microsecond
_LEAST_ATTACHED = 1 << 14  # bytes: fewer are copied in less time than it takes to say where they lie
_NO_TARGETS: Mapping[str, Array] = {}


class DeviceSession:
    """A device; each image of program memory has a context of its own, with the universal overlay."""

    def __init__(
        self,
        device: Device,
        threads: int | None = None,
        kernel_seconds: float | None = None,
        print_bytes: int = PRINT_BYTES,
        traced_calls: int | None = None,
        record: str = "off",
        clock: bool = False,
        profile: bool = False,
    ) -> None:
        self._description = device
        self._device = core.device.from_description(device.description())
        self._device.set_print_bytes(print_bytes)
        self._device.set_record(record)
        self._device.set_clock(clock)
        self._device.set_profile(profile)
        if threads is not None:
            self._device.set_threads(threads)
        if kernel_seconds is not None:
            self._device.set_kernel_seconds(kernel_seconds)
        if traced_calls is not None:
            self._device.set_trace(True, traced_calls)
        self._kernels: OrderedDict[Image, Any] = OrderedDict()
        self._latest: tuple[Image | None, Any] = None, None  # hashing an image takes longer than comparing
        self._binary: tuple[Image | None, Any] = None, None  # registered last

    @property
    def device(self) -> Any:
        return self._device

    def kernel(self, image: Image) -> Any:
        """The kernel in a hardware context whose cores carry ``image``; a new context after ``reset``."""
        latest, kernel = self._latest
        if latest is image:
            return kernel
        kernel = self._kernels.get(image)
        if kernel is None:
            register_kernels()
            require_built(image)
            kernel = self._kernels[image] = self._new_kernel(image)
            while len(self._kernels) > _CONTEXTS:
                self._kernels.popitem(last=False)
        self._kernels.move_to_end(image)
        self._latest = image, kernel
        return kernel

    def _new_kernel(self, image: Image) -> Any:
        known, binary = self._binary
        if known is not image:
            binary = core.xclbin(overlay_xclbin(self._description, image))
            self._device.register_xclbin(binary)
            self._binary = image, binary
        context = core.hw_context(self._device, binary.get_uuid())
        return core.kernel(context, binary.get_kernels()[0].get_name())

    def reset(self, image: Image) -> None:
        """Forgets the context: a run that failed leaves locks and queues as they were."""
        self._latest = None, None
        self._kernels.pop(image, None)

    @property
    def description(self) -> Device:
        return self._description

    @property
    def launch_us(self) -> float:
        """Modelled microseconds of the host per kernel run."""
        return self._description.constant("host.launch_us")

    def repack_seconds(self, slot: Slot) -> float:
        """Modelled seconds of the host for padding or cutting the rows of a tensor."""
        row_ns = self._description.constant("host.repack_row_ns")
        rate = self._description.constant("host.repack_gigabytes_per_second")
        return slot.rows * row_ns / 1e9 + slot.nbytes / (rate * 1e9)

    @property
    def array_hz(self) -> float:
        """Cycles of the array's clock per modelled second."""
        return self._description.constant("clock.array_mhz") * 1e6

    def load(self, step: DeviceStep) -> LoadedStep:
        register_kernels()  # contexts that are there see kernels as they are declared by now
        return LoadedStep(self, step)


class _Port:
    """A slot, and views of its place in the mapped buffer: making them takes longer than a small copy."""

    __slots__ = (
        "_at",
        "_attached",
        "_buffer",
        "_copy",
        "_is_whole",
        "_rows",
        "grid",
        "is_padded",
        "name",
        "slot",
    )

    def __init__(self, slot: Slot, buffer: Any) -> None:
        self.slot = slot
        self.name = slot.name
        self.is_padded = slot.is_padded
        self._buffer = buffer
        self._at = slot.nbytes, slot.offset
        self._rows = slot.view(_map(buffer))
        self.grid = self._rows.shape
        self._is_whole = not slot.is_padded and buffer.size() == slot.nbytes >= _LEAST_ATTACHED
        self._copy = _copy_rows if slot.is_padded else np.copyto
        self._attached: Array | None = None  # where runs read or write instead

    def write(self, array: Array) -> None:
        if self._attach(array, False):
            return
        self._copy(self._rows, array.reshape(self.grid))

    def begin(self, target: Array | None, reads: Sequence[_Port]) -> None:
        """Counts all as unwritten. The run may write into ``target``, or else a new array."""
        if self._is_whole:
            if target is None:
                self._attach(np.empty(self.slot.shape, self.slot.dtype), True)
            else:
                apart = self._fits(target) and not any(port.shares(target) for port in reads)
                self._attach(target if apart else None, True)
        self._buffer.forget(*self._at)

    def unwritten(self) -> int:
        """Bytes that no run has written since."""
        count: int = self._buffer.unwritten(*self._at)
        return count

    def read(self, target: Array | None) -> Array:
        """The tensor, copied where it is the buffer's, which is used again: into ``target`` where it fits."""
        if self._attached is not None:
            return self._attached
        if target is None or not self._fits(target):
            target = np.empty(self.slot.shape, self.slot.dtype)
        self._copy(target.reshape(self.grid), self._rows)
        return target

    def end(self) -> None:
        """Lets go of an attached array."""
        if self._attached is not None:
            self._attach(None, False)

    def shares(self, target: Array) -> bool:
        return self._attached is not None and bool(np.may_share_memory(self._attached, target))

    def _fits(self, target: Array) -> bool:
        return target.shape == self.slot.shape and bool(target.dtype == self.slot.dtype)

    def _attach(self, array: Array | None, written: bool) -> bool:
        """Has the next run use the memory of ``array``, where that can take the place of the whole buffer."""
        if not self._is_whole:
            return False
        if array is not None and array.flags.c_contiguous:
            address = array.__array_interface__["data"][0]
            if core.attach(self._buffer, address, array.nbytes, written):
                self._attached = array
                return True
        if self._attached is not None:
            core.attach(self._buffer, 0, 0, False)
            self._attached = None
        return False


def _copy_rows(to: Array, source: Array) -> None:
    """Copies a matrix whose rows lie apart: NumPy calls a function for each of them."""
    alike = to.dtype == source.dtype and to.strides[1] == source.strides[1] == to.itemsize
    if alike and to.flags.writeable:
        places = (to.__array_interface__["data"][0], to.strides[0], source.__array_interface__["data"][0])
        core.copy_rows(*places, source.strides[0], to.shape[1] * to.itemsize, len(to))
    else:
        np.copyto(to, source)


class LoadedStep:
    """A device step with its buffer objects, ready to run again and again."""

    on_device: ClassVar[Literal[True]] = True

    def __init__(self, session: DeviceSession, step: DeviceStep) -> None:
        self._session = session
        self._step = step
        lent = with_room_behind(step.const) if step.const.size else None
        self._arguments, by_name = _arguments(session, step, lent)
        if lent is None:
            _fill(by_name["const"], step.const)
        else:  # so that constants are in memory once
            by_name["const"].sync(_TO_DEVICE)
        self._input, self._output = by_name["in"], by_name["out"]
        self._reads = [_Port(slot, self._input) for slot in step.inputs]
        self._makes = [_Port(slot, self._output) for slot in step.outputs]
        self.report: Callable[[], RunReport]  # of the last run: made when it is asked for
        self.prints: list[Print] = []  # of the last run, as far as it came
        self._repacked: list[HostWork] = []  # of the last run

    def run(self, values: Mapping[str, Any], targets: Mapping[str, Array] = _NO_TARGETS) -> dict[str, Array]:
        """One kernel run. Outputs that ``targets`` names are written there, as far as they fit.

        Raises ``TransactionError`` or ``SimulationError`` when the transaction cannot be run,
        or leaves bytes of an output unwritten.
        """
        self._repacked, self.prints = [], []
        try:
            return self._outputs(values, targets)
        finally:
            for port in (*self._reads, *self._makes):
                port.end()

    def _outputs(self, values: Mapping[str, Any], targets: Mapping[str, Array]) -> dict[str, Array]:
        for port in self._reads:
            if port.is_padded:
                self._repack(port, partial(port.write, values[port.name]))
            else:
                port.write(values[port.name])
        if self._reads:
            self._input.sync(_TO_DEVICE)
        for port in self._makes:
            port.begin(targets.get(port.name), self._reads)
        run = self._execute()
        missing = [(port.slot, count) for port in self._makes if (count := port.unwritten())]
        if missing:
            self._session.reset(self._step.image)
            raise _not_written(missing)
        outputs: dict[str, Array] = {}
        for port in self._makes:
            target = targets.get(port.name)
            if port.is_padded:
                outputs[port.name] = self._repack(port, partial(port.read, target))
            else:
                outputs[port.name] = port.read(target)
        self.report = partial(_full_report, run, self._step, self._session, self.prints, self._repacked)
        return outputs

    def _repack(self, port: _Port, copy: Callable[[], T]) -> T:
        """What ``copy`` returns, where rows are padded in device memory: the report lists it as repacking."""
        result, seconds = timed(copy)
        slot = port.slot
        self._repacked.append(
            HostWork("repack", slot.name, seconds, self._session.repack_seconds(slot), slot.nbytes)
        )
        return result

    def _execute(self) -> Any:
        """The run, which has ended; the output buffer shows what it wrote."""
        kernel = self._session.kernel(self._step.image)
        run = None
        try:
            run = kernel(*self._arguments)
            state = run.wait()
        except OneDispatchError as error:
            self._session.reset(self._step.image)
            if isinstance(error, KernelError | SimulationError):
                blamed(error, self._step)
            raise
        finally:
            printed = None if run is None else run.prints()
            self.prints = prints_of(printed, self._step) if printed else []
        if int(state) != _COMPLETED:
            self._session.reset(self._step.image)
            raise SimulationError("the kernel run", f"state {state}", "ERT_CMD_STATE_COMPLETED")
        self._output.sync(_FROM_DEVICE)
        return run


class TimedStep:
    """A device step for a session that is a clock: no buffer holds data but those that decide."""

    def __init__(self, session: DeviceSession, step: DeviceStep) -> None:
        self._session = session
        self._step = step
        self._arguments, _ = _arguments(session, step, None)

    def reset(self) -> None:
        """Lets the next report be of an array that nothing ran on before."""
        self._session.reset(self._step.image)

    def report(self) -> RunReport:
        """What a run would report.

        Raises ``TransactionError`` or ``SimulationError`` where the transaction cannot be run, or timed.
        """
        try:
            run = self._session.kernel(self._step.image)(*self._arguments)
            run.wait()
        except OneDispatchError:
            self._session.reset(self._step.image)
            raise
        slots = (slot for slot in (*self._step.inputs, *self._step.outputs) if slot.is_padded)
        work = [
            HostWork("repack", slot.name, 0.0, self._session.repack_seconds(slot), slot.nbytes)
            for slot in slots
        ]
        return _full_report(run, self._step, self._session, (), work)


def _arguments(
    session: DeviceSession, step: DeviceStep, constants: Array | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of a step's kernel, and its buffers by name. Those that decide what it does are filled.

    ``constants`` are ``with_room_behind``: then their buffer is over them.
    """
    kernel, device = session.kernel(step.image), session.device
    instructions = _buffer(device, len(step.transaction), core.bo.cacheable, kernel.group_id(1))
    _fill(instructions, np.frombuffer(step.transaction, np.uint8))
    buffers = [
        core.bo.lent(device, constants.data, size)
        if index == _CONST and constants is not None
        else _buffer(device, size, core.bo.host_only, kernel.group_id(KERNEL_ARGUMENT_OFFSET + index))
        for index, size in enumerate(step.sizes)
    ]
    by_name = dict(zip(BUFFERS, buffers, strict=True))
    _fill(by_name["params"], np.frombuffer(step.params, np.uint8))
    return (KERNEL_OPCODE, instructions, len(step.transaction), *buffers), by_name


def _buffer(device: Any, size: int, flags: Any, group: int) -> Any:
    return core.bo(device, max(size, _SMALLEST), flags, group)


def _map(buffer: Any) -> Array:
    image: Array = np.frombuffer(buffer.map(), np.uint8)
    return image


def _fill(buffer: Any, data: Array) -> None:
    if data.size:
        _map(buffer)[: data.size] = data
        buffer.sync(_TO_DEVICE, data.size, 0)


def _not_written(missing: Sequence[tuple[Slot, int]]) -> SimulationError:
    names = ", ".join(
        f"{slot.name}: {slot.dtype}{list(slot.shape)} ({count:,} of {counted(slot.nbytes, 'byte')})"
        for slot, count in missing
    )
    return SimulationError(
        "the kernel run",
        f"output bytes that the transaction never wrote: {names}",
        "a transaction that writes every byte of every output",
        "check its shim S2MM descriptors and their DDR_PATCH arguments; of an operator of your own, that its "
        "index space covers the output",
    )


def _full_report(
    run: Any, step: DeviceStep, session: DeviceSession, prints: Sequence[Print], work: Sequence[HostWork]
) -> RunReport:
    raw = run.report()
    return replace(
        _report(raw, step, session.launch_us),
        prints=tuple(prints),
        trace=trace_of(raw, step, session.array_hz),
        profiled=profile_of(raw, step, session.description),
        host_work=tuple(work),
    )


def _report(raw: Mapping[str, Any], step: DeviceStep, launch_us: float) -> RunReport:
    """The simulator's report, with cycles between timer marks given to operators and reloads."""
    marks: dict[int, int] = dict(raw["timers"])
    previous = marks.get(0, 0)

    def since(timer: int) -> int:
        """Cycles from the mark before to this one; a foreign transaction may lack marks."""
        nonlocal previous
        before, previous = previous, marks.get(timer, previous)
        return max(0, previous - before)

    loads = {reload.before: reload for reload in step.reloads}
    rows: list[OpReport] = []
    reloads: list[ReloadReport] = []
    for index in range(len(step.ops) + 1):
        load = loads.get(index)
        if load is not None:
            reloads.append(ReloadReport(index, since(load.timer), load.nbytes, load.kernels))
        if index < len(step.ops):
            op = step.ops[index]
            rows.append(
                OpReport(op.name, op.op_type, op.nodes, since(op.timer), 0, op.schedule, op.work_basis)
            )
    return RunReport(
        1,
        raw["cycles"],
        raw["seconds"],
        rows,
        sum(raw["ddr_bytes_read"]),
        sum(raw["ddr_bytes_written"]),
        launch_seconds=launch_us / 1e6,
        ddr_burst_bytes=raw["ddr_burst_bytes"],
        reloads=reloads,
        program_bytes=step.program_bytes,
        recorded=(raw["recorded"],),
        channels=[ChannelReport(**one) for one in raw["channels"]],
        cores=[CoreReport(**one) for one in raw["cores"]],
    )
