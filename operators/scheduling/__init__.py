# SPDX-License-Identifier: Apache-2.0
"""From an index space to a schedule: which tiles, on which cores, in which order."""
