# SPDX-License-Identifier: Apache-2.0
"""Texts about rules and merges: which one took a node, and why a near miss did not."""

from __future__ import annotations

from collections.abc import Iterable

STAYS = "stays: "  # begins the remark on a DequantizeLinear or QuantizeLinear that no rule takes


def took(what: str, others: Iterable[str]) -> str:
    """Returns the text for a node that the rule or merge ``what`` took, with the nodes ``others``."""
    named = ", ".join(others)
    return f"{what}, with {named}" if named else what


def did_not_fire(what: str, condition: str) -> str:
    """Returns the text for a rule or merge that the failed ``condition`` stopped."""
    return f"{what} did not fire: {condition}"


def an_output(value: str, node: str) -> str:
    """Returns the condition that failed: the inner value is an output of the model."""
    return f"{value} (of {node}) is an output of the model"


def read_elsewhere(value: str, node: str, reader: str) -> str:
    """Returns the condition that failed: another node reads the inner value."""
    return f"{value} (of {node}) is read by {reader} too"


def read_earlier(value: str, node: str, reader: str) -> str:
    """Returns the condition that failed: a node before the merged ones reads the inner value."""
    return f"{value} (of {node}) is read by {reader} before"
