# SPDX-License-Identifier: Apache-2.0
"""A compiled model: a plain value, and the file that it is saved in. ``loading`` reads it back."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from onedispatch.dispatch.artifact.constants import Constant, bytes_of, shared_constants
from onedispatch.dispatch.artifact.container import Writer
from onedispatch.dispatch.artifact.forms import model_form
from onedispatch.dispatch.artifact.serialise import executable_to, graph_to, value_to
from onedispatch.dispatch.base import arguments
from onedispatch.dispatch.base.precisions import PRECISIONS
from onedispatch.dispatch.compiler.executable import DeviceStep, Executable, NodePlacement
from onedispatch.dispatch.compiler.options import CAST_POLICIES, FALLBACKS, GROUPS, SUMS, CompileOptions
from onedispatch.dispatch.compiler.used_kernels import check_host_kernels
from onedispatch.dispatch.frontend.graph import Array, Graph, ModelMetadata, Value
from onedispatch.dispatch.plugins.missing import check_known
from onedispatch.operators.emission.overlay import overlay_xclbin
from onedispatch.transactions import Device
from onedispatch.transactions.base.boundary import public
from onedispatch.transactions.base.errors import CompiledModelError, InputError
from onedispatch.transactions.base.text import counted

FORMAT = "onedispatch compiled model"
CACHE_SIZE = 8  # executables of a model with symbolic shapes that are kept
MOST_EXECUTABLES = 1 << 20  # that may be kept
FORM = model_form(FORMAT, tuple(PRECISIONS), FALLBACKS, CAST_POLICIES, SUMS, GROUPS, MOST_EXECUTABLES)


@dataclass(frozen=True)
class CompiledModel:
    """Executables for concrete shapes, by key; the one used last is the last.

    A session compiles more of them on first sight where ``source`` is there: ``InferenceSession.model`` has
    these too. ``deciding`` are inputs whose values belong to the key, since they decide shapes.
    """

    options: CompileOptions
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    deciding: frozenset[str]
    source: Graph | None = field(repr=False)
    cache_size: int = CACHE_SIZE
    executables: Mapping[str, Executable] = field(default_factory=dict, repr=False)
    left_out: str = ""  # why ``source`` is None though the file has it
    frozen: Mapping[str, Array] = field(default_factory=dict)  # inputs that are constants of it
    # Bytes of constants, of a graph that is not kept, which several executables lay out, each in its way.
    weights: Mapping[str, Array] = field(default_factory=dict, repr=False)
    # Of a static model, for kernels that are declared again; files do not keep it.
    recompiled_from: Graph | None = field(default=None, repr=False)
    metadata: ModelMetadata = field(default_factory=ModelMetadata, repr=False)

    @property
    def target(self) -> Device:
        """The device, its whole description: a file keeps it too."""
        return self.options.device

    @property
    def device(self) -> str:
        """The device's canonical name."""
        return self.target.name

    @property
    def precision(self) -> str:
        return self.options.precision

    @property
    def fallback(self) -> str:
        return self.options.fallback

    @property
    def cast_policy(self) -> str:
        return self.options.cast_policy

    @property
    def sums(self) -> str:
        return self.options.sums

    @property
    def groups(self) -> str:
        return self.options.groups

    @property
    def is_static(self) -> bool:
        """All shapes are known without an input."""
        return not self.deciding and all(v.is_concrete for v in self.inputs)

    # -- placement ---------------------------------------------------------------------------

    @property
    @public
    def placement(self) -> list[NodePlacement]:
        """Where every node runs, for the executable used last. Raises ``InputError`` before the first one."""
        return list(self.used_last()[1].placement)

    @property
    def latest(self) -> tuple[str, Executable] | None:
        """The executable used last and its key; None before the first one."""
        return next(reversed(list(self.executables.items())), None)

    def used_last(self) -> tuple[str, Executable]:
        """The executable used last and its key. Raises ``InputError`` where there is none yet: an empty
        placement would pass for one without nodes on the host."""
        latest = self.latest
        if latest is None:
            unknown = [f"the shape of input {value}" for value in self.inputs if not value.is_concrete]
            unknown += [f"the value of input {name}, which decides shapes" for name in sorted(self.deciding)]
            shapes = "" if self.deciding else ", or give InferenceSession or compile shapes={input: sizes}"
            raise InputError(
                "placement",
                f"nothing yet of {', '.join(unknown)}",
                "known shapes: nodes are placed for these",
                f"run it once{shapes}",
            )
        return latest

    def check_kernels(self, where: str) -> None:
        """Raises ``KernelNotFoundError`` where a kernel of its programs, or of its nodes on the host, is
        neither ours nor a plug-in's; ``UnknownOperatorError`` for unmapped operators of its graph."""
        executables = list(self.executables.values())
        steps = [step for one in executables for step in one.device_steps]
        reloads = (reload.kernels for step in steps for reload in step.reloads)
        check_known(where, (step.image for step in steps), reloads, self._origins())
        check_host_kernels(where, executables)
        if self.source is not None:
            from onedispatch.dispatch.compiler.early import refuse_missing

            refuse_missing(self.source)

    def _origins(self) -> dict[str, str]:
        """The file or module that each custom kernel came from, by its name."""
        return {used.name: used.origin for one in self.executables.values() for used in one.kernels}

    # -- time --------------------------------------------------------------------------------

    @public
    def timing(self, shapes: Mapping[str, Sequence[int]] | None = None, trace: bool | int = False) -> Any:
        """The ``RunReport`` of a run, without a run: its cycles, bytes and stalls, several times faster.

        The simulator's engine decides all that it decides in a run, but no tensor moves, no kernel is called,
        and buffers hold nothing. What needs data is not checked: words that are read and were never written,
        results that are never written, what kernels refuse. Kernels print nothing, and nodes on the host
        take no time.

        Args:
            shapes: of inputs with symbolic dimensions, for which the model is compiled first; None: those
                that it was compiled for last.
            trace: True, or how many kernel calls, and spans of DMA channels, device memory and the
                controller, are kept one by one: ``trace`` of the report has them.

        Raises:
            InputError: there are no shapes yet, or values of inputs decide them.
            SimulationError, TransactionError: the transaction cannot be run as it is. With ``kind`` "clock",
                its time depends on what it computes.
        """
        clock = importlib.import_module("onedispatch.dispatch.runtime.clock")  # which imports this file
        return clock.timing(self, shapes, trace)

    # -- transactions ----------------------------------------------------------------------

    @property
    @public
    def transaction(self) -> bytes:
        """The fused transaction. Raises ``CompiledModelError`` unless there is exactly one."""
        return self.device_step.transaction

    @public
    def with_transaction(self, transaction: bytes) -> CompiledModel:
        """The same model with another transaction, which is checked when it runs, not here."""
        if not isinstance(transaction, bytes | bytearray | memoryview):
            raise InputError("with_transaction", f"a {type(transaction).__name__}", "bytes")
        key, executable = self._only_step()
        changed = {key: executable.with_transaction(bytes(transaction))}
        return replace(self, executables=changed, source=None, recompiled_from=None, weights={})

    @public
    def xclbin(self) -> bytes:
        """The container that devices of ``onedispatch.xrt`` register to run the transaction: the overlay with
        the kernels in program memory.

        Raises ``CompiledModelError`` unless there is exactly one device step.
        """
        return overlay_xclbin(self.target, self.device_step.image)

    @property
    @public
    def device_step(self) -> DeviceStep:
        """The transaction, the contents and sizes of its five buffers, and where inputs and outputs lie.

        Raises ``CompiledModelError`` unless there is exactly one.
        """
        return self._only_step()[1].device_steps[0]

    def _only_step(self) -> tuple[str, Executable]:
        executables = list(self.executables.items())
        steps = sum(len(executable.device_steps) for _, executable in executables)
        if len(executables) != 1 or steps != 1:
            raise CompiledModelError(
                "the model's transaction",
                f"{counted(len(executables), 'executable')} with {counted(steps, 'device region')} in all",
                "one executable with one device region",
                "look at model.executables, or compile with fallback='error' and concrete shapes",
            )
        return executables[0]

    @public
    def without_graph(self) -> CompiledModel:
        """The same for the shapes that it is compiled for, and no others: its file is as small as these need.

        Raises ``InputError`` before the first.
        """
        self.used_last()
        weights = shared_constants(self.executables.values(), self._constant)
        return replace(self, source=None, recompiled_from=None, weights=weights)

    # -- the file --------------------------------------------------------------------------

    @public
    def save(self, path: str | os.PathLike[str], *, compress: bool = True) -> None:
        """Writes the model; ``onedispatch.load`` reads it back. ONNX is not needed any more.

        Without ``compress`` it takes less time, and more bytes than the weights.
        """
        target = arguments.file_path("the path to save to", path)
        writer, description = self._described("CompiledModel.save", compress=compress)
        writer.write(target, description)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the bytes that ``save`` writes, and who chooses solutions of shapes that come later."""
        loading = importlib.import_module("onedispatch.dispatch.artifact.loading")  # which imports this file
        writer, description = self._described("pickle of a CompiledModel")
        return loading.unpickled, (
            writer.to_bytes(description),
            self.options.selector,
            self.options.catalog,
            self.options.pins,
        )

    @property
    def _constant(self) -> Constant:
        """Of what its executables may have copies."""
        return bytes_of(self.weights if self.source is None else self.source.constants)

    def _described(self, where: str, *, compress: bool = True) -> tuple[Writer, dict[str, Any]]:
        """The content of the model's file."""
        if self.left_out:
            given = f"without the graph that its file has, since {self.left_out}"
            raise CompiledModelError(where, given, "a whole model", "copy the file")
        writer, constant = Writer(compress=compress), self._constant
        description = {
            "format": FORMAT,
            "device": self.target.description(),
            "precision": self.precision,
            "fallback": self.fallback,
            "cast_policy": self.cast_policy,
            "sums": self.sums,
            "groups": self.groups,
            "inputs": [value_to(v) for v in self.inputs],
            "outputs": [value_to(v) for v in self.outputs],
            "deciding": sorted(self.deciding),
            "cache_size": self.cache_size,
            "frozen": {name: writer.array(array) for name, array in self.frozen.items()},
            "executables": [
                [key, executable_to(writer, one, constant)] for key, one in self.executables.items()
            ],
            "metadata": asdict(self.metadata),
            "source": None if self.source is None else graph_to(writer, self.source),
            "weights": {name: writer.blob(array) for name, array in self.weights.items()},
        }
        FORM(description, "the description")
        return writer, description
