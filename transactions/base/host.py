# SPDX-License-Identifier: Apache-2.0
"""What the host side of Python and of C++ must agree on; C++ has it by ``genheader``."""

MOST_THREADS = 1024  # host threads that a caller may ask for: a guard against mistakes, no machine has more
