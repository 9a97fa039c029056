# SPDX-License-Identifier: Apache-2.0
"""A cost record: what a model costs on a device, small enough to be kept beside the model as a baseline.

Two runs of the same compiler on the same model write the same bytes: a record has no times of this machine.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from onedispatch.dispatch.artifact.forms import (
    NAT,
    SHAPE,
    TEXT,
    TEXTS,
    Form,
    Misfit,
    listed,
    mapped,
    optional,
    record,
    which,
)
from onedispatch.dispatch.artifact.model import CompiledModel
from onedispatch.dispatch.base.json_files import read_json
from onedispatch.dispatch.base.version import installed_version
from onedispatch.dispatch.compiler.executable import Executable
from onedispatch.dispatch.runtime.report import RunReport
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.files import reading
from onedispatch.transactions.base.signature import bounded_repr

FORMAT, VERSION = "onedispatch cost record", 1
OPTIONS = ("precision", "cast_policy", "sums", "groups")  # those that costs depend on
BASELINES = "what `onedispatch gate` wrote (--write-baseline, --json)"
ACCEPTED = f"{BASELINES}, or `onedispatch time --json`"
_PIECE = 1 << 20


@dataclass(frozen=True)
class OperatorCost:
    """A device operator: the nodes of the model that it is, and its cycles."""

    name: str
    op_type: str
    nodes: tuple[str, ...]
    cycles: int


@dataclass(frozen=True)
class HostNode:
    """A node that runs on the host, and why."""

    node: str
    op_type: str
    reason: str


@dataclass(frozen=True)
class CostRecord:
    """What one run of a model costs.

    Attributes:
        model: the model's name, a file's without its folder.
        digest: of the model's file; "" where there is none.
        device, identity: its name; name and digest of the whole description, "" where only the name is known.
        options: precision and the like, by name; {} where they are not known.
        inputs: shapes, by name.
        us: modelled microseconds on the device; ``launch_us`` of the host are beside them.
        ddr_bytes: read and written; ``ddr_burst_bytes`` the same in whole bursts.
        placement: how many nodes are where: npu, cpu, folded. None where it is not known.
        onedispatch: the version of the package.
    """

    model: str
    device: str
    cycles: int
    us: float
    launch_us: float
    dispatches: int
    ddr_bytes: int
    ddr_burst_bytes: int
    reload_cycles: int
    operators: tuple[OperatorCost, ...]
    digest: str = ""
    identity: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    placement: Mapping[str, int] | None = None
    host_nodes: tuple[HostNode, ...] = ()
    onedispatch: str = ""

    @property
    def npu_share(self) -> float | None:
        """Of the nodes that a run computes, those on the device; None where it is not known."""
        if self.placement is None:
            return None
        npu, cpu = self.placement.get("npu", 0), self.placement.get("cpu", 0)
        return npu / (npu + cpu) if npu + cpu else 1.0

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as ``read_record`` takes it."""
        return {"format": FORMAT, "version": VERSION} | asdict(self)

    def to_bytes(self) -> bytes:
        """The file: JSON, whose lines show in a diff of two versions what has changed."""
        return (json.dumps(self.as_dict(), indent=1) + "\n").encode()


def record_of(
    model: CompiledModel,
    report: RunReport,
    name: str,
    file: Path | None = None,
    executable: Executable | None = None,
) -> CostRecord:
    """Returns the record of a compiled model from the timing of its ``executable``, the one used last where
    there is none; ``file`` is what was compiled."""
    if executable is None:
        executable = model.used_last()[1]
    placed = executable.placement
    host = [HostNode(one.node, one.op_type, one.reason) for one in placed if one.device == "cpu"]
    return replace(
        _from_timed({"device": model.device, "report": report.as_dict()}, name),
        digest="" if file is None else digest_of(file),
        identity=model.target.identity,
        options={option: getattr(model, option) for option in OPTIONS},
        inputs={value.name: value.concrete_shape for value in executable.inputs},
        placement=dict(sorted(Counter(one.device for one in placed).items())),
        host_nodes=tuple(host),
        onedispatch=installed_version(),
    )


def digest_of(file: Path) -> str:
    """A digest of a file's bytes, "" where it is no regular file; weights in other files are left out."""
    if not file.is_file():
        return ""
    made = hashlib.blake2b(digest_size=16)
    with reading(file) as opened:
        while piece := opened.read(_PIECE):
            made.update(piece)
    return made.hexdigest()


# -- files --------------------------------------------------------------------------------------


def having(**wanted: Form) -> Form:
    """A map with these fields, and maybe others."""

    def check(value: Any, where: str) -> None:
        if not isinstance(value, dict) or not wanted.keys() <= value.keys():
            raise Misfit(where, bounded_repr(value), f"a map with {', '.join(wanted)}")
        for name, form in wanted.items():
            form(value[name], f"{where}.{name}")

    return check


_AMOUNT = which(
    "a number from 0",
    lambda v: isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) and v >= 0,
)
_OPERATOR = {"name": TEXT, "op_type": TEXT, "nodes": TEXTS, "cycles": NAT}
_RECORD = record(
    format=TEXT,
    version=NAT,
    model=TEXT,
    device=TEXT,
    cycles=NAT,
    us=_AMOUNT,
    launch_us=_AMOUNT,
    dispatches=NAT,
    ddr_bytes=NAT,
    ddr_burst_bytes=NAT,
    reload_cycles=NAT,
    operators=listed(record(**_OPERATOR)),
    digest=TEXT,
    identity=TEXT,
    options=mapped(TEXT),
    inputs=mapped(SHAPE),
    placement=optional(mapped(NAT)),
    host_nodes=listed(record(node=TEXT, op_type=TEXT, reason=TEXT)),
    onedispatch=TEXT,
)
_TIMED = having(
    device=TEXT,
    report=having(
        dispatches=NAT,
        cycles=NAT,
        seconds=_AMOUNT,
        launch_seconds=_AMOUNT,
        ddr_bytes_read=NAT,
        ddr_bytes_written=NAT,
        ddr_burst_bytes=NAT,
        ops=listed(having(**_OPERATOR)),
        reloads=listed(having(cycles=NAT)),
    ),
)


def is_record(path: Path) -> bool:
    """True for files of JSON, by name or first character, and for pipes, which are no models."""
    if path.suffix == ".json" or path.is_fifo():
        return True
    if not path.is_file():
        return False
    with reading(path) as file:
        return file.read(64).lstrip().startswith(b"{")


def read_record(path: Path) -> CostRecord:
    """Returns the record of a file: a baseline, or a report as ``onedispatch time --json`` prints it.

    Raises ``InputError`` for anything else, and for another version.
    """
    data = _contents(path, ACCEPTED)
    return _checked(path, data) if _of_gate(data) else _reported(path, data)


def read_baseline(path: Path) -> CostRecord:
    """Returns the record of a file that ``gate`` wrote.

    Raises ``InputError`` for anything else: a report of ``time --json`` says neither options nor shapes nor
    where nodes are, so that costs of another question would be compared.
    """
    data = _contents(path, BASELINES)
    if not _of_gate(data):
        remedy = "make one with `onedispatch gate MODEL --write-baseline FILE`; `onedispatch diff` takes it"
        raise InputError(str(path), "a file that is no cost record", BASELINES, remedy)
    return _checked(path, data)


def _contents(path: Path, accepted: str) -> Any:
    data = read_json(path, accepted, "write it again")
    if isinstance(data, dict) and isinstance(data.get("record"), dict):  # of `gate --json`
        return data["record"]
    return data


def _of_gate(data: Any) -> bool:
    return isinstance(data, dict) and data.get("format") == FORMAT


def _checked(path: Path, data: Any) -> CostRecord:
    _check_version(path, data.get("version"))
    try:
        _RECORD(data, "the record")
    except Misfit as error:
        raise InputError(str(path), str(error), BASELINES, "write it again") from error
    return _from_record(data)


def _reported(path: Path, data: Any) -> CostRecord:
    try:
        _TIMED(data, "the report")
    except Misfit as error:
        raise InputError(str(path), str(error), ACCEPTED, "write it again") from error
    return _from_timed(data, path.name)


def _check_version(path: Path, version: Any) -> None:
    if version != VERSION:
        given = f"a cost record of version {bounded_repr(version)}"
        remedy = "write it again with this version of OneDispatch: --write-baseline"
        raise InputError(str(path), given, f"version {VERSION}", remedy)


def _from_record(data: Mapping[str, Any]) -> CostRecord:
    plain = {one.name: data[one.name] for one in fields(CostRecord)}
    return CostRecord(
        **plain
        | {
            "operators": tuple(map(_operator, data["operators"])),
            "inputs": {name: tuple(shape) for name, shape in data["inputs"].items()},
            "host_nodes": tuple(HostNode(**one) for one in data["host_nodes"]),
        }
    )


def _from_timed(data: Mapping[str, Any], name: str) -> CostRecord:
    """The record of a report as ``time --json`` prints it."""
    report = data["report"]
    return CostRecord(
        model=name,
        device=data["device"],
        cycles=report["cycles"],
        us=report["seconds"] * 1e6,
        launch_us=report["launch_seconds"] * 1e6,
        dispatches=report["dispatches"],
        ddr_bytes=report["ddr_bytes_read"] + report["ddr_bytes_written"],
        ddr_burst_bytes=report["ddr_burst_bytes"],
        reload_cycles=sum(one["cycles"] for one in report["reloads"]),
        operators=tuple(map(_operator, report["ops"])),
    )


def _operator(data: Mapping[str, Any]) -> OperatorCost:
    return OperatorCost(data["name"], data["op_type"], tuple(data["nodes"]), data["cycles"])
