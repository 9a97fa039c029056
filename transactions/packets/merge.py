# SPDX-License-Identifier: Apache-2.0
"""Merges a transaction with the control packets that it sends.

A transaction whose configuration is in control packets shows only shim channels that read a kernel
argument. ``merged`` inserts the packets' writes after the push that sends them, so that text,
explanation and checks cover the whole operator. The stream determines when a packet is executed;
the position after the push is the earliest.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from onedispatch.transactions.analysis import effects
from onedispatch.transactions.analysis.transaction import Transaction
from onedispatch.transactions.analysis.validation import Finding, FindingKind, Severity
from onedispatch.transactions.base.boundary import public
from onedispatch.transactions.base.errors import TransactionError
from onedispatch.transactions.format import spec
from onedispatch.transactions.packets.control_packets import ControlPackets


@dataclass(frozen=True)
class Merged:
    """The result of ``merged``.

    Attributes:
        transaction: the transaction with the packets' writes.
        packets: ranges of op indices that come from packets, in order.
    """

    transaction: Transaction
    packets: tuple[range, ...]

    def check(self, arg_sizes: Mapping[int, int] | Sequence[int] | None = None) -> list[Finding]:
        """Returns the findings of ``Transaction.check``.

        A BD that a packet rewrites after the push that sent the packet is a warning: the chain
        that carries the packet has usually passed that BD.
        """
        ours = {op for part in self.packets for op in part}
        return [
            dataclasses.replace(finding, severity=Severity.WARNING)
            if finding.kind is FindingKind.HAZARD and finding.op_index in ours
            else finding
            for finding in self.transaction.check(arg_sizes)
        ]


@public
def merged(transaction: Transaction, control: ControlPackets, argument: int | None = None) -> Merged:
    """Returns the transaction with the writes of its control packets.

    Args:
        argument: the kernel argument that holds the packets; that of ``control`` if None.

    Raises:
        TransactionError: no channel sends that argument, or one sends incomplete packets.
    """
    argument = control.argument if argument is None else argument
    sender = _Sender(control)
    columns = transaction.header.columns
    tiles = control.tiles()
    after: dict[int, list[int]] = {}
    for push in effects.events(transaction):
        if isinstance(push, effects.Pushed) and push.direction and push.tile[1] == 0:
            sent = list(sender.sent(push, argument))
            if sent:
                after[push.op] = sent
    if not after or any(sender.pending.values()):
        raise TransactionError(
            "merging control packets",
            "a packet that is not sent to its end" if after else "no shim channel that sends packets",
            f"channels that send argument {argument} in whole packets",
            "is the blob of this transaction, and the argument the one of the packets?",
        )
    body, count, done = bytearray(), 0, 0
    data, offsets = transaction.to_bytes(), transaction.offsets
    parts = []
    for op, sent in sorted(after.items()):
        writes = control.part(sent).to_transaction(tiles, columns).converted(transaction.version)
        body += data[int(offsets[done]) : int(offsets[op + 1])] + writes.body
        count += op + 1 - done
        parts.append(range(count, count + len(writes)))
        count += len(writes)
        done = op + 1
    body += data[int(offsets[done]) :]
    count += len(transaction) - done
    size = spec.HEADER_SIZE + len(body)
    header = dataclasses.replace(transaction.header, op_count=count, byte_size=size)
    return Merged(Transaction.from_bytes(header.to_bytes() + bytes(body)), tuple(parts))


class _Sender:
    """Tracks which bytes of the packets each channel has sent."""

    def __init__(self, control: ControlPackets) -> None:
        self.packets: dict[int, tuple[int, int]] = {}
        """First word in the blob -> (packet, words)."""
        at = 0
        for index, packet in enumerate(control.packets):
            self.packets[at // 4] = (index, packet.size // 4)
            at += packet.size
        self.words, self.base = at // 4, control.base
        self.pending: dict[tuple[effects.Tile, int], list[int]] = {}
        """Channel -> words sent of an incomplete packet."""

    def sent(self, push: effects.Pushed, argument: int) -> Iterator[int]:
        """Yields the packets that are complete after this task."""
        pending = self.pending.setdefault((push.tile, push.channel), [])
        for use in push.chain * push.repeat:
            if use.argument is None or use.argument[0] != argument:
                continue
            first, pattern = (use.argument[1] - self.base) // 4, use.pattern
            if len(pattern.dims) > 1 or pattern.dims[0][1] != 1 or pattern.iteration is not None:
                raise self._error(push, f"BD {use.index}: {pattern}", "words in a row")
            if first < 0 or first + pattern.length > self.words:
                given = f"words {first} to {first + pattern.length}"
                raise self._error(push, given, f"words 0 to {self.words}, as the blob has")
            pending += range(first, first + pattern.length)
        while pending:
            index, size = self.packets.get(pending[0], (0, 0))
            if not size or pending[:size] != list(range(pending[0], pending[0] + size))[: len(pending)]:
                raise self._error(push, f"what starts at byte {4 * pending[0]}", "whole packets in a row")
            if len(pending) < size:
                break
            del pending[:size]
            yield index

    @staticmethod
    def _error(push: effects.Pushed, given: str, accepted: str) -> TransactionError:
        return TransactionError(
            f"control packets sent by c{push.tile[0]} MM2S[{push.channel}]",
            given,
            accepted,
            "is the blob of this transaction?",
            op_index=push.op,
        )
