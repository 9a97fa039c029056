# SPDX-License-Identifier: Apache-2.0
"""Orchestration: from an ONNX model to one kernel run, and everything a user touches.

In the order of the road:
    frontend   ONNX in: a checked ``Graph``
    compiler   fold, map, partition, place in memory, emit, fuse
    artifact   the ``CompiledModel``, and its file
    runtime    sessions, the device, reports
Beside it: ``host`` runs what no device operator takes, ``tools`` and ``cli`` use all of these, ``base``
is what they stand on, and ``facade`` becomes the package ``onedispatch`` itself.
"""
