# SPDX-License-Identifier: Apache-2.0
"""`make demo`: real handwritten digits, classified on the simulated NPU in one dispatch per batch.

Exits with 1 when a predicted class differs from onnxruntime's.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from rich.console import Console
from rich.panel import Panel
from rich.progress import track
from rich.table import Table
from rich.text import Text
from sklearn.datasets import load_digits

import onedispatch as od
from onedispatch.transactions.base.text import counted

Array = np.ndarray[Any, Any]

MODEL = Path(__file__).with_name("digits.onnx")
SHOWN, PER_ROW = 8, 4
BATCH = 200
HOLD_OUT_EVERY = 5  # as in train_digits.py
SHADES = " ░▒▓█"


def picture(image: Array) -> str:
    """An 8x8 image with values 0..1 as text, two characters per pixel."""
    levels = np.minimum((image * len(SHADES)).astype(int), len(SHADES) - 1)
    return "\n".join("".join(SHADES[level] * 2 for level in row) for row in levels)


def show_answers(console: Console, session: od.InferenceSession, images: Array, labels: Array) -> None:
    """Classifies each image alone and draws it over its answer."""
    cards = []
    for image, label in zip(images, labels, strict=True):
        (probabilities,) = session.run(None, {"image": image[None]})
        answer = int(probabilities[0].argmax())
        right = answer == label
        text = Text(picture(image[0]) + "\n")
        text.append(
            f"says {answer} ({probabilities[0, answer]:.0%})\n", "bold green" if right else "bold red"
        )
        text.append(f"is   {label}", "dim")
        cards.append(Panel(text, width=18, padding=0))
    rows = Table.grid(padding=(0, 1))
    for first in range(0, len(cards), PER_ROW):
        rows.add_row(*cards[first : first + PER_ROW])
    console.print(rows)


def show_placement(console: Console, session: od.InferenceSession) -> None:
    table = Table(title="Placement", title_justify="left")
    for column in ("node", "op", "runs on", "why"):
        table.add_column(column)
    for entry in session.placement:
        table.add_row(entry.node, entry.op_type, entry.device, entry.reason or "")
    console.print(table)


def show_run(console: Console, session: od.InferenceSession, images: int) -> None:
    """What the last run cost, in the time of the modelled machine."""
    report = session.last_run
    if report is None:
        raise RuntimeError("show_run comes after session.run")
    table = Table(title=f"Last run ({images} image{'s' if images > 1 else ''})", title_justify="left")
    table.add_column("what")
    table.add_column("how much", justify="right")
    table.add_row("dispatches", f"{report.dispatches}")
    table.add_row("modelled time", f"{report.seconds * 1e6:,.1f} us")
    table.add_row("host launch", f"{report.launch_seconds * 1e6:,.1f} us")
    table.add_row("modelled cycles", f"{report.cycles:,}")
    table.add_row("read from DDR", counted(report.ddr_bytes_read, "byte"))
    table.add_row("written to DDR", counted(report.ddr_bytes_written, "byte"))
    console.print(table)


def classify_all(console: Console, session: od.InferenceSession, images: Array) -> tuple[Array, Array]:
    """Classes of every image: from the simulated NPU and from onnxruntime."""
    reference = onnxruntime.InferenceSession(str(MODEL), providers=["CPUExecutionProvider"])
    ours, theirs = [], []
    starts = range(0, len(images), BATCH)
    for start in track(starts, f"{counted(len(images), 'image')} in batches of {BATCH}", console=console):
        feed = {"image": images[start : start + BATCH]}
        ours.append(session.run(None, feed)[0].argmax(1))
        theirs.append(reference.run(None, feed)[0].argmax(1))
    return np.concatenate(ours), np.concatenate(theirs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="npu2", help="see `onedispatch.devices()`")
    options = parser.parse_args()
    console = Console()
    if not console.is_terminal:  # piped: wide enough for the tables, whatever COLUMNS says
        console = Console(width=100)

    digits = load_digits()
    images, labels = (digits.images / 16).astype(np.float32)[:, None], digits.target
    console.print(f'[bold]OneDispatch[/]: {MODEL.name} on a simulated {options.device}, fallback="error"')
    session = od.InferenceSession(MODEL, device=options.device, fallback="error")

    held_out = np.arange(len(images)) % HOLD_OUT_EVERY == 0
    pick = np.random.default_rng(17).choice(np.flatnonzero(held_out), SHOWN, replace=False)
    show_answers(console, session, images[pick], labels[pick])
    show_placement(console, session)
    show_run(console, session, 1)

    started = time.perf_counter()
    ours, theirs = classify_all(console, session, images)
    seconds = time.perf_counter() - started
    show_run(console, session, len(images) % BATCH or BATCH)
    right = ours == labels
    console.print(
        f"accuracy {right.mean():.2%} of {counted(len(images), 'image')}, "
        f"{right[held_out].mean():.2%} of the {held_out.sum()} held out from training"
    )
    different = int((ours != theirs).sum())
    if different:
        console.print(f"[bold red]{different} predicted classes differ from onnxruntime's")
        return 1
    verdict = f"all {len(images):,} predicted classes equal onnxruntime's"
    console.print(f"[bold green]{verdict}[/] ({seconds:.1f} s wall clock)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
