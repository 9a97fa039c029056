# SPDX-License-Identifier: Apache-2.0
"""What kernels print: as C's printf where that is defined, and marked text where it is not."""

from __future__ import annotations

import ctypes
import re

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onedispatch.cpp_ext import _core as core

LIBC = ctypes.CDLL(None)

flags = st.text("-+ #0", max_size=3)
widths = st.one_of(st.just(""), st.integers(0, 40).map(str))
precisions = st.one_of(st.just(""), st.just("."), st.integers(0, 20).map(lambda n: f".{n}"))
FIXED = settings(max_examples=300, derandomize=True, deadline=None)


def c_printf(text: str, value: object) -> str:
    """What C prints: ``value`` is a ctypes object."""
    room = ctypes.create_string_buffer(4096)
    LIBC.snprintf(room, ctypes.c_size_t(len(room)), text.encode(), value)
    return room.value.decode()


@FIXED
@given(flags, widths, precisions, st.sampled_from(["hh", "h", ""]), st.sampled_from("diuxX"), st.integers())
@example("", "", "", "hh", "u", -1)
def test_integers_are_those_of_c(
    flag: str, width: str, precision: str, length: str, kind: str, value: int
) -> None:
    value = (value + 2**31) % 2**32 - 2**31
    text = f"<%{flag}{width}{precision}{length}{kind}>"
    assert core.format_print(text, [value]) == c_printf(text, ctypes.c_int(value))


@FIXED
@given(flags, widths, precisions, st.sampled_from(["l", "ll"]), st.sampled_from("diuxX"), st.integers())
def test_long_integers_are_those_of_c(
    flag: str, width: str, precision: str, length: str, kind: str, value: int
) -> None:
    value = (value + 2**63) % 2**64 - 2**63
    text = f"<%{flag}{width}{precision}{length}{kind}>"
    assert core.format_print(text, [value]) == c_printf(text, ctypes.c_longlong(value))


@FIXED
@given(flags, widths, precisions, st.sampled_from("fFeEgG"), st.floats())
@example("#", "", ".0", "f", 1.0)
def test_floats_are_those_of_c(flag: str, width: str, precision: str, kind: str, value: float) -> None:
    text = f"<%{flag}{width}{precision}{kind}>"
    assert core.format_print(text, [value]) == c_printf(text, ctypes.c_double(value))


@FIXED
@given(st.sampled_from(["-", ""]), widths, precisions, st.text("ab%c \t\n", max_size=20))
def test_text_is_that_of_c(flag: str, width: str, precision: str, value: str) -> None:
    text = f"<%{flag}{width}{precision}s>"
    assert core.format_print(text, [value]) == c_printf(text, ctypes.c_char_p(value.encode()))


def same(printed: str, value: np.floating) -> bool:
    return bool(np.float64(printed) == np.float64(value)) or (printed.endswith("nan") and np.isnan(value))


@pytest.mark.parametrize(("length", "dtype"), [("b", ml_dtypes.bfloat16), ("h", np.float16)])
def test_short_floats_are_rounded_to_nearest_even(length: str, dtype: type) -> None:
    rng = np.random.default_rng(7)
    bits = rng.integers(0, 2**32, 4000, np.uint32).view(np.float32)
    halves = (rng.integers(0, 2**16, 4000, np.uint32) << 16 | 0x8000).view(np.float32)  # ties of bfloat16
    near = (rng.standard_normal(4000) * 10.0 ** rng.integers(-9, 6, 4000)).astype(np.float32)
    edges = np.float32(
        [0, -0.0, 65504, 65519.99, 65520, 1e-8, 6e-8, 3.39e38, 3.4e38, np.inf, -np.inf, np.nan]
    )
    with np.errstate(all="ignore"):
        for value in np.concatenate([bits, halves, near, edges]):
            printed = core.format_print(f"%.60{length}e", [float(value)])
            assert same(printed, value.astype(dtype)), f"{value!r} as %{length}e is {printed}"


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("v=%bf at %d", [1.2345678, 3], "v=1.234375 at 3"),
        ("%hhd %hhu %hd %hu", [300, -1, 70000, -1], "44 255 4464 65535"),
        ("%d %u %x %%", [-5, -5, 255], "-5 4294967291 ff %"),
        ("%hf", [65519.0], "65504.000000"),
        ("%s|%5s|%-5s|%.2s", ["one", "two", "three", "four"], "one|  two|three|fo"),
        ("%*d|%-*d|%.*f", [4, 7, 4, 7, 1, 2.25], "   7|7   |2.2"),
        ("a line\n", [], "a line"),
        ("two\n\n", [], "two\n"),
        ("", [], ""),
        ("%lf", [1.5], "1.500000"),
        # What C leaves undefined is marked.
        ("%d", [1.5], "%!d(1.5)"),
        ("%f", [3], "%!f(3)"),
        ("%bf", [3], "%!bf(3)"),
        ("%s", [3], "%!s(3)"),
        ("%d", ["text"], '%!d("text")'),
        ("%d %d", [1], "1 %!d(no value)"),
        ("%d", [1, 2, 3], "1 %!(2 values too many)"),
        ("none", [1], "none %!(1 value too many)"),
        ("%y", [], "%!y(no such format)"),
        ("%n", [1], "%!n(no such format) %!(1 value too many)"),
        ("%p", [], "%!p(no such format)"),
        ("%bd", [1], "%!bd(no such format) %!(1 value too many)"),
        ("%hs", ["x"], "%!hs(no such format) %!(1 value too many)"),
        ("%", [], "%!(no format)"),
        ("%-08.3l", [], "%!(no format)"),
        ("%d", [2**31], "-2147483648"),  # 32 bits, as C converts them
        ("%d", [2**32], "%!d(4294967296: more than 32 bits)"),
        ("%d", [-(2**31) - 1], "%!d(-2147483649: more than 32 bits)"),
        ("%lu", [2**64 - 1], "18446744073709551615"),
        ("%d", [2**64], "%!d(an integer of more than 64 bits)"),
        ("%d", [None], "%!d(NoneType)"),
        ("%s", [[1, 2]], "%!s(list)"),
        ("%2000d", [1], "%!d(width and precision: at most 1000)"),
        ("%.99999999999999f", [1.0], "%!f(width and precision: at most 1000)"),
        ("%*d", [5000, 1], "%!d(width and precision: at most 1000)"),
        ("%*d", ["wide", 1], "%!d(width and precision: at most 1000)"),
        ("%d\0%d", [1], "1"),  # C's text ends there
        ("%s", ["a\0b"], "a"),
        ("%.3s", ["éé"], "é"),  # bytes, but no part of a letter
        ("%d", [True], "1"),
    ],
)
def test_a_line(text: str, values: list[object], expected: str) -> None:
    assert core.format_print(text, values) == expected


@FIXED
@given(
    st.text(st.sampled_from("%-+ #0123456789.*hlbdiuxXfeEgGsny \n\0é"), max_size=30),
    st.lists(st.one_of(st.integers(), st.floats(), st.text(max_size=5), st.none()), max_size=4),
)
def test_whatever_is_printed_is_text(text: str, values: list[object]) -> None:
    line = core.format_print(text, values)
    assert isinstance(line, str)
    assert len(line) < 6000
    if not values and "%" not in text:
        assert line == re.sub("\n$", "", text.split("\0")[0])


def test_the_locale_is_cs() -> None:
    import locale

    before = locale.setlocale(locale.LC_NUMERIC)
    for name in ("de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "nl_NL.UTF-8"):
        try:
            locale.setlocale(locale.LC_NUMERIC, name)
        except locale.Error:
            continue
        break
    try:
        assert core.format_print("%f", [1.5]) == "1.500000"
    finally:
        locale.setlocale(locale.LC_NUMERIC, before)
