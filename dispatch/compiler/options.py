# SPDX-License-Identifier: Apache-2.0
"""What a model is compiled for: one frozen value, from the command line and the session to the last pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from onedispatch.dispatch.base import arguments
from onedispatch.dispatch.base.frameworks import FRAMEWORKS
from onedispatch.dispatch.base.precisions import EXACT, PRECISIONS
from onedispatch.operators.catalog.layers import selector_of
from onedispatch.operators.catalog.selector import CatalogSearch, check_pins
from onedispatch.operators.emission.programs import Lookup
from onedispatch.operators.scheduling.resources import resources
from onedispatch.operators.scheduling.select import Selector
from onedispatch.transactions import Device, find_device
from onedispatch.transactions.base.cached import cached_property
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.machine.device import DeviceName

Fallback = Literal["cpu", "error"]
CastPolicy = Literal["error", "f32"]
Sums = Literal["exact", "narrow"]
Groups = Literal["on", "off"]

FALLBACKS = ("cpu", "error")
CAST_POLICIES = ("error", "f32")
SUMS = ("exact", "narrow")
GROUPS = ("on", "off")


@dataclass(frozen=True)
class CompileOptions:
    """The device and what the compiler may do: see ``onedispatch.compile`` for each.

    ``selector`` chooses solutions; None: catalogs and the search, see ``catalog`` and ``pins``. Files of
    compiled models keep none of these: what was chosen is in their schedules.
    """

    device: Device
    precision: str = EXACT
    fallback: Fallback = "cpu"
    cast_policy: CastPolicy = "error"
    sums: Sums = "exact"
    groups: Groups = "on"
    selector: Selector | None = None
    catalog: tuple[str, ...] | None = None
    pins: tuple[str, ...] = ()

    @cached_property
    def chooser(self) -> Selector:
        """Who chooses solutions. An empty selector is false, and asked all the same."""
        return selector_of(self.catalog, self.pins) if self.selector is None else self.selector

    @property
    def programs(self) -> tuple[Lookup, ...]:
        """Where programs may come from instead of being emitted: the catalogs that choose solutions."""
        chooser = self.chooser
        return tuple(one.program for one in chooser.catalogs) if isinstance(chooser, CatalogSearch) else ()

    @property
    def strict(self) -> bool:
        """True if every node must run on the device."""
        return self.fallback == "error"

    @classmethod
    def checked(
        cls,
        device: DeviceName = "npu2",
        selector: Selector | None = None,
        catalog: Any = None,
        pins: Any = None,
        **choices: Any,
    ) -> CompileOptions:
        """Returns options from what a caller gave.

        Raises ``InputError`` for an unknown choice or a selector that selects nothing, ``DeviceError`` for a
        device that is unknown or that no overlay can serve, ``CatalogError`` for a catalog that is none.
        """
        return cls.on(find_device(device), selector, catalog, pins, **choices)

    @classmethod
    def on(
        cls,
        device: Device,
        selector: Selector | None = None,
        catalog: Any = None,
        pins: Any = None,
        **choices: Any,
    ) -> CompileOptions:
        """Returns the same for a device that is known. Raises as ``checked`` does."""
        check_choices(**choices)
        arguments.selector(selector)
        layers = None if catalog is None else tuple(arguments.paths("catalog", catalog))
        pinned = tuple(arguments.names("pins", pins))
        if selector is not None and (layers or pinned):
            raise InputError("selector", "one beside catalog= or pins=", "either", "leave one of them out")
        check_pins(pinned)
        resources(device)  # refuses what no overlay can serve, also where shapes are still to come
        made = cls(device, selector=selector, catalog=layers, pins=pinned, **choices)
        _ = made.chooser  # refuses what is no catalog
        return made


@dataclass(frozen=True)
class ImportOptions:
    """How a model is read: see ``onedispatch.compile`` for each."""

    frontend: str | None = None
    outputs: tuple[str, ...] | None = None
    fusions: tuple[str, ...] = ()
    strict: bool = False  # attributes that no rule mentions are refused
    freeze: Mapping[str, Any] = field(default_factory=dict)  # values of inputs that become constants

    @classmethod
    def checked(
        cls,
        frontend: Any = None,
        outputs: Any = None,
        fusions: Any = None,
        freeze: Any = None,
        *,
        strict: bool = False,
    ) -> ImportOptions:
        """Returns options from what a caller gave. Raises ``InputError`` for anything else."""
        if frontend is not None:
            arguments.choice("frontend", frontend, FRAMEWORKS)
        wanted = None if outputs is None else tuple(arguments.names("outputs", outputs))
        if wanted == ():
            raise InputError("outputs", "no name", "one name or more, or None for all")
        named = tuple(arguments.names("fusions", fusions))
        return cls(frontend, wanted, named, strict, arguments.by_name("freeze", freeze))


def check_choices(
    precision: str = EXACT,
    fallback: str = "cpu",
    cast_policy: str = "error",
    sums: str = "exact",
    groups: str = "on",
) -> None:
    """Raises ``InputError`` for a choice that is none of those accepted."""
    arguments.choice("precision", precision, tuple(PRECISIONS))
    arguments.choice("fallback", fallback, FALLBACKS)
    arguments.choice("cast_policy", cast_policy, CAST_POLICIES)
    arguments.choice("sums", sums, SUMS)
    arguments.choice("groups", groups, GROUPS)
