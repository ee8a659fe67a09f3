"""What a test does that makes a recorded call or delivery again.

The data that was there before the call is its set-up, at the recorded time, and the recorded answer is
what it asserts. A call whose answer such a test cannot expect has none: see `NoTest`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, TypeAlias
from urllib.parse import quote

from ...cloud.services import data_module, own_prefix
from ...core.timers import to_datetime
from ...inspect.data import StateChange
from . import commands

Row: TypeAlias = Mapping[str, Any]
"""A row of the journal as JSON (see ``docs/reference/report.schema.json``)."""
Headers: TypeAlias = Mapping[str, str]


class NoTest(Exception):
    """Raised for a call or delivery without an honest test; the message is the reason, as a sentence."""


class Known(NamedTuple):
    """A value that a test expects, which may be null."""

    value: Any


@dataclass(frozen=True)
class TestedFake:
    """The fake that a test calls: its name, and the fixture of its service."""

    __test__ = False
    name: str
    fixture: str

    @property
    def is_fixture(self) -> bool:
        """Whether the fixture of its service is this fake. A test starts a fake with another name."""
        return self.name == self.fixture

    @property
    def prefix(self) -> str:
        """The beginning of its variables in the environment."""
        return own_prefix(self.name, self.fixture)


@dataclass(frozen=True)
class HttpRequest:
    """A request to a fake, without credentials, which the test adds unless ``headers`` has its own. Of a
    body that ``is_cut``, only the beginning is known.
    """

    method: str
    target: str
    headers: Headers = field(default_factory=dict)
    body: str = ""
    is_cut: bool = False


@dataclass(frozen=True)
class Step:
    """A command with its reply or error; neither if the reply differs each time."""

    words: list[str]
    reply: Known | None = None
    error: str | None = None

    @property
    def error_without_code(self) -> str:
        """The error without the code at its beginning, which some clients remove."""
        return re.sub("^[A-Z]+ ", "", self.error or "")


@dataclass(frozen=True)
class Surroundings:
    """What is there beside the data when a call is made again, and the status of its answer.

    ``fault`` has the status and the body with which an injected fault answers, ``answers`` the status
    that each URL to which messages go answered last, and ``channel`` is that of a message which
    ``subscribers`` clients receive.
    """

    name: str
    fake: TestedFake
    now: str
    status: int | None = None
    fault: tuple[int, str] | None = None
    channel: str = ""
    subscribers: int = 0
    answers: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class CommandsTest:
    """A test of commands on a database connection. The last steps read what they changed."""

    around: Surroundings
    setup: list[list[str]]
    steps: list[Step]


@dataclass(frozen=True)
class RequestTest:
    """A test of a request. ``answer`` is its JSON, ``text`` its other body; neither if it differs each
    time. ``checks`` are requests with their JSON, which read what it changed.
    """

    around: Surroundings
    setup: list[HttpRequest]
    request: HttpRequest
    answer: Known | None = None
    text: str | None = None
    checks: list[tuple[HttpRequest, Known]] = field(default_factory=list)


@dataclass(frozen=True)
class DeliveryTest:
    """A test of a delivery to ``url``, which answers with ``around.status``, or refuses connections
    without one. ``request`` publishes the message.
    """

    around: Surroundings
    request: HttpRequest
    url: str


AnyTest: TypeAlias = CommandsTest | RequestTest | DeliveryTest


class Past(Protocol):
    """Reads the data of fakes at an entry of the journal; raises ``NoTest`` for unknown data.

    ``statuses()`` returns the status of the last attempt to deliver the messages with these ids, and
    their callbacks, to each URL, None without an answer.
    """

    def items_before(self, number: int, section: str, items: list[str]) -> Mapping[str, Any]: ...

    def changes(self, number: int) -> list[StateChange]: ...

    def statuses(self, message_ids: list[str]) -> Mapping[str, int | None]: ...


def fake_of(row: Row) -> str:
    """Return the name of the fake that a row called, or that made the delivery."""
    name: str = row["fake"] if row["rules"]["is_sent"] else row["peer"]
    return name


def plan(exchange: RecordedExchange, past: Past) -> AnyTest:
    """Return the test of a call or delivery; raise ``NoTest`` if there is none."""
    row = exchange.row
    if reason := exchange.why_no_test():
        raise NoTest(reason)
    around = exchange.around(past)
    if exchange.is_delivery:
        published = exchange.publish_request()
        assert published is not None
        return DeliveryTest(around, published, row["data"]["url"])
    keys = [] if exchange.is_rejected or not exchange.is_of_keys else exchange.named("key")
    setup = _made_again(past.items_before(row["number"], "keys", keys)) if keys else []
    checks = list(_checks(exchange, past)) if keys else []
    if exchange.is_of_keys and exchange.has_reply:
        return CommandsTest(around, setup, [*exchange.steps(), *checks])
    request = exchange.request()
    assert request is not None
    requests = [request_of(words) for words in setup]
    if exchange.fixture == "vector_index" and not exchange.is_rejected:
        requests += _vectors_again(exchange, past)
    answer = exchange.answer()
    return RequestTest(
        around,
        requests,
        exchange.with_wrong_credentials(request),
        answer=None if exchange.differs_each_time(answer) else answer,
        text=exchange.body if answer is None and exchange.body else None,
        checks=[
            (request_of(check.words), Known({"result": check.reply.value}))
            for check in checks
            if check.reply is not None
        ],
    )


# -- a recorded call or delivery -------------------------------------------------------------------

_NOISE = re.compile(
    r"(?i)host|connection|keep-alive|content-length|transfer-encoding|te|user-agent"
    r"|accept-(encoding|language|charset)|sec-.*|dnt|priority|pragma|cache-control|origin|referer"
    r"|traceparent|tracestate|baggage|sentry-trace|upstash-(telemetry-.*|encoding)"
)
"""Headers that clients add to every request, and that do not change what it does."""
_CREATES = re.compile(r"POST /v2/(publish|enqueue|batch|schedules/|queues$|topics/)")
_VOLATILE = re.compile(r"(?i)messageId|workflowRunId|scheduleId|^id$|createdAt|timestamp")
"""Fields of answers that differ each time."""
_OF_USER = re.compile(r"(\d+ )?(NOAUTH|NOPERM|WRONGPASS) ")
MOST_SUBSCRIBERS = 100


@dataclass(frozen=True)
class RecordedExchange:
    """A row of a call or a delivery, with the fixture, the URL and the headers of its fake."""

    row: Row
    fixture: str
    url: str
    own_headers: Headers

    # -- what it is ------------------------------------------------------------------------------

    @property
    def is_delivery(self) -> bool:
        return bool(self.row["rules"]["is_sent"])

    @property
    def words(self) -> list[list[str]]:
        """The commands of a call to a key-value server."""
        lines: list[list[str]] = self.row["data"].get("words") or []
        return lines

    @property
    def is_of_keys(self) -> bool:
        return self.fixture == "kv_server" and bool(self.words)

    @property
    def has_reply(self) -> bool:
        """Whether the call was made on a database connection."""
        return bool(self.row["response"]["line"] == "reply")

    @property
    def is_unauthorized(self) -> bool:
        return self.row["status"] == 401 and not (self.row["response"] and self.has_reply)

    @property
    def is_rejected(self) -> bool:
        """Whether the call was answered before it reached any data."""
        return bool(self.row["faults"]) or self.row["status"] == 401

    @property
    def body(self) -> str:
        text: str = self.row["response"]["body"]
        return text

    def named(self, kind: str) -> list[str]:
        """Return the names of the row's subjects of a kind."""
        return [subject["name"] for subject in self.row["subjects"] if subject["kind"] == kind]

    def why_no_test(self) -> str:
        """Return why no test of it would be honest, as a sentence; empty if one can be written."""
        row, this = self.row, "this delivery" if self.is_delivery else "this call"
        request, response, faults = row["request"], row["response"], row["faults"]
        if not request or request.get("cut") or (response or {}).get("cut"):
            return "Only a part of the call was recorded, so no test can make it again."
        if faults and (self.is_delivery or row["ok"] or row["outcome"] != "answered"):
            fault = faults[0]["description"]
            return (
                f"No test of {this}: the injected fault {fault} does not show in an answer that a test "
                "could compare."
            )
        sent = f"{request['line']} {json.dumps(request['headers'])} {request['body']}".lower()
        if row["data"].get("run") or "upstash-workflow-" in sent or self.named("run"):
            return f"No test of {this}: it belongs to a workflow run. A test of it starts the workflow."
        if self.is_delivery:
            if row["status"] is None and row["data"].get("error") != "ConnectionRefusedError":
                return (
                    "No test of this delivery: it got no answer that a test could set up "
                    f"({row['text']['answer']})."
                )
            return "" if self.publish_request() else _NOT_RECORDED
        if not response or row["outcome"] != "answered":
            return "No test of this call: it has no answer."
        if not self.words and self.request() is None:
            return _NOT_RECORDED
        if faults or self.is_unauthorized:
            return ""
        if _OF_USER.match(row["text"]["answer"]):
            return (
                "No test of this call: its answer depends on the user of the connection, who was not "
                "recorded."
            )
        if "***" in f"{request['line']} {request['body']}":
            return "No test of this call: secrets in it were not recorded."
        if "\ufffd" in f"{request['line']} {request['body']} {response['body']}":
            return "No test of this call: it has bytes that are not text."
        return self._why_answer_differs()

    def _why_answer_differs(self) -> str:
        """Return why the answer depends on more than what a test sets up."""
        of_server = [line[0] for line in self.words if commands.OF_SERVER.fullmatch(line[0])]
        if of_server:
            return (
                f"No test of this call: the reply of {of_server[0].upper()} depends on more than the "
                "data of keys, which is what a test would set up."
            )
        if self.has_reply and self.body == '"QUEUED"':
            return "No test of this call: it was queued in a transaction, which has the reply."
        publishes = any(line[0].upper() == "PUBLISH" for line in self.words)
        if publishes and (len(self.words) > 1 or self.subscribers()[1] > MOST_SUBSCRIBERS):
            return (
                "No test of this call: its reply depends on subscribers, and the test would need too "
                "many of them."
            )
        if self.fixture == "broker" and self.row["status"] < 400:
            return (
                "No test of this call: its answer depends on the records and offsets of the broker."
            )
        if self.fixture != "queue" or self.row["status"] >= 300:
            return ""
        if not _CREATES.match(self.row["request"]["line"]):
            return "No test of this call: its answer depends on what the queue held."
        if all(url.startswith(("http:", "https:")) for url in self.destinations()):
            return ""
        return (
            "No test of this call: it publishes to a URL group or an API, which is not in the test."
        )

    # -- what the test needs ---------------------------------------------------------------------

    def around(self, past: Past) -> Surroundings:
        row = self.row
        at = f"{to_datetime(row['at_us']):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"
        name = re.sub(r"\W+", "_", row["operation"].lower(), flags=re.ASCII).strip("_") or "call"
        around = Surroundings(
            f"{name}_{row['number']}", TestedFake(fake_of(row), self.fixture), at, row["status"]
        )
        if self.is_delivery:
            return around
        channel, subscribers = ("", 0) if self.is_rejected else self.subscribers()
        return replace(
            around,
            fault=self._fault(),
            channel=channel,
            subscribers=subscribers,
            answers=self._answers(past) if row["status"] < 300 else {},
        )

    def _answers(self, past: Past) -> Mapping[str, int]:
        """Return the status that each URL answered last; 200 for one that may still be asked."""
        statuses = past.statuses(self.named("message"))
        answers: dict[str, int] = {}
        for url in dict.fromkeys([*self.destinations(), *statuses]):
            status = statuses.get(url, 200)
            if status is None:
                raise NoTest(f"No test of this call: the delivery to {url} got no answer.")
            answers[url] = status
        return answers

    def _fault(self) -> tuple[int, str] | None:
        """Return what the injected fault answered: an error reply has the code ERR on a connection."""
        if not self.row["faults"]:
            return None
        if not self.has_reply:
            return self.row["status"], self.body
        return self.row["status"], str(_parsed(self.body, self.body)).removeprefix("ERR ")

    def subscribers(self) -> tuple[str, int]:
        """Return the channel of a PUBLISH, and how many subscribers received its message."""
        if not self.words or self.words[0][0].upper() != "PUBLISH":
            return "", 0
        read = _parsed(self.body, None)
        count = read.get("result") if isinstance(read, dict) else read
        return self.words[0][1], count if isinstance(count, int) else 0

    def destinations(self) -> list[str]:
        """Return the URLs to which a request publishes messages, with those of its callbacks."""
        request = self.row["request"]
        line, messages = request["line"], list[Any]()
        if line.startswith("POST /v2/batch"):
            read = _parsed(request["body"], [])
            messages = read if isinstance(read, list) else []
        elif match := re.match(r"POST /v2/(?:publish|enqueue/[^/]+)/(\S+)", line):
            messages = [{"destination": match[1], "headers": dict(request["headers"])}]
        urls = list[str]()
        for message in messages:
            urls.append(message["destination"])
            headers = message.get("headers") or {}
            urls += [url for name, url in headers.items() if name.lower() == "upstash-callback"]
        return list(dict.fromkeys(urls))

    # -- requests --------------------------------------------------------------------------------

    def request_again(self) -> HttpRequest | None:
        """Return the request that makes it again, for a delivery the one that publishes the message;
        None for commands on a connection, and for a request that is not known.
        """
        if not self.row["request"]:
            return None
        return self.publish_request() if self.is_delivery else self.request()

    def request(self) -> HttpRequest | None:
        """Return the request to the fake without its credentials; None if it is not known."""
        sent, response = self._sent(), self.row["response"]
        if sent is None or response is None or self.has_reply:
            return None
        method, target, headers = sent
        target = target.removeprefix(self.url) or "/"
        if not target.startswith("/"):
            return None
        own = {name.lower() for name in self.own_headers}
        headers = {name: value for name, value in headers.items() if name.lower() not in own}
        return self._with_body(HttpRequest(method, target, headers))

    def publish_request(self) -> HttpRequest | None:
        """Return the request that publishes the message of a delivery; None if it is not known."""
        sent = self._sent()
        if sent is None or not re.match("https?:", sent[1]):
            return None
        method, url, received = sent
        headers = {
            name if name.lower() == "content-type" else f"Upstash-Forward-{name}": value
            for name, value in received.items()
            if not re.match(r"(?i)upstash-|authorization$", name)
        }
        if method != "POST":
            headers["Upstash-Method"] = method
        return self._with_body(HttpRequest("POST", f"/v2/publish/{url}", headers))

    def _with_body(self, request: HttpRequest) -> HttpRequest:
        recorded = self.row["request"]
        return replace(request, body=recorded["body"], is_cut="cut" in recorded)

    def _sent(self) -> tuple[str, str, dict[str, str]] | None:
        """Return method, target and those headers that matter; None for commands on a connection."""
        method, space, target = self.row["request"]["line"].partition(" ")
        headers = {
            name: value
            for name, value in self.row["request"]["headers"] or ()
            if not _NOISE.fullmatch(name)
            and not (name.lower() == "accept" and value.startswith("*/*"))
        }
        return (method, target, headers) if space else None

    def with_wrong_credentials(self, request: HttpRequest) -> HttpRequest:
        """Return the request of a rejected call with credentials that are wrong or missing like those of
        the call, which were not recorded; another request as it is.
        """
        if not self.is_unauthorized or self.row["faults"]:
            return request
        had_any = any(name.lower() == "authorization" for name, _ in self.row["request"]["headers"])
        wrong = "Basic d3Jvbmc6d3Jvbmc=" if self.fixture == "broker" else "Bearer wrong-token"
        credentials = {"Authorization": wrong if had_any else ""}
        return replace(request, headers={**request.headers, **credentials})

    # -- answers ---------------------------------------------------------------------------------

    def answer(self) -> Known | None:
        """Return the JSON object or list that was answered; None for another answer."""
        read = _parsed(self.body, None)
        return Known(read) if isinstance(read, dict | list) else None

    def differs_each_time(self, answer: Known | None) -> bool:
        if self.fixture == "queue":
            return answer is not None and _is_volatile(answer.value)
        return self.is_of_keys and any(commands.RANDOM.fullmatch(line[0]) for line in self.words)

    def steps(self) -> Iterator[Step]:
        """Yield the commands of a call on a connection with their replies, as RESP2 has them."""
        reply = _parsed(self.body, self.body)
        for at, words in enumerate(self.words):
            if at or commands.RANDOM.fullmatch(words[0]) or commands.has_fraction(reply):
                yield Step(words)
            elif self.row["ok"]:
                yield Step(words, Known(commands.as_resp2(reply)))
            else:
                yield Step(words, error=str(reply))


_NOT_RECORDED = "No test of this call: its request was not recorded."


def _parsed(text: str, otherwise: Any) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return otherwise


def _is_volatile(value: Any, name: str = "") -> bool:
    if _VOLATILE.search(name):
        return True
    if isinstance(value, dict):
        return any(_is_volatile(item, key) for key, item in value.items())
    return isinstance(value, list) and any(map(_is_volatile, value))


def request_of(words: list[str]) -> HttpRequest:
    """Return the request that runs a command."""
    return HttpRequest("POST", "/", body=json.dumps(words, ensure_ascii=False))


# -- data ------------------------------------------------------------------------------------------


def _made_again(items: Mapping[str, Any]) -> list[list[str]]:
    """Return commands that make keys with the values that they had."""
    setup = list[list[str]]()
    for key, item in items.items():
        if not commands.is_text(key, item):
            raise NoTest(f"No test of this call: it would need the key {key}, which is not text.")
        if commands.is_long(item):
            raise NoTest(f"No test of this call: it would need the key {key}, which is too long.")
        lines = commands.made_again(key, item)
        if lines is None:
            raise NoTest(
                f"No test of this call: it would need the key {key}, a {item['type']}, which cannot "
                "be written in one command."
            )
        setup += lines
    return setup


_MOST_CHECKS = 10
"""Maximum number of keys that a test reads."""


def _checks(exchange: RecordedExchange, past: Past) -> Iterator[Step]:
    """Yield commands that read the keys which a call changed: the answer of a write says little."""
    if any(commands.RANDOM.fullmatch(words[0]) for words in exchange.words):
        return
    try:
        changes = past.changes(exchange.row["number"])
    except NoTest:
        return
    changed = [change for change in changes if change.section == "keys"]
    for change in changed[:_MOST_CHECKS]:
        if change.after is None:
            yield Step(["EXISTS", change.item], Known(0))
        elif commands.is_text(change.item, change.after):
            for words, reply in commands.reading(change.item, change.after):
                yield Step(words, Known(reply))


def _vectors_again(exchange: RecordedExchange, past: Past) -> Iterator[HttpRequest]:
    """Yield the request that upserts the vectors which a namespace had."""
    namespace = next(iter(exchange.named("namespace")), "")
    section = data_module(exchange.fixture).section_of(namespace)
    items = past.items_before(exchange.row["number"], section, [])
    records = [
        {name: value for name, value in item.items() if name != "state"} for item in items.values()
    ]
    if any(isinstance(record.get("vector"), str) for record in records):
        raise NoTest(
            "No test of this call: the vectors of its namespace are too long for the text of a test."
        )
    if records:
        target = f"/upsert/{quote(namespace, safe='')}" if namespace else "/upsert"
        yield HttpRequest("POST", target, body=json.dumps(records, ensure_ascii=False))
