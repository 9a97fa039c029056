# SPDX-License-Identifier: Apache-2.0
"""One door to timelines: a report as a file, of the form that its suffix says."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from onedispatch.dispatch.base import arguments
from onedispatch.dispatch.export.chrome import chrome_json
from onedispatch.dispatch.export.perfetto import perfetto_trace
from onedispatch.dispatch.export.timeline import Timeline
from onedispatch.dispatch.export.tracks import timeline_of
from onedispatch.dispatch.runtime.report import RunReport
from onedispatch.transactions.base.boundary import public
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.files import write_file

FORMS: Mapping[str, Callable[[Timeline], bytes]] = {
    ".json": chrome_json,
    ".pftrace": perfetto_trace,
    ".perfetto-trace": perfetto_trace,
}
_ACCEPTED = "FILE.json (Chrome's trace events), FILE.pftrace or FILE.perfetto-trace (Perfetto's protobuf)"


def trace_path(where: str, path: str | os.PathLike[str]) -> Path:
    """Returns a path whose suffix says a form. Raises ``InputError`` that names ``where``."""
    target = arguments.file_path(where, path)
    if target.suffix.lower() not in FORMS:
        raise InputError(where, repr(str(target)), _ACCEPTED)
    return target


@public
def write_trace(report: RunReport, path: str | os.PathLike[str]) -> None:
    """Writes a run, or a timing, over time: FILE.json, FILE.pftrace or FILE.perfetto-trace, for
    ui.perfetto.dev. Tracks of cores, DMA channels, device memory and commands are there if it was traced:
    ``InferenceSession(..., trace=True)``, ``CompiledModel.timing(trace=True)``.

    Raises:
        InputError: another suffix, nothing ran on the device, the file cannot be written, or ``perfetto`` is
            not installed, which protobuf takes.
    """
    target = trace_path("write_trace", path)
    timeline = timeline_of(report)
    if timeline is None:
        raise InputError("write_trace", "a report without device steps", "a run that was on the device")
    write_file(target, FORMS[target.suffix.lower()](timeline))
