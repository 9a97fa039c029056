# SPDX-License-Identifier: Apache-2.0
"""Finds squares, discs and crosses on pictures, in one dispatch each, and draws the boxes.

    python models/examples/detector/detect.py --folder found

The network ends in a layer of its own (``head.py``), whose boxes are as many as it finds.
"""

from __future__ import annotations

import argparse
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import head  # type: ignore[import-not-found]
import network  # type: ignore[import-not-found]

import onedispatch as od

Array = np.ndarray[Any, Any]
COLOURS = np.asarray([[255, 80, 80], [90, 255, 90], [110, 150, 255]], np.uint8)
ENLARGED = 4


def drawn(image: Array, boxes: Array) -> Array:
    """The picture, enlarged, as bytes [rows, columns, 3], with frames in the colours of their kinds."""
    pixels: Array = (255 * image).astype(np.uint8).transpose(1, 2, 0).repeat(ENLARGED, 0).repeat(ENLARGED, 1)
    most = len(pixels) - 1
    for kind, _, *corners in boxes:
        x0, y0, x1, y1 = np.clip(np.multiply(corners, ENLARGED), 0, most).astype(int)
        for rows, columns in (
            (slice(y0, y1 + 1), [x0, x1]),
            ([y0, y1], slice(x0, x1 + 1)),
        ):
            pixels[rows, columns] = COLOURS[int(kind)]
    return pixels


def png(pixels: Array) -> bytes:
    """A PNG file of bytes [rows, columns, 3]."""
    rows, columns, _ = pixels.shape

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    parts = (b"IHDR", struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(lines))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in (*parts, (b"IEND", b"")))


def matched(boxes: Array, objects: list[network.Object]) -> tuple[int, int]:
    """How many objects have a box over half of them, and how many of these of their kind."""
    found = right = 0
    for one in objects:
        over = [box for box in boxes if _shared(box, one.box) > 0.5]
        found += bool(over)
        right += any(int(box[0]) == one.kind for box in over)
    return found, right


def _shared(a: Array, b: Array) -> float:
    """Intersection over union."""
    both: float = head.inside(a, b)
    union: float = head.area(a) + head.area(b) - both
    return both / union


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="npu2")
    parser.add_argument("--pictures", type=int, default=12)
    parser.add_argument("--folder", type=Path, help="where to write pictures with boxes, and shapes.onnx")
    options = parser.parse_args()
    proto = network.detector(network.fitted())
    session = od.InferenceSession(proto, options.device, fallback="error")
    rng = np.random.default_rng(2026)
    total = found = right = 0
    for number in range(options.pictures):
        image, objects = network.picture(rng)
        (boxes,) = session.run(None, {"image": image[None]})
        total += len(objects)
        hits = matched(boxes, objects)
        found, right = found + hits[0], right + hits[1]
        said = ", ".join(f"{network.KINDS[int(kind)]} {score:.0%}" for kind, score, *_ in boxes)
        print(f"picture {number}: {said or 'nothing'}")
        if options.folder is not None:
            options.folder.mkdir(parents=True, exist_ok=True)
            (options.folder / f"picture{number}.png").write_bytes(png(drawn(image, boxes)))
    if options.folder is not None:
        (options.folder / "shapes.onnx").write_bytes(proto.SerializeToString())
    report = session.last_run
    assert report is not None
    print(f"{found} of {total} objects found, {right} of them of their kind")
    print(f"{report.dispatches} dispatch, {report.cycles:,} modelled cycles, {1e6 * report.seconds:.0f} us")


if __name__ == "__main__":
    main()
