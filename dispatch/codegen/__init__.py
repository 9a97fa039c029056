# SPDX-License-Identifier: Apache-2.0
"""The generated parts of ``ARCHITECTURE.md``: the list of passes, and the folders with what they import."""
