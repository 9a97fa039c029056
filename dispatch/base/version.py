# SPDX-License-Identifier: Apache-2.0
"""The version of this package."""

from __future__ import annotations


def installed_version() -> str:
    """Returns the version that is installed; ``0+unknown`` of a source tree that was not."""
    from importlib import metadata  # which takes as long as all of the package

    try:
        return metadata.version("onedispatch")
    except metadata.PackageNotFoundError:
        return "0+unknown"
