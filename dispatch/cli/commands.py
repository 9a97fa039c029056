# SPDX-License-Identifier: Apache-2.0
"""The command line: ``onedispatch run | time | profile | compile | inspect | bench | ops | rule | ...``."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Annotated, Any, NoReturn, cast

import typer
from rich.text import Text
from typer.core import TyperGroup

from onedispatch.dispatch.base import ctrl_c
from onedispatch.dispatch.base.version import installed_version
from onedispatch.dispatch.cli.flags import expands_flags
from onedispatch.dispatch.cli.output import errors, say, visible
from onedispatch.dispatch.cli.plugins import takes_plugins
from onedispatch.transactions.base.boundary import typed_error
from onedispatch.transactions.base.errors import InputError, OneDispatchError
from onedispatch.transactions.base.files import protecting_files

# Where the function of a command is.
COMMANDS = {
    "run": "models.run",
    "time": "models.time_model",
    "profile": "profile.profile",
    "compile": "models.compile",
    "inspect": "inspection.inspect",
    "advise": "advise.advise",
    "export": "export.export",
    "compare": "compare.compare",
    "gate": "gate.gate",
    "diff": "diff.diff",
    "quantize": "quantize.quantize",
    "bench": "bench.bench",
    "tune": "tune.tune",
    "doctor": "doctor.doctor",
    "devices": "info.devices",
}
NO_PLUGINS = ("doctor", "devices")  # all others load them before they run
# Which modules add commands to the ``app`` of the first of them.
GROUPS = {
    "ops": ("ops",),
    "txn": ("txn", "replay", "survey"),
    "kernel": ("kernel",),
    "layer": ("layer",),
    "rule": ("rule",),
    "catalog": ("catalog",),
    "cache": ("cache",),
}


def _module(name: str) -> Any:
    return import_module(f"onedispatch.dispatch.cli.{name}")


@cache
def _made(name: str) -> Any:
    """The command or group of that name."""
    if name in GROUPS:
        first, *_ = map(_module, GROUPS[name])
        made: Any = typer.main.get_group(first.app)
    else:
        module, _, function = COMMANDS[name].partition(".")
        command = expands_flags(getattr(_module(module), function))
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
        alone.command(name)(command if name in NO_PLUGINS else takes_plugins(command))
        made = typer.main.get_command(alone)
    made.name = name
    return made


class _Named(Mapping[str, Any]):
    """All commands by name. Each is imported when it is asked for: all of them take a second."""

    def __getitem__(self, name: str) -> Any:
        if name not in COMMANDS and name not in GROUPS:
            raise KeyError(name)
        return _made(name)

    def __iter__(self) -> Iterator[str]:
        return iter((*COMMANDS, *GROUPS))

    def __len__(self) -> int:
        return len(COMMANDS) + len(GROUPS)


class _Commands(TyperGroup):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = cast(Any, _Named())


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help=(
        "Run ONNX models as one transaction on a simulated AMD XDNA NPU.\n\n"
        "Would my model run there, how much of it, how fast, and why not the rest?\n\n"
        "  [bold]onedispatch inspect model.onnx[/]            placement, buffers, schedules\n\n"
        "  [bold]onedispatch run model.onnx --random[/]       one run, with its report\n\n"
        "  [bold]onedispatch time model.onnx[/]               what a run would cost, without a run\n\n"
        "  [bold]onedispatch profile model.onnx[/]            what bounds it, operator by operator\n\n"
        "  [bold]onedispatch advise model.onnx[/]             edits that would help, each tried\n\n"
        "  [bold]onedispatch bench light_resnet50[/]          our time beside onnxruntime's\n\n"
        "  [bold]onedispatch quantize model.onnx --data d[/]  recipes tried, the best written\n\n"
        "  [bold]onedispatch tune model.onnx --log t.log[/]   faster solutions, measured\n\n"
        "  [bold]onedispatch compile model.onnx -o m.od[/]    a file that runs without ONNX\n\n"
        "  [bold]onedispatch txn dump m.od[/]                 what is sent to the array"
    ),
)


def _version(wanted: bool) -> None:
    if wanted:
        say(f"onedispatch {installed_version()}")
        raise typer.Exit


@app.callback()
def _about(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def run() -> None:
    """Runs the command that the arguments name. Every error is one message and exit code 1.

    ``cli`` adds what an interrupt does.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):  # a replaced stream has no such method
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        try:
            with protecting_files():
                app()
        finally:
            sys.stdout.flush()  # a full device shows here; when Python ends, no message could be written
    except OneDispatchError as error:
        _fail(error)
    except BrokenPipeError:  # `| head` closed the pipe
        _leave(0)
    except OSError as error:
        where = "the output" if error.filename is None else os.fsdecode(error.filename)
        _fail(InputError(where, error.strerror or str(error), "a place that can be written"))
    except Exception as error:  # noqa: BLE001 (the border of the process)
        _fail(typed_error("onedispatch", error))


def _fail(error: OneDispatchError) -> NoReturn:
    if ctrl_c.pressed():
        raise KeyboardInterrupt from error
    with contextlib.suppress(OSError):
        message = f"{type(error).__name__}: {error}"
        errors.print(Text(visible(message)), style="red", soft_wrap=True)
    _leave(1)


def _leave(code: int) -> NoReturn:
    """Ends the process; what a closed pipe or a full device did not take is dropped."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                os.dup2(nowhere, stream.fileno())
    sys.exit(code)
