# SPDX-License-Identifier: Apache-2.0
"""Where plug-ins are looked for, in which order they are loaded, and what is said of broken ones."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

import onedispatch as od
from onedispatch import InputError, KernelLibraryError
from onedispatch.dispatch.plugins import discovery
from onedispatch.dispatch.plugins.discovery import PluginWarning
from onedispatch.dispatch.plugins.entry_points import GROUP
from onedispatch.operators.plugin import registrations

PATH, CONFLICT = "ONEDISPATCH_PLUGIN_PATH", "ONEDISPATCH_PLUGIN_CONFLICT"
PLUGIN = """
from dataclasses import dataclass
from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.kernel import Kernel, Tensor
from onedispatch.operators.plugin import registrations

@dataclass(frozen=True)
class Offer:
    kernel: Kernel
    origin: str
    functions = {}

for name in NAMES.split():
    kernel = Kernel(name, (Tensor("x", "..."),), (Tensor("y", "..."),), cost=e.ELEMENTS, code_bytes=512)
    registrations.add_kernel(Offer(kernel, __file__))
"""


pytestmark = pytest.mark.usefixtures("no_plugins")


def write(file: Path, names: str = "acme::f@1", extra: str = "") -> Path:
    """A Python plug-in that brings kernels with these names."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"NAMES = {names!r}\n{PLUGIN}\n{extra}")
    return file.resolve()


def known() -> list[str]:
    return [one.kernel.name for one in registrations.kernels()]


# -- one file -------------------------------------------------------------------------------------


def test_a_file_is_loaded_and_told_of(tmp_path: Path) -> None:
    file = write(tmp_path / "acme.py", "acme::f@1 acme::g@1")
    (plugin,) = od.plugins.load(file)
    assert plugin.file == str(file) and plugin.kernels == ("acme::f@1", "acme::g@1") and not plugin.skipped
    assert str(plugin) == f"{file} (load): kernels acme::f@1, acme::g@1"
    assert od.plugins.loaded() == [plugin] and {"acme::f@1", "od::gemm@1"} <= set(od.kernels())


def test_the_same_file_again_is_no_conflict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(
        tmp_path / "with space" / "acme.py",
        extra="COUNT.append(1)".replace("COUNT", "__import__('sys').runs"),
    )
    monkeypatch.setattr(sys, "runs", [], raising=False)
    link = tmp_path / "link.py"
    link.symlink_to(file)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(PATH, f"{file}:{link}:with space/acme.py:with space:./link.py")
    plugins = {
        plugin.file for given in (file, link, "link.py", "with space") for plugin in od.plugins.load(given)
    }
    assert plugins == {str(file)} and len(od.plugins.loaded()) == 1
    assert sys.runs == [1]  # type: ignore[attr-defined]


def test_a_folder_brings_its_plugins_but_not_what_lies_beside_them(tmp_path: Path) -> None:
    write(tmp_path / "b.py", "acme::b@1")
    write(tmp_path / "a.py", "acme::a@1")
    for beside in ("test_a.py", "a_test.py", "_a.py", "__init__.py", "conftest.py", "setup.py", "README.md"):
        (tmp_path / beside).write_text("raise RuntimeError('no plug-in')")
    (tmp_path / "helper.py").write_text("HELP = 1")
    (tmp_path / "deeper").mkdir()
    assert [p.kernels for p in od.plugins.load(tmp_path)] == [("acme::a@1",), ("acme::b@1",), ()]


def test_a_plugin_with_classes_that_ask_for_their_module(tmp_path: Path) -> None:
    extra = "import pickle\nassert pickle.loads(pickle.dumps(Offer(kernel, ''))).kernel.name == kernel.name"
    od.plugins.load(write(tmp_path / "acme.py", extra=extra))


# What is named -> what is said of it.
WRONG = {
    "none.so": "no such file",
    "none": "no such file",
    "text.txt": "given the file text.txt; accepted: a kernel library",
    "empty": "a folder without plug-ins",
    "other": "a folder without plug-ins among 2 files",
    "loop.py": "(?i)too many levels of symbolic links|loop",
    "dangling.so": "no such file",
    "no\0file.py": "",
    "fifo.py": "no plain file",
    "quiet.py": "registers nothing",
    "syntax.py": r"syntax.py, line 2: given SyntaxError",
    "raises.py": r"raises.py, line 3: given ZeroDivisionError: division by zero",
    "exits.py": r"exits.py, line 1: given SystemExit: 3",
    "bytes.py": "bytes.py: given SyntaxError",
    "imports.py": "imports.py, line 1: given ModuleNotFoundError",
    "twice.py": "kernel acme::f@1 twice",
    "ours.py": "kernel od::mine@1; accepted: other namespaces",
    "text.so": "text.so",
    "directory.so": "a folder without plug-ins",
}


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    """A folder with all that ``WRONG`` names."""
    for folder in ("empty", "other", "directory.so"):
        (tmp_path / folder).mkdir()
    texts = {
        "text.txt": "", "other/a.txt": "", "other/test_a.py": "", "quiet.py": "x = 1",
        "syntax.py": "x = 1\ny = (\n", "raises.py": "x = 1\n\n1 / 0", "exits.py": "raise SystemExit(3)",
        "imports.py": "import there_is_no_such_module", "text.so": "not an object",
    }  # fmt: skip
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "bytes.py").write_bytes(b"\xff\0\xfe")
    write(tmp_path / "twice.py", "acme::f@1 acme::f@1")
    write(tmp_path / "ours.py", "od::mine@1")
    (tmp_path / "loop.py").symlink_to(tmp_path / "loop.py")
    (tmp_path / "dangling.so").symlink_to(tmp_path / "gone")
    os.mkfifo(tmp_path / "fifo.py")
    return tmp_path


@pytest.mark.parametrize("name", [name for name in WRONG if "\0" not in name])
def test_what_is_no_plugin_is_refused_by_name(
    name: str, wrong: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = wrong / name
    with pytest.raises(KernelLibraryError, match=WRONG[name]) as refused:
        od.plugins.load(file)
    assert str(file) in str(refused.value) and refused.value.status < 0
    monkeypatch.setenv(PATH, f"{write(wrong / 'good.py', 'acme::good@1')}:{file}")
    for _ in range(2):  # it is an error each time that it is needed, and what came before it stays
        with pytest.raises(KernelLibraryError) as refused:
            od.kernels()
        assert str(file) in str(refused.value)
    assert known() == ["acme::good@1"] and [p for p in sys.modules if "onedispatch_plugin_raises" in p] == []
    monkeypatch.setenv(PATH, str(wrong / "good.py"))
    assert "acme::good@1" in od.kernels()


def test_a_file_that_nobody_may_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(
        loader: SourceFileLoader, path: str
    ) -> bytes:  # root, as which tests may run, reads every file
        raise PermissionError(errno.EACCES, "Permission denied", path)

    file = write(tmp_path / "acme.py")
    monkeypatch.setattr(SourceFileLoader, "get_data", refuse)
    with pytest.raises(KernelLibraryError, match=f"{file}: given PermissionError"):
        od.plugins.load(file)


@pytest.mark.parametrize("given", [None, 3, "", "a\0.py", b"acme.py", ["acme.py"]])
def test_what_is_no_path(given: object) -> None:
    with pytest.raises(InputError, match="the plug-in to load"):
        od.plugins.load(given)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="on_conflict: given 'last'; accepted: 'error', 'first'"):
        od.plugins.load("acme.py", "last")  # type: ignore[arg-type]


def test_relative_paths_say_from_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KernelLibraryError, match=f"looked for from {tmp_path}"):
        od.plugins.load("acme.so")


# -- the path list --------------------------------------------------------------------------------


def test_the_path_list_is_read_at_the_first_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [write(tmp_path / f"{name}.py", f"acme::{name}@1") for name in "ab"]
    monkeypatch.setenv(PATH, f":{files[1]}::{files[0]}:")
    assert od.plugins.search_path() == [str(files[1]), str(files[0])] and known() == []
    assert [plugin.file for plugin in od.plugins.loaded()] == [str(files[1]), str(files[0])]
    assert {plugin.named_by for plugin in od.plugins.loaded()} == {PATH}
    monkeypatch.setenv(PATH, str(write(tmp_path / "c.py", "acme::c@1")))
    assert {"acme::a@1", "acme::c@1"} <= set(od.kernels())  # what is added later is loaded too
    monkeypatch.delenv(PATH)
    assert {"acme::a@1", "acme::c@1"} <= set(od.kernels())  # and what is loaded stays


def test_what_is_named_comes_before_the_path_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed, named = write(tmp_path / "listed.py"), write(tmp_path / "named.py")
    monkeypatch.setenv(PATH, str(listed))
    monkeypatch.setenv(CONFLICT, "first")
    od.plugins.load(named)
    first, second = od.plugins.loaded()
    assert (first.file, second.file) == (str(named), str(listed))
    assert second.kernels == () and str(named) in second.skipped[0]
    (kernel,) = registrations.kernels()
    assert kernel.origin == str(named)


# -- two of one name ------------------------------------------------------------------------------


def test_a_conflict_names_both_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = write(tmp_path / "a.py"), write(tmp_path / "b.py", "acme::e@1 acme::f@1")
    od.plugins.load(a)
    with pytest.raises(KernelLibraryError) as refused:
        od.plugins.load(b)
    assert str(a) in str(refused.value) and str(b) in str(refused.value)
    assert refused.value.status == registrations.TAKEN and known() == ["acme::f@1"]
    (plugin,) = od.plugins.load(b, on_conflict="first")
    assert plugin.kernels == ("acme::e@1",) and len(plugin.skipped) == 1


def test_a_copy_of_a_file_is_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a = write(tmp_path / "a.py")
    b = write(tmp_path / "deeper" / "a.py")
    monkeypatch.setenv(PATH, f"{a}:{b}")
    with pytest.raises(KernelLibraryError, match="already"):
        od.plugins.loaded()
    monkeypatch.setenv(CONFLICT, "first")
    assert [plugin.kernels for plugin in od.plugins.loaded()] == [("acme::f@1",), ()]


def test_the_environment_says_one_of_two_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CONFLICT, "last")
    for asked in (od.plugins.loaded, od.kernels, lambda: od.plugins.load(tmp_path)):
        with pytest.raises(InputError, match=f"{CONFLICT}: given 'last'; accepted: 'error', 'first'"):
            asked()


# -- installed packages ---------------------------------------------------------------------------

Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a package with an entry point on ``sys.path``, as pip would."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    modules: list[str] = []

    def one(package: str, value: str, module: str = "", source: str = "") -> Path:
        info = site / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{package} = {value}\n")
        name = module or value.partition(":")[0]
        modules.append(name)
        if source:
            (site / f"{name}.py").write_text(source)
        return site

    yield one
    for name in modules:
        sys.modules.pop(name, None)


def test_an_installed_module_registers_its_kernels(install: Install) -> None:
    site = install("acme", "acme_kernels", source=f"NAMES = 'acme::f@1'\n{PLUGIN}")
    (plugin,) = od.plugins.loaded()
    assert plugin.kernels == ("acme::f@1",) and "package acme" in plugin.file
    found = registrations.named("acme::f@1")
    assert found is not None and found.origin == str(site / "acme_kernels.py")


@pytest.mark.parametrize("value", ["acme_paths:libraries", "acme_paths:LIBRARIES", "acme_paths:ONE"])
def test_an_installed_package_names_files(value: str, install: Install) -> None:
    source = "from pathlib import Path\nONE = 'kernels.py'\nLIBRARIES = (Path('kernels.py'),)\n"
    site = install("acme", value, source=source + "def libraries():\n    return [ONE, ONE]\n")
    file = write(site / "kernels.py")
    (plugin,) = od.plugins.loaded()
    assert plugin.file == str(file) and plugin.named_by.startswith("entry point acme = acme_paths:")


def test_a_broken_package_is_a_warning_and_the_others_are_there(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("broken", "broken_kernels", source="raise RuntimeError('half done')")
    install("gone", "there_is_no_such_module")
    install("lacks", "lacks_it:name", source="other = 1")
    install("number", "number_it:value", source="value = 7")
    install("astray", "astray_it:value", source="value = ['none.so']")
    install("works", "works_kernels", source=f"NAMES = 'works::f@1'\n{PLUGIN}")
    with pytest.warns(PluginWarning) as told:
        assert "works::f@1" in od.kernels()
    lines = [str(one.message) for one in told]
    for package in ("broken", "gone", "lacks", "number", "astray"):
        (line,) = [line for line in lines if f"package {package}" in line]
        assert line.startswith(f"entry point {package} = ") or "none.so" in line
    assert "RuntimeError: half done" in str(lines) and len(od.plugins.broken()) == 5
    assert "half done" in discovery.searched()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        od.kernels()


def test_a_package_with_a_wrong_rule_is_broken_and_two_with_one_rule_are_an_error(install: Install) -> None:
    rule = "import onedispatch as od\nod.frontend('onnx', domain='acme').op('X', to='Relu')"
    install("wrong", "wrong_rules", source=f"{rule}.default(alpha=1)\n")
    install("alpha", "alpha_rules", source=rule)
    with pytest.warns(PluginWarning, match=r"entry point wrong = wrong_rules of package wrong: .*'alpha'"):
        assert [plugin.rules for plugin in od.plugins.loaded()] == [("rule for acme::X",)]
    assert len(od.plugins.broken()) == 1
    od.plugins.reset()
    for name in ("alpha_rules", "wrong_rules"):
        sys.modules.pop(name, None)
    install("bravo", "bravo_rules", source=rule)
    with pytest.raises(od.RuleError, match="a second one"):
        od.plugins.loaded()


def test_two_packages_with_one_name_are_an_error(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("bravo", "alpha"):
        install(package, f"{package}_kernels", source=f"NAMES = 'acme::f@1'\n{PLUGIN}")
    with pytest.raises(KernelLibraryError, match=r"bravo.*alpha_kernels\.py"):
        od.kernels()
    for package in ("bravo", "alpha"):  # another process
        sys.modules.pop(f"{package}_kernels", None)
    od.plugins.reset()
    monkeypatch.setenv(CONFLICT, "first")
    first, second = od.plugins.loaded()
    assert first.kernels == ("acme::f@1",) and "alpha" in first.file and not second.kernels


def test_a_file_that_is_listed_and_installed_is_one_plugin(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = install("acme", "acme_paths:LIBRARIES", source="LIBRARIES = ['kernels.py']")
    monkeypatch.setenv(PATH, str(write(site / "kernels.py")))
    assert len(od.plugins.loaded()) == 1


# -- processes and threads ------------------------------------------------------------------------


def test_many_threads_ask_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = "import sys, time\nsys.runs.append(1)\ntime.sleep(0.2)"
    monkeypatch.setattr(sys, "runs", [], raising=False)
    monkeypatch.setenv(PATH, str(write(tmp_path / "acme.py", extra=slow)))
    found: list[list[str]] = []
    threads = [threading.Thread(target=lambda: found.append(od.kernels())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and all("acme::f@1" in names for names in found)
    assert sys.runs == [1]  # type: ignore[attr-defined]


def test_a_plugin_that_asks_for_kernels_while_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks = "import onedispatch\nassert 'od::gemm@1' in onedispatch.kernels()"
    monkeypatch.setenv(PATH, str(write(tmp_path / "acme.py", extra=asks)))
    assert "acme::f@1" in od.kernels()


FORKS = """
import os, sys, threading, time
import onedispatch as od
sys.started, sys.go = threading.Event(), threading.Event()
thread = threading.Thread(target=od.kernels)
thread.start()
sys.started.wait(20)
child = os.fork()
if child == 0:
    sys.go.set()
    os._exit(0 if "acme::f@1" in od.kernels() else 1)
status = os.waitpid(child, 0)[1]
sys.go.set()
thread.join()
sys.exit(status or "acme::f@1" not in od.kernels())
"""


def test_a_child_that_is_forked_while_plugins_are_loaded(tmp_path: Path) -> None:
    waits = "import sys\nsys.started.set()\nsys.go.wait(20)"
    environment = {**os.environ, PATH: str(write(tmp_path / "acme.py", extra=waits))}
    done = subprocess.run(
        [sys.executable, "-c", FORKS],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


# -- names ----------------------------------------------------------------------------------------


def test_names_as_the_c_interface_counts_them() -> None:
    names = od.kernels("npu2")
    n = len(names)
    assert names == sorted(names) and n > 5
    assert od.kernels("npu2", capacity=0) == ([], n) == od.kernels("npu2", capacity=n - 1)
    assert od.kernels("npu2", capacity=n) == (names, n) == od.kernels("npu2", capacity=n + 1)
    for wrong in (-1, 2**32, 1.5, "2", True):
        with pytest.raises(InputError, match="capacity"):
            od.kernels(capacity=wrong)  # type: ignore[arg-type]
    with pytest.raises(od.DeviceError, match="npu2"):
        od.kernels("npu9")
