# SPDX-License-Identifier: Apache-2.0
"""Parses protobuf messages: what the bytes of a model from outside do to the parser is a ``ModelError``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from google.protobuf.message import Message

from onedispatch.transactions.base.errors import ModelError
from onedispatch.transactions.base.handlers import reraise_from_handler

MessageT = TypeVar("MessageT", bound=Message)
T = TypeVar("T")


def parsed(proto: MessageT, data: bytes, where: str, given: str, accepted: str, advice: str = "") -> MessageT:
    """Fills an empty message from ``data`` and returns it; the other arguments are what the error says.

    Raises:
        ModelError: ``data`` is no such message.
    """
    readable(lambda: proto.ParseFromString(data), where, given, accepted, advice)
    return proto


def readable(read: Callable[[], T], where: str, given: str, accepted: str, advice: str = "") -> T:
    """Returns what ``read`` makes of bytes. Raises ``ModelError`` where they are no message."""
    try:
        return read()
    except Exception as error:  # protobuf's DecodeError differs between its implementations
        reraise_from_handler(error)
        raise ModelError(where, given, accepted, advice) from error
