# SPDX-License-Identifier: Apache-2.0
"""A compiled model: as a value, as plain data, and as a file."""
