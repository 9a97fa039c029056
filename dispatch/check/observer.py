# SPDX-License-Identifier: Apache-2.0
"""Check mode observes a session: before it compiles the model, and before each run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onedispatch.dispatch.check.model import Values, check_compile, check_run, custom_nodes, raise_failed
from onedispatch.dispatch.frontend.graph import Graph
from onedispatch.operators.plugin.check import Options
from onedispatch.operators.plugin.findings import Finding

if TYPE_CHECKING:
    from onedispatch.dispatch.artifact.model import CompiledModel
    from onedispatch.dispatch.check.child import CheckReport


@dataclass
class AccessCheck:
    """Runs the nodes of custom kernels member by member in a child process; ``findings`` are of the last run.

    ``graph`` is the source of the model, ``values`` runs a compiled model once, beside the session.
    """

    graph: Graph | None
    values: Values
    options: Options
    findings: tuple[Finding, ...] = ()

    def before_compile(self, compile: Callable[[], object]) -> None:
        """Compiles in a child first. Raises ``KernelError`` if custom kernels end it."""
        if self.graph is not None and custom_nodes(self.graph):
            check_compile(compile, self.options.limit)

    def before_run(self, model: CompiledModel, feed: Mapping[str, Any]) -> None:
        """Before a run, so that its report is that of the run alone.

        Raises ``KernelAccessError`` for kernels that touch what they do not declare, ``InputError`` for a
        model without its source.
        """
        report = self.report(model, feed, self.options)
        self.findings = tuple(report.findings)
        raise_failed(report)

    def report(self, model: CompiledModel, feed: Mapping[str, Any], options: Options) -> CheckReport:
        """Returns what is found for these inputs."""
        return check_run(model, self.graph, feed, self.values, options)
