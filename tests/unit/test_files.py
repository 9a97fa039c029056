# SPDX-License-Identifier: Apache-2.0
"""Writing files: whole or not at all, and as what they were."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from onedispatch.transactions.base import files
from onedispatch.transactions.base.errors import CompiledModelError, InputError
from onedispatch.transactions.base.files import read_file, write_file, writing

NOBODY = 65534
OLD, NEW = b"old", b"new content"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "a.bin"
    path.write_bytes(OLD)
    return path


def only(path: Path) -> None:
    """Nothing but ``path`` lies in its folder."""
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_new_file_has_the_mode_that_the_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_file(tmp_path / "a.bin", NEW)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.bin").stat().st_mode) == 0o640
    assert (tmp_path / "a.bin").read_bytes() == NEW
    only(tmp_path / "a.bin")


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755, 0o666])
def test_a_file_keeps_its_mode(target: Path, mode: int) -> None:
    target.chmod(mode)
    write_file(target, [NEW, b"", memoryview(b"!")])
    assert stat.S_IMODE(target.stat().st_mode) == mode
    assert target.read_bytes() == NEW + b"!"
    only(target)


def test_a_link_stays_and_its_target_changes(target: Path, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    for name, to in (("one", "../a.bin"), ("two", "one"), ("dangling", "../fresh.bin")):
        (tmp_path / "links" / name).symlink_to(to)
    write_file(tmp_path / "links" / "two", NEW)
    write_file(tmp_path / "links" / "dangling", NEW)
    assert target.read_bytes() == (tmp_path / "fresh.bin").read_bytes() == NEW
    assert all(link.is_symlink() for link in (tmp_path / "links").iterdir())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.bin", "fresh.bin", "links"]


def test_a_device_is_written_and_stays() -> None:
    write_file("/dev/null", NEW)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_full_device_is_a_typed_error() -> None:
    for content in (NEW, bytes(1 << 20)):
        with pytest.raises(CompiledModelError, match="No space left"):
            write_file("/dev/full", content, CompiledModelError)


def test_a_pipe_takes_the_content(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    write_file(tmp_path / "pipe", bytes(1 << 20))
    reader.join()
    assert got == [bytes(1 << 20)]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    only(tmp_path / "pipe")


WRITE_OUT = "from onedispatch.transactions.base.files import write_file; write_file('/dev/stdout', b'new')"


def test_standard_output_is_written_straight(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", WRITE_OUT], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"new", b"")
    with (tmp_path / "out").open("w+b") as out:
        subprocess.run([sys.executable, "-c", WRITE_OUT], stdout=out, check=True)
        assert os.fstat(out.fileno()).st_ino == (tmp_path / "out").stat().st_ino
    assert (tmp_path / "out").read_bytes() == b"new"


@pytest.mark.parametrize("path", ["", None, 3.5, "a\0b"])
def test_what_is_no_path_is_refused(path: object) -> None:
    with pytest.raises(InputError, match="a file to write"):
        write_file(path, NEW)  # type: ignore[arg-type]


def test_where_nothing_can_be_written(target: Path, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for path in (tmp_path, tmp_path / "no" / "folder", target / "below", tmp_path / "loop", "x" * 300):
        with pytest.raises(InputError, match="a place that can be written"):
            write_file(path, NEW)
    assert target.read_bytes() == OLD


def test_a_name_as_long_as_names_can_be(tmp_path: Path) -> None:
    write_file(tmp_path / ("n" * 255), NEW)
    assert (tmp_path / ("n" * 255)).read_bytes() == NEW


@pytest.mark.parametrize("failure", [KeyboardInterrupt, MemoryError, OSError(28, "No space left")])
def test_a_failure_leaves_the_old_content_and_no_partial(target: Path, failure: BaseException) -> None:
    def pieces() -> Iterator[bytes]:
        yield NEW
        raise failure

    with pytest.raises(InputError if isinstance(failure, OSError) else failure):  # type: ignore[arg-type]
        write_file(target, pieces())
    assert target.read_bytes() == OLD
    only(target)
    with pytest.raises(RuntimeError), writing(target.with_name("b.bin")) as file:
        file.write(NEW)
        raise RuntimeError
    only(target)


WRITER = """
import os, sys, signal
from onedispatch.transactions.base import files
if sys.argv[2] == "named":
    files._unnamed = lambda folder: None
def pieces():
    yield b"new content" * 1000
    print("begun", flush=True)
    signal.pause()
files.write_file(sys.argv[1], pieces())
"""


@pytest.mark.parametrize("how", ["unnamed", "named"])
def test_a_process_that_is_killed_leaves_nothing_for_long(target: Path, how: str) -> None:
    command = [sys.executable, "-c", WRITER, str(target), how]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"begun\n"
        if how == "named":  # it works: however old its file is, it stays
            (partial,) = target.parent.glob(".*.partial")
            os.utime(partial, (0, 0))
            write_file(target, OLD)
            assert partial.exists()
        process.kill()
    assert target.read_bytes() == OLD
    write_file(target, NEW)
    assert target.read_bytes() == NEW
    only(target)


def test_a_temporary_file_that_is_about_to_be_locked_stays(target: Path) -> None:
    fresh = target.with_name(f".{'0' * 16}.partial")
    fresh.write_bytes(b"")
    others = target.with_name(".mine.partial")
    others.write_bytes(b"")
    os.utime(others, (0, 0))
    write_file(target, NEW)
    assert fresh.exists() and others.exists()


@pytest.mark.parametrize("broken", ["_unnamed", "link"])
def test_file_systems_without_files_that_have_no_name(
    target: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(95, "Operation not supported")

    if broken == "link":
        monkeypatch.setattr(os, "link", refuse)
    else:
        monkeypatch.setattr(files, "_unnamed", lambda folder: None)
    target.chmod(0o640)
    write_file(target, NEW)
    assert target.read_bytes() == NEW and stat.S_IMODE(target.stat().st_mode) == 0o640
    only(target)
    write_file(target.with_name("b.bin"), NEW)
    assert target.with_name("b.bin").read_bytes() == NEW


@pytest.mark.parametrize("what", ["folder", "fifo", "/dev/zero", "socket", "absent", "large"])
def test_what_is_no_file_to_read(tmp_path: Path, what: str) -> None:
    path = tmp_path / "it"
    if what == "folder":
        path.mkdir()
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "socket":
        socket.socket(socket.AF_UNIX).bind(str(path))
    elif what == "large":
        with path.open("wb") as file:
            file.truncate(1 << 40)
    with pytest.raises(CompiledModelError):
        read_file("/dev/zero" if what.startswith("/") else path, CompiledModelError)


def test_pipes_that_are_open_are_read() -> None:
    code = "from onedispatch.transactions.base.files import read_file\n"
    code += "print(len(read_file('/dev/stdin', most=10)))"
    for data, said in ((b"x" * 10, b"10\n"), (b"", b"0\n"), (b"x" * 11, b"")):
        done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=False)
        assert done.stdout == said and (said or b"more than 10 bytes" in done.stderr)


def test_writers_of_one_path_do_not_disturb_each_other(target: Path) -> None:
    contents = [bytes([i]) * (200_000 + i) for i in range(8)]

    def save(content: bytes) -> None:
        for _ in range(20):
            write_file(target, content)
            assert target.read_bytes() in contents

    threads = [threading.Thread(target=save, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert target.read_bytes() in contents
    only(target)


AS_NOBODY = """
import os, sys
from onedispatch.transactions.base import files
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.files import write_file
os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    write_file(sys.argv[1], b"new content")
except InputError as error:
    sys.exit(str(error))
"""


def as_nobody(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", AS_NOBODY, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter, which pytest's own are not; needs root."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        if as_nobody(folder / "probe").stderr.count("Permission denied") != 1:
            pytest.skip("this system does not let go of root's rights")
        yield folder


def test_a_file_in_a_closed_folder_is_written_in_place(open_folder: Path) -> None:
    path = open_folder / "a.bin"
    path.write_bytes(OLD)
    path.chmod(0o666)
    assert as_nobody(path).returncode == 0
    assert path.read_bytes() == NEW
    only(path)
    path.chmod(0o644)
    assert "Permission denied" in as_nobody(path).stderr


def test_a_read_only_file_in_an_open_folder_stays(open_folder: Path) -> None:
    path = open_folder / "a.bin"
    path.write_bytes(OLD)
    path.chmod(0o444)
    open_folder.chmod(0o777)
    assert "Permission denied" in as_nobody(path).stderr
    assert path.read_bytes() == OLD
    only(path)


def test_the_owner_is_kept(open_folder: Path) -> None:
    path = open_folder / "a.bin"
    path.write_bytes(OLD)
    os.chown(path, NOBODY, NOBODY)
    write_file(path, NEW)  # as root
    assert (path.stat().st_uid, path.stat().st_gid) == (NOBODY, NOBODY)
    os.chown(path, 0, 0)
    path.chmod(0o666)
    open_folder.chmod(0o777)
    assert as_nobody(path).returncode == 0
    assert (path.read_bytes(), path.stat().st_uid) == (NEW, 0)
    only(path)
