# SPDX-License-Identifier: Apache-2.0
"""What every part of the dispatcher stands on: limits, arguments, processes, interrupts."""
