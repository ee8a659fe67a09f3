"""The console's files, and the requests that it sends to fakes."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from functools import cache
from pkgutil import get_data
from typing import Any

from ..core.errors import ContractError
from ..handle import Handle
from ..http.messages import Answer, Effect, Request

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


def page(request: Request) -> Answer:
    """Return the HTML document."""
    place = "pytest_fakecloud.standalone", "page/console.html"
    return _compressed(request, _read(*place), "text/html; charset=utf-8")


def file(request: Request, name: str) -> Answer:
    return _compressed(request, _read(*FILES[name]), _TYPES[name.rpartition(".")[2]])


@cache
def _read(package: str, path: str) -> tuple[bytes, bytes]:
    """Return a file of the page, uncompressed and compressed."""
    # Read files through the import system, which works even if a test fakes the file system.
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


_METHOD = re.compile(r"[A-Za-z]{1,20}")
_TARGET = re.compile(r"/[!-~]*")
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"[\t -~\x80-\xff]*")


def send(
    handle: Handle,
    method: object = "POST",
    target: object = "/",
    headers: object = None,
    body: object = "",
) -> dict[str, Any]:
    """Send a request to a fake with its credentials, and return the response as plain JSON.

    The request goes through the fake's whole pipeline, including faults and journal, but not
    through a socket. Raises ``ContractError`` for a request that no client could send, and for a
    request that is answered by a stream.
    """
    if not isinstance(method, str) or not _METHOD.fullmatch(method):
        raise ContractError(f"method must be a word such as 'POST', got {method!r:.100}")
    if not isinstance(target, str) or not _TARGET.fullmatch(target):
        raise ContractError(
            f"target must be a path that begins with / and is percent-encoded, got {target!r:.100}"
        )
    request = Request(method, target, _headers(handle, headers), _sent(body), ("127.0.0.1", 0))
    answer = handle._app.answer(request)
    if isinstance(answer, Answer):
        found = answer.body if isinstance(answer.body, bytes) else _sent(answer.body)
        return {
            "status": answer.status,
            "headers": [list(pair) for pair in answer.headers],
            "body": found.decode("utf-8", "replace"),
        }
    if isinstance(answer, Effect):
        return {"broken": answer.kind}
    # The stream has no reader, so end it like one whose client disconnected.
    if hasattr(answer.chunks, "close"):
        answer.chunks.close()
    if answer.on_close is not None:
        answer.on_close()
    raise ContractError("the response is an endless stream: request it with a client")


def _headers(handle: Handle, given: object) -> list[tuple[str, str]]:
    if given is not None and not isinstance(given, Mapping):
        raise ContractError(f"headers must be an object, got {given!r:.100}")
    wanted: dict[str, str] = {}
    for name, value in (given or {}).items():
        if not isinstance(value, str) or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise ContractError(
                f"{name!r:.100}: {value!r:.100} is not a header: pass strings without line breaks"
            )
        wanted[name] = value
    lower = {name.lower() for name in wanted}
    own = {name: value for name, value in handle.headers.items() if name.lower() not in lower}
    return [*own.items(), *wanted.items()]


def _sent(body: object) -> bytes:
    return (body if isinstance(body, str) else json.dumps(body)).encode("utf-8", "surrogatepass")
