# SPDX-License-Identifier: Apache-2.0
"""Every fuzz target over its seeds and some hundred changes of them: always the same ones."""

from __future__ import annotations

import random
from functools import cache

import pytest

from onedispatch.transactions import Transaction
from onedispatch.transactions.format import spec
from tests.fuzz import mutate, seeds
from tests.fuzz.targets import TARGETS

CHANGES = 150


@cache
def corpora() -> dict[str, dict[str, bytes]]:
    return seeds.corpora()


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_are_accepted(name: str) -> None:
    target = TARGETS[name]
    accepted = [target.one(data) for data in corpora()[target.seeds].values()]
    # The simulator refuses custom opcodes, which the others step over.
    assert len(accepted) >= 2 and sum(accepted) >= 0.9 * len(accepted)


@pytest.mark.daily(2)
@pytest.mark.parametrize("name", TARGETS)
def test_changed_seeds_are_accepted_or_refused(name: str) -> None:
    target, rng = TARGETS[name], random.Random(f"changes of {name}")
    pool = list(corpora()[target.seeds].values())
    for _ in range(CHANGES):
        data = target.mutate(rng.choice(pool), target.limit, rng)
        assert len(data) <= target.limit
        if target.one(data):
            pool.append(data)


@pytest.mark.parametrize("version", spec.VERSIONS)
def test_changes_of_transactions_keep_the_framing(version: spec.Version) -> None:
    rng, data = random.Random(0), seeds.everything(version)
    kept = 0
    for _ in range(300):
        changed = mutate.transaction(data, 4096, rng)
        kept += TARGETS["decode"].one(changed)
        data = changed if mutate.split(changed) and len(changed) > 64 else seeds.everything(version)
    assert kept > 200


def test_seeds_name_every_opcode() -> None:
    for version in spec.VERSIONS:
        read = Transaction.from_bytes(seeds.everything(version))
        assert {op.code for op in read.ops} >= set(spec.BY_CODE)
