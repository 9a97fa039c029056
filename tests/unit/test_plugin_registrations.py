# SPDX-License-Identifier: Apache-2.0
"""Kernels and mappings of plug-ins: all of a file or nothing, and two of one name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from onedispatch import InputError, KernelLibraryError
from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations import registry
from onedispatch.operators.declarations.kernel import Kernel, Tensor
from onedispatch.operators.declarations.registry import OpMapping
from onedispatch.operators.plugin import registrations
from onedispatch.operators.plugin.registrations import Batch


@dataclass(frozen=True)
class Offer:
    kernel: Kernel
    origin: str
    functions: Mapping[str, Any] = field(default_factory=dict)


def offer(name: str, origin: str, pad: float | None = None) -> Offer:
    cost = e.device("call_cycles") + e.ELEMENTS
    x, y = Tensor("x", "...", walk="interval", pad=pad), Tensor("y", "...")
    return Offer(Kernel(name, inputs=(x,), outputs=(y,), cost=cost, code_bytes=512), origin)


def mapping(op_type: str, origin: str, domain: str = "acme") -> OpMapping:
    return OpMapping(domain, op_type, ("float32",), "", lambda node, lowering: None, origin)


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    registrations.forget()  # of other tests
    before = registry.all_mappings()
    yield
    registrations.forget()
    assert registry.all_mappings() == before and registrations.kernels() == [] == registrations.mappings()


def collected(origin: str, *names: str) -> Batch:
    """A file with these kernels, each with a mapping that stands on it."""
    with registrations.collecting(origin) as batch:
        for name in names:
            registrations.add_kernel(offer(name, origin))
            registrations.add_mapping(mapping(name.partition("::")[2].partition("@")[0], origin), name)
    return batch


def test_what_is_registered_outside_of_a_file_counts_at_once() -> None:
    registrations.add_kernel(offer("acme::f@1", "notebook"))
    registrations.add_mapping(mapping("F", "notebook"), "acme::f@1")
    found = registrations.named("acme::f@1")
    assert found is not None and registrations.by_digest(found.kernel.digest) is found
    known = registry.mapping_for("acme", "F")
    assert known is not None and known.origin == "notebook"


def test_a_file_counts_as_a_whole_once_it_is_committed() -> None:
    batch = collected("a.py", "acme::f@1", "acme::g@1")
    assert registrations.kernels() == [] and registry.mapping_for("acme", "f") is None
    registrations.commit(batch)
    assert [one.kernel.name for one in registrations.kernels()] == ["acme::f@1", "acme::g@1"]
    assert [bound.name for bound in registrations.mappings()] == ["acme.f", "acme.g"]


def test_a_conflict_names_both_files_and_leaves_nothing_behind() -> None:
    registrations.commit(collected("/some/a.so", "acme::f@1"))
    with pytest.raises(KernelLibraryError, match=r"/other/b\.so.*acme::f@1.*/some/a\.so") as refused:
        registrations.commit(collected("/other/b.so", "acme::e@1", "acme::f@1"))
    assert refused.value.status == registrations.TAKEN and "first" in refused.value.remedy
    assert [one.kernel.name for one in registrations.kernels()] == ["acme::f@1"]
    assert registry.mapping_for("acme", "e") is None


def test_the_first_one_stays_where_that_is_asked_for() -> None:
    registrations.commit(collected("a.so", "acme::f@1"))
    second = collected("b.so", "acme::e@1", "acme::f@1")
    registrations.commit(second, "first")
    assert [one.origin for one in registrations.kernels()] == ["b.so", "a.so"]
    kernel, operator = second.skipped
    assert "acme::f@1" in kernel and "a.so" in kernel and "acme.f" in operator
    known = registry.mapping_for("acme", "f")
    assert known is not None and known.origin == "a.so"


def test_one_digest_under_two_names_is_a_conflict() -> None:
    first = offer("acme::f@1", "a.so")
    registrations.add_kernel(first)
    other = Offer(first.kernel, "b.so")
    with pytest.raises(KernelLibraryError, match=f"0x{first.kernel.digest:08X}"):
        registrations.add_kernel(other)


def test_the_same_origin_again_replaces_what_it_registered() -> None:
    registrations.add_kernel(offer("acme::f@1", "a.py"))
    again = offer("acme::f@1", "a.py", pad=1.0)
    registrations.add_kernel(again)
    registrations.commit(collected("a.py", "acme::g@1"))
    registrations.commit(collected("a.py", "acme::g@1"))
    assert registrations.named("acme::f@1") is again and len(registrations.kernels()) == 2


def test_a_class_with_a_compiled_body_and_the_library_of_the_body_are_one() -> None:
    body = {"library": "libacme.so", "index": 0}
    for first in ("acme.py", "libacme.so"):
        registrations.forget()
        for origin in (first, *({"acme.py", "libacme.so"} - {first})):
            with registrations.collecting(origin) as batch:
                kernel = offer("acme::f@1", origin).kernel
                registrations.add_kernel(Offer(kernel, origin, body))
                registrations.add_mapping(mapping("F", origin), "acme::f@1")
            registrations.commit(batch)
        (found,), known = registrations.kernels(), registry.mapping_for("acme", "F")
        assert found.origin == "acme.py" and known is not None and known.origin == "acme.py"
    with pytest.raises(KernelLibraryError, match=r"other\.py.*acme\.py"):
        registrations.add_kernel(Offer(found.kernel, "other.py", body))


def test_one_operator_from_two_files() -> None:
    registrations.add_mapping(mapping("F", "a.py"))
    with pytest.raises(KernelLibraryError, match=r"b\.py.*operator acme\.F.*a\.py") as refused:
        registrations.add_mapping(mapping("F", "b.py"))
    assert "override=True" in str(refused.value)
    registrations.add_mapping(mapping("F", "b.py"), override=True)
    known = registry.mapping_for("acme", "F")
    assert known is not None and known.origin == "b.py"


def test_ours_are_replaced_where_that_is_asked_for() -> None:
    ours = registry.mapping_for("", "Relu")
    registrations.add_kernel(offer("acme::f@1", "a.py"))
    with pytest.raises(KernelLibraryError, match="operator Relu, which onedispatch itself has"):
        registrations.add_mapping(mapping("Relu", "a.py", ""), "acme::f@1")
    for origin in ("a.py", "b.py"):
        registrations.add_mapping(mapping("Relu", origin, ""), override=True)
        assert registry.mapping_for("", "Relu") != ours
    registrations.forget("b.py")
    assert registry.mapping_for("", "Relu") == ours


def test_our_namespace_is_ours() -> None:
    with pytest.raises(KernelLibraryError, match=r"plug-in a\.py: given kernel od::gemm@2") as refused:
        registrations.add_kernel(offer("od::gemm@2", "a.py"))
    assert refused.value.status != registrations.TAKEN


def test_a_file_with_a_name_twice() -> None:
    with pytest.raises(KernelLibraryError, match=r"a\.py: given kernel acme::f@1 twice"):
        registrations.commit(collected("a.py", "acme::f@1", "acme::f@1"))
    with registrations.collecting("b.py") as batch:
        for _ in range(2):
            registrations.add_mapping(mapping("F", "b.py"))
    with pytest.raises(KernelLibraryError, match=r"b\.py: given operator acme\.F mapped twice"):
        registrations.commit(batch)


def test_a_file_that_fails_while_it_is_loaded_leaves_nothing() -> None:
    with pytest.raises(ZeroDivisionError), registrations.collecting("a.py"):
        registrations.add_kernel(offer("acme::f@1", "a.py"))
        raise ZeroDivisionError
    assert registrations.kernels() == []


def test_a_policy_is_one_of_two_words() -> None:
    assert [registrations.check_policy("x", word) for word in registrations.ON_CONFLICT] == ["error", "first"]
    with pytest.raises(InputError, match="on_conflict: given 'last'; accepted: 'error', 'first'"):
        registrations.check_policy("on_conflict", "last")
