# SPDX-License-Identifier: Apache-2.0
"""What can be said of many transactions: read, written back, checked and replayed, file by file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from onedispatch.dispatch.base.processes import mapped
from onedispatch.dispatch.tools.replay import Packets, read_control, replay
from onedispatch.transactions import ControlPackets, Severity, Transaction, merged
from onedispatch.transactions.base.errors import InputError, OneDispatchError, TransactionError
from onedispatch.transactions.base.files import read_file
from onedispatch.transactions.base.handlers import reraise_from_handler
from onedispatch.transactions.format import spec
from onedispatch.transactions.packets.packet import Patch

TRANSACTION, PACKETS, OTHER = "transaction", "control packets", "other"
NOT_LOSSLESS = "its text, or the other version, gives other bytes"


@dataclass(frozen=True)
class Surveyed:
    """One file.

    Attributes:
        path: relative to the folder of the survey.
        kind: ``transaction``, ``control packets`` or ``other``, of which only the size is told.
        operations: ops, or packets.
        lossless: its text gives the same bytes; so does, but for padding, the other version.
        errors: findings that cannot be right; ``problem`` tells the first.
        warnings: how many of each class.
        verdict: what came of the replay, "" when there was none.
        finished: the replay reached the last op. ``complete``: and nothing was left running.
        problem: why something of this is not as it should be.
        lost: descriptors that are written and never queued, as ``ReplayReport.lost`` has them.
    """

    path: str
    kind: str
    bytes: int
    operations: int = 0
    lossless: bool = True
    errors: int = 0
    warnings: dict[str, int] = field(default_factory=dict)
    verdict: str = ""
    finished: bool = True
    complete: bool = True
    problem: str = ""
    lost: int = 0

    @property
    def family(self) -> str:
        """The folder that it lies in."""
        return str(Path(self.path).parent)


def survey(folder: Path, jobs: int, replays: bool) -> tuple[int, Iterator[Surveyed]]:
    """How many files there are, and one after the other what can be said of each ``*.bin``.

    Args:
        jobs: processes at work.
        replays: also execute each; with control packets where NAME_ctrl.bin lies beside NAME.bin.

    Raises:
        InputError: there is no such folder, or no such file in it.
    """
    paths = sorted(folder.rglob("*.bin")) if folder.is_dir() else []
    if not paths:
        raise InputError(str(folder), "no *.bin in it", "a folder of transactions")
    return len(paths), _surveyed(folder, paths, jobs, replays)


def _surveyed(folder: Path, paths: Sequence[Path], jobs: int, replays: bool) -> Iterator[Surveyed]:
    names, where, whether = [str(p) for p in paths], [str(folder)] * len(paths), [replays] * len(paths)
    yield from mapped(survey_file, jobs, names, where, whether, chunk=4)


def survey_file(name: str, folder: str, replays: bool) -> Surveyed:
    """One file; never fails on what is in it."""
    path = Path(name)
    place = str(path.relative_to(folder))
    try:
        data = read_file(path)
    except InputError as error:
        reraise_from_handler(error)
        return Surveyed(place, OTHER, 0, lossless=False, problem=error.given)
    kind = PACKETS if name.endswith("_ctrl.bin") else TRANSACTION if _is_transaction(data) else OTHER
    if kind == OTHER:
        return Surveyed(place, kind, len(data))
    try:
        return _packets(place, path, data) if kind == PACKETS else _transaction(place, path, data, replays)
    except OneDispatchError as error:
        reraise_from_handler(error)
        return Surveyed(
            place, kind, len(data), lossless=False, finished=False, complete=False, problem=error.statement()
        )


def _is_transaction(data: bytes) -> bool:
    """By the header, sizes left out: a file that is cut off is one."""
    return (
        len(data) >= spec.HEADER_SIZE
        and tuple(data[:2]) in spec.VERSIONS
        and data[2] in spec.DEVICE_GENERATIONS
        and data[3] == spec.ARRAY_ROWS
        and 1 <= data[4] <= 8
        and data[5] == spec.MEM_TILE_ROWS
    )


def _packets(place: str, path: Path, data: bytes) -> Surveyed:
    whole = read_control(path)
    again = ControlPackets.from_text(whole.text())
    same = again.to_bytes() == data and sorted(again.patches, key=_order) == sorted(whole.patches, key=_order)
    findings = whole.findings()
    return Surveyed(
        place, PACKETS, len(data), len(whole.packets), same, len(findings),
        problem=str(findings[0]) if findings else "" if same else NOT_LOSSLESS,
    )  # fmt: skip


def _order(patch: Patch) -> int:
    return patch.offset


def _transaction(place: str, path: Path, data: bytes, replays: bool) -> Surveyed:
    transaction = Transaction.from_bytes(data)
    problems = [] if _comes_back(transaction) else [NOT_LOSSLESS]
    lossless = not problems
    beside = path.with_name(f"{path.stem}_ctrl.bin")
    control = read_control(beside) if beside.exists() else None
    found = transaction.check()
    if control is not None:
        try:
            found = merged(transaction, control).check()
        except TransactionError as error:
            problems.append(f"checked without its packets: {error.statement()}")
    wrong = [finding for finding in found if finding.severity is Severity.ERROR]
    warnings = Counter(f.kind.value for f in found if f.severity is Severity.WARNING)
    problems += [str(finding) for finding in wrong[:1]]
    verdict, finished, complete, lost = "", True, True, 0
    if replays:
        report = replay(transaction, packets=None if control is None else Packets.of(control))
        verdict, finished, complete = report.verdict, report.finished, report.complete
        problems += [report.stop.text] if report.stop else [task.why for task in report.unfinished[:1]]
        problems += [f"operation {one.op_index}, {one.place} {one.why}" for one in report.lost[:1]]
        lost = len(report.lost)
    return Surveyed(
        place, TRANSACTION, len(data), len(transaction), lossless, len(wrong), dict(warnings),
        verdict, finished, complete, "; ".join(problems), lost,
    )  # fmt: skip


def _comes_back(transaction: Transaction) -> bool:
    """From its text, and but for padding from the other version."""
    other = next(version for version in spec.VERSIONS if version != transaction.version)
    converted = transaction.converted(other)
    back = converted.converted(transaction.version)
    return back.converted(other) == converted and Transaction.from_text(transaction.text()) == transaction
