# SPDX-License-Identifier: Apache-2.0
"""What a run and a clock say of the same model."""

from __future__ import annotations

from dataclasses import replace

from onedispatch.dispatch.runtime.report import RunReport


def modelled(report: RunReport | None) -> RunReport:
    """The report without what this machine did for it."""
    assert report is not None
    work = [replace(one, seconds=0.0) for one in report.host_work if one.kind == "repack"]
    return replace(report, wall_seconds=0.0, host_seconds=0.0, host_work=work, recorded=(), prints=())
