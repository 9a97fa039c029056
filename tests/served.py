# SPDX-License-Identifier: Apache-2.0
"""Programs that tests start often are forked from a process that has imported all of it.

A command then takes what its work takes, and not a second of imports before. It is the same ``main`` with
arguments, environment, folder and streams of its own, in a process of its own. What a fresh interpreter
does is for the tests that start one, and `make nightly` has no others of ``onedispatch``.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from select import select
from typing import NoReturn

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
def onedispatch(fresh: bool) -> Iterator[Path]:
    """A folder with the program ``onedispatch``, for PATH; ``fresh``: an interpreter of its own each time."""
    with tempfile.TemporaryDirectory(prefix="onedispatch-") as text:
        program = Path(text) / "onedispatch"
        if fresh:
            _write(program, [sys.executable, "-c", FRESH])
            yield program.parent
            return
        with forks("tests.served:prepared") as command:
            _write(program, command)
            yield program.parent


def _write(program: Path, command: list[str]) -> None:
    program.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n', encoding="utf-8")
    program.chmod(0o755)


@contextmanager
def forks(
    prepare: str, begin: Callable[[], None] | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[list[str]]:
    """A command whose processes are forks of one that has called ``prepare``, "module:function".

    That returns the function which a fork calls, with the command's arguments in ``sys.argv``. ``begin`` is
    called in the process before it starts Python, in ``environment``.
    """
    folder = tempfile.mkdtemp(prefix="onedispatch-")
    place = f"{folder}/socket"
    # Not by `-m`, which messages about usage would tell.
    code = f"from tests.served import serve; serve({place!r}, {prepare!r})"
    try:
        with subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=begin,
        ) as server:
            assert server.stdin is not None and server.stdout is not None
            assert server.stdout.readline() == "ready\n"
            try:
                yield [sys.executable, "-IS", "-c", CLIENT.format(place=place)]
            finally:
                server.stdin.close()  # which ends it
    finally:
        shutil.rmtree(folder)


def prepared() -> Callable[[], None]:
    """The console script of ``onedispatch``, with what its commands import."""
    import typer

    from onedispatch.operators.declarations.registry import all_kernels, all_mappings

    for name in (*(f"onedispatch.dispatch.{name}" for name in LATER), "numpy.random", "onnxruntime"):
        importlib.import_module(name)
    cli = importlib.import_module("onedispatch.dispatch.cli")
    list(typer.main.get_group(cli.app).commands.values())  # imports them
    all_kernels(), all_mappings()
    sys.path.remove("")  # the current folder, which the console script does not look into
    main: Callable[[], None] = cli.main
    return main


def serve(place: str, prepare: str) -> None:
    """Forks for each that connects, until standard input ends."""
    module, _, name = prepare.partition(":")
    main: Callable[[], object] = getattr(importlib.import_module(module), name)()
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who asks
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place)
        listener.listen()
        print("ready", flush=True)
        while sys.stdin not in select([listener, sys.stdin], [], [])[0]:
            asking, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                answer(asking, main)
            asking.close()
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def answer(asking: socket.socket, main: Callable[[], object]) -> NoReturn:
    """Forks once more for the command, ends it where the one that asked has gone, and tells its exit code."""
    head, files, _, _ = socket.recv_fds(asking, 4, 3)
    size = int.from_bytes(head, "little")
    asked = b""
    while len(asked) < size:
        asked += asking.recv(size - len(asked))
    command = os.fork()
    if command == 0:
        asking.close()
        run(main, files, *json.loads(asked))
    for file in files:
        os.close(file)
    ended = os.pidfd_open(command)
    if ended not in select([asking.fileno(), ended], [], [])[0]:
        os.kill(command, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
    with suppress(OSError):
        asking.sendall(bytes([code if code >= 0 else 128 - code]))
    os._exit(0)


def run(
    main: Callable[[], object],
    files: list[int],
    arguments: list[str],
    folder: str,
    environment: dict[str, str],
) -> NoReturn:
    """Does what a program that calls ``main`` does, and ends as it."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.stdin, sys.stdout = (os.fdopen(i, mode, closefd=False) for i, mode in enumerate("rw"))
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["onedispatch", *arguments]
    # Libraries would wait for their threads, which a fork does not have.
    libc = ctypes.CDLL(None)
    libc.on_exit(ctypes.cast(libc._exit, ctypes.c_void_p), None)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main()
    sys.exit()
