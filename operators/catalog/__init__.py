# SPDX-License-Identifier: Apache-2.0
"""Solutions that were measured: a tuner's log of them, and the catalogs that are made of it."""
