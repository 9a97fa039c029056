# SPDX-License-Identifier: Apache-2.0
"""An explained transaction as an SVG picture: the array, its traffic, and host memory."""

from __future__ import annotations

from html import escape

from onedispatch.transactions.analysis.explain import Explanation, TileUse
from onedispatch.transactions.base.text import counted, short_bytes

_WIDTH, _HEIGHT, _GAP, _LEFT, _TOP = 132, 78, 14, 44, 66
_COLOURS = {"shim": "#dbe9f6", "mem": "#e2f0d9", "core": "#fdf0d5"}
_MOST_COLUMNS = 16
_IN, _OUT = "#2166ac", "#b2182b"


def svg(explanation: Explanation) -> str:
    """Returns the picture. Bars show the bytes into (blue) and out of (red) a tile, on one scale."""
    columns = max([explanation.columns, *(column + 1 for column, _ in explanation.tiles)])
    columns = min(columns, _MOST_COLUMNS)
    rows = max([2, *(row + 1 for _, row in explanation.tiles)])
    tiles = [tile for tile in explanation.tiles.values() if tile.tile[0] < columns]
    most = max([1, *(tile.bytes(direction) for tile in tiles for direction in (0, 1))])
    host = _TOP + rows * (_HEIGHT + _GAP) + 34
    width = max(2 * _LEFT + columns * (_WIDTH + _GAP), 760)
    height = host + 44 + 22 * max(1, len(explanation.arguments))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        _text(_LEFT, 24, explanation.title, 14),
        _text(
            _LEFT, 42, "bars: bytes into a tile (blue) and out of it (red), one scale for all", fill="#666"
        ),
    ]
    for row in range(rows):
        y = _y(rows, row)
        parts.append(_text(10, y + _HEIGHT // 2, f"r{row}", 12))
    for column in range(columns):
        for row in range(rows):
            parts += _tile(_x(column), _y(rows, row), explanation.tiles.get((column, row)), most)
        shim = explanation.tiles.get((column, 0))
        if shim is not None:
            parts += _arrows(_x(column), _y(rows, 0) + _HEIGHT, shim, most)
        parts.append(_text(_x(column) + 4, _TOP - 4, f"c{column}", 12))
    parts += _host(host, width, explanation)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _x(column: int) -> int:
    return _LEFT + column * (_WIDTH + _GAP)


def _y(rows: int, row: int) -> int:
    return _TOP + (rows - 1 - row) * (_HEIGHT + _GAP)


def _text(x: int, y: int, text: str, size: int = 11, fill: str = "#222") -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{fill}">{escape(text)}</text>'


def _tile(x: int, y: int, use: TileUse | None, most: int) -> list[str]:
    fill = _COLOURS[use.kind] if use else "#f5f5f5"
    parts = [
        f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="5" fill="{fill}" stroke="#999"/>'
    ]
    if use is None:
        return parts
    tasks = sum(len(channel.pushes) for channel in use.channels.values())
    words = sum(block.words for block in use.blocks)
    lines = [counted(tasks, "task")] if tasks else []
    lines += [f"{counted(len(use.locks), 'lock')} set"] if use.locks else []
    parts.append(_text(x + 6, y + 15, ", ".join(lines) or ("" if words else "waits only")))
    if words:
        parts.append(_text(x + 6, y + 72, f"{counted(words, 'word')} written", fill="#666"))
    for at, (direction, colour) in enumerate(((0, _IN), (1, _OUT))):
        moved = use.bytes(direction)
        length = round((_WIDTH - 52) * moved / most)
        top = y + 26 + 21 * at
        parts.append(f'<rect x="{x + 6}" y="{top}" width="{length}" height="12" fill="{colour}"/>')
        parts.append(_text(x + 10 + length, top + 10, short_bytes(moved)))
    title = "; ".join(
        f"{channel.name} {counted(channel.bytes, 'byte')} in {counted(len(channel.pushes), 'task')}"
        for _, channel in sorted(use.channels.items())
    )
    parts.append(f"<g><title>{escape(f'{use.name}: {title}')}</title>")
    parts.append(f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" fill="transparent"/></g>')
    return parts


def _arrows(x: int, y: int, shim: TileUse, most: int) -> list[str]:
    parts = []
    for direction, colour in ((1, _IN), (0, _OUT)):
        moved = shim.bytes(direction)
        if not moved:
            continue
        middle = x + (_WIDTH // 3 if direction else 2 * _WIDTH // 3)
        thick = 2 + round(8 * moved / most)
        start, end = (y + 34, y + 8) if direction else (y, y + 26)
        tip = end - 8 if direction else end + 8
        parts.append(
            f'<line x1="{middle}" y1="{start}" x2="{middle}" y2="{end}" stroke="{colour}" '
            f'stroke-width="{thick}"/>'
        )
        parts.append(f'<path d="M{middle - 8} {end} L{middle + 8} {end} L{middle} {tip} Z" fill="{colour}"/>')
    return parts


def _host(y: int, width: int, explanation: Explanation) -> list[str]:
    arguments = [use for _, use in sorted(explanation.arguments.items())]
    most = max([1, *(max(use.read, use.written) for use in arguments)])
    parts = [
        f'<rect x="{_LEFT}" y="{y}" width="{width - 2 * _LEFT}" height="{34 + 22 * max(1, len(arguments))}" '
        'rx="5" fill="#f0e6f6" stroke="#999"/>',
        _text(_LEFT + 8, y + 18, "host memory: bytes read (blue), written (red), and which"),
    ]
    for at, use in enumerate(arguments):
        top = y + 28 + 22 * at
        parts.append(_text(_LEFT + 8, top + 11, f"arg {use.argument}"))
        x = _LEFT + 60
        for moved, colour in ((use.read, _IN), (use.written, _OUT)):
            length = round(150 * moved / most)
            parts.append(f'<rect x="{x}" y="{top}" width="{length}" height="13" fill="{colour}"/>')
            parts.append(_text(x + length + 4, top + 11, f"{moved:,} B"))
            x += 250
        parts.append(_text(x, top + 11, f"{use.first:#x} to {use.end:#x}", fill="#666"))
    return parts
