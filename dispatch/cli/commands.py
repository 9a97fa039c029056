# SPDX-License-Identifier: Apache-2.0
"""The command line: ``onedispatch run | time | profile | compile | inspect | bench | ops | rule | ...``."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Annotated, NoReturn

import typer
from rich.text import Text

from onedispatch.dispatch.base import ctrl_c
from onedispatch.dispatch.base.version import installed_version
from onedispatch.dispatch.cli import (
    advise,
    bench,
    cache,
    catalog,
    compare,
    diff,
    doctor,
    export,
    gate,
    info,
    inspection,
    kernel,
    layer,
    models,
    ops,
    profile,
    quantize,
    replay,
    rule,
    survey,
    tune,
    txn,
)
from onedispatch.dispatch.cli.flags import expands_flags
from onedispatch.dispatch.cli.output import errors, say, visible
from onedispatch.dispatch.cli.plugins import takes_plugins
from onedispatch.transactions.base.boundary import typed_error
from onedispatch.transactions.base.errors import InputError, OneDispatchError
from onedispatch.transactions.base.files import protecting_files

app = typer.Typer(
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


app.command("run")(takes_plugins(expands_flags(models.run)))
app.command("time")(takes_plugins(expands_flags(models.time_model)))
app.command("profile")(takes_plugins(expands_flags(profile.profile)))
app.command("compile")(takes_plugins(expands_flags(models.compile)))
app.command("inspect")(takes_plugins(expands_flags(inspection.inspect)))
app.command("advise")(takes_plugins(expands_flags(advise.advise)))
app.command("export")(takes_plugins(expands_flags(export.export)))
app.command("compare")(takes_plugins(expands_flags(compare.compare)))
app.command("gate")(takes_plugins(expands_flags(gate.gate)))
app.command("diff")(takes_plugins(expands_flags(diff.diff)))
app.command("quantize")(takes_plugins(expands_flags(quantize.quantize)))
app.command("bench")(takes_plugins(expands_flags(bench.bench)))
app.command("tune")(takes_plugins(expands_flags(tune.tune)))
app.command("doctor")(doctor.doctor)
app.command("devices")(info.devices)
txn.app.command("replay")(replay.replay)
txn.app.command("survey")(survey.survey)
app.add_typer(ops.app, name="ops")
app.add_typer(txn.app, name="txn")
app.add_typer(kernel.app, name="kernel")
app.add_typer(layer.app, name="layer")
app.add_typer(rule.app, name="rule")
app.add_typer(catalog.app, name="catalog")
app.add_typer(cache.app, name="cache")


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
