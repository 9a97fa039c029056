# SPDX-License-Identifier: Apache-2.0
"""Plug-ins: where they are looked for, how they are loaded, and how they are listed."""
