# SPDX-License-Identifier: Apache-2.0
"""The transaction format: the table of opcodes, reading, writing, converting, containers of overlays."""
