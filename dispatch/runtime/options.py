# SPDX-License-Identifier: Apache-2.0
"""How a session runs a model: one frozen value, checked once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypedDict

from onedispatch.dispatch.base import arguments
from onedispatch.dispatch.ort.options import SessionOptions
from onedispatch.dispatch.ort.providers import ProviderOptions, Providers
from onedispatch.dispatch.runtime.prints import Sink, ring_bytes
from onedispatch.dispatch.runtime.trace import traced_calls
from onedispatch.transactions.base import host

RECORD = "ONEDISPATCH_RECORD"  # of the environment: "on", "off" or "verify"


class SessionChoices(TypedDict, total=False):
    """Options of ``InferenceSession`` by keyword: see there."""

    cache_size: int
    kernel_seconds: float | None
    check: str | None
    check_seconds: float
    cast_policy: str | None
    sums: str | None
    groups: str | None
    frontend: str | None
    outputs: Sequence[str] | None
    fusions: Sequence[str] | None
    freeze: Mapping[str, Any] | None
    cache: bool | str | os.PathLike[str] | None
    selector: Any
    catalog: Any
    pins: Sequence[str] | None
    print: Sink
    print_bytes: int | None
    trace: bool | int
    record: bool | str | None
    # Under onnxruntime's names.
    path_or_bytes: Any
    sess_options: SessionOptions | None
    providers: Providers | None
    provider_options: ProviderOptions | None
    enable_fallback: Any
    read_config_from_model: Any
    disabled_optimizers: Any


@dataclass(frozen=True)
class ExecutionOptions:
    """``print_bytes`` is 0 where kernels print into nothing, ``trace`` None without one."""

    threads: int | None
    kernel_seconds: float
    check: str | None
    check_seconds: float
    print: Sink
    print_bytes: int
    trace: int | None
    record: str

    @classmethod
    def checked(
        cls,
        threads: int | None = None,
        kernel_seconds: float | None = None,
        check: str | None = None,
        check_seconds: float = host.CHECK_SECONDS,
        print: Sink = "report",
        print_bytes: int | None = None,
        trace: bool | int | None = False,
        record: bool | str | None = None,
    ) -> ExecutionOptions:
        """Returns options from what a caller gave. Raises ``InputError`` for those that there are none of."""
        return cls(
            arguments.threads(threads),
            host.kernel_seconds(kernel_seconds),
            None if check is None else arguments.choice("check", check, ("access",)),
            host.seconds_of("check_seconds", check_seconds),
            print,
            ring_bytes(print, print_bytes),
            traced_calls(trace),
            record_mode(record),
        )

    @property
    def given(self) -> dict[str, Any]:
        """Keyword arguments of ``checked`` that give the same."""
        return asdict(self) | {"print_bytes": self.print_bytes or None}


def record_mode(value: bool | str | None = None) -> str:
    """Whether runs that come again are made from a recording: "on", "off", or "verify".

    None: as the environment says, else "on". Raises ``InputError`` for anything else.
    """
    if isinstance(value, bool):
        return "on" if value else "off"
    modes = ("on", "off", "verify")
    if value is None:
        return arguments.choice(RECORD, os.environ.get(RECORD) or "on", modes)
    return arguments.choice("record", value, modes)
