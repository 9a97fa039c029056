# SPDX-License-Identifier: Apache-2.0
"""The simulated array behind pyxrt's names.

Errors are classes of ``onedispatch.transactions.base.errors``: ``DeviceError`` for wrong use,
``CompiledModelError`` for xclbins, ``TransactionError`` and ``SimulationError`` from runs
(raised by ``run.wait``; a ``SimulationError`` also has ``kind``, such as "deadlock").
"""

import enum
import os
from collections.abc import Sequence
from typing import Any, ClassVar, overload

from typing_extensions import Buffer

def charged_cycles(
    block: bytes, device: str | device, column: int = 0, row: int = 0, most: int = 65536
) -> list[int]:
    """Cycles of every kernel call that a core makes for a parameter block: what a run charges.

    Args:
        device: by name or path of its file; or one that is open, be it of a description.

    Raises ``ValueError`` for a block that the super kernel refuses, ``ValueError`` for an unknown device.
    """

def guard_pages(data: Buffer) -> int:
    """Lets who reads pages of a mapped file that are not there any more read zeros; the process would end.
    Returns a number for the two functions below; -1 where there is no room."""

def unguard_pages(number: int) -> None: ...
def missed_pages(number: int) -> bool:
    """Whether a page was not there."""

class ert_cmd_state(enum.IntEnum):
    ERT_CMD_STATE_NEW = 1
    ERT_CMD_STATE_QUEUED = 2
    ERT_CMD_STATE_RUNNING = 3
    ERT_CMD_STATE_COMPLETED = 4
    ERT_CMD_STATE_ERROR = 5
    ERT_CMD_STATE_ABORT = 6
    ERT_CMD_STATE_SUBMITTED = 7
    ERT_CMD_STATE_TIMEOUT = 8
    ERT_CMD_STATE_NORESPONSE = 9
    ERT_CMD_STATE_SKERROR = 10
    ERT_CMD_STATE_SKCRASHED = 11

class xclBOSyncDirection(enum.IntEnum):
    XCL_BO_SYNC_BO_TO_DEVICE = 0
    XCL_BO_SYNC_BO_FROM_DEVICE = 1

class uuid:
    def to_string(self) -> str: ...

class xclbin:
    """Kernel names and overlays: a path, or the bytes that ``transactions.Xclbin`` writes."""

    class xclbinkernel:
        def get_name(self) -> str: ...

    def __init__(self, source: str | os.PathLike[str] | Buffer) -> None: ...
    def get_kernels(self) -> list[xclbin.xclbinkernel]: ...
    def get_uuid(self) -> uuid: ...
    def get_xsa_name(self) -> str:
        """The device that it was made for."""

class device:
    """``device(0, "npu2")``, ``device("npu2")`` or ``device(0, "my_npu.toml")``; the only index is 0."""

    @overload
    def __init__(self, index: int = 0, name: str | os.PathLike[str] = "npu2") -> None: ...
    @overload
    def __init__(self, name: str) -> None: ...
    @staticmethod
    def from_description(text: str) -> device:
        """The device that the text of a device file describes. Raises ``DeviceError``."""
    def register_xclbin(self, xclbin: xclbin) -> uuid: ...
    def set_constant(self, key: str, value: float) -> None:
        """Change a timing constant ("ddr.gigabytes_per_second") for contexts made from now on."""
    def set_threads(self, threads: int) -> None:
        """Host threads that run kernels: 0 all, 1 the calling one. Results do not depend on it."""
    def set_record(self, mode: str) -> None:
        """Of contexts made from now on: whether runs that come again are made from a recording: "off", "on",
        or "verify" (both ways, and compared)."""
    def set_clock(self, on: bool) -> None:
        """Of contexts made from now on: whether runs only tell time and traffic: no data moves, no kernel is
        called. What packets and parameter blocks are made of must be given, inputs and constants need not."""
    def set_kernel_seconds(self, seconds: float) -> None:
        """What a call of a custom kernel may take, in contexts made from now on; then its run ends."""
    def set_event_limit(self, events: int) -> None:
        """Simulator events without progress of the controller that count as livelock."""
    def set_print_bytes(self, bytes: int) -> None:
        """Of contexts made from now on: bytes that keep what an operation prints on a core; 0: none."""
    def set_profile(self, on: bool) -> None:
        """Of contexts made from now on: whether the engine finds what time goes into."""
    def set_trace(self, on: bool, calls: int) -> None:
        """Of contexts made from now on: whether kernel calls, and what DMA channels, device memory and
        the controller do, are traced, and how many of each are kept one by one."""
    @property
    def name(self) -> str: ...
    @property
    def xrt_name(self) -> str: ...
    @property
    def columns(self) -> int: ...
    @property
    def core_rows(self) -> int: ...
    @property
    def device_generation(self) -> int: ...
    @property
    def constants(self) -> dict[str, float]: ...

def skip_exit_handlers() -> None:
    """Lets exit() end this process at once, without what was registered for it until now."""

def kernels() -> list[tuple[str, int]]:
    """(name, digest) of every kernel that cores can run: our own, and those of loaded libraries."""

def check_image(image: bytes, blocks: bytes, most: int) -> None:
    """Raises ``ValueError`` for an image that no core starts, and where the first ``most`` of the parameter
    blocks in ``blocks`` name kernels or element types that it does not carry.
    """

def tell_searched(text: str) -> None:
    """Where plug-ins came from, for messages that miss a kernel."""

def load_kernel_library(path: str, seconds: float | None = None) -> list[tuple[str, int]]:
    """Load a shared object for the rest of the process; its kernels.

    A child of the process loads it first. Raises ``KernelLibraryError``, and ``KernelError`` of another kind
    where code of the library crashes, throws or takes longer than ``seconds``.
    """

def interrupts() -> int:
    """Signals of Ctrl-C that came while custom kernels ran."""

def load_plugins(path: str, seconds: float = 60.0) -> list[dict[str, Any]]:
    """Load a library for the rest of the process; the declarations of its plug-ins in its order.

    Raises ``KernelError`` for what is no library, is of another version, or whose tables cannot be read.
    """

def plugin_names(path: str, device: str, seconds: float = 60.0) -> list[str]:
    """What the library's ``od_kernel_names`` says: asked for the number first, then for the names."""

def instantiate(path: str, number: int, node: dict[str, Any], seconds: float = 60.0) -> dict[str, Any]:
    """What plug-in ``number`` says of a node; ``operators/plugin/library_data.py`` reads both.

    Raises ``KernelError`` with the status and text that it answers, and for counts and sizes that are none.
    """

def kernel_seconds() -> float:
    """What a call of the kernel that this thread runs may take."""

def register_kernel(spec: dict[str, Any], functions: dict[str, Any], origin: str = "this process") -> None:
    """A kernel that cores can run from now on: ``spec`` is what ``operators.codegen.spec_data`` makes of it.

    ``functions`` are ``{"library": path, "index": i}``, those of plug-in ``i`` of a shared object, or
    ``{"prepare": function}``: ``prepare(setup)`` is called with the interpreter lock once per nest, and
    returns what is called for every box of members, on any thread: ``run(origin, member, count, chunks,
    scratch, host)``. ``chunks`` and ``scratch`` are arrays of bytes over a core's memory (None where there is
    none) that end with the call, those of inputs read-only; ``host`` is a ``KernelHost`` or None. What they
    raise ends the run with a ``KernelError`` whose ``__cause__`` it is; a ``KernelError`` of theirs says the
    status.

    ``origin`` is the file or module, for messages. A kernel of the same name that was registered before is
    replaced: blocks that name the same digest run the new functions from the next operation on, those that
    name another run the old ones. Raises ``KernelError`` for a declaration that cannot stand, or a name
    or digest that a library, or another kernel, has.
    """

def run_kernel(
    digest: int,
    words: list[int],
    operands: list[Any],
    scratch_bytes: int,
    seconds: float,
    printed: list[tuple[str, int, list[tuple[tuple[int, ...], str]]]],
    print_bytes: int,
) -> None:
    """One call of a custom kernel on the host: all members at once, every operand whole.

    ``words`` is a parameter block whose index dimensions are all whole; ``operands`` are contiguous uint8
    arrays in the order of the declaration, None where absent; outputs are written. ``printed`` gets a row
    (kernel, lines lost, [(member, text)]) where it prints. Raises ``KernelError``.
    """

def require_no_kernel_runs(what: str) -> None:
    """Raises ``DeviceError`` for ``what`` on a thread that runs a kernel's Python function, which would wait
    for the one that waits for it."""

def unregister_kernel(name: str) -> bool:
    """Forget what was registered under a name; whether there was something. What runs goes on."""

def kernel_origins() -> list[tuple[str, int, str]]:
    """(name, digest, origin) of every kernel that cores can run."""

class KernelHost:
    """What a call of a kernel may tell, as long as it lasts."""

    def print(self, member: Sequence[int], text: str, values: Sequence[Any] = ()) -> None:
        """A line as ``format_print`` makes it."""
    def touched(
        self, operand: int, coordinate: list[int] | tuple[int, ...], count: int, write: bool
    ) -> None: ...

PRINT_BYTES: int  # of a ring that an operation of a core prints into, unless the device says otherwise
MOST_PRINT_BYTES: int
MOST_TRACED_CALLS: int

def format_print(format: str, values: Sequence[Any]) -> str:
    """A line as ``onedispatch/plugin_print.h`` makes it: C's printf, with what does not fit marked."""

def enumerate_devices() -> list[str]: ...
def replay(
    device: device,
    transaction: Buffer,
    packets: Buffer | None = None,
    packets_argument: int = 4,
    patches: list[tuple[int, int, int, bool]] = ...,
    overlay: Buffer | None = None,
    packets_base: int = 0,
) -> dict[str, Any]:
    """Execute a transaction without its overlay; see ``dispatch.replay`` for the report.

    ``packets``: control packets that are a kernel argument from byte ``packets_base`` (a multiple
    of 4) on. ``patches``: (byte of the packets, argument, plus, add).
    ``overlay``: a transaction that lays the packets' routes, executed before.
    """

class bo:
    """Memory that host and device share: ``bo(device, bytes[, flags[, group]])``.

    ``bo(parent, bytes, offset)`` is a part of another one (offset: a multiple of 4). Starts as
    zeros that count as unwritten: a run that reads what neither ``write``, ``sync`` to the device
    nor a DMA has touched ends with a ``SimulationError``.
    """

    class flags(enum.IntEnum):
        normal = 0
        cacheable = 16777216
        svm = 134217728
        device_only = 268435456
        host_only = 536870912
        p2p = 1073741824

    normal: ClassVar[flags]
    cacheable: ClassVar[flags]
    svm: ClassVar[flags]
    device_only: ClassVar[flags]
    host_only: ClassVar[flags]
    p2p: ClassVar[flags]

    def __init__(self, owner: device | bo, size: int, flags: int | None = None, group: int = 0) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    @staticmethod
    def lent(owner: device, data: Buffer, size: int, flags: int = 536870912) -> bo:
        """A buffer over the first ``size`` bytes of ``data``, whole words, which stay as they are: before the
        buffer is written to, it gets a copy of its own. ``data`` begins at a multiple of 64 bytes and has 64
        more than ``size``, which vector loads may touch."""

    def map(self) -> memoryview:
        """A writable view of the bytes; keeps the memory alive. Call ``sync`` after writing."""
    def write(self, data: Buffer, seek: int = 0) -> None:
        """Copy bytes in, from byte ``seek`` on; includes the sync to the device."""
    def read(self, size: int | None = None, skip: int = 0) -> bytearray: ...
    def read_into(self, target: Buffer, skip: int = 0) -> None:
        """Copy bytes out into a writable buffer, which says how many."""
    def sync(self, direction: xclBOSyncDirection, size: int | None = None, offset: int = 0) -> None: ...
    def forget(self, size: int | None = None, offset: int = 0) -> None:
        """Count words as unwritten from now on."""
    def unwritten(self, size: int | None = None, offset: int = 0) -> int:
        """Bytes of a range, in whole words, that neither the host nor a run has written."""
    def size(self) -> int: ...
    def address(self) -> int: ...
    def get_flags(self) -> int: ...

def attach(bo: bo, address: int, size: int, written: bool) -> bool:
    """Have runs read memory at ``address`` in place of what ``bo.map()`` shows, or leave what they write.

    0: what it shows again. Returns False, and changes nothing, where ``size`` is not the object's, the
    address no multiple of 4, or a page ends right behind the memory. It must outlive the runs.
    """

def copy_rows(to: int, to_pitch: int, source: int, source_pitch: int, size: int, rows: int) -> None:
    """Copy ``rows`` rows of ``size`` bytes between two addresses, which they lie so many bytes apart from.

    The caller keeps both; the interpreter lock is released.
    """

class hw_context:
    """A partition of the array with its own state; loads PDI 0 of the xclbin."""

    def __init__(self, device: device, uuid: uuid) -> None: ...

class run:
    def __init__(self, kernel: kernel) -> None: ...
    def set_arg(self, index: int, value: bo | int) -> None: ...
    def start(self) -> None:
        """Execute. What goes wrong is kept for ``wait``; the interpreter lock is released."""
    def wait(self, timeout_ms: int = 0) -> ert_cmd_state:
        """The state after the run; raises what went wrong in it."""
    def wait2(self) -> None: ...
    def state(self) -> ert_cmd_state: ...
    def report(self) -> dict[str, Any]:
        """What the last completed run did.

        cycles (array clock), seconds, operations, events (of the simulator), kernel_calls,
        timers [(id, cycle)], ddr_bytes_read and ddr_bytes_written (per kernel argument),
        channels [{column, row, direction, channel, bytes, busy, stall, lock}],
        cores [{column, row, busy, calls, lock}], registers [(address, value)] of READ_REGS;
        where calls are traced, trace: {calls [(column, row, kernel, start, cycles, host ns)],
        kernels [(kernel, calls, cycles, span, host ns)],
        spans {kind: (count, cycles of all, [(column, row, direction or "", channel, start, cycles, bytes,
        descriptor or operation, control packets)])}} with kinds "task", "bd", "lock", "stream", "memory",
        "request", "token" and "poll"; where time is profiled, profile: {parts [name],
        windows [{timer (-1: the end), cycles, parts [cycles], busy, read, written, bursts}], bin_cycles,
        bins [{busy, read, written}] by column}.
        """
    def prints(self) -> list[tuple[int, int, int, tuple[str, int, list[tuple[tuple[int, ...], str]]]]]:
        """What kernels printed in the last execution, as far as it came where it failed: a row per core and
        operation, (column, row, timer mark before it, (kernel, lines lost, [(member, text)])).
        """

class kernel:
    """``kernel(3, instruction_bo, count, *bos)`` sets the arguments and starts a run.

    ``count`` is the transaction's size in words or in bytes.
    """

    def __init__(self, context: hw_context, name: str) -> None: ...
    def group_id(self, index: int) -> int: ...
    def __call__(self, *args: bo | int) -> run: ...

class runlist:
    def __init__(self, context: hw_context) -> None: ...
    def add(self, run: run) -> None: ...
    def execute(self) -> None:
        """Run all in order; stops at the first that fails."""
    def wait(self, timeout_ms: int = 0) -> ert_cmd_state: ...
    def reset(self) -> None: ...

def run_members(
    kernel: int,
    setup: dict[str, Any],
    operands: list[dict[str, Any] | None],
    guarded: bool,
    at_end: bool,
    seconds: float = 60.0,
) -> dict[str, Any]:
    """Run a box of members on the memory that is given; what accessors touched, and where it faulted.

    ``setup``: "first", "count", "total" (a number per index dimension), "scalars" (words), "scratch"
    ("memory", "at"). An operand: "dtype", "pad", "fill", "memory" (bytes, changed in place), "at" (the byte
    of its chunk), "axes" (the fields of ``od_axis``) and "low", "high" (declared coordinates, ends included).
    ``guarded``: on copies that end (``at_end``) or begin at memory without access. Raises ``KernelError``
    for what the kernel answers.
    """
