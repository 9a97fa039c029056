# SPDX-License-Identifier: Apache-2.0
"""Check mode: runs custom kernels member by member in a child process and reports what they touch."""
