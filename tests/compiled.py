# SPDX-License-Identifier: Apache-2.0
"""Libraries that tests compile: once for equal sources, headers, flags and compiler, whichever worker asks.

They lie in build/libraries, by digest. A test gets a copy of its own in its own folder: what it does to the
file, and what a loaded library remembers, is no other test's.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

KEPT = Path(__file__).resolve().parents[1] / "build" / "libraries"
KEPT_SECONDS = 7 * 24 * 3600.0  # since its last use
C, CPP = ("-std=c99", "-pedantic"), ("-std=c++17",)


def shared_object(source: Path, library: Path, flags: Sequence[str], include: Sequence[Path] = ()) -> Path:
    """Compiles ``source`` to ``library`` by the compiler of its language; asserts that this succeeds."""
    name = ("gcc", "cc") if source.suffix == ".c" else ("g++", "c++")
    compiler = next((found for found in map(shutil.which, name) if found), None)
    assert compiler is not None, f"a compiler: {name[0]}"
    standard = C if source.suffix == ".c" else CPP
    command = [compiler, *standard, *flags, "-shared", "-fPIC"]
    kept = KEPT / _digest(source, command, include)
    KEPT.mkdir(parents=True, exist_ok=True)
    with open(kept.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            _forget_old()
            fresh = kept.with_suffix(".new")
            whole = [*command, *(f"-I{folder}" for folder in include), str(source), "-o", str(fresh)]
            done = subprocess.run(whole, capture_output=True, text=True, check=False, timeout=240)
            assert done.returncode == 0, done.stderr
            fresh.replace(kept)
        os.utime(kept)
        shutil.copy(kept, library)
    return library


def _digest(source: Path, command: Sequence[str], include: Sequence[Path]) -> str:
    parts = [*command, _version(command[0]), source.name, source.read_text(encoding="utf-8")]
    headers = {path for folder in (source.parent, *include) for path in folder.rglob("*.h")}
    parts += [f"{path.name}\n{path.read_text(encoding='utf-8')}" for path in sorted(headers)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


@cache
def _version(compiler: str) -> str:
    done = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    return done.stdout.partition("\n")[0]


def _forget_old() -> None:
    for path in KEPT.iterdir():
        if time.time() - path.stat().st_mtime > KEPT_SECONDS:
            path.unlink(missing_ok=True)
