# SPDX-License-Identifier: Apache-2.0
"""What can be guessed of a mapping rule: its target, and the facts that lead from a node to it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import helper
from onnx.defs import OpSchema

from onedispatch.dispatch.frontend.schemas import onnx_operators
from onedispatch.dispatch.sources.targets import Target
from onedispatch.dispatch.tensorflow.signatures import ELEMENT_TYPES, Signature
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.text import did_you_mean

_CLOSE = 0.8  # how alike two names are that mean the same attribute


@dataclass
class Guess:
    """Facts as they are written, one line each; ``remarks`` are what only a person can decide."""

    target: Target
    facts: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def target_of(op_type: str, given: str) -> Target:
    """Returns the target: as it is given, or ONNX's operator whose name is the same but for a version.

    Raises ``InputError`` where there is none.
    """
    bare = re.sub(r"V\d+$", "", op_type)
    known = {name.lower(): name for name in onnx_operators()}
    text = given or known.get(op_type.lower()) or known.get(bare.lower(), "")
    where = "rule new, the operator to map to"
    if not text:
        remedy = did_you_mean(bare, known.values()) or 'say it: --to TopK, or "to" of the prototype'
        raise InputError(where, f"none, and ONNX has no {op_type}", '"TopK" of ONNX, or "acme::Name"', remedy)
    try:
        target = Target.parsed(text)
    except ValueError as error:
        raise InputError(where, repr(text), '"TopK" of ONNX, or "acme::Name"') from error
    if not target.domain and target.schema() is None:
        raise InputError(where, f"{text}, which ONNX does not have", "operators of ONNX", target.nearest())
    return target


def guessed(
    target: Target,
    inputs: Sequence[str],
    constants: Sequence[bool],
    attributes: Mapping[str, Any],
    signature: Signature | None,
) -> Guess:
    """Returns the facts for a node.

    Args:
        inputs: the name of each input as the operator calls it.
        constants: which of them are constants.
    """
    guess = Guess(target, [".auto()"])
    schema = target.schema()
    if schema is None:
        return guess
    work = _Work(guess, schema, dict(attributes), signature)
    work.renames()
    work.inputs_to_attributes(inputs, constants)
    work.attributes_to_inputs(inputs)
    work.defaults()
    work.rest()
    return guess


@dataclass
class _Work:
    guess: Guess
    schema: OpSchema
    left: dict[str, Any]  # attributes of the node that no fact is for yet
    signature: Signature | None
    taken: set[str] = field(default_factory=set)  # attributes of the target that a fact gives

    def __post_init__(self) -> None:
        self.taken = {name for name in self.left if name in self.schema.attributes}
        self.left = {name: value for name, value in self.left.items() if name not in self.taken}

    @property
    def free(self) -> list[str]:
        return [name for name in self.schema.attributes if name not in self.taken]

    def renames(self) -> None:
        """Names that differ in case and underscores, or by a letter or two; a type that the target needs."""
        found = {}
        for theirs, value in list(self.left.items()):
            if self._structural(theirs, value):
                continue
            ours = alike(theirs, self.free)
            if ours:
                found[theirs] = ours
                self._gave(theirs, ours)
        kind = self.signature.output_ports[0].type if self.signature and self.signature.output_ports else ""
        needed = [n for n in self.free if self.schema.attributes[n].required]
        if kind in self.left and needed == ["to"]:
            found[kind] = "to"
            self._gave(kind, "to")
        if found:
            self.guess.facts.append(_call("rename", {theirs: quoted(ours) for theirs, ours in found.items()}))

    def _gave(self, theirs: str, ours: str) -> None:
        self.left.pop(theirs, None)
        self.taken.add(ours)

    def inputs_to_attributes(self, inputs: Sequence[str], constants: Sequence[bool]) -> None:
        """Constant inputs beyond those of the target, where it has an attribute of their name."""
        gone = 0
        for place, (name, constant) in enumerate(zip(inputs, constants, strict=True)):
            ours = alike(name, self.free) if constant else ""
            if ours and len(inputs) - gone > self.schema.min_input:
                self.guess.facts.append(f".attr_from_input({place - gone}, {quoted(ours)})")
                self.taken.add(ours)
                gone += 1
        over = len(inputs) - gone - self.schema.max_input
        if over > 0:
            text = (
                f"the target takes {self.schema.max_input} inputs: .drop_input(index), .attr_from_input(...)"
            )
            self.guess.remarks.append(text)

    def attributes_to_inputs(self, inputs: Sequence[str]) -> None:
        """Inputs of the target beyond those of the node, where an attribute has their name."""
        for place, formal in enumerate(self.schema.inputs):
            theirs = alike(formal.name, list(self.left)) if place >= len(inputs) else ""
            if theirs:
                self.guess.facts.append(f".input_from_attr({quoted(theirs)}, {place})")
                self.left.pop(theirs)
            elif place >= len(inputs) and formal.option == OpSchema.FormalParameterOption.Single:
                self.guess.remarks.append(
                    f"the target needs input {place} ({formal.name}): .add_input({place}, ...)"
                )

    def defaults(self) -> None:
        """What the target takes where nothing says otherwise, written down to be seen, and changed."""
        values = {}
        for name in self.free:
            attribute = self.schema.attributes[name]
            value = (
                helper.get_attribute_value(attribute.default_value) if attribute.default_value.type else None
            )
            if attribute.required:
                self.guess.remarks.append(f"the target needs {name}: .compute({name}=lambda n: ...)")
            elif isinstance(value, int | float) or (isinstance(value, bytes) and value):
                values[name] = quoted(value.decode() if isinstance(value, bytes) else _short(value))
        if values:
            self.guess.facts.append(_call("default", values))

    def rest(self) -> None:
        """Attributes of the node that mean something and lead nowhere."""
        for name, value in self.left.items():
            if not self._structural(name, value):
                self.guess.remarks.append(
                    f"nothing is made of {name}={value!r}: .compute(...) it, or .ignore({name!r}) it"
                )

    def _structural(self, name: str, value: Any) -> bool:
        """Whether an attribute is an element type or a count, or has the default of its operator."""
        if isinstance(value, np.dtype) or name.startswith("_") or self.signature is None:
            return isinstance(value, np.dtype) or name.startswith("_")
        ports = (*self.signature.input_ports, *self.signature.output_ports)
        if any(name in (port.type, port.count) for port in ports):
            return True
        defaults = self.signature.defaults
        return name in defaults and (defaults[name] == value or value in ELEMENT_TYPES.values())


def quoted(value: Any) -> str:
    """Returns a value as Python's formatters write it: text between double quotes."""
    text = repr(value)
    return f'"{text[1:-1]}"' if isinstance(value, str) and text[0] == "'" and '"' not in text else text


def alike(name: str, known: Sequence[str]) -> str:
    """Returns the name among ``known`` that is spelled almost the same, "" if none is."""
    plain = {other.lower().replace("_", ""): other for other in known}
    found = difflib.get_close_matches(name.lower().replace("_", ""), list(plain), 1, _CLOSE)
    return plain[found[0]] if found else ""


def _short(value: float) -> float:
    """A float32 of a schema as people write it: 0.01 for 0.009999999776."""
    return value if isinstance(value, int) else float(f"{value:.7g}")


def _call(name: str, values: Mapping[str, str]) -> str:
    if all(key.isidentifier() for key in values):
        return f".{name}({', '.join(f'{key}={value}' for key, value in values.items())})"
    return f".{name}(**{{{', '.join(f'{quoted(key)}: {value}' for key, value in values.items())}}})"
