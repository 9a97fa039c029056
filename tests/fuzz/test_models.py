# SPDX-License-Identifier: Apache-2.0
"""Random models beside onnxruntime: always the same ones. ``make fuzz TARGET=model`` goes on from here."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.fuzz.model_answers import ANSWERED, DIFFERENT, REFUSED, compare
from tests.fuzz.models import generate

PARTS, MODELS = 6, 100


@pytest.mark.daily(6)
@pytest.mark.parametrize("part", range(PARTS))
def test_answers_are_onnxruntimes(part: int) -> None:
    verdicts = Counter(compare(generate(f"{part} {number}".encode())) for number in range(MODELS))
    # Most models are valid, enough are not, and deviations are rare.
    assert verdicts["answered"] > MODELS / 3
    assert verdicts["refused"] > MODELS / 10
    assert verdicts["deviates"] <= MODELS / 10


def test_models_are_functions_of_their_bytes() -> None:
    first, second = (generate(b"the same") for _ in range(2))
    assert first.proto == second.proto and first.told == second.told
    assert all((first.feed[name] == second.feed[name]).all() for name in first.feed)


def test_deviations_have_reasons() -> None:
    for deviation in (*ANSWERED, *REFUSED, *DIFFERENT):
        assert deviation.pattern and len(deviation.reason.split()) > 3
