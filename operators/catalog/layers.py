# SPDX-License-Identifier: Apache-2.0
"""Which catalogs a selection asks: those of the call, those of the environment, the one that ships.

``ONEDISPATCH_CATALOG`` names files or folders, with colons between; the first of them is asked first. The
name ``none`` ends the list: what follows is not asked, nor are the layers below.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from onedispatch.operators.catalog.catalog import Catalog
from onedispatch.operators.catalog.container import SUFFIX, TEXT_SUFFIX
from onedispatch.operators.catalog.selector import CatalogSearch
from onedispatch.operators.scheduling.select import SEARCH, Search
from onedispatch.transactions.base.errors import CatalogError
from onedispatch.transactions.base.handlers import reraise_from_handler

ENVIRONMENT = "ONEDISPATCH_CATALOG"
NONE = "none"
SHIPPED = Path(__file__).parent / "shipped"

_Stamp = tuple[tuple[str, int, int], ...]
_Key = tuple[tuple[_Stamp, ...], tuple[str, ...]]
_KEPT = 8  # selectors, with what they have found


def layers(given: Sequence[str] | None) -> list[str]:
    """The paths of catalogs that are asked, in this order."""
    named = [*(given or ()), *filter(None, os.environ.get(ENVIRONMENT, "").split(os.pathsep))]
    if NONE in named:
        return named[: named.index(NONE)]
    return [*named, *([str(SHIPPED)] if any(SHIPPED.glob(f"*{SUFFIX}")) else [])]


def selector_of(given: Sequence[str] | None = None, pins: Sequence[str] = ()) -> Search:
    """The search with its layers of catalogs; the same one as before while files stay as they are.

    Raises ``CatalogError`` where a path that a caller or the environment names is no catalog.
    """
    paths = layers(given)
    if not paths and not pins:
        return SEARCH
    key = tuple(map(_stamp, paths)), tuple(sorted(pins))
    found = _SELECTORS.get(key)
    if found is None:
        found = _SELECTORS[key] = CatalogSearch([Catalog(path) for path in paths], pins)
        while len(_SELECTORS) > _KEPT:
            _SELECTORS.popitem(last=False)
    return found


_SELECTORS: OrderedDict[_Key, CatalogSearch] = OrderedDict()


def _stamp(path: str) -> _Stamp:
    """A path, and what changes when its content does: files are replaced, but for text, which people edit."""
    try:
        texts = []
        if os.path.isdir(path):
            texts = [os.path.join(path, name) for name in os.listdir(path) if name.endswith(TEXT_SUFFIX)]
        return _stamp_of_file(path, True), *(
            _stamp_of_file(one, os.path.exists(one)) for one in sorted(texts)
        )
    except (OSError, ValueError) as error:
        reraise_from_handler(error)
        reason = getattr(error, "strerror", None) or str(error)
        remedy = f"name one that exists, or {NONE!r}; see {ENVIRONMENT} too"
        raise CatalogError(f"catalog {path!r}", reason, "a catalog's file or folder", remedy) from error


def _stamp_of_file(path: str, follow: bool) -> tuple[str, int, int]:
    """The stamp of a file; of a link where nothing is to ``follow``."""
    status = os.stat(path, follow_symlinks=follow)
    return os.path.realpath(path), status.st_mtime_ns, status.st_ino
