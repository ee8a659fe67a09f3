"""Send one request through a table of faults, without a server."""

from __future__ import annotations

from typing import Any

from pytest_fakecloud.core.calls import Call
from pytest_fakecloud.faults.table import FaultTable
from pytest_fakecloud.http.messages import Answer, Request, Response


def sent(table: FaultTable, answer: Response | None = None) -> Any:
    """Return the response to another request."""
    request = Request("GET", "/x")
    request.call = Call(1, 0, "demo", "demo", "GET", "/x")
    return table.run(request, lambda: Answer(b"fine") if answer is None else answer)
