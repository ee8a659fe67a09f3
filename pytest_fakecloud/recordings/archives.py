"""A cloud's journal as an HTTP archive (HAR 1.2), and the replay of an archive against fakes."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from http.client import responses
from pathlib import Path
from typing import Any, TypedDict
from urllib.parse import SplitResult, urlsplit

from ..cloud.base import BaseCloud, context_of, fixture_fake
from ..cloud.fake import ClosedFake, Fake
from ..cloud.files import read_json
from ..core.assets import asset
from ..core.calls import Call, Event, Headers
from ..core.errors import ContractError, brief, same_json, shown
from ..core.field_types import ABSENT, pieces_matcher
from ..core.journal import Results, results_of
from ..core.json_schema import violations
from ..core.matching import fields_of
from ..core.output_files import write_private
from ..core.secrets import HIDDEN
from ..core.timers import instant_us, to_datetime
from ..http.messages import query_items
from ..reporting.lookups import DeliveryExchange, exchanges_of
from ..reporting.mask import Mask


def archive(cloud: BaseCloud, others: Iterable[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Return a cloud's journal as a HAR object in its clock's time, with credentials masked.

    It has the calls, and the deliveries and callbacks that a queue sent to other addresses than
    those of the cloud's fakes. A replay leaves the deliveries out.
    ``others`` are entries of other clouds, which are added at the end.
    """
    creator = {"name": "pytest-fakecloud", "version": "1"}
    entries = [*entries_from(cloud), *others]
    return {"log": {"version": "1.2", "creator": creator, "entries": entries}}


def entries_from(cloud: BaseCloud) -> list[dict[str, Any]]:
    mask = Mask(cloud)
    fakes: list[ClosedFake | Fake] = [*context_of(cloud).closed_fakes.values(), *cloud.fakes()]
    addresses = {fake.name: (fake.fixture, fake.url) for fake in fakes}
    exchanges, entries = exchanges_of(cloud), []
    # A delivery to a fake of the cloud is a call of that fake.
    received = tuple(f"{url}/" for _, url in addresses.values())
    for entry in cloud.journal.entries:
        fixture, origin = addresses.get(entry.fake, ("", f"http://{entry.fake}.invalid"))
        if isinstance(entry, Call):
            entries.append(_call_entry(entry, fixture, origin, mask))
        elif entry.kind == "attempt" and not f"{entry.data.get('url')}/".startswith(received):
            exchanged = exchanges.get(entry.data.get("began", 0))
            entries.append(_delivery_entry(entry, fixture, exchanged, mask))
    return entries


def write(cloud: BaseCloud, path: Path, others: Iterable[Mapping[str, Any]] = ()) -> Path:
    """Write the archive to a file that only its owner can read, creating folders; return its path."""
    return write_private(path, json.dumps(archive(cloud, others), indent=1, ensure_ascii=False))


def _call_entry(call: Call, fixture: str, origin: str, mask: Mask) -> dict[str, Any]:
    answer = call.response_body
    if not isinstance(answer, bytes) or call.method == "HEAD":
        answer = b""  # The journal has the body for GET.
    message = DeliveryExchange(
        call.request_headers.pairs, mask.body(call), call.response_headers.pairs, answer
    )
    return {
        **_entry(call, call.method, origin + mask.target(call), message, call.status, mask),
        "_fixture": fixture,
        "_kind": "call",
        "_fault": call.fault,
        "_outcome": call.outcome,
    }


def _delivery_entry(
    event: Event, fixture: str, exchanged: DeliveryExchange | None, mask: Mask
) -> dict[str, Any]:
    """Return an attempt of a queue; without its bodies if the queue no longer has them."""
    data = event.data
    url, status = mask.text(str(data.get("url", ""))), data.get("status")
    message = exchanged or DeliveryExchange((), b"", (), b"")
    return {
        **_entry(event, str(data.get("method", "POST")), url, message, status, mask),
        "_fixture": fixture,
        "_kind": data.get("message_kind", "message"),
        "_fault": None,
        "_outcome": "answered" if status else "lost",
    }


def _entry(
    source: Call | Event,
    method: str,
    url: str,
    exchanged: DeliveryExchange,
    status: int | None,
    mask: Mask,
) -> dict[str, Any]:
    """Return the fields that every entry has. Of a frozen clock, all durations are 0."""
    took_us = 0 if source.ended_us is None else max(0, source.ended_us - source.at_us)
    sent, received = Headers([*exchanged.headers]), Headers([*exchanged.response_headers])
    request: dict[str, Any] = {
        "method": method,
        "url": url,
        "httpVersion": "HTTP/1.1",
        "headers": _headers(exchanged.headers, mask),
        "queryString": [
            {"name": name, "value": value} for name, value in query_items(url.partition("?")[2])
        ],
        "cookies": [],
        "headersSize": -1,
        "bodySize": len(exchanged.body),
    }
    if exchanged.body:
        request["postData"] = {
            "mimeType": sent.get("Content-Type", ""),
            **_text(exchanged.body, mask),
        }
    answer = exchanged.response_body
    content_type = received.get("Content-Type", "application/json")
    response_headers = [*exchanged.response_headers]
    if isinstance(source, Call) and status and answer and "Content-Type" not in received:
        # The server adds these headers to the answer of a fake.
        response_headers += [("Content-Type", content_type), ("Content-Length", str(len(answer)))]
    return {
        "startedDateTime": to_datetime(source.at_us).isoformat(),
        "time": took_us / 1000,
        "request": request,
        "response": {
            "status": status or 0,
            "statusText": responses.get(status or 0, ""),
            "httpVersion": "HTTP/1.1",
            "headers": _headers(response_headers, mask),
            "cookies": [],
            "content": {"size": len(answer), "mimeType": content_type, **_text(answer, mask)},
            "redirectURL": "",
            "headersSize": -1,
            "bodySize": len(answer),
        },
        "cache": {},
        "timings": {"send": 0, "wait": took_us / 1000, "receive": 0},
        "_number": source.number,
        "_fake": source.fake,
    }


def _headers(pairs: Iterable[tuple[str, str]], mask: Mask) -> list[dict[str, str]]:
    return [{"name": name, "value": mask.header(name, value)} for name, value in pairs]


def _text(body: bytes, mask: Mask) -> dict[str, str]:
    try:
        return {"text": mask.text(body.decode("utf-8"))}
    except UnicodeDecodeError:
        return {"text": base64.b64encode(mask.data(body)).decode("ascii"), "encoding": "base64"}


# -- reading ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """A recorded request with its response; this package also records the name of the fake."""

    at_us: int
    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    status: int
    answer: bytes
    has_answer_body: bool
    fake: str | None
    fixture: str | None
    is_replayable: bool

    @property
    def parts(self) -> SplitResult:
        return urlsplit(self.url)


def entries_of(archive: Any, name: object) -> list[Entry]:
    """Return the requests of an archive; raise ``ContractError``, which begins with its name."""
    try:
        entries = archive["log"]["entries"]
        if not isinstance(entries, list):
            raise TypeError(f"log.entries is {entries!r:.100}, not a list")
    except (KeyError, TypeError) as error:
        raise ContractError(f"{name} is not an HTTP archive (HAR): {error!r:.200}") from error
    requests = []
    for number, entry in enumerate(entries, 1):
        try:
            requests.append(_read_entry(entry))
        except (ContractError, ValueError) as error:
            wrong = f"entry {number}: {error}"
            raise ContractError(f"{name} is not an HTTP archive (HAR): {wrong}") from None
    return requests


def _read_entry(data: Any) -> Entry:
    """Return an entry; raise ``ValueError`` or ``ContractError`` if it deviates from the format."""
    for wrong in violations(data, _ENTRY, "it"):
        raise ValueError(wrong)
    request, response = data["request"], data["response"]
    parts = urlsplit(request["url"])
    if not request["method"]:
        raise ValueError("request.method is empty")
    if not (parts.scheme and parts.netloc):
        raise ValueError(f"request.url is {request['url']!r:.100}, not an absolute URL")
    sent, content = request.get("postData") or {}, response.get("content") or {}
    is_left_out = (
        data.get("_fault")
        or data.get("_kind", "call") != "call"  # A delivery, which the fake sends itself.
        or request["method"] == "RESP"
        or data.get("_outcome") == "streamed"
        or str(content.get("mimeType") or "").startswith("text/event-stream")
        or response["status"] == 0
        # A request with a password was masked as a whole.
        or sent.get("text") == HIDDEN
        or parts.path.endswith(f"/{HIDDEN}")
    )
    return Entry(
        at_us=instant_us(data["startedDateTime"]),
        method=request["method"],
        url=request["url"],
        headers=tuple((header["name"], header["value"]) for header in request.get("headers") or ()),
        body=_body(sent, "request.postData"),
        status=response["status"],
        answer=_body(content, "response.content"),
        # Many tools do not record bodies.
        has_answer_body=content.get("text") is not None or content.get("size") == 0,
        fake=data.get("_fake"),
        fixture=data.get("_fixture"),
        is_replayable=not is_left_out,
    )


def _body(content: Mapping[str, Any], where: str) -> bytes:
    text = content.get("text") or ""
    if content.get("encoding") != "base64":
        return str(text).encode("utf-8", "backslashreplace")
    try:
        return base64.b64decode(text)
    except ValueError as error:
        raise ValueError(f"{where}.text cannot be read: {error}") from None


_ENTRY: Mapping[str, Any] = json.loads(asset(__file__, "entry.schema.json"))
"""The schema of an entry, as far as a replay reads it."""


VOLATILE = frozenset(
    {"messageId", "scheduleId", "dlqId", "uuid", "timestamp", "time", "createdAt", "updatedAt"}
    | {"notBefore", "cursor", "endpointId", "topicId", "taskId", "jti", "workflowRunId"}
)
"""Fields whose values differ between runs. Later requests use the fakes' values."""
_CREDENTIALS = frozenset({"_token", "qstash_token"})
"""Query parameters that hold credentials. A replay uses the fake's own credentials instead."""
_NOT_SENT_AGAIN = frozenset(
    {"host", "content-length", "connection", "transfer-encoding", "authorization", "expect"}
)


class ReplayOptions(TypedDict, total=False):
    """The options of ``replay()``."""

    into: Mapping[str, Fake] | Fake | None
    ignore: Iterable[str]
    move_clock: bool


def replay(
    cloud: BaseCloud,
    file: str | Path | Mapping[str, Any],
    *,
    into: Mapping[str, Fake] | Fake | None = None,
    ignore: Iterable[str] = (),
    move_clock: bool = True,
) -> Results[Difference]:
    """Send a recorded session to fakes and compare the responses.

    ``file`` is a HAR file, or its parsed JSON, from this package, a browser, a proxy or a client of
    the real service. ``into`` maps origins to fakes (``{"https://kv.example.com": kv_server}``), or
    is one fake for all requests; without it the fakes of the recorded fixtures are used. Status and
    body are compared, JSON by value. Fields in ``VOLATILE`` and ``ignore`` are not compared, but their
    recorded values are replaced in later requests by the fake's values. ``move_clock`` advances the
    clock by the recorded intervals. Some requests are skipped: those whose recorded response came
    from an injected fault, those without a recorded response (status 0), streams, commands over the
    Redis protocol, and requests that were masked because they contained a password. Masked or missing
    parts of a recorded response match anything. It is a difference if a fake does not respond.

    Raises ``ContractError`` for an unreadable file, invalid options, requests without a fake, and if
    all requests would be skipped.
    """
    __tracebackhide__ = True
    if not isinstance(file, str | Path | Mapping):
        raise ContractError(f"{shown(file)} is not a file: pass the path of an HTTP archive (HAR)")
    _check_into(into)
    volatile = VOLATILE | _names(ignore)
    archive, name = file, "the archive"
    if not isinstance(file, Mapping):
        archive, name = read_json(file, "an HTTP archive (HAR)"), str(file)
    entries = entries_of(archive, name)
    if entries and not any(entry.is_replayable for entry in entries):
        raise ContractError(
            f"none of the requests in {name} can be sent again: they are commands over the Redis "
            "protocol, streams, or masked, or their responses came from faults or are missing"
        )
    translation: dict[str, str] = {}
    differences: Results[Difference] = results_of((), fields_of(Difference), "difference")
    started_us = cloud.clock.now_us()
    first_us: int | None = None
    for number, entry in enumerate(entries, 1):
        if not entry.is_replayable:
            continue
        first_us = entry.at_us if first_us is None else first_us
        behind_us = started_us + entry.at_us - first_us - cloud.clock.now_us()
        if move_clock and behind_us > 0:
            cloud.clock.advance(behind_us / 1e6)
        fake = _fake_for(cloud, entry, into)
        label = f"{entry.method} {entry.parts.path}"
        try:
            status, body = _send(cloud, fake, entry, translation)
        except ValueError as error:
            raise ContractError(f"request {number} of {name} cannot be sent: {error}") from error
        if status != entry.status:
            differences.append(Difference(number, label, "status", entry.status, status))
        if entry.has_answer_body and body is not None:
            changes = _changes(_parsed(entry.answer), _parsed(body), volatile, translation, "body")
            differences += [Difference(number, label, *change) for change in changes]
    return differences


def _are_strings(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def _check_into(into: object) -> None:
    if isinstance(into, Mapping):
        is_valid = _are_strings(into) and all(isinstance(fake, Fake) for fake in into.values())
    else:
        is_valid = into is None or isinstance(into, Fake)
    if not is_valid:
        raise ContractError(
            f"into={into!r:.200} is not valid: pass a fake, or a dict from origins to fakes"
        )


def _names(ignore: object) -> set[str]:
    if not isinstance(ignore, str) and isinstance(ignore, Iterable):
        names = list(ignore)
        if _are_strings(names):
            return set(names)
    raise ContractError(f"ignore={ignore!r:.200} is not valid: pass a list of field names")


def _fake_for(cloud: BaseCloud, entry: Entry, into: Mapping[str, Fake] | Fake | None) -> Fake:
    if isinstance(into, Mapping):
        own = f"{entry.parts.scheme}://{entry.parts.netloc}"
        for origin, fake in into.items():
            if own == origin.rstrip("/"):
                return fake
        raise ContractError(f"no fake for {entry.url}: pass its origin in into={{origin: fake}}")
    if into is not None:
        return into
    for fake in cloud.fakes():
        if fake.name == entry.fake:
            return fake
    if entry.fixture:
        started: Fake = fixture_fake(cloud, entry.fixture)
        return started
    raise ContractError(
        f"the recording does not name the fake for {entry.url}: "
        "pass into=fake or into={origin: fake}"
    )


def _send(
    cloud: BaseCloud, fake: Fake, entry: Entry, translation: Mapping[str, str]
) -> tuple[int | str, bytes | None]:
    """Return the status and the body of the response, or how the connection ended without one."""
    import urllib3

    headers = urllib3.HTTPHeaderDict()
    for name, value in entry.headers:
        if name.lower() not in _NOT_SENT_AGAIN and not name.startswith(":"):
            headers.add(name, _translated(value, translation))
    if entry.status != 401:
        headers.update(fake.headers)
    body = _translated(entry.body.decode("utf-8", "surrogateescape"), translation)
    trusted = None if cloud.authority is None else str(cloud.authority.ca_file)
    # Use a new connection for each request, because a fault may have closed the last one.
    with urllib3.PoolManager(retries=False, timeout=30, ca_certs=trusted) as pool:
        try:
            answer = pool.request(
                entry.method,
                fake.url + _translated(_target(entry), translation),
                body=body.encode("utf-8", "surrogateescape") or None,
                headers=headers,
            )
            return answer.status, answer.data
        except urllib3.exceptions.LocationValueError:
            raise
        except urllib3.exceptions.HTTPError as error:
            return f"no answer ({type(error).__name__}: {error})", None


def _target(entry: Entry) -> str:
    """Return the path and the query of a request, without credentials."""
    parts = entry.parts
    query = "&".join(
        part for part in parts.query.split("&") if part.partition("=")[0] not in _CREDENTIALS
    )
    return (parts.path or "/") + (f"?{query}" if query else "")


def _translated(text: str, translation: Mapping[str, str]) -> str:
    if not translation:
        return text
    # Replace all values in one pass, so that a replacement is never replaced again.
    pattern = "|".join(map(re.escape, sorted(translation, key=len, reverse=True)))
    return re.sub(pattern, lambda match: translation[match[0]], text)


# -- comparison ------------------------------------------------------------------------------------


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
            f"{brief(self.recorded)}, is {brief(self.answered)}"
        )


def _changes(
    recorded: Any, answered: Any, volatile: frozenset[str], translation: dict[str, str], where: str
) -> Iterator[tuple[str, Any, Any]]:
    """Yield each difference of two bodies: its place in the body, and both values.

    Adds the values of volatile fields to ``translation``: the recorded value, and the fake's.
    """
    if isinstance(recorded, dict) and isinstance(answered, dict):
        for name in sorted(recorded.keys() | answered.keys()):
            was, is_now = recorded.get(name, ABSENT), answered.get(name, ABSENT)
            if name not in volatile:
                yield from _changes(was, is_now, volatile, translation, f"{where}.{name}")
            # Short values could also occur elsewhere by chance.
            elif isinstance(was, str) and isinstance(is_now, str) and len(was) >= 6:
                translation[was] = is_now
    elif isinstance(recorded, list) and isinstance(answered, list):
        if len(recorded) != len(answered):
            yield f"{where} (length)", len(recorded), len(answered)
        for index, (was, is_now) in enumerate(zip(recorded, answered, strict=False)):
            yield from _changes(was, is_now, volatile, translation, f"{where}[{index}]")
    elif not same_json(recorded, answered):
        strings = isinstance(recorded, str) and isinstance(answered, str)
        # The masked parts of a recorded string match anything.
        if not (
            strings and HIDDEN in recorded and pieces_matcher(recorded.split(HIDDEN))(answered)
        ):
            yield where, recorded, answered


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return body.decode("utf-8", "replace")
