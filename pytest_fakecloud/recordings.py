"""Write a cloud's journal as an HTTP archive (HAR 1.2), and replay an archive against fakes."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict
from urllib.parse import urlsplit

from .core.calls import Call
from .core.errors import ContractError, shown
from .core.field_types import fits
from .core.found import Found
from .core.timeparse import instant_us, to_datetime
from .core.wording import counted
from .files import DATA_BYTES, read_file
from .handle import Handle, closed_fakes_of
from .http.readers import query_items
from .reporting.masking import HIDDEN, Mask
from .reporting.private_files import write_private

if TYPE_CHECKING:
    from .any_cloud import AnyCloud

VOLATILE = frozenset(
    {"messageId", "scheduleId", "dlqId", "uuid", "timestamp", "time", "createdAt", "updatedAt"}
    | {"notBefore", "cursor", "endpointId", "topicId", "taskId", "jti", "workflowRunId"}
)
"""Fields whose values differ between runs. Later requests use the fakes' values in place of the
recorded ones.
"""
_CREDENTIALS = frozenset({"_token", "qstash_token"})
"""Query parameters that hold credentials. A replay uses the fake's own credentials instead."""
_NOT_SENT_AGAIN = frozenset(
    {"host", "content-length", "connection", "transfer-encoding", "authorization", "expect"}
)


def archive(cloud: AnyCloud) -> dict[str, Any]:
    """Return the cloud's journal as a HAR object, with credentials masked and times of the cloud's
    clock.
    """
    mask = Mask(cloud)
    addresses = dict(closed_fakes_of(cloud).addresses)
    addresses.update((handle.name, (handle.fixture, handle.url)) for handle in cloud.handles)
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


def write(cloud: AnyCloud, path: Path) -> Path:
    """Write the archive to a file that only its owner can read, creating folders; return the file's
    path.
    """
    return write_private(path, json.dumps(archive(cloud), indent=1, ensure_ascii=False))


def _entry(call: Call, fixture: str, origin: str, mask: Mask) -> dict[str, Any]:
    target = mask.target(call)
    content_type = call.headers.get("Content-Type", "")
    request: dict[str, Any] = {
        "method": call.method,
        "url": origin + target,
        "httpVersion": "HTTP/1.1",
        "headers": [{"name": n, "value": mask.header(n, v)} for n, v in call.headers.pairs],
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
    answer_type = call.answer_headers.get("Content-Type", "application/json")
    # Leave out the body of an answer to HEAD: the journal has the body for GET, which was never
    # sent.
    answer = call.answer if isinstance(call.answer, bytes) and call.method != "HEAD" else b""
    return {
        "startedDateTime": to_datetime(call.at_us).isoformat(),
        "time": 0,
        "request": request,
        "response": {
            "status": call.status or 0,
            "statusText": call.outcome,
            "httpVersion": "HTTP/1.1",
            "headers": [
                {"name": n, "value": mask.header(n, v)} for n, v in call.answer_headers.pairs
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


# -- replaying -------------------------------------------------------------------------------------


class _Absent:
    def __repr__(self) -> str:
        return "absent"


_ABSENT = _Absent()
"""The value of a member that a JSON object does not have."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between a response and the recording: the request, the field and both values.

    The value of a missing member of a JSON object prints as ``absent``.
    """

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
    """The differences found by a replay; empty if the fakes answered as recorded."""

    def assert_none(self) -> None:
        """Fail if there are differences, and list them."""
        __tracebackhide__ = True
        if self:
            raise AssertionError(
                f"{counted(len(self), 'difference')} from the recording:\n"
                + "\n".join(f"  {difference}" for difference in self)
            )


class ReplayOptions(TypedDict, total=False):
    """The options of ``replay()``."""

    into: Mapping[str, Handle] | Handle | None
    ignore: Iterable[str]
    move_clock: bool


def replay(
    cloud: AnyCloud,
    file: str | Path,
    *,
    into: Mapping[str, Handle] | Handle | None = None,
    ignore: Iterable[str] = (),
    move_clock: bool = True,
) -> Differences:
    """Send a recorded session to fakes and compare the responses.

    ``file`` is a HAR file from this package, a browser, a proxy or a client of the real service.
    ``into`` maps origins to fakes (``{"https://kv.example.com": kv_server}``), or is one fake for
    all requests; without it the fakes of the recorded fixtures are used. Status and body are
    compared, JSON by value. Fields in ``VOLATILE`` and ``ignore`` are not compared, but their
    recorded values are replaced in later requests by the fake's values. ``move_clock`` advances the
    clock by the recorded intervals. Some requests are skipped: those whose recorded response came
    from an injected fault, those without a recorded response (status 0), streams, and requests that
    were masked because they contained a password. Masked or missing parts of a recorded response
    match anything. It is a difference if a fake does not respond.

    Raises ``ContractError`` for an unreadable file, for requests that cannot be sent or have no
    fake, and for invalid options.
    """
    __tracebackhide__ = True
    if not isinstance(file, str | Path):
        raise ContractError(f"{shown(file)} is not a file: pass the path of an HTTP archive (HAR)")
    _check_takers(into)
    volatile = VOLATILE | _names(ignore)
    entries = _entries(Path(file))
    translation: dict[str, str] = {}
    differences = Differences()
    started_us = cloud.clock.now_us()
    first_us: int | None = None
    for number, entry in enumerate(entries, 1):
        if _is_left_out(entry):
            continue
        at_us = instant_us(entry["startedDateTime"])
        first_us = at_us if first_us is None else first_us
        if move_clock:
            behind = started_us + at_us - first_us - cloud.clock.now_us()
            if behind > 0:
                cloud.clock.advance(behind / 1e6)
        handle = _taker(cloud, entry, into)
        label = f"{entry['request']['method']} {_path(entry['request']['url'])}"
        try:
            status, body = _send(
                cloud, handle, entry["request"], translation, entry["response"]["status"]
            )
        except _NoAnswer as none:
            differences.append(
                Difference(number, label, "status", entry["response"]["status"], str(none))
            )
            continue
        except ValueError as error:
            raise ContractError(f"request {number} of {file} cannot be sent: {error}") from error
        content = entry["response"].get("content") or {}
        if status != entry["response"]["status"]:
            differences.append(
                Difference(number, label, "status", entry["response"]["status"], status)
            )
        if _is_unknown(content):
            continue
        for where, was, answered in _compare(
            _parsed(_body(content)), _parsed(body), "body", volatile, translation
        ):
            differences.append(Difference(number, label, where, was, answered))
    return differences


class _NoAnswer(Exception):
    """Raised when a fake did not respond. The text says how the connection ended."""


def _is_left_out(entry: Mapping[str, Any]) -> bool:
    answer = entry["response"]
    kind = str((answer.get("content") or {}).get("mimeType") or "")
    return bool(
        entry.get("_fault")
        or entry.get("_outcome") == "streamed"
        or kind.startswith("text/event-stream")
        or answer["status"] == 0
        or _hidden(entry["request"])
    )


def _is_unknown(content: Mapping[str, Any]) -> bool:
    """Return whether a body was sent but is missing from the file; many tools do not record bodies."""
    return content.get("text") is None and content.get("size") != 0


def _hidden(request: Mapping[str, Any]) -> bool:
    posted = request.get("postData") or {}
    return posted.get("text") == HIDDEN or urlsplit(request["url"]).path.endswith(f"/{HIDDEN}")


def _check_takers(into: object) -> None:
    takers = list(into.values()) if isinstance(into, Mapping) else [into]
    keys = list(into) if isinstance(into, Mapping) else []
    if not all(isinstance(key, str) for key in keys) or not all(
        isinstance(taker, Handle) or (taker is None and not keys) for taker in takers
    ):
        raise ContractError(
            f"into={into!r:.200} is not valid: pass a fake, or a dict from origins to fakes"
        )


def _names(ignore: object) -> set[str]:
    if not isinstance(ignore, str) and isinstance(ignore, Iterable):
        names = list(ignore)
        if _are_texts(names):
            return set(names)
    raise ContractError(f"ignore={ignore!r:.200} is not valid: pass a list of field names")


def _are_texts(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def _entries(path: Path) -> list[dict[str, Any]]:
    try:
        # Use utf-8-sig, because some tools write a byte order mark.
        entries = json.loads(read_file(path, DATA_BYTES).decode("utf-8-sig"))["log"]["entries"]
        if not isinstance(entries, list):
            raise TypeError(f"log.entries is {entries!r:.100}, not a list")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ContractError(f"{path} is not an HTTP archive (HAR): {error!r:.200}") from error
    for number, entry in enumerate(entries, 1):
        wrong = _wrong_in(entry)
        if wrong:
            raise ContractError(f"{path} is not an HTTP archive (HAR): entry {number}: {wrong}")
    return entries


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
        if not isinstance(header, dict) or not _are_texts(
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


def _taker(
    cloud: AnyCloud, entry: Mapping[str, Any], into: Mapping[str, Handle] | Handle | None
) -> Handle:
    if isinstance(into, Mapping):
        url = entry["request"]["url"]
        parts = urlsplit(url)
        for origin, handle in into.items():
            if f"{parts.scheme}://{parts.netloc}" == origin.rstrip("/"):
                return handle
        raise ContractError(f"no fake for {url}: pass its origin in into={{origin: fake}}")
    if into is not None:
        return into
    for handle in cloud.handles:
        if handle.name == entry.get("_handle"):
            return handle
    if entry.get("_fixture"):
        taker: Handle = cloud.fixture_handle(entry["_fixture"])
        return taker
    raise ContractError(
        f"the recording does not name the fake for {entry['request']['url']}: "
        "pass into=fake or into={origin: fake}"
    )


def _send(
    cloud: AnyCloud,
    handle: Handle,
    request: Mapping[str, Any],
    translation: Mapping[str, str],
    recorded_status: int,
) -> tuple[int, bytes]:
    import urllib3

    parts = urlsplit(request["url"])
    query = "&".join(
        part for part in parts.query.split("&") if part.partition("=")[0] not in _CREDENTIALS
    )
    target = _translated((parts.path or "/") + (f"?{query}" if query else ""), translation)
    headers = urllib3.HTTPHeaderDict()
    for header in request.get("headers") or ():
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
    trusted = None if cloud.authority is None else str(cloud.authority.ca_file)
    with urllib3.PoolManager(retries=False, timeout=30, ca_certs=trusted) as pool:
        try:
            answer = pool.request(
                request["method"], handle.url + target, body=body or None, headers=headers
            )
            return answer.status, answer.data
        except urllib3.exceptions.LocationValueError:
            raise
        except urllib3.exceptions.HTTPError as error:
            raise _NoAnswer(f"no answer ({type(error).__name__}: {error})") from error


def _translated(text: str, translation: Mapping[str, str]) -> str:
    if not translation:
        return text
    # Replace all values in one pass, so that a replacement is never replaced again.
    known = "|".join(map(re.escape, sorted(translation, key=len, reverse=True)))
    return re.sub(known, lambda found: translation[found[0]], text)


def _body(content: Mapping[str, Any]) -> bytes:
    text = content.get("text") or ""
    if content.get("encoding") == "base64":
        return base64.b64decode(text)
    return str(text).encode("utf-8", "backslashreplace")


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
            was, is_now = recorded.get(name, _ABSENT), answered.get(name, _ABSENT)
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
    elif not _are_equal(recorded, answered) and not _may_be(recorded, answered):
        yield where, recorded, answered


def _are_equal(recorded: Any, answered: Any) -> bool:
    # In JSON, true is not 1.
    return recorded == answered and isinstance(recorded, bool) == isinstance(answered, bool)


def _may_be(recorded: Any, answered: Any) -> bool:
    """Return whether a string in a response matches a recorded string that has masked parts."""
    if not isinstance(recorded, str) or HIDDEN not in recorded or not isinstance(answered, str):
        return False
    return fits(tuple(recorded.split(HIDDEN)), answered)


def _path(url: str) -> str:
    return urlsplit(url).path


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
