# SPDX-License-Identifier: Apache-2.0
"""The operators, a file per family. ``registry`` finds every file of this folder."""
