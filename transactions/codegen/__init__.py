# SPDX-License-Identifier: Apache-2.0
"""Files that are generated from the tables: C++ headers and the table of opcodes in the README."""
