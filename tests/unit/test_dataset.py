# SPDX-License-Identifier: Apache-2.0
"""Data sets: which samples a file or a folder has, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onedispatch.dispatch.frontend.graph import Value
from onedispatch.dispatch.tools.dataset import read_dataset
from onedispatch.transactions.base.errors import InputError

IMAGE = Value("image", "tensor(float)", ("N", 1, 4, 4))
TOKENS = Value("tokens", "tensor(int64)", (1, 6))


def images(count: int) -> Any:
    return np.random.default_rng(count).standard_normal((count, 1, 4, 4)).astype(np.float32)


def test_rows_of_an_open_batch_are_samples(tmp_path: Path) -> None:
    x = images(7)
    np.savez(tmp_path / "d.npz", image=x, labels=np.arange(7))
    data = read_dataset(str(tmp_path / "d.npz"), [IMAGE])
    assert len(data) == 7 and data.aside == ("labels",)
    np.testing.assert_array_equal(data[3]["image"], x[3:4])
    assert [feed["image"].shape for feed in data] == [(1, 1, 4, 4)] * 7


def test_rows_of_a_fixed_batch_are_cut_into_batches(tmp_path: Path) -> None:
    x = images(6)
    np.save(tmp_path / "d.npy", x)
    data = read_dataset(str(tmp_path / "d.npy"), [Value("image", "tensor(float)", (2, 1, 4, 4))])
    assert len(data) == 3
    np.testing.assert_array_equal(data[1]["image"], x[2:4])
    with pytest.raises(InputError, match=r"shape \[6, 1, 4, 4\]"):
        read_dataset(str(tmp_path / "d.npy"), [Value("image", "tensor(float)", (4, 1, 4, 4))])


def test_one_more_dimension_is_of_samples(tmp_path: Path) -> None:
    x = images(6).reshape(3, 2, 1, 4, 4)
    np.savez(tmp_path / "d.npz", x)
    data = read_dataset(str(tmp_path / "d.npz"), [IMAGE])
    assert len(data) == 3
    np.testing.assert_array_equal(data[2]["image"], x[2])


def test_files_of_a_folder_are_samples_in_the_order_of_their_names(tmp_path: Path) -> None:
    x = images(3)
    for name, place in (("b", 1), ("a", 0), ("c", 2)):
        np.savez(tmp_path / f"{name}.npz", image=x[place], tokens=np.full((1, 6), place, np.int32))
    (tmp_path / "notes.txt").write_text("no sample")
    data = read_dataset(str(tmp_path), [IMAGE, TOKENS])
    assert len(data) == 3
    np.testing.assert_array_equal(np.concatenate([feed["image"] for feed in data]), x)
    assert [int(feed["tokens"][0, 0]) for feed in data] == [0, 1, 2] and data[0]["tokens"].dtype == np.int64


def test_parts_and_spreads_keep_the_order(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", images(10))
    data = read_dataset(str(tmp_path / "d.npy"), [IMAGE])
    calibration, held_out = data.parted()
    assert list(held_out.places) == [3, 7] and list(calibration.places) == [0, 1, 2, 4, 5, 6, 8, 9]
    assert list(data.spread(4).places) == [0, 2, 5, 7] and list(data.spread(20).places) == list(range(10))
    assert [list(part.places) for part in data[:2].parted()] == [[0], [1]]


def test_widths_are_converted_where_values_fit(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", image=images(2).astype(np.float64), tokens=np.ones((2, 6), np.uint8))
    feed = read_dataset(str(tmp_path / "d.npz"), [IMAGE, TOKENS])[1]
    assert feed["image"].dtype == np.float32 and feed["tokens"].dtype == np.int64


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "nan": ({"image": np.full((2, 1, 4, 4), np.nan, np.float32)}, "32 elements that are NaN or infinite"),
    "shape": ({"image": np.zeros((2, 1, 4, 5), np.float32)}, r"shape \[2, 1, 4, 5\]"),
    "bytes": ({"image": np.zeros((2, 1, 4, 4), np.uint8)}, "of uint8"),
    "name": ({"imag": images(2), "labels": np.arange(2)}, "did you mean 'image'"),
    "none": ({}, "no array"),
    "empty": ({"image": images(2)[:0]}, "no sample"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_is_refused(tmp_path: Path, case: str) -> None:
    arrays, said = BAD[case]
    np.savez(tmp_path / "d.npz", **arrays)
    with pytest.raises(InputError, match=f"(?i){said}"):
        read_dataset(str(tmp_path / "d.npz"), [IMAGE])


def test_inputs_have_as_many_samples_as_each_other(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", image=images(2), tokens=np.zeros((3, 6), np.int64))
    with pytest.raises(InputError, match="image: 2 samples, tokens: 3 samples"):
        read_dataset(str(tmp_path / "d.npz"), [IMAGE, TOKENS])


def test_integers_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", np.full((1, 6), 1 << 40))
    with pytest.raises(InputError, match="of int64"):
        read_dataset(str(tmp_path / "d.npy"), [Value("tokens", "tensor(int32)", (1, 6))])


def test_folders_without_samples_and_files_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no \.npz and no \.npy file"):
        read_dataset(str(tmp_path), [IMAGE])
    (tmp_path / "d.npz").write_text("no archive")
    with pytest.raises(InputError, match=r"d\.npz"):
        read_dataset(str(tmp_path / "d.npz"), [IMAGE])
    with pytest.raises(InputError, match="absent"):
        read_dataset(str(tmp_path / "absent"), [IMAGE])
    np.savez(tmp_path / "d.npz", image=images(2)[0, 0])
    with pytest.raises(InputError, match="shape"):
        read_dataset(str(tmp_path), [IMAGE])[0]
    with pytest.raises(InputError, match="tensors of numbers"):
        read_dataset(str(tmp_path), [Value("s", "seq(tensor(float))")])
