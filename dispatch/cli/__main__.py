# SPDX-License-Identifier: Apache-2.0
"""``python -m onedispatch.dispatch.cli``: the same as the console script."""

from onedispatch.dispatch.cli import main

main()
