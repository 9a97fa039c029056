# SPDX-License-Identifier: Apache-2.0
"""Check mode: whether a kernel touches what it declares, and nothing else.

Every member runs alone, with exactly what it declares of each tensor; beside that lie filler numbers, and
behind them, for compiled bodies, memory without access. A call is made twice, with other filler; where
results differ, the body read it. Then all members run in other orders and partitions, and must give the bits
of one call. What accessors say of themselves is taken as they say it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from onedispatch.operators.declarations.dtypes import DTYPES
from onedispatch.operators.declarations.kernel import Tensor
from onedispatch.operators.declarations.params import scalar_word
from onedispatch.operators.declarations.statuses import CODES
from onedispatch.operators.plugin.boxes import (
    Array,
    Chunk,
    MemberBox,
    Point,
    bits,
    declared_range,
    first_differing,
    noise,
    partitions,
    range_text,
    singles,
)
from onedispatch.operators.plugin.custom_kernel import SCRATCH_BYTES
from onedispatch.operators.plugin.findings import Finding, Findings
from onedispatch.operators.plugin.instance import KernelInstance
from onedispatch.operators.plugin.surroundings import reached
from onedispatch.transactions.base.errors import KernelError
from onedispatch.transactions.base.host import CHECK_SECONDS
from onedispatch.transactions.base.text import counted

if TYPE_CHECKING:
    from onedispatch.operators.plugin.plugin import PluginKernel

Runner = Callable[..., dict[str, Any]]
"""``_core.run_members``"""

WIDE = 2.0  # a declaration that is this many times what is touched is worth a warning
SAMPLED = 6  # members whose declaration is compared with what they touch
BROKEN = ("read", "write", "gap", "state")  # after these, other bits say nothing new
KIND_OF = {CODES["timeout"]: "timeout", CODES["crash"]: "crash", CODES["access"]: "read"}


@dataclass(frozen=True)
class Options:
    """``alone``: members that run alone at most; of larger index spaces corners and others are drawn.
    ``shuffle``: whether members and partitions come in an order drawn from ``seed``. ``seconds``: what a call
    may take. ``limit``: seconds that all of the check may take."""

    shuffle: bool = True
    seed: int = 0
    partitions: int = 32
    alone: int = 512
    seconds: float = 60.0
    limit: float = CHECK_SECONDS


class Stopped(Exception):
    """Nothing more can be said of this case."""


@dataclass
class Ran:
    """One call: the cells of every operand before and afterwards, and what accessors said."""

    before: dict[str, Array]
    cells: dict[str, Array]
    touched: dict[str, Any]


class Checker:
    """One kernel for one node; ``arrays`` are its inputs by name, absent ones left out."""

    def __init__(
        self,
        plugin: PluginKernel,
        instance: KernelInstance,
        arrays: Mapping[str, Array],
        run: Runner,
        options: Options = Options(),
        case: str = "",
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self.plugin, self.kernel, self.instance = plugin, plugin.kernel, instance
        self._native = "library" in plugin.functions
        self.options, self._run, self._beat = options, run, beat
        self.found = Findings(case)
        self.outputs = {
            name: np.zeros(shape, DTYPES[dtype].numpy) for name, (dtype, shape) in instance.outputs.items()
        }
        self.inputs = {**arrays, **instance.aux}
        self._last: tuple[MemberBox, dict[str, Chunk]] | None = None
        self.rng = np.random.default_rng(options.seed)

    def findings(self) -> list[Finding]:
        """All of them; [] where there is nothing to say."""
        try:
            self._idle_members()
            alone = self._alone()
            if not self.found.has(*BROKEN):
                whole = self._whole()
                for box, results in alone:
                    self._compare(box, results, whole, "alone")
                self._split(whole)
            if not self.found.has(*BROKEN, "order"):
                self._surroundings()
                self._widths()
        except Stopped:
            pass
        return list(self.found)

    # -- one call ----------------------------------------------------------------------------

    def _tensor(self, name: str) -> Array:
        return self.outputs[name] if name in self.outputs else self.inputs[name]

    def chunk(self, name: str, box: MemberBox) -> Chunk:
        return self.chunks(box)[name]

    def chunks(self, box: MemberBox) -> dict[str, Chunk]:
        """By name; those of the last box are kept, which is asked about again and again."""
        if self._last is None or self._last[0] != box:
            names = [one.name for one in self.kernel.tensors if self._present(one.name)]
            self._last = box, {name: self._made(name, box) for name in names}
        return self._last[1]

    def _made(self, name: str, box: MemberBox) -> Chunk:
        tensor = self._tensor(name)
        row = next(row for row in DTYPES.values() if row.numpy == tensor.dtype)
        return Chunk(tensor.shape, row, self.instance.intervals(name), box)

    def _present(self, name: str) -> bool:
        return name in self.inputs or name in self.outputs

    def prepared(self, box: MemberBox, high: bool, seed: int = 1) -> dict[str, Array]:
        """What operands hold before a call: the same for the same arguments."""
        rng = np.random.default_rng([seed, high])
        chunks = self.chunks(box)
        cells = {name: chunk.filled(rng, high, self.inputs.get(name)) for name, chunk in chunks.items()}
        for name, value in self._fills().items():
            cells[name][chunks[name].inside] = value
        return cells

    def _fills(self) -> dict[str, float]:
        found = {one.name: self.instance.edge(one) for one in self.kernel.outputs}
        return {name: value for name, value in found.items() if value is not None}

    def call(self, box: MemberBox, cells: dict[str, Array], *, high: bool = True) -> Ran:
        """Runs the members of ``box`` on copies of ``cells``.

        Raises ``Stopped``, after a finding, where the kernel does not come to its end.
        """
        self._beat()
        chunks = self.chunks(box)
        after = {name: array.copy() for name, array in cells.items()}
        rows = [self._operand(one, chunks, after) for one in self.kernel.tensors]
        try:
            answer = self._run(
                self.kernel.digest,
                self._setup(box, high),
                rows,
                guarded=self._native,
                at_end=high,
                seconds=self.options.seconds,
            )
        except KernelError as error:
            self._refused(box, error)
            raise Stopped from error
        names = [one.name for one in self.kernel.tensors]
        if answer["fault"] is not None:
            self._fault(box, chunks, names, *answer["fault"])
            raise Stopped
        touched = dict(zip(names, answer["touched"], strict=True))
        for name, seen in touched.items():
            if seen is not None and seen["outside"] is not None:
                self._outside(box, chunks[name], name, tuple(seen["outside"]), seen["written"])
        if answer["left"]:  # the accessor refused that, and the body ended there
            raise Stopped
        return Ran(cells, after, touched)

    def _operand(
        self, tensor: Tensor, chunks: Mapping[str, Chunk], cells: Mapping[str, Array]
    ) -> dict[str, Any] | None:
        if tensor.name not in chunks:
            return None
        chunk, edge = chunks[tensor.name], self.instance.edge(tensor)
        return {
            "dtype": chunk.row.code,
            "pad": math.nan if edge is None else float(edge),
            "fill": 0.0 if edge is None else float(edge),  # bodies in Python would write over what lies there
            "memory": cells[tensor.name].reshape(-1).view(np.uint8),
            "at": chunk.at,
            "axes": chunk.axes(),
            "low": list(chunk.low),
            "high": list(chunk.high),
        }

    def _setup(self, box: MemberBox, high: bool) -> dict[str, Any]:
        values = {**self.instance.scalars, **self.instance.hidden_scalars(self.kernel)}
        first, count = box.padded()
        size = int(values.get(SCRATCH_BYTES, 0))
        scratch = None
        if size:
            scratch = {
                "memory": noise(DTYPES["f32"], (-(-size // 4),), self.rng, high).view(np.uint8),
                "at": 0,
            }
        return {
            "first": first,
            "count": count,
            "total": MemberBox.all_of(self.instance.index_space).padded()[1],
            "scalars": [scalar_word(one, values.get(one.name, 0)) for one in self.kernel.scalars],
            "scratch": scratch,
        }

    # -- what one call shows -----------------------------------------------------------------

    def _refused(self, box: MemberBox, error: KernelError) -> None:
        self.found.add(KIND_OF.get(error.status, "failed"), f"{box}: {error.statement()}", member=box.first)

    def _outside(self, box: MemberBox, chunk: Chunk, name: str, where: Point, wrote: bool) -> None:
        declared = range_text(chunk.low, chunk.high)
        verb = "writes" if wrote else "reads"
        beyond = any(not 0 <= at < size for at, size in zip(where, chunk.shape, strict=False))
        more = f", which the tensor {list(chunk.shape)} does not have" if beyond else ""
        text = f"{box} {verb} {name} at {list(where)}{more}; declared of {name}: {declared}"
        kind = "write" if wrote else "read"
        self.found.add(kind, text, member=box.first, operand=name, coordinate=where, declared=declared)

    def _fault(
        self,
        box: MemberBox,
        chunks: Mapping[str, Chunk],
        names: Sequence[str],
        number: int,
        byte: int,
        wrote: bool,
    ) -> None:
        if number >= len(names):
            verb = "writes" if wrote else "reads"
            kind = "write" if wrote else "read"
            self.found.add(
                kind, f"{box} {verb} byte {byte} of its scratch", member=box.first, operand="scratch"
            )
            return
        chunk = chunks[names[number]]
        self._outside(box, chunk, names[number], chunk.coordinate_of_byte(byte), wrote)

    def _written_beside(self, box: MemberBox, before: Mapping[str, Array], ran: Ran) -> None:
        """Cells that changed and are not the box's; all of inputs."""
        for name, chunk in self.chunks(box).items():
            differs = bits(before[name]) != bits(ran.cells[name])
            if name in self.outputs:
                differs &= chunk.beside()
            if differs.any():
                cell = np.argwhere(differs)[0]
                self._outside(box, chunk, name, chunk.coordinate(cell), True)

    def both(self, box: MemberBox) -> tuple[Ran, Ran]:
        """The call beside large filler numbers, and beside small ones."""
        runs = []
        for high in (True, False):
            before = self.prepared(box, high)
            runs.append(self.call(box, before, high=high))
            self._written_beside(box, before, runs[-1])
        return runs[0], runs[1]

    def results(self, box: MemberBox, ran: Ran) -> dict[str, Array]:
        """What the box wrote of every output."""
        return {name: ran.cells[name][self.chunk(name, box).inside] for name in self.outputs}

    def judged(self, box: MemberBox) -> dict[str, Array]:
        """The box's results, after all that two calls show has been said."""
        one, other = self.both(box)
        first, second = self.results(box, one), self.results(box, other)
        for name in self.outputs:
            chunk = self.chunk(name, box)
            before = [ran.before[name][chunk.inside] for ran in (one, other)]
            kept = (bits(first[name]) == bits(before[0])) & (bits(second[name]) == bits(before[1]))
            if kept.any() and name not in self._fills():
                self._unwritten(box, chunk, name, kept)
            elif first_differing(first[name], second[name]) is not None:
                self._explain(box, name)
        return first

    def _unwritten(self, box: MemberBox, chunk: Chunk, name: str, kept: Array) -> None:
        cell = [at + part.start for at, part in zip(np.argwhere(kept)[0], chunk.inside, strict=True)]
        where = chunk.coordinate(cell) if chunk.shape else ()
        declared = range_text(chunk.low, chunk.high)
        share = f"{counted(int(kept.sum()), 'element')} of {kept.size}"
        text = f"{box} leaves {name} at {list(where)} as it was ({share}); declared of {name}: {declared}"
        if kept.sum() * WIDE >= kept.size:
            text += f", {kept.size / max(1, kept.size - int(kept.sum())):.3g} times what it writes"
        self.found.add("gap", text, member=box.first, operand=name, coordinate=where, declared=declared)

    # -- which read reached filler --------------------------------------------------------------

    def _explain(self, box: MemberBox, output: str) -> None:
        """Says why two calls with the same inputs gave other bits of ``output``."""
        base = self.prepared(box, True)
        result = self._bits_of(box, base)
        if self._bits_of(box, base) != result:
            text = f"{box}: the same call gives other bits of {output} when it is made again"
            self.found.add("state", text, member=box.first, operand=output)
            return
        other = self.prepared(box, False)
        for name, chunk in self.chunks(box).items():
            if name in self.outputs:
                continue
            cells = np.argwhere(chunk.beside())
            if not self._matters(box, base, other, name, cells, result):
                continue
            while len(cells) > 1:
                half = cells[: len(cells) // 2]
                cells = (
                    half if self._matters(box, base, other, name, half, result) else cells[len(cells) // 2 :]
                )
            self._outside(box, chunk, name, chunk.coordinate(cells[0]), False)
            return
        text = f"{box} reads {output}, or scratch, before it writes it: other contents give other bits"
        self.found.add("read", text, member=box.first, operand=output)

    def _matters(
        self,
        box: MemberBox,
        base: Mapping[str, Array],
        other: Mapping[str, Array],
        name: str,
        cells: Array,
        result: bytes,
    ) -> bool:
        """Whether other numbers in these cells of an operand change the results."""
        changed = {**base, name: base[name].copy()}
        changed[name][tuple(cells.T)] = other[name][tuple(cells.T)]
        return self._bits_of(box, changed) != result

    def _bits_of(self, box: MemberBox, cells: dict[str, Array]) -> bytes:
        results = self.results(box, self.call(box, cells))
        return b"".join(np.ascontiguousarray(part).tobytes() for part in results.values())

    # -- all members ---------------------------------------------------------------------------

    def _whole(self) -> dict[str, Array]:
        """All members in one call."""
        return self.judged(MemberBox.all_of(self.instance.index_space))

    def _alone(self) -> list[tuple[MemberBox, dict[str, Array]]]:
        boxes = singles(self.instance.index_space, self.options.alone, self._order())
        return [(box, self.judged(box)) for box in boxes]

    def _order(self) -> np.random.Generator:
        return np.random.default_rng(self.options.seed)

    def _split(self, whole: Mapping[str, Array]) -> None:
        """Partitions in shuffled order, twice: what is kept between calls comes in another order then."""
        steps = self._steps()
        parts = partitions(self.instance.index_space, self.options.partitions, steps)
        rng = self._order()
        for _ in range(2):
            order = rng.permutation(len(parts)) if self.options.shuffle else range(len(parts))
            for i in order:
                box = parts[i]
                ran = self.call(box, self.prepared(box, True))
                self._compare(
                    box, self.results(box, ran), whole, f"one of {counted(len(parts), 'partition')}"
                )

    def _steps(self) -> Point:
        """Members along each index dimension that begin at a whole coordinate together."""
        steps = [1] * len(self.instance.index_space)
        for intervals in self.instance.access.values():
            for it in intervals:
                if it.dim is not None:
                    steps[it.dim] = math.lcm(steps[it.dim], Fraction(it.a).denominator)
        return tuple(steps)

    def _compare(
        self, box: MemberBox, results: Mapping[str, Array], whole: Mapping[str, Array], how: str
    ) -> None:
        for name, value in results.items():
            part = self.chunk(name, box).part
            at = first_differing(value, whole[name][part] if whole[name].shape else whole[name].reshape(1))
            if at is None:
                continue
            where = tuple(a + p.start for a, p in zip(at, part, strict=False))
            text = f"{box}, {how}, gives other bits of {name} at {list(where)} than all members in one call"
            self.found.add("order", text, member=box.first, operand=name, coordinate=where)

    # -- what a body reaches beside its tile -------------------------------------------------------

    def _surroundings(self) -> None:
        """Exchanges every array of the host that a Python body reaches, and looks whether results change."""
        body = getattr(self.plugin, "method", lambda _: None)("body")
        if self._native or body is None:
            return
        box = MemberBox.all_of(self.instance.index_space)
        base = self.prepared(box, True)
        result = self._bits_of(box, base)
        for one in reached(body):
            with one.exchanged(self.options.seed):
                changes = self._changes(box, base, result)
            if changes:
                text = (
                    f"the body reads {one.name} of the host's memory ({_described(one.value)}): other "
                    "contents give other results. Make it an input, or an auxiliary tensor (n.aux)"
                )
                self.found.add("host", text, operand=one.name)

    def _changes(self, box: MemberBox, cells: dict[str, Array], result: bytes) -> bool:
        """Whether the same call gives other bits now, or fails."""
        kept = len(self.found.kept)
        try:
            return self._bits_of(box, cells) != result
        except Stopped:  # of what it finds there now: it was looked at
            del self.found.kept[kept:]
            return True

    # -- declarations that are too wide ----------------------------------------------------------

    def _idle_members(self) -> None:
        """Members that write nothing of any output: an index space that was not divided."""
        for d, members in enumerate(self.instance.index_space):
            follows = [
                (it, size)
                for name, tensor in self.outputs.items()
                for it, size in zip(self.instance.intervals(name), tensor.shape, strict=True)
                if it.dim == d
            ]
            if not follows or not all(it.a > 0 for it, _ in follows):
                continue
            busy = max(min(members, -(-(size - it.start) // math.ceil(it.a))) for it, size in follows)
            if busy >= 1 and members >= WIDE * busy:
                access = ", ".join(dict.fromkeys(str(it) for it, _ in follows))
                text = (
                    f"index dimension {d} has {counted(members, 'member')}, of which {members - busy} touch "
                    f"nothing of any output ({access}): their writes are dropped; {members / busy:.3g} times "
                    "what is needed"
                )
                self.found.add("wide", text, ratio=members / busy, member=(0,) * d + (busy,))

    def _widths(self) -> None:
        space = self.instance.index_space
        boxes = singles(space, SAMPLED, self._order())
        for name in self.inputs:
            if name in self.instance.aux or not any(not it.whole for it in self.instance.intervals(name)):
                continue
            found = [(self._ratio(box, name), box) for box in boxes]
            wide = [(ratio, box) for ratio, box in found if ratio is not None]
            if not wide or min(ratio for ratio, _ in wide) < WIDE:
                continue
            ratio, box = max(wide, key=lambda pair: pair[0])
            intervals, shape = self.instance.intervals(name), self.inputs[name].shape
            declared = range_text(*declared_range(intervals, shape, box))
            text = (
                f"{box} declares {declared} of {name} and touches {ratio:.3g} times less, as other members do"
            )
            self.found.add("wide", text, member=box.first, operand=name, declared=declared, ratio=ratio)

    def _ratio(self, box: MemberBox, name: str) -> float | None:
        """How many times more than it touches a member declares of an input; None if unknown."""
        chunk = self.chunk(name, box)
        base = self.prepared(box, True)
        inside = chunk.inside
        size = math.prod(part.stop - part.start for part in inside)
        if size <= 1:
            return 1.0 if size else None
        ran = self.call(box, base)
        result = b"".join(np.ascontiguousarray(part).tobytes() for part in self.results(box, ran).values())
        seen = ran.touched.get(name)
        if seen is not None:
            touched = math.prod(high - low + 1 for low, high in zip(seen["low"], seen["high"], strict=True))
            return float(size / touched)
        left = 1
        for d in range(len(inside)):
            left *= self._touched_along(box, base, name, d, result)
        return size / left if left else None

    def _touched_along(
        self, box: MemberBox, base: Mapping[str, Array], name: str, d: int, result: bytes
    ) -> int:
        """Coordinates of dimension ``d``, from the first to the last one that changes the results."""
        inside = self.chunk(name, box).inside[d]
        probes = _probes(inside.start, inside.stop - 1)
        hit = [at for at in probes if self._slab_matters(box, base, name, d, at, result)]
        return max(hit) - min(hit) + 1 if hit else 0

    def _slab_matters(
        self, box: MemberBox, base: Mapping[str, Array], name: str, d: int, at: int, result: bytes
    ) -> bool:
        chunk = self.chunk(name, box)
        slab = tuple(slice(at, at + 1) if i == d else part for i, part in enumerate(chunk.inside))
        row = chunk.row
        for high in (True, False):
            changed = {**base, name: base[name].copy()}
            changed[name][slab] = noise(row, changed[name][slab].shape, np.random.default_rng(at), high)
            if self._changes(box, changed, result):  # or fails: this input cannot have such numbers
                return True
        return False


def _described(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    return f"a {type(value).__name__} of {len(value)}"


MOST_PROBES = 64  # coordinates of a dimension that are tried


def _probes(first: int, last: int) -> list[int]:
    """All coordinates of a dimension, or some, both ends among them."""
    if last - first < MOST_PROBES:
        return list(range(first, last + 1))
    return sorted({round(float(at)) for at in np.linspace(first, last, MOST_PROBES)})
