# SPDX-License-Identifier: Apache-2.0
"""Commands about transactions: txn dump | assemble | explain | check | diff | fuse."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from onedispatch.dispatch.artifact.container import is_compiled
from onedispatch.dispatch.artifact.loading import load
from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.cli.flags import expands_flags
from onedispatch.dispatch.cli.plugins import takes_plugins
from onedispatch.dispatch.tools.checking import check_for_overlay, check_model, explain_model, regions
from onedispatch.dispatch.tools.replay import read_control
from onedispatch.transactions import Finding, FindingKind, Severity, Transaction
from onedispatch.transactions.analysis.check import check, check_bytes
from onedispatch.transactions.analysis.picture import svg as picture
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.files import read_file, write_file
from onedispatch.transactions.base.text import counted
from onedispatch.transactions.fusion.fusemap import fuse_map
from onedispatch.transactions.packets.control_packets import ControlPackets
from onedispatch.transactions.packets.merge import Merged, merged
from onedispatch.transactions.packets.packet_text import MARK

app = typer.Typer(
    no_args_is_help=True,
    help=(
        "Look into transactions, AMD's and ours: what is sent to the array, and whether it can be right. "
        "Control packets (NAME_ctrl.bin, with NAME_ctrl_meta.json beside it) are read as the writes that "
        "they are."
    ),
)
File = Annotated[Path, typer.Argument(help="A transaction (.bin), or a file of `onedispatch compile`.")]
Packets = Annotated[
    Path | None,
    typer.Option(
        help="Its control packets (_ctrl.bin), whose writes are put behind the pushes that send them."
    ),
]
Argument = Annotated[
    int | None, typer.Option(help="The kernel argument that the packets are; 4 unless the JSON says another.")
]
Output = Annotated[Path, typer.Option("--output", "-o", help="Where the result is written.")]


def transaction_bytes(path: Path) -> bytes:
    """The transaction of a file: raw bytes, or the one of a compiled model."""
    data = read_file(path)
    if _looks_like_onnx(path, data):
        accepted = "a transaction, or a file of `onedispatch compile`"
        remedy = f"compile it first: onedispatch compile {path} -o {path.with_suffix('.od').name}"
        raise InputError(str(path), "an ONNX model", accepted, remedy)
    return load(path).transaction if is_compiled(data) else data


def _looks_like_onnx(path: Path, data: bytes) -> bool:
    """By its name, or as a model begins: its first field is its version, which no transaction's header is."""
    begins = data[:1] == b"\x08" and data[1:2] < b"\x20" and data[2:3] in _FIELDS
    return path.suffix == ".onnx" or begins


_FIELDS = (b"\x12", b"\x1a", b"\x22", b"\x28", b"\x32", b"\x3a", b"\x42")  # of a model, behind the version


def control_of(path: Path) -> ControlPackets | None:
    """The control packets of ``NAME_ctrl.bin``, None for any other file."""
    return read_control(path) if path.name.endswith("_ctrl.bin") else None


def write_control(control: ControlPackets, blob: Path) -> list[str]:
    """The packets and their JSON; the names of both files."""
    meta = blob.with_name(f"{blob.stem}_meta.json")
    write_file(blob, control.to_bytes())
    write_file(meta, control.meta().encode())
    return [str(blob), str(meta)]


def read_transaction(path: Path) -> Transaction:
    """The transaction of a file; of control packets the same writes."""
    control = control_of(path)
    return control.to_transaction() if control else Transaction.from_bytes(transaction_bytes(path))


def hint_at_packets(path: Path, packets: Path | None) -> None:
    """Without its packets an operator that is configured by them does next to nothing."""
    beside = path.with_name(f"{path.stem}_ctrl.bin")
    if packets is None and beside.exists():
        out.say(f"\nIt sends control packets: --packets {beside} shows what they do.")


def hint_at_run(path: Path) -> None:
    """A compiled model needs the locks and programs of its overlay, which a replay leaves out."""
    if is_compiled(path):
        out.say(
            f"\nA compiled model's overlay is known: `onedispatch run {path} --random` executes it whole; "
            "this replay left out the overlay's locks and programs."
        )


def read_merged(path: Path, packets: Path | None, argument: int | None) -> Transaction:
    """The transaction of a file, with the control packets in it that ``packets`` holds."""
    transaction = read_transaction(path)
    return transaction if packets is None else _merge(transaction, packets, argument).transaction


def _merge(transaction: Transaction, packets: Path, argument: int | None) -> Merged:
    return merged(transaction, read_control(packets), argument)


def find_all(
    path: Path, sizes: dict[int, int] | None, packets: Path | None, argument: int | None
) -> list[Finding]:
    """What is wrong with the transaction of a file, in no overlay."""
    control = control_of(path)
    if control is not None:
        return [*control.findings(), *check(control.to_transaction(), sizes)]
    found = check_bytes(transaction_bytes(path), sizes)
    if packets is None or any(finding.kind is FindingKind.FORMAT for finding in found):
        return found
    return _merge(read_transaction(path), packets, argument).check(sizes)


@app.command()
@takes_plugins
def dump(
    path: File,
    brief: Annotated[bool, typer.Option("--brief", help="Long block writes shortened, no padding.")] = False,
    packets: Packets = None,
    argument: Argument = None,
    json: out.Json = False,
) -> None:
    """Print a transaction, one operation per line: registers named, descriptors decoded."""
    control = control_of(path)
    if control is not None and not json:
        out.say(control.text(), end="")
        return
    transaction = read_merged(path, packets, argument)
    if json:
        findings = [str(finding) for finding in transaction.validate()]
        lines = transaction.text(brief=brief).splitlines()
        out.print_json({"operations": len(transaction), "findings": findings, "lines": lines})
        return
    out.say(transaction.text(brief=brief), end="")


@app.command()
def assemble(
    path: Annotated[Path, typer.Argument(help="Text as `txn dump` prints it.")],
    output: Output,
    json: out.Json = False,
) -> None:
    """Turn the text of `txn dump` back into the same bytes; also edited or written by hand.

    Of control packets, NAME_ctrl_meta.json is written beside the output NAME_ctrl.bin.
    """
    try:
        text = read_file(path).decode()
    except UnicodeDecodeError as error:
        raise InputError(str(path), f"byte {error.start} is no UTF-8", "text", "pass a dump") from error
    if text.lstrip().startswith(MARK):
        write_control(ControlPackets.from_text(text), output)
    else:
        write_file(output, Transaction.from_text(text).to_bytes())
    if json:
        out.print_json({"path": str(output), "bytes": output.stat().st_size})


def _parse_tile(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"\s*c?(\d{1,9})[,\s]\s*r?(\d{1,9})\s*", text, re.ASCII)
    if found is None:
        raise InputError("--tile", repr(text), "column and row", "for instance 0,1 or 'c0 r1'")
    return int(found[1]), int(found[2])


def _width() -> tuple[int, ...]:
    """That of the terminal, where there is one."""
    return (out.console.width,) if out.console.is_terminal else ()


@app.command()
@takes_plugins
def explain(
    path: File,
    tile: Annotated[
        str | None, typer.Option(help="Everything about one tile: 0,1 or 'c0 r1', the column and the row.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Everything about every tile.")] = False,
    svg: Annotated[Path | None, typer.Option(help="Also draw the array with its traffic.")] = None,
    packets: Packets = None,
    argument: Argument = None,
    json: out.Json = False,
) -> None:
    """Say what a transaction does: what each DMA moves, from which argument, waiting for what."""
    compiled = packets is None and is_compiled(path)
    explanation = explain_model(load(path)) if compiled else read_merged(path, packets, argument).explain()
    if svg is not None:
        write_file(svg, picture(explanation).encode())
    if json:
        shown = explanation.to_dict()
        if tile is not None:
            column, row = _parse_tile(tile)
            shown = next((t for t in shown["tiles"] if (t["column"], t["row"]) == (column, row)), {})
        out.print_json(shown)
    elif tile is not None:
        out.say(explanation.tile_text(_parse_tile(tile)), end="")
    else:
        out.say(explanation.text() if full else explanation.summary(*_width()), end="")
        hint_at_packets(path, packets)


def _parse_sizes(texts: list[str] | None) -> dict[int, int] | None:
    """``0=4096`` per kernel argument."""
    sizes = {}
    for text in texts or ():
        left, equals, right = text.partition("=")
        argument, size = out.number(left), out.number(right)
        if not equals or argument is None or size is None:
            raise InputError("--arg", repr(text), "argument=bytes", "for instance 0=4096")
        sizes[argument] = size
    return sizes or None


_MOST_LINES = 10


def _finding_lines(found: list[Finding], full: bool) -> list[str]:
    """Errors first; of each class of warnings only the first ones."""
    lines = []
    for severity in Severity:
        mine = [finding for finding in found if finding.severity is severity]
        for kind in dict.fromkeys(finding.kind for finding in mine):
            same = [str(finding) for finding in mine if finding.kind is kind]
            shown = same if full or severity is Severity.ERROR else same[:_MOST_LINES]
            lines += shown
            if len(shown) < len(same):
                lines.append(
                    f"  and {counted(len(same) - len(shown), f'more {kind.value} {severity.value}')} (--full)"
                )
    return lines


@dataclass(frozen=True)
class OverlayFlags:
    """The overlay that a transaction is for."""

    overlay: Annotated[
        str | None,
        typer.Option(help="The device for whose overlay of ours it was made; a compiled model says it."),
    ] = None
    params: Annotated[
        Path | None, typer.Option(help="With --overlay: the parameter blocks, bytes of argument 4.")
    ] = None


def _unknown(found: list[Finding], made_for: OverlayFlags) -> Iterator[str]:
    """What a check of a bare transaction cannot know, where that decides a warning."""
    if made_for.params is None and any(finding.kind is FindingKind.HAZARD for finding in found):
        missing = "--overlay DEVICE --params FILE name" if made_for.overlay is None else "--params FILE names"
        yield (
            "what cores wait for is not known here: that is in the parameter blocks of an overlay, and may "
            f"order what hazards are about. A file of `onedispatch compile` has it; of others {missing} it"
        )


@app.command("check")
@takes_plugins
@expands_flags
def check_file(
    path: File,
    made_for: OverlayFlags,
    arg: Annotated[
        list[str] | None, typer.Option(help="Bytes of a kernel argument: 0=4096. Repeatable.")
    ] = None,
    packets: Packets = None,
    argument: Argument = None,
    full: Annotated[bool, typer.Option("--full", help="Every warning, not only the first ones.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 on warnings too.")] = False,
    json: out.Json = False,
) -> None:
    """Find what cannot be right in a transaction (errors, exit code 1) or may not be (warnings).

    In an overlay, what data flow orders is no warning: a file of `onedispatch compile` brings its overlay and
    parameter blocks along, so that it has fewer warnings than its transaction alone. Of a model of several
    device regions each is checked, and named. Warnings leave the exit code 0, unless --strict.
    """
    overlay, params, sizes = made_for.overlay, made_for.params, _parse_sizes(arg)
    if params is not None and overlay is None:
        raise InputError("--params", str(params), "together with --overlay DEVICE", "name the device")
    compiled = packets is None and overlay is None and is_compiled(path)
    model = load(path) if compiled else None
    if overlay is not None:
        blocks = None if params is None else read_file(params)
        found = check_for_overlay(transaction_bytes(path), overlay, sizes, blocks)
    else:
        found = find_all(path, sizes, packets, argument) if model is None else check_model(model, sizes)
    errors = sum(finding.severity is Severity.ERROR for finding in found)
    checked = [] if model is None else [name for name, _ in regions(model)]
    notes = list(_unknown(found, made_for)) if model is None else []
    if json:
        out.print_json(
            {
                "regions": checked,
                "notes": notes,
                "errors": errors,
                "warnings": len(found) - errors,
                "findings": [
                    {
                        "severity": finding.severity.value,
                        "class": finding.kind.value,
                        "op": finding.op_index,
                        "byte": finding.byte_offset,
                        "message": finding.message,
                    }
                    for finding in found
                ],
            }
        )
    else:
        for line in _finding_lines(found, full):
            out.say(line)
        for note in notes:
            out.say(f"note: {note}")
        for name in checked if len(checked) > 1 else ():
            out.say(f"checked {name}")
        out.say(f"{counted(errors, 'error')}, {counted(len(found) - errors, 'warning')}")
    if errors or (strict and found):
        raise typer.Exit(1)


@app.command()
@takes_plugins
def diff(
    first: File,
    second: Annotated[Path, typer.Argument(help="What it is compared with.")],
    packets: Annotated[
        list[Path] | None,
        typer.Option(
            help="Their control packets (_ctrl.bin), as of dump. Given once, both have these; given twice, "
            "the first is of A and the second of B."
        ),
    ] = None,
    argument: Argument = None,
    full: Annotated[bool, typer.Option("--full", help="Every op that differs.")] = False,
    json: out.Json = False,
) -> None:
    """Compare the meaning of two transactions: traffic, tasks, ops. Exit code 1 when it differs."""
    given: list[Path | None] = list(packets) if packets else [None]
    if len(given) > 2:
        raise InputError("--packets", counted(len(given), "file"), "one file, or one of A and one of B")
    difference = read_merged(first, given[0], argument).diff(read_merged(second, given[-1], argument))
    if json:
        out.print_json(difference.to_dict())
    else:
        out.say(difference.text(most=1 << 60) if full else difference.text(), end="")
    if difference:
        raise typer.Exit(1)


@app.command()
@takes_plugins
def fuse(
    path: Annotated[Path, typer.Argument(help="What to fuse, as JSON: see transactions/README.md.")],
    output: Output,
    json: out.Json = False,
) -> None:
    """Make one transaction of many, over fused buffers; refuse with reasons what cannot be right."""
    result = fuse_map(path)
    write_file(output, result.transaction.to_bytes())
    written = [str(output)]
    if result.control is not None:
        written += write_control(result.control, output.with_name(f"{output.stem}_ctrl.bin"))
    layout = result.layout
    if json:
        bindings = [vars(bound) for bound in layout.bindings]
        shown = {"files": written, "sizes": layout.sizes, "tensors": layout.tensors, "bindings": bindings}
        out.print_json(shown)
        return
    out.say(f"{', '.join(written)}: {repr(result.transaction)[1:-1]}")
    for argument, size in sorted(layout.sizes.items()):
        out.say(f"  arg {argument}: {counted(size, 'byte')}")
    for name, (argument, offset) in layout.tensors.items():
        out.say(f"  {name}: arg {argument} + {offset:#x}")
