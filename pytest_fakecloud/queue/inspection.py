"""What a test sees of a queue: messages, dead letters, schedules, and timelines in words."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from ..kernel.errors import ContractError
from ..kernel.instants import to_datetime
from ..kernel.journal import Found
from .callback import source_headers
from .engine import Engine
from .headers import as_text, header_map
from .model import SECOND, Attempt, Kind, LogEntry, Message
from .schedule import Schedule

#: The tester's word for each state of the service.
WORDS = {
    "CREATED": "pending",
    "RETRY": "pending",
    "ERROR": "pending",
    "ACTIVE": "in_flight",
    "DELIVERED": "delivered",
    "FAILED": "dead_lettered",
    "CANCEL_REQUESTED": "cancelled",
    "CANCELED": "cancelled",
}
STATES = tuple(dict.fromkeys(WORDS.values()))


class PublishedMessage:
    """A message of a queue as it stands whenever it is looked at.

    `state` is `pending`, `in_flight`, `delivered`, `dead_lettered` or `cancelled`; `service_state`
    is the service's own word for it.  `json` is the parsed body (`AssertionError` when it is none).
    """

    __slots__ = ("_engine", "_id")

    def __init__(self, engine: Engine, message_id: str) -> None:
        self._engine = engine
        self._id = message_id

    @property
    def record(self) -> Message:
        """The engine's own record, for what has no property here."""
        found = self._engine.messages.get(self._id)
        if found is None:
            raise ContractError(f"message {self._id} is gone: the queue was reset or restored")
        return found

    @property
    def id(self) -> str:
        """The id that clients and destinations see."""
        return self.record.public_id

    @property
    def url(self) -> str:
        """The destination, as published."""
        return as_text(self.record.url)

    @property
    def method(self) -> str:
        """The HTTP method of its deliveries."""
        return self.record.settings.method

    @property
    def headers(self) -> dict[str, list[str]]:
        """The headers meant for the destination: canonical name to values."""
        return header_map(source_headers(self.record))

    @property
    def body(self) -> bytes:
        """The published body."""
        return self.record.body

    @property
    def json(self) -> Any:
        """The published body as JSON."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise AssertionError(f"the body of {self.id} is no JSON: {self.body!r}") from error

    @property
    def state(self) -> str:
        """Where it stands, in the tester's words."""
        return WORDS[self.record.state]

    @property
    def service_state(self) -> str:
        """Where it stands, in the service's words."""
        return self.record.state

    @property
    def kind(self) -> Kind:
        """`message`, or `callback` or `failure_callback` about another one."""
        return self.record.kind

    @property
    def attempts(self) -> Found[Attempt]:
        """Its attempts, oldest first."""
        return Found(self.record.attempts)

    @property
    def retried(self) -> int:
        """How many retries were made or planned."""
        return self.record.retried

    @property
    def max_retries(self) -> int:
        """How many retries it may have."""
        return self.record.max_retries

    @property
    def labels(self) -> tuple[str, ...]:
        """Its labels."""
        return self.record.settings.labels

    @property
    def label(self) -> str | None:
        """Its first label."""
        return self.labels[0] if self.labels else None

    @property
    def queue(self) -> str | None:
        """The ordered queue it was enqueued on."""
        return self.record.queue_name

    @property
    def topic(self) -> str | None:
        """The URL group it was published to."""
        return self.record.topic_name

    @property
    def schedule_id(self) -> str | None:
        """The schedule that created it."""
        return self.record.schedule_id

    @property
    def dlq_id(self) -> str | None:
        """The id of its dead letter."""
        return self.record.dlq_id

    @property
    def created(self) -> datetime:
        """When it was published."""
        return to_datetime(self.record.created_us)

    @property
    def due(self) -> datetime | None:
        """When its next attempt is due; None while it waits for something else, or has ended."""
        due = self.record.due_us
        return None if due is None else to_datetime(due)

    @property
    def source(self) -> PublishedMessage | None:
        """The message a callback is about."""
        source_id = self.record.source_id
        return None if source_id is None else PublishedMessage(self._engine, source_id)

    @property
    def callbacks(self) -> Found[PublishedMessage]:
        """The callbacks and failure callbacks about it."""
        own = self._id
        return Found(
            PublishedMessage(self._engine, one.id)
            for one in list(self._engine.messages.values())
            if one.source_id == own
        )

    @property
    def timeline(self) -> str:
        """What happened to it: when, what, status, how long it waited and why."""
        return timeline(self.record)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PublishedMessage) and self._id == other._id

    def __hash__(self) -> int:
        return hash(self._id)

    def __repr__(self) -> str:
        return f"<Message {self._id} {self.method} {self.url} {self.state}>"


class DeadLetterView:
    """A dead letter: `id` for the DLQ endpoints, `message`, and the last answer."""

    __slots__ = ("_engine", "at", "id", "message")

    def __init__(self, engine: Engine, dlq_id: str, message_id: str, at_us: int) -> None:
        self._engine = engine
        self.id = dlq_id
        self.at = to_datetime(at_us)
        self.message = PublishedMessage(engine, message_id)

    @property
    def url(self) -> str:
        """The destination of the message."""
        return self.message.url

    @property
    def json(self) -> Any:
        """The published body as JSON."""
        return self.message.json

    @property
    def status(self) -> int | None:
        """The status of the last answer; None when there was none."""
        outcome = self.message.record.last_outcome
        return None if outcome is None else outcome.status

    @property
    def response_body(self) -> bytes:
        """The body of the last answer."""
        outcome = self.message.record.last_outcome
        return b"" if outcome is None else outcome.body

    @property
    def timeline(self) -> str:
        """What happened to the message."""
        return self.message.timeline

    def __repr__(self) -> str:
        return f"<DeadLetter {self.id} {self.url} status {self.status}>"


class ScheduleView:
    """A schedule of a queue; `next_runs(n)` are its next instants."""

    __slots__ = ("_engine", "id")

    def __init__(self, engine: Engine, schedule_id: str) -> None:
        self._engine = engine
        self.id = schedule_id

    @property
    def record(self) -> Schedule:
        """The engine's own record."""
        return self._engine.schedules.get(self.id)

    @property
    def cron(self) -> str:
        """The cron expression, as given."""
        return self.record.cron

    @property
    def destination(self) -> str:
        """The URL or group its messages go to."""
        return as_text(self.record.destination)

    @property
    def paused(self) -> bool:
        """Whether it creates no messages at present."""
        return self.record.paused

    @property
    def last_run(self) -> datetime | None:
        """When it last created messages."""
        last = self.record.last_us
        return None if last is None else to_datetime(last)

    def next_runs(self, count: int = 1) -> list[datetime]:
        """Return the next instants at which it falls due, aware UTC."""
        return self.record.next_runs(count, self._engine.clock.now_us())

    def fire(self) -> Found[PublishedMessage]:
        """Create the messages of a run at once; its plan stays.  Returns them."""
        return Found(
            PublishedMessage(self._engine, one) for one in self._engine.schedules.fire(self.id)
        )

    def __repr__(self) -> str:
        return f"<Schedule {self.id} {self.cron!r} to {self.destination}>"


def span(us: int) -> str:
    """Return a duration in words: `+12.182 s`, `+6 h 7 m 6.466 s`."""
    seconds, rest = divmod(us, SECOND)
    days, seconds = divmod(seconds, 86_400)
    hours, seconds = divmod(seconds, 3600)
    minutes, seconds = divmod(seconds, 60)
    parts = [f"{n} {unit}" for n, unit in ((days, "d"), (hours, "h"), (minutes, "m")) if n]
    tail = f"{seconds + rest / SECOND:.3f}".rstrip("0").rstrip(".")
    if tail != "0" or not parts:
        parts.append(f"{tail} s")
    return " ".join(parts)


def timeline(message: Message) -> str:
    """Return the life of a message, one line per step."""
    head = f"{message.public_id} {message.settings.method} {as_text(message.url)}"
    if message.kind != "message":
        head += f" ({message.kind.replace('_', ' ')} about {message.source_id})"
    lines = [head]
    attempts = iter(message.attempts)
    for entry in message.log:
        text = _step(message, entry, attempts)
        if text:
            moment = to_datetime(entry.time_us).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
            after = span(entry.time_us - message.created_us)
            lines.append(f"  {moment}  +{after:<20}  {text}")
    lines += [
        f"  a callback was not published: {text}"
        for text in message.extra.get("lost_callbacks", ())
    ]
    if not message.finished and message.state != "CANCEL_REQUESTED":
        lines.append(f"  {waiting_text(message)}")
    return "\n".join(lines)


def _step(message: Message, entry: LogEntry, attempts: Any) -> str:
    if entry.state == "CREATED":
        delay = message.not_before_us - message.created_us
        queue = f" in queue {message.queue_name}" if message.queue_name else ""
        return f"CREATED{queue}" + (f", delayed for {span(delay)}" if delay else "")
    if entry.state == "ACTIVE":
        attempt: Attempt = next(attempts)
        waited = f"after {span(attempt.waited_us)} ({attempt.wait_reason})"
        answer = attempt.state if attempt.status is None else f"status {attempt.status}"
        if attempt.exception is not None and attempt.status is None:
            answer = f"{attempt.state}: {type(attempt.exception).__name__}: {attempt.exception}"
        where = f" from {attempt.where}" if attempt.where else ""
        faults = f" [fault: {', '.join(attempt.faults)}]" if attempt.faults else ""
        return f"ACTIVE  attempt {attempt.number} {waited} -> {answer}{where}{faults}"
    if entry.state == "RETRY" and entry.next_us is not None:
        return (
            f"RETRY   in {span(entry.next_us - entry.time_us)} ({message_reason(message, entry)})"
        )
    if entry.state == "ERROR":
        return ""
    if entry.state == "FAILED":
        return f"FAILED  {entry.error or ''} (dead letter {message.dlq_id})"
    return entry.state


def message_reason(message: Message, entry: LogEntry) -> str:
    """Return why a retry waits: as it was written on the attempt that followed, or is planned."""
    for attempt in message.attempts:
        if attempt.at_us >= (entry.next_us or 0) and attempt.sequence > entry.number:
            return attempt.wait_reason
    return message.wait_reason


def waiting_text(message: Message) -> str:
    """Return what an unfinished message waits for."""
    if message.state == "ACTIVE":
        return "in flight: the destination is still answering on this clock"
    if message.due_us is not None:
        return f"due {to_datetime(message.due_us).isoformat()} ({message.wait_reason})"
    if message.queue_name is not None and not message.attempts:
        return f"waits in queue {message.queue_name} (behind others, or the queue is paused)"
    return f"waits: {message.wait_reason}"


# -- matching --------------------------------------------------------------------------------------


def agrees(found: object, wanted: object) -> bool:
    """Whether a value is what was asked for: equal, matching a pattern, or liked by a predicate.

    Text with `*` matches any text in its place.
    """
    if hasattr(wanted, "search") and isinstance(found, str):
        return bool(wanted.search(found))
    if callable(wanted):
        return bool(wanted(found))
    if isinstance(wanted, str) and "*" in wanted and isinstance(found, str):
        pieces = wanted.split("*")
        return _glob(found, pieces)
    return found == wanted


def _glob(text: str, pieces: Sequence[str]) -> bool:
    if not text.startswith(pieces[0]) or not text.endswith(pieces[-1]):
        return False
    at = len(pieces[0])
    for piece in pieces[1:-1]:
        found = text.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    return len(text) - len(pieces[-1]) >= at


class _Absent:
    def __repr__(self) -> str:
        return "<anything>"


ANY: Any = _Absent()


def mismatches(
    message: PublishedMessage,
    *,
    url: object = ANY,
    json: object = ANY,
    body: object = ANY,
    headers: dict[str, object] | None = None,
    label: object = ANY,
    method: object = ANY,
    queue: object = ANY,
    kind: object = ANY,
    state: object = ANY,
) -> list[str]:
    """Return, in words, in what a message is not the one asked for; [] when it is."""
    reasons: list[str] = []
    for name, wanted, read in (
        ("url", url, lambda: message.url),
        ("method", method, lambda: message.method),
        ("queue", queue, lambda: message.queue),
        ("kind", kind, lambda: message.kind),
        ("state", state, lambda: message.state),
        ("body", body, lambda: message.body),
    ):
        if wanted is not ANY and wanted is not None and not agrees(read(), wanted):
            reasons.append(f"{name} is {read()!r}, not {wanted!r}")
    any_label = label is ANY or label is None
    if not any_label and not any(agrees(one, label) for one in message.labels):
        reasons.append(f"labels are {list(message.labels)}, not {label!r}")
    if json is not ANY:
        reasons += _json_mismatch(message, json)
    for name, wanted in (headers or {}).items():
        found = {key.lower(): values for key, values in message.headers.items()}
        values = found.get(name.lower(), [])
        if not any(agrees(value, wanted) for value in values):
            reasons.append(f"header {name} is {values or 'absent'}, not {wanted!r}")
    return reasons


def _json_mismatch(message: PublishedMessage, wanted: object) -> list[str]:
    try:
        found = message.json
    except AssertionError:
        return [f"its body is no JSON: {message.body[:80]!r}"]
    if agrees(found, wanted):
        return []
    return [difference(found, wanted) or f"its JSON is {found!r}, not {wanted!r}"]


def difference(found: object, wanted: object, path: str = "json") -> str:
    """Return the first few differences of two JSON values, by path."""
    lines = list(_differences(found, wanted, path))
    more = f" and {len(lines) - 3} more" if len(lines) > 3 else ""
    return "; ".join(lines[:3]) + more


def _differences(found: Any, wanted: Any, path: str) -> Any:
    if isinstance(found, dict) and isinstance(wanted, dict):
        for key in dict.fromkeys([*wanted, *found]):
            if key not in found:
                yield f"{path}.{key} is absent, not {wanted[key]!r}"
            elif key not in wanted:
                yield f"{path}.{key} is {found[key]!r}, not asked for"
            else:
                yield from _differences(found[key], wanted[key], f"{path}.{key}")
    elif isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        for index, (one, other) in enumerate(zip(found, wanted, strict=True)):
            yield from _differences(one, other, f"{path}[{index}]")
    elif found != wanted:
        yield f"{path} is {found!r}, not {wanted!r}"


def assert_matching(
    what: str,
    candidates: Sequence[PublishedMessage],
    why_not: Callable[[PublishedMessage], list[str]],
    *,
    times: int | None,
    asked: str,
) -> Found[PublishedMessage]:
    """Return the candidates without a reason against them; fail with the nearest ones otherwise."""
    matched: Found[PublishedMessage] = Found()
    missed: list[tuple[int, PublishedMessage, list[str]]] = []
    for candidate in candidates:
        reasons = why_not(candidate)
        if reasons:
            missed.append((len(reasons), candidate, reasons))
        else:
            matched.append(candidate)
    if (times is None and matched) or (times is not None and len(matched) == times):
        return matched
    expected = "at least once" if times is None else "never" if times == 0 else f"{times} time(s)"
    lines = [f"expected {what} {expected}, found {len(matched)}: {asked or 'any'}"]
    for one in matched[:5]:
        lines += ["  this one matches:", _indented(one.timeline)]
    missed.sort(key=lambda item: item[0])
    for _, one, reasons in missed[:3]:
        lines += [f"  not this one, because {'; '.join(reasons)}:", _indented(one.timeline)]
    if len(missed) > 3:
        lines.append(f"  and {len(missed) - 3} more that differ")
    if not matched and not missed:
        lines.append("  there is no message at all")
    raise AssertionError("\n".join(lines))


def _indented(text: str) -> str:
    return "\n".join("    " + line for line in text.splitlines())
