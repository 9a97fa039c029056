# SPDX-License-Identifier: Apache-2.0
"""What the onnx package's node tests of our operators are expected to do, in one place.

Every test whose nodes are all of ``OPERATORS`` must run in strict mode, except those listed
here with the reason that the error has to give. Nothing is skipped.
"""

from __future__ import annotations

REFUSED: dict[str, str] = {
    **{
        f"test_{op}_uint64": f"{op.capitalize()} of uint64 "
        for op in ("add", "sub", "mul", "div", "max", "min")
    },
    **{
        f"test_{op}_{dtype}": f"{op.capitalize()} of {dtype} "
        for op in ("max", "min")
        for dtype in ("int64", "float64")
    },
    **{
        f"test_averagepool_3d_{which}": "AveragePool over 3 spatial dimensions"
        for which in (
            "default",
            "dilations_small",
            *(
                f"dilations_large_count_include_pad_is_{pad}_ceil_mode_is_{ceil}"
                for pad in (0, 1)
                for ceil in (True, False)
            ),
        )
    },
    **{
        f"test_maxpool_3d_{which}": "MaxPool over 3 spatial dimensions"
        for which in ("default", "dilations", "dilations_use_ref_impl", "dilations_use_ref_impl_large")
    },
    **{
        f"test_maxpool_with_argmax_2d_precomputed_{which}": "MaxPool with its Indices output"
        for which in ("pads", "strides")
    },
    "test_identity_opt": r"optional\(seq\(tensor\(float\)\)\) \(nearest: tensors\)",
    "test_identity_sequence": r"seq\(tensor\(float\)\) \(nearest: tensors\)",
    **{f"test_batchnorm_{which}_training_mode": "training mode" for which in ("example", "epsilon")},
    **{
        f"test_{which}_mask{ratio}": "Dropout with its mask output"
        for which, ratio in (
            ("dropout_default", ""),
            ("dropout_default", "_ratio"),
            ("training_dropout_default", ""),
            ("training_dropout", ""),
            ("training_dropout_zero_ratio", ""),
        )
    },
    **{
        f"test_training_dropout{which}": "Dropout in training mode"
        for which in ("", "_default", "_zero_ratio")
    },
}

# Tests of our operators that the oldest supported onnx has; newer ones have more.
AT_LEAST = 185
