"""Recordings: a cloud's journal as an HTTP archive (HAR 1.2), and sending one to a fake again."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..kernel.errors import ContractError
from ..kernel.journal import Call, Found
from ..kernel.reading import query_items
from ..masking import HIDDEN, Mask

if TYPE_CHECKING:
    from ..cloud import Cloud
    from ..kernel.handle import Handle

__all__ = ["Difference", "Differences", "archive", "replay", "write"]

VOLATILE = frozenset(
    {"messageId", "scheduleId", "dlqId", "uuid", "timestamp", "time", "createdAt", "updatedAt"}
    | {"notBefore", "cursor", "endpointId", "topicId", "taskId", "jti", "workflowRunId"}
)
"""Fields whose values differ from run to run; their recorded values are translated afterwards."""
_CREDENTIALS = frozenset({"_token", "qstash_token"})
"""Parts of a query that get in; a fake has its own."""
_NOT_SENT_AGAIN = frozenset(
    {"host", "content-length", "connection", "transfer-encoding", "authorization", "expect"}
)


def archive(cloud: Cloud) -> dict[str, Any]:
    """The cloud's journal as a HAR object; credentials masked, instants of the cloud's clock."""
    mask = Mask(cloud)
    homes = dict(cloud.gone.homes)
    homes.update((handle.name, (handle.fixture, handle.url)) for handle in cloud.handles)
    return {
        "log": {
            "version": "1.2",
            "creator": {"name": "pytest-fakecloud", "version": "1"},
            "entries": [
                _entry(call, *homes.get(call.handle, ("", f"http://{call.handle}.invalid")), mask)
                for call in cloud.journal.calls()
            ],
        }
    }


def write(cloud: Cloud, path: Path) -> Path:
    """Write the archive to a file, folders included; the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(archive(cloud), indent=1, ensure_ascii=False), encoding="utf-8")
    return path


def _entry(call: Call, fixture: str, origin: str, mask: Mask) -> dict[str, Any]:
    target = mask.target(call)
    content_type = call.header("content-type") or ""
    request: dict[str, Any] = {
        "method": call.method,
        "url": origin + target,
        "httpVersion": "HTTP/1.1",
        "headers": [{"name": n, "value": mask.header(n, v)} for n, v in call.headers],
        "queryString": [
            {"name": name, "value": value} for name, value in query_items(target.partition("?")[2])
        ],
        "cookies": [],
        "headersSize": -1,
        "bodySize": len(call.body),
    }
    body = mask.body(call)
    if body:
        request["postData"] = {
            "mimeType": content_type,
            **({"text": body} if isinstance(body, str) else _text(body, mask)),
        }
    answer_type = next(
        (v for n, v in call.answer_headers if n.lower() == "content-type"), "application/json"
    )
    answer = call.answer if isinstance(call.answer, bytes) else b""
    return {
        "startedDateTime": call.at.isoformat(),
        "time": 0,
        "request": request,
        "response": {
            "status": call.status or 0,
            "statusText": call.outcome,
            "httpVersion": "HTTP/1.1",
            "headers": [{"name": n, "value": mask.header(n, v)} for n, v in call.answer_headers],
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
        return {"text": base64.b64encode(body).decode("ascii"), "encoding": "base64"}


# -- replaying -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Difference:
    """One answer that was not as recorded: which request, where, and both values."""

    number: int
    request: str
    where: str
    recorded: Any
    answered: Any

    def __str__(self) -> str:
        return (
            f"request {self.number} ({self.request}): {self.where} was "
            f"{_short(self.recorded)}, is {_short(self.answered)}"
        )


class Differences(Found[Difference]):
    """What differed in a replay; empty when the fake answers as recorded."""

    def assert_none(self) -> None:
        """Fails when anything differed, listing it."""
        if self:
            raise AssertionError(
                f"{len(self)} difference(s) from the recording:\n"
                + "\n".join(f"  {difference}" for difference in self)
            )


def replay(
    cloud: Cloud,
    file: str | Path,
    *,
    into: Mapping[str, Handle] | Handle | None = None,
    ignore: Iterable[str] = (),
    move_clock: bool = True,
) -> Differences:
    """Send a recorded session to fakes again and compare the answers.

    ``file`` is a HAR file, of ours or of a browser, a proxy or a client of the real service.
    ``into`` says which fake takes which origin (``{"https://kv.example.com": kv_server}``), or the
    one fake that takes all; without it the recorded fixtures' fakes are asked for by name. Status and
    body are compared, JSON by value; fields in ``VOLATILE`` and ``ignore`` are not, but their
    recorded values are replaced in later requests by what the fake answered. ``move_clock``
    advances the clock by the recorded gaps. Left out are requests that a fault answered in the
    recording, streams, and those whose words were hidden because they held a password; what was
    hidden in an answer may be anything.

    Raises ``ContractError`` for an unreadable file and for requests that no fake takes.
    """
    entries = list(_entries(Path(file)))
    volatile = VOLATILE | set(ignore)
    translation: dict[str, str] = {}
    differences = Differences()
    started_us = cloud.clock.now_us()
    first: datetime | None = None
    for number, entry in enumerate(entries, 1):
        if entry.get("_fault") or entry.get("_outcome") == "streamed" or _hidden(entry["request"]):
            continue
        at = datetime.fromisoformat(entry["startedDateTime"])
        first = first or at
        if move_clock:
            behind = started_us + _microseconds(at, first) - cloud.clock.now_us()
            if behind > 0:
                cloud.clock.advance(behind / 1e6)
        handle = _taker(cloud, entry, into)
        status, body = _send(handle, entry["request"], translation, entry["response"]["status"])
        label = f"{entry['request']['method']} {_path(entry['request']['url'])}"
        recorded = _body(entry["response"].get("content", {}))
        if status != entry["response"]["status"]:
            differences.append(
                Difference(number, label, "status", entry["response"]["status"], status)
            )
        for where, was, answered in _compare(
            _parsed(recorded), _parsed(body), "body", volatile, translation
        ):
            differences.append(Difference(number, label, where, was, answered))
    return differences


def _hidden(request: Mapping[str, Any]) -> bool:
    posted = request.get("postData") or {}
    return posted.get("text") == HIDDEN or urlsplit(request["url"]).path.endswith(f"/{HIDDEN}")


def _microseconds(at: datetime, first: datetime) -> int:
    return round((at - first).total_seconds() * 1e6)


def _entries(path: Path) -> Iterator[dict[str, Any]]:
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))["log"]["entries"]
        for entry in entries:
            entry["request"]["url"], entry["request"]["method"], entry["response"]["status"]
            datetime.fromisoformat(entry["startedDateTime"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ContractError(f"{path} is no HTTP archive (HAR): {error!r}") from error
    yield from entries


def _taker(
    cloud: Cloud, entry: Mapping[str, Any], into: Mapping[str, Handle] | Handle | None
) -> Handle:
    if isinstance(into, Mapping):
        url = entry["request"]["url"]
        parts = urlsplit(url)
        for origin, handle in into.items():
            if f"{parts.scheme}://{parts.netloc}" == origin.rstrip("/"):
                return handle
        raise ContractError(f"no fake takes {url}: name its origin in into={{origin: handle}}")
    if into is not None:
        return into
    for handle in cloud.handles:
        if handle.name == entry.get("_handle"):
            return handle
    if entry.get("_fixture"):
        taker: Handle = cloud.fixture_handle(entry["_fixture"])
        return taker
    raise ContractError(
        f"the recording does not say which fake {entry['request']['url']} was for: "
        "give into=handle or into={origin: handle}"
    )


def _send(
    handle: Handle, request: Mapping[str, Any], translation: Mapping[str, str], recorded_status: int
) -> tuple[int, bytes]:
    import urllib3

    parts = urlsplit(request["url"])
    query = "&".join(
        part for part in parts.query.split("&") if part.partition("=")[0] not in _CREDENTIALS
    )
    target = _translated((parts.path or "/") + (f"?{query}" if query else ""), translation)
    headers = urllib3.HTTPHeaderDict()
    for header in request.get("headers", ()):
        name = header["name"]
        if name.lower() not in _NOT_SENT_AGAIN and not name.startswith(":"):
            headers.add(name, _translated(header["value"], translation))
    if recorded_status != 401:
        headers.update(handle.headers)
    body = _body(request.get("postData") or {})
    if body:
        body = _translated(body.decode("utf-8", "surrogateescape"), translation).encode(
            "utf-8", "surrogateescape"
        )
    with urllib3.PoolManager(retries=False, timeout=30) as pool:
        answer = pool.request(
            request["method"], handle.url + target, body=body or None, headers=headers
        )
        return answer.status, answer.data


def _translated(text: str, translation: Mapping[str, str]) -> str:
    if not translation:
        return text
    # All at once, so that no answer is taken for something recorded.
    known = "|".join(map(re.escape, sorted(translation, key=len, reverse=True)))
    return re.sub(known, lambda found: translation[found[0]], text)


def _body(content: Mapping[str, Any]) -> bytes:
    text = content.get("text") or ""
    if content.get("encoding") == "base64":
        return base64.b64decode(text)
    return str(text).encode("utf-8")


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return body.decode("utf-8", "replace")


def _compare(
    recorded: Any, answered: Any, where: str, volatile: frozenset[str], translation: dict[str, str]
) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(recorded, dict) and isinstance(answered, dict):
        for name in sorted(recorded.keys() | answered.keys()):
            was, is_now = recorded.get(name, "absent"), answered.get(name, "absent")
            if name in volatile:
                if isinstance(was, str) and isinstance(is_now, str) and len(was) >= 6:
                    translation[was] = is_now
            else:
                yield from _compare(was, is_now, f"{where}.{name}", volatile, translation)
    elif isinstance(recorded, list) and isinstance(answered, list):
        if len(recorded) != len(answered):
            yield f"{where} (length)", len(recorded), len(answered)
        for index, (was, is_now) in enumerate(zip(recorded, answered, strict=False)):
            yield from _compare(was, is_now, f"{where}[{index}]", volatile, translation)
    elif recorded != answered and not _may_be(recorded, answered):
        yield where, recorded, answered


def _may_be(recorded: Any, answered: Any) -> bool:
    """Whether an answer fits a recorded text of which parts were hidden."""
    if not isinstance(recorded, str) or HIDDEN not in recorded or not isinstance(answered, str):
        return False
    pattern = ".*".join(map(re.escape, recorded.split(HIDDEN)))
    return re.fullmatch(pattern, answered, re.DOTALL) is not None


def _path(url: str) -> str:
    return urlsplit(url).path


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
