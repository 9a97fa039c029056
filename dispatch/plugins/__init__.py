# SPDX-License-Identifier: Apache-2.0
"""Plug-ins: where they are looked for, how they are loaded, and what is told of them."""
