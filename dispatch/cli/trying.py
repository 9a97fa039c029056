# SPDX-License-Identifier: Apache-2.0
"""Edits of a model, tried as the flags of a command say. Commands import this when they try some."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnx import ModelProto
from onnx.external_data_helper import load_external_data_for_model
from rich.text import Text

from onedispatch.dispatch.artifact.container import is_compiled
from onedispatch.dispatch.cli import opening
from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.compiler.executable import Executable
from onedispatch.dispatch.frontend.importer import read_proto
from onedispatch.dispatch.runtime.summary import Summary
from onedispatch.dispatch.tools.advice.trials import Advisor
from onedispatch.transactions.base.errors import InputError, ModelError


def moves(
    model: str, executable: Executable, summary: Summary, flags: opening.CompileFlags
) -> Mapping[str, str]:
    """For nodes on the host, an edit that was tried and moves them; of ONNX models, nothing of others."""
    if is_compiled(model):
        return {}
    try:
        proto = proto_of(model)
    except (InputError, ModelError):  # another framework's
        return {}
    with out.working("trying edits") as status:
        found = advisor(proto, flags, status).moves(executable, summary)
    return {node: edit.text for node, edit in found.items()}


def advisor(
    proto: ModelProto, flags: opening.CompileFlags, status: Any, sizes: opening.Shapes | None = None
) -> Advisor:
    """What tries edits as the flags of a command say; ``status``, where there is one, shows which.

    ``sizes`` are of inputs whose dimensions the flags leave open.
    """
    shapes = (sizes or {}) | flags.shapes
    return Advisor(
        proto,
        flags.requested.given | {"cache": False},  # trials are not asked for again
        shapes,
        lambda compiled: opening.first_executable(compiled, shapes, quiet=True)[1],
        lambda text: status and status.update(Text(out.visible(f"trying: {text}"))),
    )


def proto_of(name: str) -> ModelProto:
    """The ONNX model that a command names, weights included.

    Raises ``InputError`` or ``ModelError`` for anything else, and where external data cannot be read.
    """
    source = opening.source(Path(name))
    if isinstance(source, ModelProto):
        return source
    proto = read_proto(source)
    try:
        load_external_data_for_model(proto, os.fspath(source.parent))
    except Exception as error:
        raise InputError("advise", f"{name}: {error}", "an ONNX model with all its data") from error
    return proto
