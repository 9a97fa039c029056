# SPDX-License-Identifier: Apache-2.0
"""Kernel libraries as files: one under several names, several with one name, and those that are none."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto

import onedispatch as od
from onedispatch.dispatch.plugins import skeleton
from onedispatch.operators.codegen.genheader import specs_header
from onedispatch.operators.plugin import registrations
from tests.ops.test_kernel_library import BLEND, blend_as
from tests.plugins import node_model

PATH, CONFLICT = "ONEDISPATCH_PLUGIN_PATH", "ONEDISPATCH_PLUGIN_CONFLICT"


pytestmark = pytest.mark.usefixtures("no_plugins")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of a new skeleton: acme::scale_add."""
    folder = tmp_path_factory.mktemp("acme")
    written = skeleton.write("acme", "cpp", folder)
    command = written.commands[1].replace("$(onedispatch kernel include)", str(od.plugins.include_folder()))
    subprocess.run(command.replace("-O2", "-O0"), shell=True, cwd=folder, timeout=240, check=True)
    return folder / "acme" / "libacme.so"


def model() -> ModelProto:
    """z = ScaleAdd(x, y) with a = 3"""
    return node_model("ScaleAdd", [5, 9], inputs="x y", a=3.0)


def check_run(session: od.InferenceSession) -> None:
    x = np.arange(45, dtype=np.float32).reshape(5, 9)
    (z,) = session.run(None, {"x": x, "y": x + 1})
    np.testing.assert_array_equal(z, 3 * x + (x + 1))


def test_a_library_by_every_way_of_naming_it(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "with space"
    folder.mkdir()
    (folder / "link.so").symlink_to(built)
    (folder / "libacme.so.1.2").symlink_to(built)
    monkeypatch.setenv(PATH, f"{folder}:{built}:{folder / 'link.so'}")
    check_run(od.InferenceSession(model(), fallback="error", plugins=[folder / "libacme.so.1.2"]))
    (plugin,) = od.plugins.loaded()
    assert plugin.file == str(built) and plugin.kernels == ("acme::scale_add@1",)
    assert plugin.operators == ("acme.ScaleAdd",)
    assert od.compile(model(), plugins=[built], fallback="error").placement[0].device == "npu"


def test_a_saved_model_and_its_library(built: Path, tmp_path: Path) -> None:
    od.compile(model(), plugins=[built], fallback="error").save(tmp_path / "m.od")
    od.plugins.reset()
    with pytest.raises(
        od.KernelLibraryError, match=r"kernel acme::scale_add@1 .digest 0x.*which no plug-in brings"
    ):
        od.load(tmp_path / "m.od")
    loaded = od.load(tmp_path / "m.od", plugins=[built])
    check_run(od.InferenceSession(loaded))
    od.plugins.reset()
    with pytest.raises(od.KernelLibraryError, match="which no plug-in brings"):
        od.InferenceSession(loaded)
    check_run(od.InferenceSession(loaded, plugins=[built]))


def test_two_libraries_with_one_kernel(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "libother.so"
    shutil.copy(built, other)
    monkeypatch.setenv(PATH, f"{built}:{other}")
    with pytest.raises(od.KernelLibraryError) as refused:
        od.compile(model())
    assert str(built) in str(refused.value) and str(other) in str(refused.value)
    assert refused.value.status == registrations.TAKEN
    monkeypatch.setenv(CONFLICT, "first")
    check_run(od.InferenceSession(model(), fallback="error"))
    assert [bool(plugin.skipped) for plugin in od.plugins.loaded()] == [False, True]


def test_a_class_with_a_compiled_body_and_its_library_are_one(built: Path, tmp_path: Path) -> None:
    text = (
        skeleton.PYTHON.replace("$space", "acme")
        .replace("$kernel", "scale_add")
        .replace("$operator", "ScaleAdd")
    )
    declared = tmp_path / "acme.py"
    declared.write_text(text.replace('("f32", 1.0)}', f'("f32", 1.0)}}, library={str(built)!r}'))
    for order in ([declared, built], [built, declared]):
        od.plugins.reset()
        check_run(od.InferenceSession(model(), fallback="error", plugins=order))
        (kernel,) = registrations.kernels()
        assert kernel.origin == str(declared)


def test_kernels_that_only_program_images_name(tmp_path: Path) -> None:
    name = "strange::blend@1"
    header = specs_header([replace(BLEND, name=name)], "blend_specs")
    one, two = (tmp_path / folder for folder in ("one", "two"))
    for folder in (one, two):
        folder.mkdir()
    first, second = blend_as(name, header, one), blend_as(name, header, two)
    (plugin,) = od.plugins.load(first)
    assert plugin.kernels == (name,) and plugin.operators == () and name in od.kernels()
    with pytest.raises(od.KernelLibraryError) as refused:
        od.plugins.load(second)
    assert str(first) in str(refused.value) and str(second) in str(refused.value)
    (plugin,) = od.plugins.load(second, on_conflict="first")
    assert plugin.kernels == () and str(first) in plugin.skipped[0]


@pytest.mark.parametrize("damage", ["empty", "text", "cut", "head", "zeros"])
def test_damaged_libraries(damage: str, built: Path, tmp_path: Path) -> None:
    data = built.read_bytes()
    file = tmp_path / "libacme.so"
    bad = {
        "empty": b"",
        "text": b"int main;",
        "cut": data[: len(data) // 2],
        "head": data[:64],
        "zeros": bytes(4096),
    }
    file.write_bytes(bad[damage])
    with pytest.raises(od.KernelLibraryError, match=str(file)):
        od.plugins.load(file)
    assert registrations.kernels() == []
