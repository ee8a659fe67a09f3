"""HTTP archives (HAR 1.2): a cloud's journal as an archive, and the checked entries of any archive."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from ..core.calls import Call
from ..core.errors import ContractError
from ..core.timers import instant_us, to_datetime
from ..http.messages import query_items
from ..reporting.masking import HIDDEN, Mask, write_private

if TYPE_CHECKING:
    from ..base_cloud import BaseCloud


def archive(cloud: BaseCloud) -> dict[str, Any]:
    """Return a cloud's journal as a HAR object in its clock's time, with credentials masked."""
    mask = Mask(cloud)
    addresses = dict(cloud._closed_fakes.addresses)
    addresses.update((handle.name, (handle.fixture, handle.url)) for handle in cloud.fakes())
    return {
        "log": {
            "version": "1.2",
            "creator": {"name": "pytest-fakecloud", "version": "1"},
            "entries": [
                _entry(
                    call, *addresses.get(call.handle, ("", f"http://{call.handle}.invalid")), mask
                )
                for call in cloud.journal.calls()
            ],
        }
    }


def write(cloud: BaseCloud, path: Path) -> Path:
    """Write the archive to a file that only its owner can read, creating folders; return its path."""
    return write_private(path, json.dumps(archive(cloud), indent=1, ensure_ascii=False))


def _entry(call: Call, fixture: str, origin: str, mask: Mask) -> dict[str, Any]:
    target = mask.target(call)
    content_type = call.request_headers.get("Content-Type", "")
    request: dict[str, Any] = {
        "method": call.method,
        "url": origin + target,
        "httpVersion": "HTTP/1.1",
        "headers": [{"name": n, "value": mask.header(n, v)} for n, v in call.request_headers.pairs],
        "queryString": [
            {"name": name, "value": value} for name, value in query_items(target.partition("?")[2])
        ],
        "cookies": [],
        "headersSize": -1,
        "bodySize": len(call.request_body),
    }
    body = mask.body(call)
    if body:
        request["postData"] = {"mimeType": content_type, **_text(body, mask)}
    answer_type = call.response_headers.get("Content-Type", "application/json")
    # Leave out the body of an answer to HEAD: the journal has the body for GET.
    answer = (
        call.response_body
        if isinstance(call.response_body, bytes) and call.method != "HEAD"
        else b""
    )
    return {
        "startedDateTime": to_datetime(call.at_us).isoformat(),
        "time": 0,
        "request": request,
        "response": {
            "status": call.status or 0,
            "statusText": call.outcome,
            "httpVersion": "HTTP/1.1",
            "headers": [
                {"name": n, "value": mask.header(n, v)} for n, v in call.response_headers.pairs
            ],
            "cookies": [],
            "content": {"size": len(answer), "mimeType": answer_type, **_text(answer, mask)},
            "redirectURL": "",
            "headersSize": -1,
            "bodySize": len(answer),
        },
        "cache": {},
        "timings": {"send": 0, "wait": 0, "receive": 0},
        "_handle": call.handle,
        "_fixture": fixture,
        "_fault": call.fault,
        "_outcome": call.outcome,
    }


def _text(body: bytes, mask: Mask) -> dict[str, str]:
    try:
        return {"text": mask.text(body.decode("utf-8"))}
    except UnicodeDecodeError:
        return {"text": base64.b64encode(mask.data(body)).decode("ascii"), "encoding": "base64"}


# -- reading ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """A recorded request with its response.

    ``handle`` and ``fixture`` are the name and the fixture of the recorded fake, if this package
    wrote the archive. ``is_replayable`` is False for an entry that a replay skips.
    """

    at_us: int
    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    status: int
    answer: bytes
    has_answer_body: bool
    handle: str | None
    fixture: str | None
    is_replayable: bool

    @property
    def parts(self) -> SplitResult:
        """The parts of the URL."""
        return urlsplit(self.url)


def entries_of(archive: Any, name: object) -> list[Entry]:
    """Return the requests of an archive; raise ``ContractError``, which begins with its name."""
    try:
        entries = archive["log"]["entries"]
        if not isinstance(entries, list):
            raise TypeError(f"log.entries is {entries!r:.100}, not a list")
    except (KeyError, TypeError) as error:
        raise ContractError(f"{name} is not an HTTP archive (HAR): {error!r:.200}") from error
    for number, entry in enumerate(entries, 1):
        wrong = _wrong_in(entry)
        if wrong:
            raise ContractError(f"{name} is not an HTTP archive (HAR): entry {number}: {wrong}")
    return [_read_entry(entry) for entry in entries]


def _read_entry(data: Mapping[str, Any]) -> Entry:
    request, response = data["request"], data["response"]
    content = response.get("content") or {}
    return Entry(
        at_us=instant_us(data["startedDateTime"]),
        method=request["method"],
        url=request["url"],
        headers=tuple((one["name"], one["value"]) for one in request.get("headers") or ()),
        body=_body(request.get("postData") or {}),
        status=response["status"],
        answer=_body(content),
        # Many tools do not record bodies.
        has_answer_body=content.get("text") is not None or content.get("size") == 0,
        handle=data.get("_handle"),
        fixture=data.get("_fixture"),
        is_replayable=not _is_left_out(data),
    )


def _is_left_out(data: Mapping[str, Any]) -> bool:
    request, answer = data["request"], data["response"]
    kind = str((answer.get("content") or {}).get("mimeType") or "")
    return bool(
        data.get("_fault")
        or data.get("_outcome") == "streamed"
        or kind.startswith("text/event-stream")
        or answer["status"] == 0
        # A request with a password was masked as a whole.
        or (request.get("postData") or {}).get("text") == HIDDEN
        or urlsplit(request["url"]).path.endswith(f"/{HIDDEN}")
    )


def _body(content: Mapping[str, Any]) -> bytes:
    text = content.get("text") or ""
    if content.get("encoding") == "base64":
        return base64.b64decode(text)
    return str(text).encode("utf-8", "backslashreplace")


def _wrong_in(entry: Any) -> str:
    """Return the first deviation of an entry from the HAR format, or an empty string."""
    for where, kind, needed in _SHAPE:
        value = entry
        for name in filter(None, where.split(".")):
            value = value.get(name) if isinstance(value, dict) else None
        if value is None and not needed:
            continue
        if not isinstance(value, kind) or isinstance(value, bool):
            words = "missing" if value is None else f"{value!r:.100}"
            return f"{where or 'it'} is {words}, not {_WORDS[kind]}"
    for header in entry["request"].get("headers") or ():
        if not isinstance(header, dict) or not are_strings(
            [header.get("name"), header.get("value")]
        ):
            return f"the header {header!r:.100} has no name and value"
    for where, content in (
        ("request.postData", entry["request"].get("postData")),
        ("response.content", entry["response"].get("content")),
    ):
        try:
            _body(content or {})
        except ValueError as error:
            return f"{where}.text cannot be read: {error}"
    try:
        instant_us(entry["startedDateTime"])
        parts = urlsplit(entry["request"]["url"])
    except (ContractError, ValueError) as error:
        return str(error)
    if not entry["request"]["method"]:
        return "request.method is empty"
    if not (parts.scheme and parts.netloc):
        return f"request.url is {entry['request']['url']!r:.100}, not an absolute URL"
    return ""


def are_strings(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)


_WORDS = {dict: "an object", str: "a string", int: "an integer", list: "a list"}
_SHAPE: tuple[tuple[str, type, bool], ...] = (
    ("", dict, True),
    ("startedDateTime", str, True),
    ("request", dict, True),
    ("request.url", str, True),
    ("request.method", str, True),
    ("request.headers", list, False),
    ("request.postData", dict, False),
    ("request.postData.text", str, False),
    ("response", dict, True),
    ("response.status", int, True),
    ("response.content", dict, False),
    ("response.content.text", str, False),
    ("_fixture", str, False),
)
