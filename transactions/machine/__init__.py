# SPDX-License-Identifier: Apache-2.0
"""The array as data: registers, buffer descriptors, switches, routes, and the devices' descriptions."""
