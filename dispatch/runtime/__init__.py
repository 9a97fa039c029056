# SPDX-License-Identifier: Apache-2.0
"""Running compiled models on the simulated device: sessions, devices, reports, pyxrt's names."""
