"""Prints a generated documentation file: the OpenAPI document, or the JSON Schema of state files.

``python -m pytest_fakecloud.standalone > docs/control-api.json``, and ``python -m
pytest_fakecloud.standalone state > docs/reference/state.schema.json``.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

from ..handle import Context
from .api import ControlApp
from .control.clouds import IsolatedClouds
from .control.shapes import document
from .state_file import SCHEMA

if __name__ == "__main__":
    if sys.argv[1:] == ["state"]:
        print(json.dumps(SCHEMA, indent=1))
    else:
        # Only the routes are read, so no cloud is needed.
        context = Context.alone()
        cloud: Any = SimpleNamespace(clock=context.clock, _context=context)
        opener: Any = nullcontext
        app = ControlApp(cloud, clouds=IsolatedClouds(opener))
        print(json.dumps(document(app.routes()), indent=1))
