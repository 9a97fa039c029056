# SPDX-License-Identifier: Apache-2.0
"""What is said of rules and merges: the same words for what took nodes, and for what nearly did."""

from __future__ import annotations

from collections.abc import Iterable

STAYS = "stays: "  # begins what is said of a DequantizeLinear or QuantizeLinear that no rule takes


def took(what: str, others: Iterable[str]) -> str:
    """``what`` is a rule or a merge by its name; ``others`` are the nodes that it took with this one."""
    named = ", ".join(others)
    return f"{what}, with {named}" if named else what


def did_not_fire(what: str, condition: str) -> str:
    return f"{what} did not fire: {condition}"


def an_output(value: str, node: str) -> str:
    return f"{value} (of {node}) is an output of the model"


def read_elsewhere(value: str, node: str, reader: str) -> str:
    return f"{value} (of {node}) is read by {reader} too"


def read_earlier(value: str, node: str, reader: str) -> str:
    return f"{value} (of {node}) is read by {reader} before"
