# SPDX-License-Identifier: Apache-2.0
"""Arrays of NumPy's files: .npy and .npz."""

from __future__ import annotations

import zipfile
import zlib

import numpy as np

from onedispatch.dispatch.base.mapped import Array
from onedispatch.transactions.base.errors import InputError, reason_of
from onedispatch.transactions.base.files import FilePath, reading
from onedispatch.transactions.base.handlers import reraise_from_handler

# What numpy.load raises on files that are none of its own, or damaged ones.
_UNREADABLE = (
    *(OSError, ValueError, AttributeError, TypeError, EOFError, KeyError, NotImplementedError),
    *(zipfile.BadZipFile, zlib.error),
)


def read_arrays(path: FilePath, where: str, accepted: str, given: str = "") -> dict[str, Array]:
    """Returns the arrays of an .npz by name; that of an .npy has the name "".

    Raises ``InputError``, which names ``where`` and says what is ``accepted`` there, for anything else;
    ``given`` is what the caller wrote, where that is not the path alone.
    """
    try:
        with reading(path) as file:
            found = np.load(file, allow_pickle=False)
            if isinstance(found, np.ndarray):
                return {"": found}
            with found:
                return {key: found[key] for key in found.files}
    except (InputError, *_UNREADABLE) as error:
        reraise_from_handler(error)
        raise InputError(
            where, f"{(given or str(path))!r}: {reason_of(error, str(path))}", accepted
        ) from error
