# SPDX-License-Identifier: Apache-2.0
"""Models built by name, in Python: ``od.Graph``."""
