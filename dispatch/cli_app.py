# SPDX-License-Identifier: Apache-2.0
"""The command line: ``onedispatch run | compile | inspect | bench | ops | devices | txn``."""

from __future__ import annotations

import sys

import typer

from onedispatch.dispatch import cli_bench, cli_info, cli_models, cli_replay, cli_survey, cli_txn
from onedispatch.dispatch.cli_output import errors
from onedispatch.transactions.errors import OneDispatchError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help=(
        "Run ONNX models as one transaction on a simulated AMD XDNA NPU.\n\n"
        "Would my model run there, how much of it, how fast, and why not the rest?\n\n"
        "  [bold]onedispatch inspect model.onnx[/]            placement, buffers, schedules\n\n"
        "  [bold]onedispatch run model.onnx --random[/]       one run, with its report\n\n"
        "  [bold]onedispatch bench light_resnet50[/]          our time beside onnxruntime's\n\n"
        "  [bold]onedispatch compile model.onnx -o m.od[/]    a file that runs without ONNX\n\n"
        "  [bold]onedispatch txn dump m.od[/]                 what is sent to the array"
    ),
)

app.command("run")(cli_models.run)
app.command("compile")(cli_models.compile)
app.command("inspect")(cli_models.inspect)
app.command("bench")(cli_bench.bench)
app.command("ops")(cli_info.ops)
app.command("devices")(cli_info.devices)
cli_txn.app.command("replay")(cli_replay.replay)
cli_txn.app.command("survey")(cli_survey.survey)
app.add_typer(cli_txn.app, name="txn")


def run() -> None:
    """The command that the arguments name; ``cli`` adds what an interrupt does."""
    try:
        app()
    except OneDispatchError as error:
        errors.print(
            f"{type(error).__name__}: {error}", style="red", markup=False, highlight=False, soft_wrap=True
        )
        sys.exit(1)
    except BrokenPipeError:  # `| head` closed the pipe
        sys.stderr.close()
        sys.exit(0)
