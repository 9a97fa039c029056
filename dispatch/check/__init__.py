# SPDX-License-Identifier: Apache-2.0
"""Check mode: kernels from outside, run member by member in a child process."""
