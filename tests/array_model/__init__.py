# SPDX-License-Identifier: Apache-2.0
"""The slow, obvious model of the array: one module per concept, word by word, no time."""
