"""Generate the OpenAPI file and the page of the control API, and the JSON Schema of state files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

from pytest_fakecloud import Cloud
from pytest_fakecloud.standalone.api import ControlApp
from pytest_fakecloud.standalone.control.clouds import IsolatedClouds
from pytest_fakecloud.standalone.control.shapes import document
from pytest_fakecloud.standalone.state_file import SCHEMA

from .markdown import HEAD, table

_HEAD = f"""\
{HEAD}
# Control API

The HTTP API of a stand-alone server ([other languages](../guides/other-languages.md)). Calls under
`/__control__` need an `Authorization: Bearer` header with the control token: `pytest-fakecloud env`
exports it as `PYTEST_FAKECLOUD_TOKEN`, and `serve --json` prints it. Bodies and responses are JSON.
An error is `{{"error": {{"type": …, "message": …}}}}`.

As an OpenAPI 3.1 file: {{download}}`control-api.json <../control-api.json>`, or from the server
itself at `/__control__/openapi.json`.

"""


def page() -> str:
    """Return the page as Markdown."""
    return _HEAD + table(("", "Path", "What it does"), _rows())


def _rows() -> Iterator[tuple[str, str, str]]:
    for path, methods in _document()["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), f"`{path}`", operation["summary"]


def openapi() -> str:
    return json.dumps(_document(), indent=1) + "\n"


def state_schema() -> str:
    return json.dumps(SCHEMA, indent=1) + "\n"


def _document() -> dict[str, Any]:
    opener: Any = nullcontext  # Only the routes are read, so no isolated cloud starts.
    with Cloud() as cloud:
        return document(ControlApp(cloud, clouds=IsolatedClouds(opener)).table.routes)
