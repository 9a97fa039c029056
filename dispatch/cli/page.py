# SPDX-License-Identifier: Apache-2.0
"""What ``inspect`` knows as one HTML page: no script from elsewhere, no style from elsewhere.

The rows are those of ``inspect --json``; the page adds nothing to them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from onedispatch.dispatch.cli.group_tables import GROUP_TITLES, PASSED_TITLES, group_rows, passed_rows
from onedispatch.transactions.base.text import counted

_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 78rem; padding: 0 1rem }
h1 { font-size: 1.3rem } h2 { font-size: 1.1rem; margin-top: 2rem }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; vertical-align: top; padding: .25rem .6rem; border-bottom: 1px solid #ddd;
  overflow-wrap: anywhere }
th { position: sticky; top: 0; background: #fff } td.n { font-family: ui-monospace, monospace }
.npu td.w { color: #0a6b2d } .cpu td.w { color: #b01818 } .folded td.w { color: #666 }
.cpu { background: #fdf3f2 } small { color: #555; display: block } pre { white-space: pre-wrap }
input { font: inherit; width: 24rem; max-width: 100%; padding: .2rem .4rem }
.bar { display: flex; height: .6rem; margin: .5rem 0 } .bar i { display: block }
.bar .npu { background: #2c9b53 } .bar .cpu { background: #d04a3f } .bar .folded { background: #bbb }
"""
_SCRIPT = """
for (const box of document.querySelectorAll("input")) box.oninput = () => {
  const wanted = box.value.toLowerCase();
  for (const row of document.querySelectorAll("#" + box.dataset.of + " tbody tr"))
    row.hidden = !row.textContent.toLowerCase().includes(wanted);
};
"""
_PLACES = {"npu": "on the device", "cpu": "on the host", "folded": "computed when the model was compiled"}


def page(model: str, device: str, executables: Sequence[Mapping[str, Any]]) -> str:
    """A whole document. ``executables`` are as ``inspect --json`` has them, one per set of shapes."""
    title = f"{model} on {device}"
    parts = "".join(_executable(i, one) for i, one in enumerate(executables))
    return (
        "<!doctype html>\n<html lang=en>\n<head><meta charset=utf-8>\n"
        '<meta name=viewport content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style></head>\n"
        f"<body><h1>{escape(title)}</h1>\n{parts}<script>{_SCRIPT}</script></body>\n</html>\n"
    )


def _executable(number: int, one: Mapping[str, Any]) -> str:
    counts = Counter(row["device"] for row in one["placement"])
    text = ", ".join(f"{counts[place]} {said}" for place, said in _PLACES.items() if counts[place])
    bars = "".join(f'<i class="{place}" style="flex:{counts[place]}"></i>' for place in _PLACES)
    ident = f"nodes{number}"
    rows = "".join(map(_node, one["placement"]))
    return (
        f"<h2>{escape(one['key'] or 'no inputs')}</h2>\n<p>Nodes: {text}; "
        f"device dispatches: {len(one['dispatches'])}.</p><div class=bar>{bars}</div>\n"
        f'<p><input data-of={ident} placeholder="node, operator, reason ..."></p>\n'
        f"<table id={ident}><thead>{_cells('th', ('node', 'operator', 'where', 'why'))}</thead>\n"
        f"<tbody>{rows}</tbody></table>\n{_grouping(one['grouping'])}{_dispatches(one['dispatches'])}"
    )


def _node(row: Mapping[str, Any]) -> str:
    extra = "".join(
        f"<small>{said}: {escape(row[key])}</small>"
        for key, said in (
            ("nearest", "nearest that would map"),
            ("remark", "also tried"),
            ("engine", "computed by"),
        )
        if row.get(key)
    )
    return (
        f"<tr class={row['device']}><td class=n>{escape(row['node'])}</td><td>{escape(row['op_type'])}</td>"
        f"<td class=w>{row['device']}</td><td>{escape(row['reason'])}{extra}</td></tr>\n"
    )


def _grouping(found: Mapping[str, Any] | None) -> str:
    """What stays in memory tiles, and why other tensors do not."""
    if found is None:
        return ""
    groups = "".join(
        f"<tr><td><pre>{escape(operators)}</pre></td><td><pre>{escape(tensors)}</pre></td>"
        f"{_cells('td', numbers)}</tr>\n"
        for operators, tensors, *numbers in group_rows(found)
    )
    passed = "".join(f"<tr>{_cells('td', row)}</tr>\n" for row in passed_rows(found))
    said = f"; {found['reason']}" if found["reason"] else ""
    return (
        f"<details><summary>{counted(len(found['groups']), 'group')} of operators between which tensors stay "
        f"in memory tiles{escape(said)}</summary>\n"
        f"<table><thead><tr>{_cells('th', GROUP_TITLES)}</tr></thead><tbody>{groups}</tbody></table>\n"
        f"<table><thead><tr>{_cells('th', ('tensor in device memory', *PASSED_TITLES[1:]))}</tr></thead>"
        f"<tbody>{passed}</tbody></table></details>\n"
    )


def _dispatches(steps: Sequence[Mapping[str, Any]]) -> str:
    found = []
    for number, step in enumerate(steps):
        sizes = ", ".join(f"{name} {size:,}" for name, size in step["buffers"].items())
        rows = "".join(
            f"<tr>{_cells('td', (op['name'], op['op_type'], ', '.join(op['nodes'])))}"
            f"<td><pre>{escape(chr(10).join(op['schedule']))}</pre></td></tr>\n"
            for op in step["operators"]
        )
        found.append(
            f"<details><summary>Dispatch {number}: {counted(len(step['operators']), 'operator')}, "
            f"transaction of {counted(step['transaction_bytes'], 'byte')}; buffers in bytes: "
            f"{sizes}</summary>\n<table>"
            f"<thead><tr>{_cells('th', ('operator', 'kind', 'nodes', 'schedule'))}</tr></thead>"
            f"<tbody>{rows}</tbody></table></details>\n"
        )
    return "".join(found)


def _cells(kind: str, texts: Iterable[str]) -> str:
    return "".join(f"<{kind}>{escape(text)}</{kind}>" for text in texts)
