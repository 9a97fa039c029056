# SPDX-License-Identifier: Apache-2.0
"""From what a caller gives to a compiled model: options, compiling, the executables of one model."""
