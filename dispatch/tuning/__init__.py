# SPDX-License-Identifier: Apache-2.0
"""Measures what solutions cost on the simulated device, and looks for better ones than the search's."""
