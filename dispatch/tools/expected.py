# SPDX-License-Identifier: Apache-2.0
"""What the host computes of a model: values of its graph, and the outputs of the model as it is.

Both are made once and run on any number of feeds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onnx import ModelProto

from onedispatch.dispatch.compile import source_of
from onedispatch.dispatch.compiler.options import ImportOptions
from onedispatch.dispatch.frontend.graph import Array, Graph
from onedispatch.dispatch.host.engines import RUNTIME, EngineRefused, Runtime
from onedispatch.dispatch.host.regions import HostRegion
from onedispatch.transactions import Device
from onedispatch.transactions.base.errors import InputError, statement_of

if TYPE_CHECKING:
    from onedispatch.dispatch.frontend.importer import ModelLike

Values = dict[str, Any]


@dataclass(frozen=True)
class Host:
    """How the host computes: with custom kernels of a device, on so many threads."""

    device: Device
    threads: int | None = None
    kernel_seconds: float | None = None

    def region(self, graph: Graph, names: Sequence[str]) -> HostRegion:
        """The nodes of a graph, with these values as outputs."""
        return HostRegion(
            graph, graph.nodes, names, self.threads, device=self.device, kernel_seconds=self.kernel_seconds
        )

    def values(self, graph: Graph, names: Sequence[str], feed: Mapping[str, Array]) -> Values:
        """Values of the graph, by onnxruntime where it can."""
        return self.region(graph, names).run(feed) if names else {}


class Expected:
    """The outputs of a model by onnxruntime on the model as it is, where that can, with default options.

    ``beside`` says what computed them, known once they were.
    """

    def __init__(
        self, model: Any, how: ImportOptions, graph: Graph, names: Sequence[str], host: Host
    ) -> None:
        self.beside = RUNTIME
        self._graph, self._names, self._host = graph, tuple(names), host
        self._unlike = _unlike(model, how)
        self._runtime: Runtime | None = None
        self._region: HostRegion | None = None
        if not self._unlike and names:
            try:
                self._runtime = Runtime(_plain(model), self._names, host.threads, None, True)
            except (EngineRefused, InputError) as error:
                self._refused(error)

    def run(self, feed: Mapping[str, Array]) -> Values:
        """The outputs by name."""
        if not self._names:
            return {}
        if self._runtime is not None:
            try:
                return dict(zip(self._names, self._runtime.run({**feed, **self._graph.frozen}), strict=True))
            except (EngineRefused, InputError) as error:
                self._refused(error)
        if self._region is None:
            self._region = self._host.region(self._graph, self._names)
            if self._unlike:
                self.beside = f"{self._region.where.removeprefix('on ')} {self._unlike}"
        return self._region.run(feed)

    def _refused(self, error: Exception) -> None:
        self._runtime = None
        self.beside = f"the host's engines, since onnxruntime does not run the model: {statement_of(error)}"


def _unlike(model: Any, how: ImportOptions) -> str:
    """Why onnxruntime would not compute the same of the model as it is; "" if it would."""
    framework = source_of(model, how)
    if framework != "onnx":
        return f"on the translated graph, since it is a model of {framework}"
    return "" if how.outputs is None else "on the graph with these values as outputs"


def _plain(model: ModelLike) -> str | bytes:
    """Returns the model as onnxruntime opens it: a path as text, or bytes."""
    if isinstance(model, ModelProto):
        return bytes(model.SerializeToString())
    return os.fspath(model) if isinstance(model, str | os.PathLike) else bytes(model)
