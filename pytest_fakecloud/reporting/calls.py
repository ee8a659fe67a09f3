"""Read calls of the journal: their commands, their replies, and the other entries they belong to.

`Lookups` answers questions that depend on more than one entry. A client of a database sends several
commands when it connects, and a transaction consists of several commands; one row shows all of
them (`gathered()`). Source of the format of replies: the specifications of RESP2 and RESP3.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

from ..cloud.base import BaseCloud, context_of
from ..cloud.fake import core_of
from ..cloud.services import imported
from ..core.calls import Call, Entry, Event, on_connection
from ..core.errors import listed, report_hook_failure
from ..core.recorder import ScriptCommand, SharedRecords
from .values import Mask, compact, hides_words, items_of, parsed, readable, scalar

SEVERAL = ("pipeline", "multi-exec")
"""Routes of a key-value server for several commands."""
QUEUED = b"+QUEUED\r\n"
"""The reply to a command in a transaction; EXEC executes the command."""


def lines_of(call: Call) -> list[list[str]]:
    """Return the commands of a call to a key-value server, each with its name and arguments."""
    lines = call.facts.get("words")
    return lines if isinstance(lines, list) else []


def command_of(call: Call) -> str:
    """Return the first command of a call to a key-value server; empty for another call."""
    return str((call.facts.get("command") or [""])[0])


def has_full_answer(call: Call) -> bool:
    """Return whether a call received a complete response that is not an error."""
    return call.status is not None and call.status < 400 and call.outcome == "answered"


MALFORMED = (ValueError, LookupError, TypeError, AttributeError)
"""What code raises that reads a body of another form than it expects."""


def may_be_malformed(call: Call) -> bool:
    """Return whether a body may have any form: of a rejected request, or one that the journal cut."""
    return not has_full_answer(call) or bool(call.cut)


def success_of(call: Call, did_something: bool = True) -> bool | None:
    """Return whether a call did something, as ``succeeded`` of its `DataAccess`es:

    - full answer: ``did_something``, which the service reads in the answer
    - error that no fault caused: False
    - everything else: None, because the answer does not say it
    """
    if has_full_answer(call):
        return did_something
    return False if call.status is not None and call.status >= 400 and call.fault is None else None


def executed(call: Call) -> bool:
    return call.reached and call.status == 200


def executed_but_lost(call: Call) -> bool:
    """Return whether a call was executed although its client received no whole response, or an error.

    If a fault altered the response, the status is the fault's own.
    """
    if call.outcome == "altered":
        return call.reached and (call.status or 0) >= 400
    is_lost = call.outcome in ("lost", "truncated")
    return call.reached and call.status in (200, 201, 202) and is_lost


# -- database connections --------------------------------------------------------------------------

_GREETINGS = {"HELLO", "AUTH", "SELECT", "CLIENT SETINFO", "CLIENT SETNAME",
              "CLIENT MAINT_NOTIFICATIONS"}  # fmt: skip
"""Commands that set up a connection."""
_REFUSABLE = "CLIENT MAINT_NOTIFICATIONS"
"""A command that redis-py sends to every server, ignoring an error."""
_SCALARS: Mapping[bytes, Callable[[str], Any]] = {
    b"-": lambda text: {"error": text},
    b":": int,
    b",": float,
    b"#": lambda text: text == "t",
}
"""Functions that read values of one line. Status replies and large numbers remain strings."""


def reply(call: Call) -> Any:
    """Return the reply of a call as REST does: ``{"result": …}`` or ``{"error": text}``.

    Errors inside an array have the second form too. Raises ``ValueError`` for an incomplete reply.
    """
    value, _ = _read(call.response_body, 0)
    return value if is_error(value) else {"result": value}


def envelope(call: Call) -> Any:
    """Return the ``result`` of a response.

    Raises ``LookupError``, ``TypeError`` or ``ValueError`` if the response has none.
    """
    return (reply(call) if on_connection(call) else parsed(call.response_body))["result"]


def is_error(value: Any) -> bool:
    return isinstance(value, dict) and list(value) == ["error"]


def _read(data: bytes, start: int) -> tuple[Any, int]:
    """Return the value that begins at an index, and the index after the value."""
    end = data.index(b"\r\n", start)
    kind, text = data[start : start + 1], data[start + 1 : end].decode("utf-8", "replace")
    after = end + 2
    if kind == b"_" or (text == "-1" and kind in (b"$", b"*")):
        return None, after
    if kind in (b"$", b"=", b"!"):
        end = after + int(text)
        if len(data) < end + 2:
            raise ValueError("incomplete reply")
        return _string(kind, data[after:end].decode("utf-8", "replace")), end + 2
    if kind in (b"*", b"~", b">"):
        return _read_array(data, after, int(text))
    if kind in (b"%", b"|"):
        pairs, after = _read_array(data, after, 2 * int(text))
        if kind == b"|":  # an attribute, which precedes the value that it describes
            return _read(data, after)
        return dict(zip(map(str, pairs[::2]), pairs[1::2], strict=True)), after
    return _SCALARS.get(kind, str)(text), after


def _string(kind: bytes, text: str) -> Any:
    if kind == b"!":
        return {"error": text}
    return text[4:] if kind == b"=" else text  # a verbatim string begins with its format ("txt:")


def _read_array(data: bytes, start: int, count: int) -> tuple[list[Any], int]:
    items = []
    for _ in range(count):
        item, start = _read(data, start)
        items.append(item)
    return items, start


def gathered(entries: Iterable[Entry]) -> tuple[dict[int, list[Call]], set[int]]:
    """Group the setup of a connection under its first call, and a transaction under its last one.

    Return a mapping from the number of the call that has a row to the calls in this row, and the
    numbers of the calls without a row of their own. The setup of a fake's only connection has no
    row at all if the connection has other commands, because they show that it exists.
    """
    connections: dict[tuple[str, object], list[Call]] = {}
    for call in entries:
        if isinstance(call, Call) and on_connection(call) and call.client is not None:
            connections.setdefault((call.fake, call.client), []).append(call)
    count = Counter(fake for fake, _ in connections)
    groups: dict[int, list[Call]] = {}
    without_row: set[int] = set()
    for (fake, _), calls in connections.items():
        setups = _setups(calls)
        in_setups = {call.number for setup in setups for call in setup}
        others = [call for call in calls if call.number not in in_setups]
        groups |= {setup[0].number: setup for setup in setups}
        is_known = bool(others) and count[fake] == 1
        without_row |= in_setups if is_known else in_setups - groups.keys()
        for end, steps in _transactions(others):
            groups[end.number] = steps[1:]
            without_row.update(step.number for step in steps)
    return groups, without_row


def _setups(calls: Iterable[Call]) -> list[list[Call]]:
    """Return the commands that set up a connection: its first ones, and those from each HELLO."""
    setups: list[list[Call]] = [[]]
    is_open = True  # until another command
    for call in calls:
        name = command_of(call)
        succeeded = call.fault is None and (call.status == 200 or name == _REFUSABLE)
        if name == "HELLO":
            setups.append([])
            is_open = True
        is_open = is_open and name in _GREETINGS and succeeded
        if is_open:
            setups[-1].append(call)
    return list(filter(None, setups))


def _transactions(calls: Iterable[Call]) -> Iterator[tuple[Call, list[Call]]]:
    """Yield the end of each transaction on a connection, and its other commands from its MULTI."""
    steps: list[Call] | None = None
    for call in calls:
        name = command_of(call)
        if name == "MULTI" and call.status == 200 and call.fault is None:
            steps = [call]
        elif name in ("EXEC", "DISCARD"):
            if steps is not None:
                yield call, steps
            steps = None
        elif steps is not None and call.response_body == QUEUED and call.fault is None:
            steps += [] if hides_words(call) else [call]


def error_of(call: Call) -> tuple[str, str]:
    """Return the status and the message of an error response; empty strings for any other response."""
    if call.status is None or call.status < 400:
        return "", ""
    if on_connection(call) and call.response_body.startswith(b"-"):
        return "", str(reply(call)["error"])  # a Redis reply has no status
    body = parsed(call.response_body)
    if isinstance(body, dict) and isinstance(body.get("error"), str):
        return str(call.status), scalar(body["error"])
    return str(call.status), readable(call.response_body)


# -- several entries -------------------------------------------------------------------------------

_SENT = 2_000
"""Maximum number of characters of a body that an attempt's event keeps."""
_DETAILS = attrgetter("_reports.finished")
"""Returns the number, request and outcome of each recent attempt of a queue."""
_ID = re.compile(r"\b(?:msg|scd)_\w{20,}")
_LONG = 16
"""Maximum length of the name of a consumer or a workflow run that is shown in full."""


class Exchanged(NamedTuple):
    """The request and the response of a delivery attempt."""

    headers: Iterable[tuple[str, str]]
    body: bytes
    response_headers: Iterable[tuple[str, str]]
    response_body: bytes


@dataclass(frozen=True, slots=True)
class Lookups:
    """Lookups of one cloud and its journal.

    - ``ids``: the short forms of ids: messages, schedules, and long names of consumers.
    - ``bodies``: the beginning of the body of each message.
    - ``end_offsets``: the end offsets of the partitions, by fake and topic.
    - ``attempts``: the request and the outcome of each attempt, by the number at which it began.
    - ``created_by_lost_call``: the message that a request created whose answer was lost, by the
      request's number.
    - ``grouped_calls``: calls that are shown in the row of another call (the steps of a transaction
      in its ``EXEC``), by that call's number; ``without_row`` contains the numbers of these calls.
    - ``steps``: the steps of a workflow run that the deliveries of a message execute, ``results``: the
      step whose result a message has; both as clients send them, by the message's ID.
    - ``scripts``: the sources of Lua scripts, by the first eight characters of their hash.
    - ``executed``: the commands that the scripts of a call executed, with their answers, by the call's
      number; empty if they executed none. Calls whose scripts were not recorded are missing.
    - ``facts``: what fakes know about calls beside their answers, by the call's number; only for the
      report of a test.
    - ``mask``: masks credentials that become visible when values are decoded.
    """

    ids: Mapping[str, str] = field(default_factory=dict)
    bodies: Mapping[str, str] = field(default_factory=dict)
    end_offsets: Mapping[tuple[str, str], Sequence[int]] = field(default_factory=dict)
    attempts: Mapping[int, Exchanged] = field(default_factory=dict)
    created_by_lost_call: Mapping[int, str] = field(default_factory=dict)
    grouped_calls: Mapping[int, Sequence[Call]] = field(default_factory=dict)
    without_row: Set[int] = frozenset()
    steps: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    results: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    scripts: Mapping[str, str] = field(default_factory=dict)
    executed: Mapping[int, Sequence[ScriptCommand]] = field(default_factory=dict)
    facts: Mapping[int, Mapping[Any, Any]] = field(default_factory=dict)
    mask: Mask = field(default_factory=Mask)

    def short(self, name: object) -> str:
        """Return the short form of an id or name; the name itself if it has none."""
        return self.ids.get(str(name), str(name))

    def with_short_ids(self, text: str) -> str:
        """Return a text with ids of messages and schedules in their short form, as an application may
        store them.
        """
        return _ID.sub(lambda match: self.short(match[0]), text)

    def named(self, message_id: object) -> str:
        """Return the short form of a message's ID, with the step that its deliveries execute, if any."""
        steps = self.steps.get(str(message_id), ())
        names = listed([f"step {compact(step['stepName'])}" for step in steps])
        return f"{self.short(message_id)} ({names})" if names else self.short(message_id)

    def header(self, began: int | None, name: str) -> str:
        """Return a header of the delivery that began at a journal number; empty if it is unknown."""
        sent = self.attempts.get(began or 0)
        headers = sent.headers if sent is not None else ()
        return next((value for other, value in headers if other.lower() == name), "")


def lookups_of(cloud: BaseCloud, entries: Sequence[Entry], mask: Mask | None = None) -> Lookups:
    """Return the lookups of a cloud and its journal, with credentials in grouped calls masked.

    A fake that raises an exception contributes nothing.
    """
    mask = mask or Mask(cloud)
    fakes: list[Any] = list(cloud.fakes())
    queues = [fake for fake in fakes if fake.service == "queue"]
    brokers = [fake for fake in fakes if fake.service == "broker"]
    messages = [message for queue in queues for message in _tried(queue.messages)]
    schedules = [schedule.id for queue in queues for schedule in _tried(queue.schedules)]
    calls = [entry for entry in entries if isinstance(entry, Call)]
    instances = {str(call.facts.get("instance")) for call in calls if call.service == "broker"}
    runs = {str(run) for entry in entries if isinstance(entry, Event)
            and len(run := entry.data.get("run") or "") > _LONG}  # fmt: skip
    named = [*_named_by_events(entries), *(message.id for message in messages), *schedules,
             *_named_by_answers(calls)]  # fmt: skip
    ids = [name for name in named if _ID.fullmatch(name)]  # An application may name a schedule.
    groups, without_row = gathered(entries)
    steps, results = imported("pytest_fakecloud.queue.report.findings:steps_of_messages")(entries)
    return Lookups(
        ids=_abbreviated(ids) | _abbreviated(runs) | _abbreviated_names(instances),
        bodies={message_id: _beginning(call) for message_id, call in _created(queues, calls)
                if call.route != "batch"},
        end_offsets={(broker.name, topic.name): topic.end_offsets
                     for broker in brokers for topic in _tried(broker.topics)},
        attempts=exchanges_of(cloud),
        created_by_lost_call=_messages_of_lost_calls(queues, calls),
        grouped_calls={
            number: [mask.call(call) for call in grouped] for number, grouped in groups.items()
        },
        without_row=without_row,
        steps={message_id: mask.value(sent) for message_id, sent in steps.items()},
        results={message_id: mask.value(step) for message_id, step in results.items()},
        scripts={hash_of(source)[:8]: source for call in calls if call.service == "kv"
                 for source in _scripts_of(call)},
        executed={number: [_masked(command, mask) for command in commands]
                  for number, commands in records_of(cloud).scripts.items()},
        mask=mask,
    )  # fmt: skip


def _masked(command: ScriptCommand, mask: Mask) -> ScriptCommand:
    return command._replace(words=mask.value(command.words), answer=mask.value(command.answer))


def exchanges_of(cloud: BaseCloud) -> dict[int, Exchanged]:
    """Return what recent delivery attempts sent and received, by the number at which each began."""
    return {
        number: Exchanged(sent.headers, sent.body, outcome.headers, outcome.body)
        for queue in cloud.fakes()
        if queue.service == "queue"
        for number, sent, outcome in _tried(_DETAILS, queue)
    }


def records_of(cloud: BaseCloud) -> SharedRecords:
    """Return the actions and call sites of a cloud."""
    return context_of(cloud).recorder.shared


def _tried(read: Callable[..., Iterable[Any]], *arguments: Any) -> list[Any]:
    """Return the values that a function of a fake returns; none if it raises an exception."""
    with report_hook_failure("", lambda line: None):
        return list(read(*arguments))
    return []


def _created(queues: Iterable[Any], calls: Iterable[Call]) -> Iterator[tuple[str, Call]]:
    """Yield the ID of each message that a publish request created, with the request."""
    routes = [route for queue in queues for route in core_of(queue).app.table.routes]
    publishing = {route.name for route in routes if route.publishes}
    for call in calls:
        if call.route in publishing and has_full_answer(call):
            for item in items_of(call.response_body):
                if "messageId" in item and not item.get("deduplicated"):
                    yield str(item["messageId"]), call


def _beginning(call: Call) -> str:
    """Return as much of a call's body as the event of a delivery attempt keeps."""
    return call.request_body[: 4 * _SENT].decode("utf-8", "replace")[:_SENT]


def _named_by_events(entries: Iterable[Entry]) -> Iterator[str]:
    """Yield the IDs of the messages of the events, and of those that callbacks are about."""
    for event in entries:
        if isinstance(event, Event) and "message_id" in event.data:
            for name in ("message_id", "about"):
                if event.data.get(name):
                    yield str(event.data[name])


def _named_by_answers(calls: Iterable[Call]) -> Iterator[str]:
    """Yield the IDs of the messages and schedules that requests created, also of those deleted since."""
    for call in calls:
        if call.service == "queue" and has_full_answer(call):
            for item in items_of(call.response_body):
                yield from (str(item[name]) for name in ("messageId", "scheduleId") if name in item)


def _scripts_of(call: Call) -> Iterator[str]:
    for name, *arguments in lines_of(call):
        yield from {"EVAL": arguments[:1], "SCRIPT": arguments[1:2]}.get(name.upper(), ())


def hash_of(script: str) -> str:
    """Return the hash that EVALSHA uses to refer to a script."""
    text = script.encode("utf-8", "surrogatepass")
    return hashlib.sha1(text, usedforsecurity=False).hexdigest()


def _messages_of_lost_calls(fakes: Iterable[Any], every: Iterable[Call]) -> dict[int, str]:
    """Return the messages that requests with a lost response created, by the requests' numbers.

    This is the only message with that URL and time that is not in any response. If there are
    several such messages, the request is left out.
    """
    calls = [call for call in every if call.service == "queue"]
    lost = [call for call in calls if executed_but_lost(call)]
    if not lost:
        return {}
    named = b"".join(call.response_body for call in calls if call not in lost)
    queues = {fake.name: fake for fake in fakes}
    message_ids = {}
    for call in lost:
        alike = [
            message.id
            for message in (queues[call.fake].messages() if call.fake in queues else ())
            if (message.url, message.created) == (call.facts.get("url"), call.at)
            and message.id.encode() not in named
        ]
        if len(alike) == 1:
            message_ids[call.number] = alike[0]
    return message_ids


def _abbreviated(ids: Iterable[str]) -> dict[str, str]:
    """Return the IDs shortened to a common length at which they still differ."""
    whole = set(ids)
    length = 8  # of a message ID, "msg_" and four characters
    while len({whole_id[:length] for whole_id in whole}) < len(whole):
        length += 2
    return {whole_id: whole_id[:length] for whole_id in whole}


def _abbreviated_names(names: Iterable[str]) -> dict[str, str]:
    """Return long names shortened to their two ends, with a length at which they still differ."""
    whole = {name for name in names if len(name) > _LONG}
    length = 6  # the ends of generated names differ, such as "worker-7f9c5d-x2kqp"
    while len({name[-length:] for name in whole}) < len(whole):
        length += 2
    return {name: f"{name[:3]}…{name[-length:]}" for name in whole if length + 4 < len(name)}
