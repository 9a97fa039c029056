# SPDX-License-Identifier: Apache-2.0
"""One Python target: ``python -m tests.fuzz.python_target TARGET [libFuzzer options] CORPUS SEEDS``.

Runs under atheris, libFuzzer for Python, which is guided by coverage. Where atheris cannot be
installed, the same changes are made to the same seeds blindly. ``TARGET --plain FILE...`` runs
inputs once, without atheris: to reproduce a finding anywhere.
"""

from __future__ import annotations

import importlib.util
import random
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fuzz.targets import Target

INSTRUMENTED = [
    "onedispatch.transactions",
    "onedispatch.dispatch.tensorflow",
    *(
        f"onedispatch.dispatch.{name}"
        for name in ("replay", "container", "forms", "serialise", "consistency")
    ),
]
NO_ATHERIS = (
    "atheris is not installed: inputs are changed blindly, without looking at coverage. It exists for "
    "Linux on x86_64 with CPython 3.10 to 3.14: pip install 'onedispatch[fuzz]'"
)


def plain(name: str, files: list[str]) -> None:
    from tests.fuzz.targets import TARGETS

    for file in files:
        accepted = TARGETS[name].one(Path(file).read_bytes())
        print(f"{file}: {'accepted' if accepted else 'refused'}")


def imported() -> Mapping[str, Target]:
    """The targets, in modules that are instrumented."""
    import atheris

    with atheris.instrument_imports(include=INSTRUMENTED):
        from tests.fuzz.targets import TARGETS
    return TARGETS


def guided(name: str, arguments: list[str]) -> None:
    """Ends the process."""
    import atheris

    target = imported()[name]

    def change(data: bytes, limit: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if not rng.randrange(4):  # libFuzzer knows what the code compared bytes with
            return bytes(atheris.Mutate(data, limit))
        return target.mutate(data, limit, rng)

    def run(data: bytes) -> None:
        target.one(data)

    options = [f"-max_len={target.limit}", *arguments]
    atheris.Setup([sys.argv[0], *options], run, custom_mutator=change)
    atheris.Fuzz()


def blind(name: str, arguments: list[str]) -> None:
    from tests.fuzz.targets import TARGETS

    print(NO_ATHERIS, file=sys.stderr)
    target = TARGETS[name]
    options = dict(a.lstrip("-").split("=", 1) for a in arguments if a.startswith("-"))
    folders = [Path(a) for a in arguments if not a.startswith("-")]
    pool = [path.read_bytes() for folder in folders for path in sorted(folder.iterdir())]
    rng, runs, started = random.Random(0), 0, time.monotonic()
    most = int(options.get("runs", 0))
    end = started + float(options.get("max_total_time", 60))
    while runs < most if most else time.monotonic() < end:
        data = pool[runs] if runs < len(pool) else target.mutate(rng.choice(pool), target.limit, rng)
        runs += 1
        try:
            if target.one(data) and len(pool) < 10_000:
                pool.append(data)
        except BaseException:
            Path(f"{options.get('artifact_prefix', '')}crash-{runs}").write_bytes(data)
            raise
    print(f"stat::number_of_executed_units: {runs}")
    print(f"stat::average_exec_per_sec: {runs / (time.monotonic() - started):.0f}")


def main() -> None:
    if sys.argv[2:3] == ["--plain"]:
        plain(sys.argv[1], sys.argv[3:])
    elif importlib.util.find_spec("atheris") is None:
        blind(sys.argv[1], sys.argv[2:])
    else:
        guided(sys.argv[1], sys.argv[2:])


def prepared() -> Callable[[], None]:
    """``main``, with its imports done: atheris takes ten seconds for them (``tests.served``)."""
    if importlib.util.find_spec("atheris") is not None:
        imported()
    return main


if __name__ == "__main__":
    main()
