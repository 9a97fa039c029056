# SPDX-License-Identifier: Apache-2.0
"""Models whose programs name kernels that no plug-in brings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from onnx import TensorProto, helper

import onedispatch as od
from onedispatch.dispatch.compiler.executable import DeviceStep
from onedispatch.dispatch.plugins.missing import check_known
from onedispatch.operators.emission.image import EMPTY, Image, Linked, names_in
from onedispatch.operators.emission.overlay import overlay_transaction
from onedispatch.operators.plugin import registrations
from onedispatch.transactions import Xclbin
from tests.unit.test_plugin_registrations import offer

PATH = "ONEDISPATCH_PLUGIN_PATH"
STRANGE = Linked(0x12345678, 1, 512, "acme::f@1")


pytestmark = pytest.mark.usefixtures("no_plugins")


def with_image(image: Image) -> od.CompiledModel:
    """A compiled Relu whose program is said to carry ``image``."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 8]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ends[:1], ends[1:])
    model = od.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    ((key, one),) = model.executables.items()
    (step,) = one.steps
    assert isinstance(step, DeviceStep)
    return replace(model, executables={key: replace(one, steps=(replace(step, image=image),))})


def test_a_saved_model_names_what_is_missing_and_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = tmp_path / "other.py"
    plugin.write_text("import onedispatch")
    (tmp_path / "another.py").write_text("")
    monkeypatch.setenv(PATH, str(tmp_path))
    model, path = with_image(Image((STRANGE,))), tmp_path / "m.od"
    model.save(path)
    for run in (lambda: od.load(path), lambda: od.InferenceSession(model)):
        with pytest.raises(od.KernelLibraryError) as missing:
            run()
        text = str(missing.value)
        assert type(missing.value).__name__ == "KernelNotFoundError"
        assert "kernel acme::f@1 (digest 0x12345678), which no plug-in brings" in text
        assert str(plugin) in text and PATH in text and "--plugin" in text


def test_a_kernel_of_that_name_that_is_declared_otherwise() -> None:
    found = offer("acme::f@1", "/some/acme.py")
    registrations.add_kernel(found)
    with pytest.raises(od.KernelLibraryError) as missing:
        od.InferenceSession(with_image(Image((STRANGE,))))
    text = f"which /some/acme.py declares otherwise (digest 0x{found.kernel.digest:08X})"
    assert f"acme::f@1 (digest 0x12345678), {text}" in str(missing.value)


def test_what_reloads_bring_is_known_by_name() -> None:
    image = Image((STRANGE, STRANGE._replace(name="acme::g@2", digest=3)))
    assert names_in(str(image)) == ["acme::f@1", "acme::g@2"] and names_in(str(EMPTY)) == []
    with pytest.raises(od.KernelLibraryError, match="kernel acme::g@2, which no plug-in brings"):
        check_known("here", [], [str(EMPTY), str(replace(image, linked=image.linked[1:]))])


def test_an_xclbin_names_the_digest_and_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = od.transactions.find_device("npu2")
    overlay = Xclbin(target.name, {0: overlay_transaction(target, Image((STRANGE,)))})
    (tmp_path / "other.py").write_text("")
    (tmp_path / "another.py").write_text("")
    monkeypatch.setenv(PATH, str(tmp_path))
    device, binary = od.xrt.device(0), od.xrt.xclbin(overlay.to_bytes())
    device.register_xclbin(binary)
    with pytest.raises(od.KernelError) as missing:
        od.xrt.kernel(od.xrt.hw_context(device, binary.get_uuid()), binary.get_kernels()[0].get_name())
    assert type(missing.value).__name__ == "KernelNotFoundError"
    assert isinstance(missing.value, od.SimulationError)
    text = str(missing.value)
    assert "digest 0x12345678, which no library has" in text and f"{tmp_path}/other.py" in text
