# SPDX-License-Identifier: Apache-2.0
"""Packets: control packets that write registers, and routes of completion tokens."""
