"""Print the OpenAPI file: ``python -m pytest_fakecloud.standalone > docs/control-api.json``."""

from __future__ import annotations

import json

from .api import ControlApp
from .openapi import document

if __name__ == "__main__":
    # The routes are only read, so there need be no cloud behind them.
    print(json.dumps(document(ControlApp.__new__(ControlApp).routes()), indent=1))
