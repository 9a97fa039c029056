# SPDX-License-Identifier: Apache-2.0
"""The verdict on a model, which commands print first, and its nodes on the host."""

from __future__ import annotations

from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.runtime.summary import Summary

_MOST_HOST_NODES = 10


def show(summary: Summary, *, full: bool = False) -> None:
    """Prints the verdict, and the nodes on the host with what would map in their place."""
    out.tell(str(summary), style="bold")
    listed = summary.host if full else summary.host[:_MOST_HOST_NODES]
    if not listed:
        return
    rows = [(one.node, one.op_type, one.reason) for one in listed]
    more = (
        f" ({len(listed)} of {len(summary.host):,}; --full lists all)"
        if len(listed) < len(summary.host)
        else ""
    )
    out.table(f"On the host, most bytes first{more}", ("node", "operator", "why"), rows)
