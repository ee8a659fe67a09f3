"""Generate the page of the control API from its OpenAPI file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from .markdown import HEAD, table

_HEAD = f"""\
{HEAD}
# Control API

The HTTP API of a stand-alone server ([other languages](../guides/other-languages.md)). Calls under
`/__control__` need an `Authorization: Bearer` header with the control token, which the server prints
when it starts. Bodies and answers are JSON. An error is `{{"error": {{"type": …, "message": …}}}}`.

As an OpenAPI 3.1 file: {{download}}`control-api.json <../control-api.json>`, or from the server
itself at `/__control__/openapi.json`.

"""


def page() -> str:
    """Return the page as Markdown."""
    return _HEAD + table(("", "Path", "What it does"), _rows())


def _rows() -> Iterator[tuple[str, str, str]]:
    file = Path(__file__).resolve().parents[1] / "control-api.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), f"`{path}`", operation["summary"]
