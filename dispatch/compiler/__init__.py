# SPDX-License-Identifier: Apache-2.0
"""What the passes of ``dispatch/compile.py`` do, from a ``Graph`` to an ``Executable``."""
