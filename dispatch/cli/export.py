# SPDX-License-Identifier: Apache-2.0
"""``onedispatch export``: placement and modelled time as files that other tools open."""

from __future__ import annotations

import json as json_text
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from onedispatch.dispatch.artifact.loading import opened
from onedispatch.dispatch.artifact.model import CompiledModel
from onedispatch.dispatch.cli import opening, verdict
from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.export.assignment import assignment
from onedispatch.dispatch.export.model_explorer import node_data, placement_data
from onedispatch.dispatch.export.netron import attachment
from onedispatch.dispatch.export.nodes import ModelFacts, facts_of
from onedispatch.dispatch.export.properties import annotate as annotate_model
from onedispatch.dispatch.export.timeline import Timeline
from onedispatch.dispatch.export.traces import FORMS, trace_path
from onedispatch.dispatch.export.tracks import timeline_of
from onedispatch.dispatch.export.vitis_report import FILE as VITIS_FILE
from onedispatch.dispatch.export.vitis_report import vitis_report
from onedispatch.dispatch.runtime.profile import Machine
from onedispatch.dispatch.runtime.report import RunReport
from onedispatch.dispatch.runtime.session import InferenceSession
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.files import check_target, write_file
from onedispatch.transactions.base.handlers import reraise_from_handler
from onedispatch.transactions.base.text import counted

_Json = Callable[[ModelFacts], Any]
_OF_NODES: dict[str, tuple[str, _Json]] = {  # by option: the name in the folder of --all, and its content
    "netron": ("netron.json", attachment),
    "model_explorer": ("model_explorer_time.json", node_data),
    "placement": ("model_explorer_placement.json", placement_data),
    "assignment": ("assignment.json", assignment),
    "vitis_report": (VITIS_FILE, vitis_report),
}
_TRACES = ("trace.json", "trace.pftrace")
_ANNOTATED = "annotated.onnx"


@dataclass(frozen=True)
class Targets:
    """What is written, and where to."""

    trace: Annotated[
        Path | None,
        typer.Option(help="A run over time, for ui.perfetto.dev: FILE.pftrace (protobuf) or FILE.json."),
    ] = None
    netron: Annotated[
        Path | None, typer.Option(help="Netron's attachment: open the model there, and then this file.")
    ] = None
    model_explorer: Annotated[
        Path | None, typer.Option(help="Model Explorer's node data: modelled time of each node.")
    ] = None
    placement: Annotated[
        Path | None, typer.Option(help="Model Explorer's node data: where each node runs.")
    ] = None
    assignment: Annotated[
        Path | None, typer.Option(help="Nodes by execution provider, as ONNX Runtime tells its assignment.")
    ] = None
    vitis_report: Annotated[
        Path | None, typer.Option(help="Nodes by device, as AMD's vitisai_ep_report.json has them.")
    ] = None
    annotate: Annotated[
        Path | None,
        typer.Option(help="The model once more, with metadata_props that say all this: OUT.onnx."),
    ] = None
    all: Annotated[
        Path | None, typer.Option("--all", metavar="FOLDER", help="All of these, in a folder.")
    ] = None

    def files(self, *, onnx: bool) -> dict[str, list[Path]]:
        """The files by option; of --all those that can be written. Raises ``InputError`` for none."""
        options = ("trace", *_OF_NODES, "annotate")
        found = {name: [path] for name in options if (path := getattr(self, name)) is not None}
        if self.all is not None:
            traces = [name for name in _TRACES if name.endswith(".json") or find_spec("perfetto")]
            names = {"trace": traces} | {name: [file] for name, (file, _) in _OF_NODES.items()}
            names |= {"annotate": [_ANNOTATED]} if onnx else {}
            for name, files in names.items():
                found.setdefault(name, []).extend(self.all / file for file in files)
        if not found:
            flags = ", ".join(f"--{name.replace('_', '-')} FILE" for name in options)
            raise InputError("onedispatch export", "nothing to write", f"{flags} or --all FOLDER")
        return found


def export(
    model: opening.Model,
    targets: Targets,
    compiling: opening.CompileFlags,
    json: out.Json = False,
) -> None:
    """Write placement and modelled time as files of other tools, without running the model.

    The trace has operators, kernel calls of each core, tasks of each DMA channel, device memory and commands.
    Files of nodes say of each where it runs and why, and its share of the time of the operators that it is
    part of. Names and tensors of nodes come from the ONNX file; of other models those that are known.
    """
    proto = _proto(model, compiling)
    files = targets.files(onnx=proto is not None and not _has_external_data(proto))
    if targets.all is not None:
        _make(targets.all)
    _check(model, files, proto)
    compiled = opening.with_executable(model, compiling)
    with out.working("timing"):
        report = compiled.timing(trace="trace" in files)
    written = [*_written(files, report, _facts(compiled, report, proto), proto)]
    if json:
        out.print_json([{"path": str(path), "bytes": path.stat().st_size} for path in written])
        return
    verdict.show(verdict.of(compiled, report))
    for path in written:
        out.tell(f"{path}: {counted(path.stat().st_size, 'byte')}")
    if report.trace is not None and report.trace.note:
        out.tell(f"trace: {report.trace.note}", to=out.errors)


def _proto(model: str, compiling: opening.CompileFlags) -> Any | None:
    """The model's ONNX protobuf, None where it is no ONNX file."""
    if compiling.frontend not in (None, "onnx"):
        return None
    source = opening.source(Path(model))
    if not isinstance(source, Path):
        return source  # a light model
    if opened(source) is not None or source.suffix.lower() not in (".onnx", ".ort"):
        return None
    from onedispatch.dispatch.frontend.importer import read_proto

    return read_proto(source)


def _has_external_data(proto: Any) -> bool:
    """Whether weights lie in other files, which are found from the model's folder alone."""
    return any(tensor.data_location for tensor in proto.graph.initializer)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reraise_from_handler(error)
        given = f"{str(folder)!r}: {getattr(error, 'strerror', None) or error}"
        raise InputError("--all", given, "a folder that can be made") from error


def _check(model: str, files: dict[str, list[Path]], proto: Any | None) -> None:
    """Refuses what cannot be written before anything is computed."""
    for path in (path for paths in files.values() for path in paths):
        opening.keep(model, path)
    for path in files.get("trace", ()):
        trace_path("--trace", path)
    if "annotate" not in files:
        return
    if proto is None:
        raise InputError("--annotate", f"{model}, which is no ONNX file", "an ONNX file", "leave it out")
    outside = [path for path in files["annotate"] if path.parent.resolve() != Path(model).parent.resolve()]
    if outside and _has_external_data(proto):
        raise InputError(
            "--annotate",
            f"{outside[0]}, of a model with external data, which is found from its folder",
            f"a file in {Path(model).parent}",
        )


def _facts(compiled: CompiledModel, report: RunReport, proto: Any | None) -> ModelFacts:
    key, executable = compiled.used_last()
    placed = InferenceSession(compiled).placed(key, executable)  # with the engines of host regions
    machine = Machine.of(compiled.target)
    return facts_of(machine.device, machine.array_hz, placed, report, proto)


def _written(
    files: dict[str, list[Path]], report: RunReport, facts: ModelFacts, proto: Any | None
) -> Iterator[Path]:
    """Writes the files; no trace of a model that runs on the host alone."""
    timeline = timeline_of(report) if "trace" in files else None
    for name, paths in files.items():
        if name == "trace" and timeline is None:
            out.tell("no kernel runs, so there is no trace", to=out.errors)
            continue
        for path in paths:
            content = _content(name, path, timeline, facts, proto)
            check_target(path)
            write_file(path, content)
            yield path


def _content(name: str, path: Path, timeline: Timeline | None, facts: ModelFacts, proto: Any | None) -> bytes:
    if name == "trace" and timeline is not None:
        return FORMS[path.suffix.lower()](timeline)
    if name == "annotate":
        annotate_model(proto, facts)
        data: bytes = proto.SerializeToString() if proto is not None else b""
        return data
    return json_text.dumps(_OF_NODES[name][1](facts), indent=1).encode()
