# SPDX-License-Identifier: Apache-2.0
"""One HTML page of a compiled model: its facts as data, and the files in ``assets`` that draw them."""
