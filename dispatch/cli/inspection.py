# SPDX-License-Identifier: Apache-2.0
"""``onedispatch inspect``: where nodes run and why, how operators use the array."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onedispatch.dispatch.artifact.model import CompiledModel
from onedispatch.dispatch.cli import opening, verdict
from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.cli.group_tables import (
    BANDED_TITLES,
    GROUP_TITLES,
    PASSED_TITLES,
    banded_rows,
    group_rows,
    passed_rows,
)
from onedispatch.dispatch.cli.opening import with_executable
from onedispatch.dispatch.cli.page import Html, write_page
from onedispatch.dispatch.compiler.executable import BUFFERS, DeviceStep, Executable, NodePlacement
from onedispatch.dispatch.compiler.used_kernels import notes_on
from onedispatch.dispatch.frontend.graph import sizes_of_names
from onedispatch.dispatch.runtime.clock import timed_summary
from onedispatch.dispatch.runtime.devices import notes_of
from onedispatch.dispatch.runtime.session import InferenceSession
from onedispatch.dispatch.runtime.summary import Summary
from onedispatch.transactions.base.signature import bounded_repr
from onedispatch.transactions.base.text import counted

if TYPE_CHECKING:
    from onedispatch.dispatch.compiler.grouping import Grouping
    from onedispatch.dispatch.tools.pass_reports import PassReport


def inspect(
    model: opening.Model,
    compiling: opening.CompileFlags,
    full: Annotated[
        bool,
        typer.Option("--full", help="Every node, also folded ones; buffers, schedules, arg maps."),
    ] = False,
    html: Html = None,
    passes: Annotated[
        bool, typer.Option("--passes", help="What each pass of the compiler changed, and its time.")
    ] = False,
    dump_passes: Annotated[
        Path | None, typer.Option("--dump-passes", help="Write the graph after each pass to this folder.")
    ] = None,
    json: out.Json = False,
) -> None:
    """Where nodes run and why, how fast, and what would help.

    First the verdict, then the nodes on the host, those that make the most bytes first, each with an edit
    that was tried and moves it; then what operators became, or nodes where they are few. --full has every
    node, what the buffers hold and how operators use the array.

    Of a node on the host: the bound that failed, the nearest that would map, the engine that computes it.
    Of others: what they became, alone, together with others, by a rule or by their function body; and which
    rules nearly fit.

    Of a file that was compiled for several sizes each has its verdict, or the one that --shape names. --json
    is a list with an entry for each of them, whose "summary" has the verdict; with --passes one more entry
    follows, {"passes": [...]}.
    """
    from onedispatch.dispatch.page.collect import observing

    opening.keep(model, html)
    if passes or dump_passes is not None or html is not None:
        compiling = replace(compiling, cache=False)  # passes that do not run cannot be seen
    with pass_observers(passes, dump_passes) as report, observing() as seen:
        compiled = with_executable(model, compiling, every=True)
    found = inspected(compiled, model, compiling)
    rows = rows_of(compiled, found)
    if html is not None:
        write_page(html, model, compiled, rows, seen)
    if json:
        out.print_json([*rows, {"passes": [asdict(row) for row in report.rows]}] if report else rows)
        return
    if report is not None:
        _show_passes(report)
    if html is not None:
        out.tell(f"{html}: {counted(html.stat().st_size, 'byte')}")
        return
    _show_all(compiled, found, full)


def _show_all(compiled: CompiledModel, found: Sequence[Inspected], full: bool) -> None:
    """Prints the verdict on each executable, then what became of its nodes."""
    for note in notes_of(compiled.target):
        out.tell(f"{compiled.device}: {note}")
    if len(found) > 1:
        verdict.show_each((one.key, one.summary) for one in found)
    for one in found:
        if len(found) > 1:
            out.tell(f"\n{one.key}:")
        verdict.show(one.summary, one.edits, full=full)
        out.tell(f"\n{compiled.device}, {compiled.precision}, {one.key}\n")
        for name, array in compiled.frozen.items():
            out.tell(f"input {name}, frozen: {bounded_repr(array.tolist())}")
        for name, sizes in _sizes(compiled, one.executable).items():
            text = f"the dimension name {name!r} stands for different sizes: {', '.join(map(str, sizes))}"
            out.tell(text)
        _show(one.executable, one.placement, full, _program_room(compiled))


@dataclass(frozen=True)
class Inspected:
    """An executable by its key: where its nodes run, the verdict on it, and for nodes on the host edits that
    were tried and move them."""

    key: str
    executable: Executable
    placement: list[NodePlacement]
    summary: Summary
    edits: Mapping[str, str]


def inspected(
    compiled: CompiledModel, model: str, compiling: opening.CompileFlags, only: Executable | None = None
) -> list[Inspected]:
    """The executables of a model that the flags let be, or ``only`` that one."""
    session, found = InferenceSession(compiled), []
    for key, executable in opening.agreeing(compiled, compiling.shapes):
        if only is not None and executable is not only:
            continue
        placement = session.placed(key, executable)
        summary = timed_summary(compiled, executable, placement)
        edits = _edits(model, executable, summary, compiling) if summary.host else {}
        found.append(Inspected(key, executable, placement, summary, edits))
    return found


def _edits(
    model: str, executable: Executable, summary: Summary, compiling: opening.CompileFlags
) -> Mapping[str, str]:
    from onedispatch.dispatch.cli.trying import moves

    return moves(model, executable, summary, compiling)


def rows_of(compiled: CompiledModel, found: Sequence[Inspected]) -> list[dict[str, Any]]:
    """What ``inspect --json`` says of each executable."""
    return [_row(compiled, one) for one in found]


def _row(compiled: CompiledModel, one: Inspected) -> dict[str, Any]:
    return _as_dict(one.key, one.executable, one.placement, _program_room(compiled)) | {
        "precision": compiled.precision,
        "sums": compiled.sums,
        "groups": compiled.groups,
        "dimension_names": _sizes(compiled, one.executable),
        "frozen": {name: array.tolist() for name, array in compiled.frozen.items()},
        "device_notes": list(notes_of(compiled.target)),
        "summary": one.summary.as_dict(),
        "edits": one.edits,
    }


@contextmanager
def pass_observers(passes: bool, folder: Path | None) -> Iterator[PassReport | None]:
    """The report of the passes that run inside, where one is wanted; they are written to ``folder`` too."""
    if not passes and folder is None:
        yield None
        return
    from onedispatch.dispatch.compiler.passes import observed
    from onedispatch.dispatch.tools.pass_reports import PassDump, PassReport, dump_folder

    report = PassReport()
    with ExitStack() as stack:
        stack.enter_context(observed(report))
        if folder is not None:
            stack.enter_context(observed(PassDump(dump_folder(folder))))
        yield report if passes else None


def _show_passes(report: PassReport) -> None:
    rows = [(row.name, row.result, row.changed or "-", f"{row.seconds * 1e3:.1f} ms") for row in report.rows]
    if not rows:
        out.tell("no pass ran: the model is compiled already\n")
        return
    out.table("Passes", ("pass", "result", "changed", "time"), rows, right=(3,))


def _program_room(compiled: CompiledModel) -> int:
    """Bytes of a core's program memory."""
    return compiled.target.count("core.program_memory_bytes")


def _sizes(compiled: CompiledModel, executable: Executable) -> dict[str, list[int]]:
    """Names of dimensions that mean several sizes in this executable."""
    declared = (*compiled.inputs, *compiled.outputs)
    return sizes_of_names(declared, (*executable.inputs, *executable.outputs))


_FEW_NODES = 40  # that are listed without --full


def _show(executable: Executable, placement: list[NodePlacement], full: bool, room: int) -> None:
    listed = placement if full else [row for row in placement if row.device == "npu"]
    if full or len(listed) <= _FEW_NODES:
        rows = [(p.node, p.op_type, out.place(p.device), _why(p)) for p in listed]
        if rows:
            out.table("Placement", ("node", "operator", "where", "why"), rows)
    else:
        _show_operators(listed)
    _show_kernels(executable)
    if executable.grouping is not None:
        _show_grouping(executable.grouping, full)
    for number, step in enumerate(executable.device_steps):
        _show_step(f"Dispatch {number}", step, full, room)


def _show_operators(placement: list[NodePlacement]) -> None:
    """Prints what the nodes on the NPU became, by operator of the model; --full has node by node."""
    found: dict[str, Counter[str]] = {}
    for row in placement:
        found.setdefault(row.op_type, Counter())[_became(row)] += 1
    ordered = sorted(found.items(), key=lambda item: -item[1].total())
    rows = [
        (op_type, f"{ways.total():,}", "; ".join(f"{count:,} {way}" for way, count in ways.most_common()))
        for op_type, ways in ordered
    ]
    out.table("On the NPU (--full: node by node)", ("operator", "nodes", "as"), rows, right=(1,))


# "rule silu, with node_1, node_2: Swish as eltwise": what took the node, its others, and what came of them.
_TAKEN = re.compile(r"(?!as )(.+?)(?:, with .*)?: (?:\w+|[\d,]+ nodes?) as ", re.DOTALL)
_OTHERS = re.compile(r" together with .*(?=: merge )", re.DOTALL)


def _became(row: NodePlacement) -> str:
    """The reason without names of other nodes, so that it is one for all nodes that became the same."""
    taken = _TAKEN.match(row.reason)
    return f"by {taken[1]}" if taken else _OTHERS.sub(" with others", row.reason).partition(";")[0]


def _why(row: NodePlacement) -> str:
    """The reason, and the rules that nearly took the node, where it does not say so already."""
    return row.reason if not row.remark or row.remark in row.reason else f"{row.reason}; {row.remark}"


def _show_kernels(executable: Executable) -> None:
    """Prints the custom kernels, with what their declarations warn of."""
    if not executable.kernels:
        return
    rows = [
        (used.name, f"0x{used.digest:08X}", used.origin, ", ".join(used.nodes) or "-")
        for used in executable.kernels
    ]
    out.table("Custom kernels", ("kernel", "digest", "from", "nodes on the host"), rows)
    for used in executable.kernels:
        for note in notes_on(used.name):
            out.tell(f"{used.name}: {note}")
    out.tell()


def _show_grouping(grouping: Grouping, full: bool) -> None:
    """Prints what stays in memory tiles, and with ``full`` why other tensors do not."""
    plain = asdict(grouping)
    if not full:
        out.tell(f"groups: {grouping}")
        return
    if grouping.groups:
        out.table("Groups", GROUP_TITLES, group_rows(plain), right=(2, 3, 4))
    if grouping.banded:
        out.table("Chains in bands", BANDED_TITLES, banded_rows(plain), right=(1, 2))
    if grouping.passed:
        out.table("Tensors in device memory", PASSED_TITLES, passed_rows(plain), right=(1,))
    out.tell(f"groups: {grouping}\n")


def _show_step(title: str, step: DeviceStep, full: bool, room: int) -> None:
    sizes = [
        (str(i), name, f"{size:,}") for i, (name, size) in enumerate(zip(BUFFERS, step.sizes, strict=True))
    ]
    if full:
        out.table(f"{title}: buffers", ("argument", "buffer", "bytes"), sizes, right=(0, 2))
    bound = step.scratch_bound
    if bound and full:
        ratio = step.sizes[BUFFERS.index("scratch")] / bound
        out.tell(f"scratch is {ratio:.3f} x the most bytes alive at once ({bound:,})")
    nbytes, operators = counted(len(step.transaction), "byte"), counted(len(step.ops), "operator")
    out.tell(f"{title}: transaction of {nbytes}, {operators}")
    of = f"of a core's {counted(room, 'byte')} of program memory"
    out.tell(f"kernels: {step.image}; {step.image.nbytes:,} {of}")
    for reload in step.reloads:
        then = f"before {step.ops[reload.before].name}" if reload.before < len(step.ops) else "at the end"
        out.tell(f"reloaded {then}: {reload.kernels}; {reload.nbytes:,} {of}")
    if full:
        out.tell()
        rows = [(op.name, op.op_type, "\n".join(op.schedule)) for op in step.ops]
        out.table(f"{title}: operators", ("operator", "kind", "schedule"), rows)
        for op in step.ops:
            out.tell(f"{op.name} ({', '.join(op.nodes)})")
            for line in op.arguments:
                out.tell(f"    {line}")


def _as_dict(key: str, executable: Executable, placement: list[NodePlacement], room: int) -> dict[str, Any]:
    return {
        "key": key,
        "placement": [_place(row) for row in placement],
        "grouping": None if executable.grouping is None else asdict(executable.grouping),
        "kernels": [asdict(used) | {"notes": notes_on(used.name)} for used in executable.kernels],
        "dispatches": [
            {
                "buffers": dict(zip(BUFFERS, step.sizes, strict=True)),
                "scratch_bound": step.scratch_bound,
                "transaction_bytes": len(step.transaction),
                "program_memory_bytes": room,
                "program": {"bytes": step.image.nbytes, "kernels": [str(one) for one in step.image.linked]},
                "reloads": [
                    {"before": r.before, "bytes": r.nbytes, "kernels": r.kernels.split("; ")}
                    for r in step.reloads
                ],
                "operators": [asdict(op) for op in step.ops],
            }
            for step in executable.device_steps
        ],
    }


def _place(row: NodePlacement) -> dict[str, str]:
    return asdict(row)
