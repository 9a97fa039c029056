# SPDX-License-Identifier: Apache-2.0
"""Many random models beside onnxruntime, counted: ``python -m tests.fuzz.differential --models 1000``.

Models come from ``models.generate`` with everything let loose, quantised ones from ``quantised.generate``.
Each is one of ``VERDICTS``; what differs is printed in words, with the seed that makes it again.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from onedispatch import OneDispatchError, UnsupportedModelError
from onedispatch.transactions.base.errors import InternalError
from tests.fuzz import model_answers, quantised
from tests.fuzz.model_answers import Runtime
from tests.fuzz.models import Model, generate

VERDICTS = {
    "strict": "ran strict, onnxruntime's answer",
    "unit": "ran strict, quantised results a unit apart",
    "host": "refused strict with a reason, right with fallback",
    "refused": "refused by both, or by us with a typed error for what is not valid",
    "deviates": "otherwise on purpose: model_answers.py says why",
    "differed": "differed",
}


@dataclass
class Tally:
    """What became of all models; findings by their seed."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    def add(self, seed: str, verdict: str, words: str = "") -> None:
        self.counts[verdict] += 1
        if words:
            self.findings.append(f"{seed}: {words}")

    def table(self, title: str) -> str:
        lines = [f"{title}: {sum(self.counts.values())}"]
        lines += [f"  {self.counts[key]:7,}  {text}" for key, text in VERDICTS.items() if self.counts[key]]
        return "\n".join(lines)


def _checked(answer: list[np.ndarray] | OneDispatchError) -> list[np.ndarray] | OneDispatchError:  # type: ignore[type-arg]
    assert not isinstance(answer, InternalError), f"an internal error: {answer}"
    return answer


def float_verdict(seed: str) -> str:
    """Raises AssertionError for what differs."""
    model = generate(seed.encode(), wide=True)
    expected = Runtime(model)
    strict = _checked(model_answers.answer(model, "error"))
    verdict = model_answers.judged(model, expected, strict, "error")
    if verdict == "answered":
        return "strict"
    if expected.outputs is None or not isinstance(strict, UnsupportedModelError):
        return verdict
    with_host = _checked(model_answers.answer(model, "cpu"))
    verdict = model_answers.judged(model, expected, with_host, "cpu")
    return "host" if verdict == "answered" else verdict


def quantised_verdict(seed: str) -> str:
    """Integers of every node: equal, or a unit apart; what follows a node that is, is not looked at."""
    model = quantised.generate(seed.encode())
    expected = Runtime(model)
    strict = _checked(model_answers.answer(model, "error"))
    if expected.outputs is None:
        return "refused"
    if isinstance(strict, UnsupportedModelError):
        return "host"
    if isinstance(strict, OneDispatchError):
        return model_answers.judged(model, expected, strict, "error")
    try:
        return _apart(model, strict, expected.outputs)
    except AssertionError:
        if model_answers.differs_on_purpose(model):
            return "deviates"
        raise


def _apart(model: Model, ours: list[np.ndarray], wanted: list[np.ndarray]) -> str:  # type: ignore[type-arg]
    for y, e in zip(ours, wanted, strict=True):
        assert (y.dtype, y.shape) == (e.dtype, e.shape), (
            f"{model.told}: {y.dtype}{y.shape}, {e.dtype}{e.shape}"
        )
        apart = int(np.abs(y.astype(np.int64) - e.astype(np.int64)).max(initial=0))
        assert apart <= 1, f"{model.told}: {apart} units apart"
        if apart:
            return "unit"
    return "strict"


def run(prefix: str, first: int, count: int, verdict: Callable[[str], str], show: bool = False) -> Tally:
    """``count`` models from number ``first`` on."""
    tally = Tally()
    for number in range(first, first + count):
        seed = f"{prefix} {number}"
        try:
            tally.add(seed, verdict(seed))
        except AssertionError as error:
            tally.add(seed, "differed", str(error)[:1500])
            if show:
                print(tally.findings[-1], flush=True)
    return tally


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--models", type=int, default=1000, help="how many of floats and other types")
    given.add_argument("--quantised", type=int, default=250, help="how many between Q and DQ")
    given.add_argument("--seed", default="wide", help="any text: another one makes other models")
    given.add_argument("--first", type=int, default=0, help="number of the first model")
    options = given.parse_args()
    for title, count, verdict in (
        ("models", options.models, float_verdict),
        ("quantised models", options.quantised, quantised_verdict),
    ):
        tally = run(options.seed, options.first, count, verdict, show=True)
        print(tally.table(title), flush=True)


if __name__ == "__main__":
    main()
