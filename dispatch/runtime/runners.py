# SPDX-License-Identifier: Apache-2.0
"""What runs the steps of a session's executables: made when a step first runs, and kept for the next run."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onedispatch.dispatch.compiler.executable import DeviceStep, Executable, HostStep
from onedispatch.dispatch.runtime.options import ExecutionOptions
from onedispatch.transactions import Device

if TYPE_CHECKING:
    from onedispatch.dispatch.host.regions import HostRegion
    from onedispatch.dispatch.runtime.device import DeviceSession, LoadedStep

    Runner = LoadedStep | HostRegion


@dataclass
class Runners:
    """The simulated device and the runners of at most ``capacity`` executables, the last used ones."""

    target: Device
    options: ExecutionOptions
    capacity: int
    _device: DeviceSession | None = None
    _loaded: OrderedDict[str, tuple[Executable, list[Runner | None]]] = field(default_factory=OrderedDict)

    def forget(self) -> None:
        """Drops everything: after a fork that a run of another thread did not survive."""
        self._device = None
        self._loaded.clear()

    def all(self, key: str, executable: Executable) -> Sequence[Runner]:
        """The runners of all steps, in order."""
        runners = self._load(key, executable)
        for index, step in enumerate(executable.steps):
            if runners[index] is None:
                runners[index] = self._made(step)
        return runners  # type: ignore[return-value]

    def of(
        self, key: str, executable: Executable, kinds: type | tuple[type, ...] = (DeviceStep, HostStep)
    ) -> Iterator[Runner]:
        """Yields the runners of the steps of these kinds, in order."""
        runners = self._load(key, executable)
        for index, step in enumerate(executable.steps):
            if isinstance(step, kinds):
                runner = runners[index]
                if runner is None:
                    runner = runners[index] = self._made(step)
                yield runner

    def _load(self, key: str, executable: Executable) -> list[Runner | None]:
        known, runners = self._loaded.get(key, (None, []))
        if known is not executable:
            runners = [None] * len(executable.steps)
            self._loaded[key] = executable, runners
            while len(self._loaded) > self.capacity:
                self._loaded.popitem(last=False)
        self._loaded.move_to_end(key)
        return runners

    def _made(self, step: DeviceStep | HostStep) -> Runner:
        options = self.options
        if isinstance(step, HostStep):
            from onedispatch.dispatch.host.regions import HostRegion

            return HostRegion(
                step.graph,
                step.graph.nodes,
                step.outputs,
                options.threads,
                device=self.target,
                kernel_seconds=options.kernel_seconds,
            )
        if self._device is None:
            from onedispatch.dispatch.runtime.device import DeviceSession

            self._device = DeviceSession(
                self.target,
                options.threads,
                options.kernel_seconds,
                options.print_bytes,
                options.trace,
                options.record,
                profile=options.trace is not None,  # such a run is the engine's anyway
            )
        return self._device.load(step)
