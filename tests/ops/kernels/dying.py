# SPDX-License-Identifier: Apache-2.0
"""Kernels whose functions end the process, or do not end: which, says the operator's attribute ``how``."""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any

import numpy as np

import onedispatch as od

Node = Any
Tile = Any


def crash() -> None:
    """A segmentation fault, as a wrong extension module has one."""
    ctypes.string_at(0)


def loop() -> None:
    while True:
        pass


def block() -> None:
    """A call that never returns to the interpreter."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


DEATHS = {"crash": crash, "abort": os.abort, "leave": lambda: os._exit(0), "loop": loop, "block": block}
DEATHS["none"] = lambda: None
PLACES = ("verify", "infer", "index_space", "access", "work", "scalars", "body", "reference")


def made(place: str, how: str) -> None:
    """The kernel ``dying::PLACE_HOW``, of which one function dies."""

    def at(here: str) -> None:
        if here == place:
            DEATHS[how]()

    class Dying:
        def verify(self, n: Node) -> Any:
            return at("verify")

        def infer(self, n: Node) -> Any:
            at("infer")
            return {"z": n["x"].like()}

        def index_space(self, n: Node) -> Any:
            at("index_space")
            return n["x"].shape

        def access(self, n: Node) -> Any:
            at("access")
            return n.elementwise()

        def work(self, n: Node) -> Any:
            at("work")
            n.work(op=1)  # the body is not counted

        def scalars(self, n: Node) -> Any:
            at("scalars")
            return {}

        def body(self, t: Tile) -> None:
            at("body")
            t.z[:] = t.x

        if place == "reference":

            def reference(self, n: Node, x: np.ndarray[Any, Any]) -> Any:
                at("reference")
                return x

    name = f"{place}_{how}"
    od.maps(name, domain="dying")(od.kernel(f"dying::{name}", inputs="x", outputs="z")(Dying))


for _place in PLACES:
    for _how in DEATHS:
        made(_place, _how)


@od.maps("mapping_loop", domain="dying")
def mapping(node: Any, lowering: Any) -> None:
    loop()


@od.maps("results_loop", domain="dying", infer=lambda node: loop())
def results(node: Any, lowering: Any) -> None:
    raise AssertionError("its results are asked first")
