"""The console page: its files, and the endpoints that return them without the control token."""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping
from functools import cache
from pkgutil import get_data

from ..http.messages import Answer, Request
from ..http.routing import Route
from .control import Refused

POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""The content security policy of every response but the page."""
_PAGE_POLICY = f"{POLICY}; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'"
_PAGE = (
    "activity.js", "api.js", "broker.js", "clock.js", "connect.js", "console.css", "dom.js",
    "fake.js", "faults.js", "journal.js", "kv.js", "lists.js", "main.js", "pictures.js", "queue.js",
    "router.js", "rows.js", "time.js", "vector.js",
)  # fmt: skip
_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
FILES: Mapping[str, tuple[str, str]] = {
    **{name: ("pytest_fakecloud.standalone", f"page/{name}") for name in _PAGE},
    # The console reuses the timeline of test reports.
    **{name: ("pytest_fakecloud.reporting", name) for name in ("trace.css", "trace.js")},
}
"""Package and path of each file of the console. No code is inline or loaded from another origin."""
_GZIP = re.compile(r"(?i)(?:^|,)\s*gzip\s*(?:,|$|;\s*q=(?!0(?:\.0*)?\s*(?:,|$)))")
"""An ``Accept-Encoding`` header that accepts gzip: ``q=0`` rejects an encoding."""


def routes() -> list[Route]:
    return [
        Route("GET", "/", "console", page),
        Route("GET", "/console/{name}", "console_file", file),
        Route("GET", "/favicon.ico", "icon", icon),
    ]


def page(request: Request) -> Answer:
    """Return the console page."""
    document = _read("pytest_fakecloud.standalone", "page/console.html")
    answer = _compressed(request, document, "text/html; charset=utf-8")
    answer.headers = [*answer.headers, ("Content-Security-Policy", _PAGE_POLICY)]
    return answer


def file(request: Request) -> Answer:
    """Return a script or stylesheet of the console page."""
    name = request.params["name"]
    if name not in FILES:
        raise Refused(404, f"the console has no file {name!r}")
    return _compressed(request, _read(*FILES[name]), _TYPES[name.rpartition(".")[2]])


def icon(request: Request) -> Answer:
    """Return 204, because browsers request an icon and the console has none."""
    return Answer(status=204, content_type=None)


@cache
def _read(package: str, path: str) -> tuple[bytes, bytes]:
    # Served by programs, which fake no files; also finds the files in a zip file.
    data = get_data(package, path)
    assert data is not None
    return data, gzip.compress(data, mtime=0)


def _compressed(request: Request, data: tuple[bytes, bytes], content_type: str) -> Answer:
    plain, compressed = data
    vary = ("Vary", "Accept-Encoding")
    if not _GZIP.search(request.fields.get("accept-encoding") or ""):
        return Answer(plain, headers=[vary], content_type=content_type)
    headers = [("Content-Encoding", "gzip"), vary]
    return Answer(compressed, headers=headers, content_type=content_type)
