# SPDX-License-Identifier: Apache-2.0
"""Tools beside compilation: a model zoo, comparisons, and checks and emulation of transactions."""
