# SPDX-License-Identifier: Apache-2.0
"""What custom kernels may say of themselves, and what is said where they may not."""

from __future__ import annotations

import math
from typing import Any

import pytest

from onedispatch.operators.declarations import statuses
from onedispatch.operators.declarations.kernel import MAX_NAME_BYTES, MAX_SCALARS, Scalar
from onedispatch.operators.plugin.custom_kernel import CustomKernel
from onedispatch.operators.plugin.instance import Interval
from onedispatch.operators.plugin.operands import Aux, In, Out, Scratch, operands, scalars, typed_names

OTHER: Any = "f64"  # no type of scalars
Invalid = statuses.error_class(-8)


def declared(**changed: Any) -> CustomKernel:
    facts: dict[str, Any] = {"name": "acme::k", "inputs": (In("x"),), "outputs": (Out("z"),)} | changed
    return CustomKernel(**facts)


def test_a_name_without_a_version_is_the_first() -> None:
    assert declared().name == "acme::k@1"
    assert declared(name="acme::k@7").name == "acme::k@7"


@pytest.mark.parametrize("version", ["", "@1", "@12"])
def test_names_have_64_bytes_as_they_are_written(version: str) -> None:
    fill = MAX_NAME_BYTES - len("acme::") - len(version)
    assert declared(name=f"acme::{'k' * fill}{version}").name.startswith("acme::k")
    with pytest.raises(Invalid, match=r"65 bytes; accepted: .*at most 64 bytes"):
        declared(name=f"acme::{'k' * (fill + 1)}{version}")


@pytest.mark.parametrize(
    "name", ["", "k", "acme:k", "Acme::k", "acme::k@0", "acme::k@x", "acme::k k", 7, "acme::ß"]
)
def test_names_are_namespace_and_name(name: Any) -> None:
    with pytest.raises(Invalid, match="namespace::name"):
        declared(name=name)


def test_the_33rd_scalar_is_named() -> None:
    many = [Scalar(f"s{i}", "f32") for i in range(MAX_SCALARS + 1)]
    assert len(declared(scalars=tuple(many[:-1])).own_scalars) == 32
    with pytest.raises(Invalid, match="33, of which 's32' is one too many; accepted: at most 32") as caught:
        declared(scalars=tuple(many))
    assert caught.value.expected == "at most 32"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"outputs": ()}, "outputs: given none"),
        ({"inputs": tuple(In(f"x{i}") for i in range(16))}, "given 17; accepted: at most 16"),
        ({"inputs": (In("x"), In("x"))}, "stands twice: given 'x'"),
        ({"inputs": (In("X"),)}, "a name: given 'X'"),
        ({"inputs": (In("shape"),)}, "'shape'; accepted: others than tiles have themselves"),
        ({"scalars": (Scalar("pad_x", "f32"),)}, "'pad_x'"),
        ({"inputs": (In("x", "f64"),)}, "element types of x: given f64; accepted: f32, bf16"),
        ({"inputs": (In("x", "f32|f63 i8"),)}, "element types of x: given f63"),
        ({"inputs": (In("x", rank=6),)}, r"rank of x: given \(6, 6\)"),
        ({"inputs": (In("x", rank=(3, 2)),)}, "rank of x"),
        ({"inputs": (In("x", like="y"),)}, "like: given 'y'; accepted: z"),
        ({"inputs": (In("z"),)}, "stands twice: given 'z'"),
        ({"inputs": (In("x", optional="x"),)}, "optional of x: given 'x'; accepted: False, True"),
        ({"inputs": (In("x", quantised="yes"),)}, "quantised of x: given 'yes'"),
        ({"deterministic": "a"}, "deterministic: given 'a'; accepted: True or False"),
        ({"devices": ("npu2_9col",)}, "devices: given npu2_9col"),
        ({"inputs": (In("x", like="z"),), "outputs": (Out("z", like="x"),)}, "not in a circle"),
        ({"inputs": (In("x", "f32 i8", pad=math.nan),)}, "pad of x: given nan; accepted: a value of i8"),
        ({"inputs": (In("x", "u8", pad=math.inf),)}, "pad of x: given inf"),
        ({"inputs": (In("x", "u8", pad=-1),)}, "pad of x: given -1"),
        ({"outputs": (Out("z", "i8", fill=0.5),)}, "fill of z: given 0.5"),
        ({"aux": (Aux("table", "f8"),)}, "element types of table: given f8"),
        ({"scratch_tensors": tuple(Scratch(f"s{i}") for i in range(17))}, "given 17; accepted: at most 16"),
        ({"scalars": (Scalar("a", OTHER),)}, "type of scalar a: given 'f64'; accepted: u32, i32, f32"),
        (
            {"scalars": (Scalar("a", "u32", default=-1),)},
            "default of scalar a: given -1; accepted: a whole",
        ),
        ({"scalars": (Scalar("a", "i32", default=0.5),)}, "default of scalar a: given 0.5"),
        ({"scalars": (Scalar("a", "f32", low=2, high=1),)}, "bounds of scalar a: given 2 to 1"),
        ({"code_bytes": 100}, "code_bytes: given 100; accepted: a multiple of 16"),
        ({"devices": ("npu9",)}, "devices: given npu9; accepted: .*npu2"),
        ({"in_place": {"z": "y"}}, "in_place: given z: y"),
    ],
)
def test_what_cannot_run_is_refused_by_name(changed: dict[str, Any], says: str) -> None:
    with pytest.raises(Invalid, match=f"kernel acme::k@1: .*{says}"):
        declared(**changed)


@pytest.mark.parametrize(
    ("listed", "devices"),
    [
        (None, "npu1 npu1_1col npu2 npu2_3col"),
        (("npu2",), "npu2 npu2_3col"),
        (("strix",), "npu2 npu2_3col"),
        (("npu2_3col", "phoenix"), "npu1 npu1_1col npu2_3col"),
    ],
)
def test_devices_have_other_names_and_column_partitions(listed: Any, devices: str) -> None:
    kernel = declared(devices=listed)
    names = ("npu1", "npu1_1col", "npu2", "npu2_3col")
    assert [name for name in names if kernel.runs_on(name)] == devices.split()


def test_operands_in_text() -> None:
    assert operands(In, "x y?") == (In("x"), In("y", like="x", optional=True))
    assert operands(In, "x:f32|bf16, y z:i8?") == (
        In("x", "f32|bf16"),
        In("y", like="x"),
        In("z", "i8", optional=True),
    )
    assert operands(Out, "z n:i32", In("x")) == (Out("z", like="x"), Out("n", "i32"))
    assert operands(In, "x y", dtypes="f32 i8") == (In("x", "f32 i8"), In("y", like="x"))
    assert operands(In, [In("x", pad=1)]) == (In("x", pad=1),)
    assert operands(Out, Out("z")) == (Out("z"),)
    with pytest.raises(Invalid, match=r"without '\?'"):
        operands(Out, "z?")
    with pytest.raises(Invalid, match=r"od\.In objects"):
        operands(In, [Out("z")])


def test_who_is_like_another_has_its_dtypes() -> None:
    it = declared(inputs=operands(In, "x:i8|u8 y"), outputs=operands(Out, "z", In("x")))
    assert [one.dtype_names for one in it.operands] == [("i8", "u8")] * 3
    assert declared().inputs[0].dtype_names == ("f32",)


def test_scalars_in_text() -> None:
    assert scalars({"a": "f32", "n": ("u32", 2)}) == (Scalar("a", "f32"), Scalar("n", "u32", default=2))
    own = Scalar("a", "i32", low=0, high=9)
    assert scalars([own]) == (own,) == scalars({"a": own})
    with pytest.raises(Invalid, match="scalar a: given 7"):
        scalars({"a": 7})


def test_auxiliary_tensors_in_text() -> None:
    assert typed_names(Aux, "table recip:bf16") == (Aux("table"), Aux("recip", "bf16"))
    assert typed_names(Scratch, Scratch("tmp")) == (Scratch("tmp"),)


def test_intervals_tell_what_they_are() -> None:
    assert [str(i) for i in (Interval(), Interval(1), Interval(0, 2, -1, 1))] == [
        "whole",
        "[i1]",
        "[2*i0-1, 2*i0+1]",
    ]
