# SPDX-License-Identifier: Apache-2.0
"""``onedispatch advise``: edits that move a model's nodes to the NPU or make it faster, each tried."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onedispatch.dispatch.cli import opening, verdict
from onedispatch.dispatch.cli import output as out
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.files import write_file
from onedispatch.transactions.machine.device import device_names, find_device

if TYPE_CHECKING:
    from onnx import ModelProto

    from onedispatch.dispatch.tools.advice.edits import Edit
    from onedispatch.dispatch.tools.advice.trials import Advice

NOTHING_TO_WRITE = 2  # the exit code of --apply where no edit of the model helps


def advise(
    model: opening.Model,
    compiling: opening.CompileFlags,
    apply: Annotated[
        Path | None, typer.Option("--apply", help="Write the model with the edits that help together.")
    ] = None,
    json: out.Json = False,
) -> None:
    """Try edits that would move nodes to the NPU or make the model faster, and say what each gains.

    An input of one number is frozen to the values that the model compares it with; nodes on the host compute
    in a type that cores have, between casts; nodes at the end or the beginning that stay on the host are cut
    off; then bfloat16, int8 and other devices. Open dimensions get sizes that fit the model. Each edit is
    compiled and timed. --apply writes the model with those that help, one after the other; what helps beside
    them is printed with the command that has it. Where no edit of the model helps, --apply writes nothing,
    and the exit code is 2.
    """
    from onedispatch.dispatch.cli.trying import advisor, proto_of

    opening.keep(model, apply)
    proto = proto_of(model)
    sizes = opening.fitting(opening.open_model(model, compiling), compiling.shapes)
    with out.working("compiling") as status:
        advice = advisor(proto, compiling, status, sizes).advise(
            [name for name in device_names() if "_" not in name and find_device(name).name == name]
        )
    if apply is not None and advice.writes:
        write_file(apply, _bytes(advice.model))
    if json:
        out.print_json(_as_dict(advice, sizes))
    else:
        if sizes:
            out.tell(
                f"open dimensions are taken as {_named(sizes)}, which fit the model; --shape names others"
            )
        _show(advice, model, apply)
    if apply is not None and not advice.writes:
        out.tell(f"{apply} is not written: {_nothing(advice)}", to=out.errors)
        raise typer.Exit(NOTHING_TO_WRITE)


def _as_dict(advice: Advice, sizes: opening.Shapes) -> dict[str, Any]:
    return {
        "sizes": sizes,
        "before": advice.before.as_dict(),
        "together": advice.together.as_dict(),
        "trials": [trial.as_dict() for trial in advice.trials],
        "best": [edit.text for edit in advice.best],
        "options": advice.options,
        "beyond": [trial.edit.text for trial in advice.beyond],
    }


def _bytes(model: ModelProto) -> bytes:
    try:
        return bytes(model.SerializeToString())
    except ValueError as error:  # what protobuf says of more than 2 GiB
        raise InputError("--apply", str(error), "a model of less than 2 GiB") from error


def _named(sizes: opening.Shapes) -> str:
    return ", ".join(f"{name}={'x'.join(map(str, shape))}" for name, shape in sizes.items())


def _show(advice: Advice, model: str, apply: Path | None) -> None:
    verdict.show(advice.before)
    if not advice.trials:
        out.tell("no edit is known that could help")
        return
    rows = [
        (trial.edit.text, "yes" if trial.helps else "no", trial.gain, trial.edit.caution)
        for trial in sorted(advice.trials, key=lambda one: not one.helps)
    ]
    out.table("Edits, each alone", ("edit", "helps", "gain", "what changes"), rows)
    if advice.best:
        _show_best(advice, model, apply)
    elif not advice.beyond:
        out.tell("none of them helps")
    for trial in advice.beyond:
        how = "even better alone" if advice.best else "what helps"
        out.tell(f"{how}: {trial.edit.text} ({trial.gain}), which --apply does not write; this has it:")
        out.tell(f"  {_command(trial.edit, model)}", whole=True)


def _show_best(advice: Advice, model: str, apply: Path | None) -> None:
    """Prints what the edits that help gain together, and how to have them."""
    out.tell(f"together ({'; '.join(edit.text for edit in advice.best)}):")
    out.tell(str(advice.together), style="bold")
    flags = "".join(f" --{name} {value}" for name, value in advice.options.items())
    if not advice.writes:
        out.tell(f"to have it, pass{flags} to the command that runs the model; --apply has nothing to write")
        return
    beside = f", beside the options of this command:{flags}" if flags else ""
    if apply is not None:
        out.tell(f"{apply}: the model with these edits{beside}")
    else:
        out.tell(f"onedispatch advise {model} --apply OUT.onnx writes it{beside}")


def _command(edit: Edit, model: str) -> str:
    """What a user types to have an edit that is theirs to take."""
    if edit.kind == "int8":
        return f"onedispatch quantize {model} --data FOLDER --output OUT.onnx"
    if edit.kind == "freeze":
        return f"onedispatch advise {model} --{edit.text}"
    flags = "".join(f" --{name} {value}" for name, value in edit.options.items())
    return f"onedispatch time {model}{flags}"


def _nothing(advice: Advice) -> str:
    """Why ``--apply`` writes no model."""
    if not advice.best and not advice.beyond:
        return "no edit helps, so that it would be the same model"
    return "what helps is no edit of the model, so that it would be the same"
