# SPDX-License-Identifier: Apache-2.0
"""Samples to run a model on: an .npz, an .npy, or a folder of these, each checked against the inputs.

One file has many samples. Its arrays have the names of inputs, or one array of any name is for the only
input. With one dimension more than its input, an array has a sample in each element of its first dimension;
with as many, its rows are cut into samples of the input's first dimension, 1 where that is open. A folder
has a sample in each of its .npz and .npy files, in the order of their names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from onedispatch.dispatch.base.array_files import read_arrays
from onedispatch.dispatch.frontend.graph import Array, Value
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.text import counted, did_you_mean

Feed = dict[str, Array]
SUFFIXES = (".npz", ".npy")
FORMS = "an .npz with arrays by the names of inputs, an .npy for the only input, or a folder of these"

_HELD_OUT_EVERY = 4


@dataclass(frozen=True)
class Dataset(Sequence[Feed]):
    """Feeds of a model, each made when it is asked for.

    Attributes:
        named: where they came from.
        places: which samples of the source there are, in order.
        aside: arrays that name no input, as labels do: left out.
    """

    named: str
    places: Sequence[int]
    load: Callable[[int], Feed]
    aside: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return replace(self, places=self.places[place])
        return self.load(self.places[place])

    def __iter__(self) -> Iterator[Feed]:
        return map(self.load, self.places)

    def spread(self, most: int) -> Dataset:
        """At most so many of the samples, evenly spread over all."""
        count = len(self.places)
        if count <= most:
            return self
        return replace(self, places=[self.places[i * count // most] for i in range(most)])

    def parted(self) -> tuple[Dataset, Dataset]:
        """Samples to calibrate with, and those held out: every fourth, the last of two or three."""
        every = min(_HELD_OUT_EVERY, len(self.places))
        held = set(range(every - 1, len(self.places), every))
        parts: tuple[list[int], list[int]] = ([], [])
        for place, sample in enumerate(self.places):
            parts[place in held].append(sample)
        return replace(self, places=parts[0]), replace(self, places=parts[1])


def read_dataset(path: str, inputs: Sequence[Value], option: str = "--data") -> Dataset:
    """Returns the samples of a file or a folder, for inputs with these types and shapes.

    Raises ``InputError`` where there is none, or what is there does not fit; of a folder, when a file is
    asked for.
    """
    for value in inputs:
        if value.dtype is None or value.dtype.hasobject or value.shape is None:
            raise InputError(option, f"a model with the input {value}", "inputs that are tensors of numbers")
    if Path(path).is_dir():
        return _folder(Path(path), inputs, option)
    where = f"{option} {path}"
    arrays, aside = _named(read_arrays(path, option, FORMS), inputs, where)
    parts = {value.name: _cut(where, value, arrays[value.name]) for value in inputs}
    counts = {name: len(part) for name, part in parts.items()}
    if len(set(counts.values())) > 1:
        given = ", ".join(f"{name}: {counted(count, 'sample')}" for name, count in counts.items())
        raise InputError(where, given, "as many samples of every input")
    count = next(iter(counts.values()), 0)
    if not count:
        raise InputError(where, "no sample", "one sample or more")
    _check_finite(where, arrays)
    return Dataset(path, range(count), lambda i: {name: part[i] for name, part in parts.items()}, aside)


def _folder(path: Path, inputs: Sequence[Value], option: str) -> Dataset:
    files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES and file.is_file())
    if not files:
        others = counted(sum(1 for _ in path.iterdir()), "other entry")
        raise InputError(f"{option} {path}", f"no .npz and no .npy file, {others}", FORMS)

    def load(place: int) -> Feed:
        where = f"{option} {files[place]}"
        arrays, _ = _named(read_arrays(files[place], option, FORMS), inputs, where)
        feed = {value.name: _whole(where, value, arrays[value.name]) for value in inputs}
        _check_finite(where, feed)
        return feed

    return Dataset(str(path), range(len(files)), load)


def _named(
    arrays: Mapping[str, Array], inputs: Sequence[Value], where: str
) -> tuple[dict[str, Array], tuple[str, ...]]:
    """The arrays by input, and the names of others."""
    names = [value.name for value in inputs]
    if len(names) == 1 and len(arrays) == 1:
        return {names[0]: next(iter(arrays.values()))}, ()
    missing = [name for name in names if name not in arrays]
    if missing:
        near = next((hint for one in arrays if (hint := did_you_mean(one, missing))), "")
        given = f"{', '.join(one or 'an array without a name' for one in arrays) or 'no array'}"
        raise InputError(where, given, f"an array for each input: {', '.join(names)}", near)
    aside = tuple(one for one in arrays if one not in names)
    return {name: arrays[name] for name in names}, aside


def _cut(where: str, value: Value, array: Array) -> Array:
    """The samples that an array has of an input, along its first dimension."""
    array = _typed(where, value, array)
    shape = value.shape or ()
    if _fits(shape, array.shape[1:]) and array.ndim > len(shape):
        return array
    size = shape[0] if shape and isinstance(shape[0], int) else 1
    if shape and size and array.ndim and _fits(shape[1:], array.shape[1:]):
        whole, left = divmod(array.shape[0], size)
        if not left:
            return array.reshape(whole, size, *array.shape[1:])
    raise _unfit(where, value, array)


def _whole(where: str, value: Value, array: Array) -> Array:
    """The one sample that an array is of an input; a first dimension of 1 may be missing."""
    array = _typed(where, value, array)
    shape = value.shape or ()
    if array.ndim == len(shape) - 1 and (shape[0] == 1 or not isinstance(shape[0], int)):
        array = array[None]
    if not _fits(shape, array.shape):
        raise _unfit(where, value, array)
    return array


def _fits(shape: Sequence[object], given: Sequence[int]) -> bool:
    if len(shape) != len(given):
        return False
    return all(not isinstance(d, int) or d == size for d, size in zip(shape, given, strict=True))


def _typed(where: str, value: Value, array: Array) -> Array:
    """The array in its input's type: another width of the same kind is converted, where values fit."""
    wanted = value.dtype
    assert wanted is not None
    if array.dtype == wanted:
        return array
    kinds = {array.dtype.kind, wanted.kind}
    near = kinds == {"f"} or kinds <= {"i", "u"}
    with np.errstate(over="ignore"):
        turned = array.astype(wanted) if near else array
    if not near or (wanted.kind in "iu" and not np.array_equal(turned, array)):
        given = f"{value.name!r} of {array.dtype}"
        raise InputError(where, given, f"{wanted}", f"convert it as the model was trained: .astype({wanted})")
    return turned


def _unfit(where: str, value: Value, array: Array) -> InputError:
    given = f"{value.name!r} of shape {list(array.shape)}"
    accepted = f"samples of {value}, in rows of the first dimension or along one more before it"
    return InputError(where, given, accepted, "--shape says the sizes of open dimensions")


def _check_finite(where: str, arrays: Mapping[str, Array]) -> None:
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not (finite := np.isfinite(array)).all():
            bad = int(finite.size - np.count_nonzero(finite))
            first = tuple(int(i) for i in np.argwhere(~finite)[0])
            given = f"{name!r} with {counted(bad, 'element')} that are NaN or infinite, the first at {first}"
            raise InputError(where, given, "finite numbers", "scales and errors mean nothing with them")
