# SPDX-License-Identifier: Apache-2.0
"""Surveys a folder of transactions: reads, writes back, checks and emulates each file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
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
class FileSurvey:
    """The results for one file.

    Attributes:
        path: relative to the folder of the survey.
        kind: ``transaction``, ``control packets`` or ``other``, of which only the size is reported.
        operations: number of operations, or of packets.
        lossless: its text assembles to the same bytes, and so does, padding aside, a round trip through the
            other version.
        errors: number of errors found; ``problem`` has the first.
        warnings: number of warnings of each class.
        verdict: the verdict of the emulation, "" without one.
        finished: the emulation reached the last operation. ``complete``: and left nothing running.
        problem: what is wrong with the file, "" if nothing is.
        lost: number of descriptors that are written and never queued, see ``ReplayReport.lost``.
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
        """The folder of the file."""
        return str(Path(self.path).parent)


def survey(folder: Path, jobs: int, replays: bool) -> tuple[int, Generator[FileSurvey, None, None]]:
    """Returns the number of ``*.bin`` files, and an iterator over their surveys.

    Args:
        jobs: number of worker processes.
        replays: also emulate each transaction, with control packets if NAME_ctrl.bin stands beside NAME.bin.

    Raises:
        InputError: the folder does not exist, or has no such file.
    """
    paths = sorted(folder.rglob("*.bin")) if folder.is_dir() else []
    if not paths:
        raise InputError(str(folder), "no *.bin in it", "a folder of transactions")
    return len(paths), _surveyed(folder, paths, jobs, replays)


def _surveyed(
    folder: Path, paths: Sequence[Path], jobs: int, replays: bool
) -> Generator[FileSurvey, None, None]:
    names, where, whether = [str(p) for p in paths], [str(folder)] * len(paths), [replays] * len(paths)
    yield from mapped(survey_file, jobs, names, where, whether, chunk=4)


def survey_file(name: str, folder: str, replays: bool) -> FileSurvey:
    """Surveys one file; an error becomes its ``problem``."""
    path = Path(name)
    place = str(path.relative_to(folder))
    try:
        data = read_file(path)
    except InputError as error:
        reraise_from_handler(error)
        return FileSurvey(place, OTHER, 0, lossless=False, problem=error.given)
    kind = PACKETS if name.endswith("_ctrl.bin") else TRANSACTION if _is_transaction(data) else OTHER
    if kind == OTHER:
        return FileSurvey(place, kind, len(data))
    try:
        return _packets(place, path, data) if kind == PACKETS else _transaction(place, path, data, replays)
    except OneDispatchError as error:
        reraise_from_handler(error)
        return FileSurvey(
            place, kind, len(data), lossless=False, finished=False, complete=False, problem=error.statement()
        )


def _is_transaction(data: bytes) -> bool:
    """True if the header is one of a transaction, sizes aside: truncated files count."""
    return (
        len(data) >= spec.HEADER_SIZE
        and tuple(data[:2]) in spec.VERSIONS
        and data[2] in spec.DEVICE_GENERATIONS
        and data[3] == spec.ARRAY_ROWS
        and 1 <= data[4] <= 8
        and data[5] == spec.MEM_TILE_ROWS
    )


def _packets(place: str, path: Path, data: bytes) -> FileSurvey:
    whole = read_control(path)
    again = ControlPackets.from_text(whole.text())
    same = again.to_bytes() == data and sorted(again.patches, key=_order) == sorted(whole.patches, key=_order)
    findings = whole.findings()
    return FileSurvey(
        place, PACKETS, len(data), len(whole.packets), same, len(findings),
        problem=str(findings[0]) if findings else "" if same else NOT_LOSSLESS,
    )  # fmt: skip


def _order(patch: Patch) -> int:
    return patch.offset


def _transaction(place: str, path: Path, data: bytes, replays: bool) -> FileSurvey:
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
    return FileSurvey(
        place, TRANSACTION, len(data), len(transaction), lossless, len(wrong), dict(warnings),
        verdict, finished, complete, "; ".join(problems), lost,
    )  # fmt: skip


def _comes_back(transaction: Transaction) -> bool:
    """True if its text assembles to the same transaction, and so does the other version, padding aside."""
    other = next(version for version in spec.VERSIONS if version != transaction.version)
    converted = transaction.converted(other)
    back = converted.converted(transaction.version)
    return back.converted(other) == converted and Transaction.from_text(transaction.text()) == transaction
