# SPDX-License-Identifier: Apache-2.0
"""Kernels of acme; OneDispatch asks for the library through the entry point in pyproject.toml."""

from pathlib import Path


def libraries() -> list[Path]:
    return [Path(__file__).with_name("libacme.so")]
