# SPDX-License-Identifier: Apache-2.0
"""Device operators: what each computes, and the engine that works out how.

declarations   what is said of kernels, element types and tensors: ``Kernel``, ``TensorSpec``, ``@maps``
scheduling     from an index space (``Nest``) to a ``Schedule``: tiles, and which core does which
emission       from a schedule to a transaction in the universal overlay
interface      ``Operator``: arg map, constants, transaction, super-kernel parameters
kernels        device operators: kernel declarations with their loop nests and NumPy references
lowering       helpers that several mappings share: operands of nodes, sequences of device operators
mappings       ONNX operators to device operators, by ``@maps``; the registry finds every file
codegen        C++ headers from the declarations
"""
