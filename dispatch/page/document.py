# SPDX-License-Identifier: Apache-2.0
"""The document: assets and data in one file, under a policy that lets it load nothing and run nothing else.

Names come from models. They reach the page as data alone, in JSON without any ``<``; it shows them as text.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from html import escape
from math import isfinite
from pathlib import Path
from typing import Any

from onedispatch.dispatch.page.facts import PageFacts
from onedispatch.dispatch.runtime.profile import PARTS

_ASSETS = Path(__file__).parent / "assets"
# In order: each uses what those before it define.
_SCRIPTS = ("text", "facts", "table", "layout", "scopes", "graph", "detail", "charts", "sections", "main")
# What a title has no use for: control characters, what reverses text, lone surrogates.
_HIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff]+")


def page(facts: PageFacts) -> str:
    """A whole document: HTML, style, scripts and data."""
    style, script = _asset("page.css"), _script()
    return _filled(
        _asset("page.html"),
        policy=f"default-src 'none'; img-src data:; style-src {_source(style)}; "
        f"script-src {_source(script)}; base-uri 'none'; form-action 'none'",
        title=escape(_HIDDEN.sub(" ", facts.title)[:200]),
        style=style,
        data=_json(asdict(facts) | {"parts": PARTS}),
        script=script,
    )


def _filled(template: str, **texts: str) -> str:
    """The template with each ``{{name}}`` replaced; texts that look like one stay as they are."""
    parts = template.split("{{")
    filled = [parts[0]]
    for part in parts[1:]:
        name, _, rest = part.partition("}}")
        filled += [texts[name], rest]
    return "".join(filled)


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _script() -> str:
    """All scripts as one, whose names stay inside."""
    bodies = "\n".join(_asset(f"{name}.js") for name in _SCRIPTS)
    return f'"use strict";\n(() => {{\n{bodies}}})();\n'


def _source(text: str) -> str:
    """What a policy calls an inline element with this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _json(data: Any) -> str:
    """ASCII without ``<``, ``>`` and ``&``, so that no text of it can end the element that it is in."""
    text = json.dumps(_finite(data), separators=(",", ":"), allow_nan=False, default=str)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _finite(data: Any) -> Any:
    """The data with texts for NaN and infinities, which JSON has not: inputs may be frozen to them."""
    if isinstance(data, Mapping):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return str(data) if isinstance(data, float) and not isfinite(data) else data
