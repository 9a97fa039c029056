# SPDX-License-Identifier: Apache-2.0
"""Orchestration: from an ONNX model to one kernel run, and everything a user touches.

In the order of the road: importer -> Graph -> fold -> mapping -> partition -> memory, emit
-> Program in a CompiledModel -> session, device -> outputs and a RunReport.
"""
