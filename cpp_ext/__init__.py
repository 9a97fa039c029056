# SPDX-License-Identifier: Apache-2.0
"""The compiled simulator: ``onedispatch.cpp_ext._core``. Only dispatch/base/native.py imports it."""
