# SPDX-License-Identifier: Apache-2.0
"""``onedispatch`` for tests that start it often: a process that has imported it forks for each command.

A command then takes what its work takes, and not a second of imports before. It is the same ``main`` with
arguments, environment, folder and streams of its own, in a process of its own. What a fresh interpreter
does is for the tests that start one, and `make nightly` has no others.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from select import select
from typing import NoReturn

import typer

from onedispatch.operators.declarations.registry import all_kernels, all_mappings
from tests.tables import NIGHTLY

ROOT = Path(__file__).resolve().parents[1]
CLIENT = """
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as to:
    to.connect({place!r})
    asked = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(to, [len(asked).to_bytes(4, "little")], [0, 1, 2])
    to.sendall(asked)
    code = to.recv(1)
os._exit(code[0] if code else 70)
"""
FRESH = "from onedispatch.dispatch.cli import main; main()"
# What most commands import only when they need it.
LATER = """cli.commands compile compiler.phases driver.compile_model frontend.importer
    plugins.layer_build runtime.session tools.zoo""".split()


@contextmanager
def served() -> Iterator[Path]:
    """A folder with the program ``onedispatch``, for PATH."""
    folder = Path(tempfile.mkdtemp(prefix="onedispatch-"))
    program = folder / "onedispatch"
    python, place = shlex.quote(sys.executable), str(folder / "socket")
    options = ("-c", FRESH) if NIGHTLY else ("-IS", "-c", CLIENT.format(place=place))
    program.write_text(f'#!/bin/sh\nexec {python} {shlex.join(options)} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    try:
        if NIGHTLY:
            yield folder
            return
        # Not by `-m`, which messages about usage would tell.
        command = [sys.executable, "-c", f"from tests.served import serve; serve({place!r})"]
        with subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as server:
            assert server.stdin is not None and server.stdout is not None
            assert server.stdout.readline() == "ready\n"
            yield folder
            server.stdin.close()  # which ends it
    finally:
        shutil.rmtree(folder)


def serve(place: str) -> None:
    """Forks for each that connects, until standard input ends."""
    for name in (*(f"onedispatch.dispatch.{name}" for name in LATER), "numpy.random", "onnxruntime"):
        importlib.import_module(name)
    typer.main.get_command(importlib.import_module("onedispatch.dispatch.cli").app)
    all_kernels(), all_mappings()
    sys.path.remove("")  # the current folder, which the console script does not look into
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place)
        listener.listen()
        print("ready", flush=True)
        while sys.stdin not in select([listener, sys.stdin], [], [])[0]:
            asking, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                return answer(asking)
            asking.close()
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def answer(asking: socket.socket) -> None:
    """Forks once more for the command and tells its exit code; returns where that is to go on in the fork."""
    head, files, _, _ = socket.recv_fds(asking, 4, 3)
    asked = asking.makefile("rb").read(int.from_bytes(head, "little"))
    command = os.fork()
    if command == 0:
        asking.close()
        run(files, *json.loads(asked))
    code = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
    asking.sendall(bytes([code if code >= 0 else 128 - code]))
    os._exit(0)


def run(files: list[int], arguments: list[str], folder: str, environment: dict[str, str]) -> NoReturn:
    """What the console script does, ending as a process does."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.stdin, sys.stdout = (os.fdopen(i, mode, closefd=False) for i, mode in enumerate("rw"))
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["onedispatch", *arguments]
    importlib.import_module("onedispatch.dispatch.cli").main()
    sys.exit()
