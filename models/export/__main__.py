# SPDX-License-Identifier: Apache-2.0
"""Writes networks as ONNX files: ``python -m models.export [NAME ...] --to FOLDER``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import onnx

try:
    from models.export import detector, language, light, network, text_line, vision
except ModuleNotFoundError as error:
    sys.exit(f"{error.name} is not installed: pip install 'onedispatch[export]'")

NETWORKS = {**vision.NETWORKS, **language.NETWORKS, **detector.NETWORKS, **text_line.NETWORKS}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m models.export", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NETWORKS)}; all if none")
    parser.add_argument("--to", type=Path, default=Path("build/networks"), help="folder (build/networks)")
    parser.add_argument("--light", action="store_true", help="without weights, as models/light")
    parser.add_argument("--tracer", action="store_true", help="by torch's older exporter")
    given = parser.parse_args()
    unknown = sorted(set(given.names) - set(NETWORKS))
    if unknown:
        parser.error(f"no network {', '.join(unknown)}; there are {', '.join(NETWORKS)}")
    given.to.mkdir(parents=True, exist_ok=True)
    for name in given.names or NETWORKS:
        path = given.to / f"{name}.onnx"
        network.write(NETWORKS[name], path, dynamo=not given.tracer)
        if given.light:
            onnx.save(light.without_weights(onnx.load(path)), path)
        print(path)


if __name__ == "__main__":
    main()
