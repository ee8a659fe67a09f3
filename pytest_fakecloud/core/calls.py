"""The entries of a journal, calls and events, and the fields and names that they are filtered by."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import chain, zip_longest
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeAlias, cast, get_args

from .errors import CannotTell, ContractError, brief, cut, did_you_mean, shown, unknown_name
from .field_types import (
    ABSENT,
    ANYTHING,
    BYTES,
    FLAG,
    INSTANT,
    JSON,
    METHOD,
    NUMBER,
    PATH,
    TARGET,
    TEXT,
    TRACE_ID,
    OneOf,
    Text,
)
from .matching import HEADERS, Field
from .timers import to_datetime
from .traces import TRACEPARENT, trace_parent

KEEP_BYTES = 128 * 1024 * 1024
"""Default limit in bytes for the large calls that a cloud's journal keeps in full."""
LIGHT = 4096
"""Maximum bytes of the headers, body and response of a small call, which is never cut."""
KEPT_OF_CUT = 1024
"""Size in bytes to which a body, response or fact is cut."""
ITEMS_OF_CUT = 16
"""Number of items to which a list is cut."""
_HEADERS_OF_CUT = 64  # number of headers that are kept
_HEADER_OF_CUT = 256  # number of characters that are kept of a name or a value
_PER_HEADER = 160  # approximate bytes of the objects for a pair of strings without their characters
_LINE = re.compile(r"([^:]+):[ \t]*(.*[^ \t\r\n]|)[ \t]*\r?\n")
"""A valid line of a head: the name and the value of a header, which has no line break inside."""

Outcome: TypeAlias = Literal[
    "altered", "answered", "broken off", "dropped", "hung", "lost", "open", "refused", "streamed",
    "truncated",
]  # fmt: skip
"""The outcome of a call: ``"open"`` until its response is complete, ``"altered"`` if the endpoint
responded and a fault changed the body, ``"answered"`` also if a fault responded instead of the endpoint.
"""


class CutBytes(bytes):
    """The beginning of a body that the journal has cut, followed by a note about the cut.

    ``size`` is the size of the whole body. Comparing it, and ``in`` for bytes that are not in the
    beginning, raise ``ContractError``. All other operations use the beginning and the note.
    """

    size: int
    _kept: int

    @classmethod
    def of(cls, whole: bytes, size: int | None = None) -> CutBytes:
        """Cut ``whole``, which may itself be only the first part of a body of ``size`` bytes."""
        size = len(whole) if size is None else size
        beginning = whole[:KEPT_OF_CUT]
        cut_bytes = cls(b"%b... (cut by the journal: %d bytes in all)" % (beginning, size))
        cut_bytes.size, cut_bytes._kept = size, len(beginning)
        return cut_bytes

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, bytes | bytearray) or self is other:
            return self is other
        if len(other) != self.size or other[: self._kept] != self[: self._kept]:
            return False
        raise cannot_tell(f"whether a body of {self.size:,} bytes is the same")

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, part: object) -> bool:
        if isinstance(part, bytes | bytearray) and part in bytes(self[: self._kept]):
            return True
        raise cannot_tell(f"what is in a body of {self.size:,} bytes")


def cannot_tell(what: str) -> CannotTell:
    return CannotTell(
        f"cannot tell {what}: the journal has cut it. Raise the limit before the calls are made "
        f"(cloud.journal.keep_bytes, {KEEP_BYTES:,} by default), clear it earlier, or inspect "
        "the fake's data; requests without valid credentials are always cut"
    )


HeaderPairs: TypeAlias = Sequence[tuple[str, str]]
"""Names and values of headers, in order, that are never modified."""


class Headers(Mapping[str, str]):
    """The headers of a request or response: a mapping with case-insensitive names.

    Indexing by a name that occurs several times returns its first value; ``getlist()`` returns all.
    ``sent`` are the names and values, or the valid lines of a received request.
    """

    __slots__ = ("_sent",)

    def __init__(self, sent: Sequence[tuple[str, str]] | str = ()) -> None:
        self._sent = sent

    @property
    def pairs(self) -> Sequence[tuple[str, str]]:
        """The headers in the order and the spelling in which they were sent."""
        # Read the lines each time: a journal keeps thousands of them, and pairs take more memory.
        sent = self._sent
        return _LINE.findall(sent) if isinstance(sent, str) else sent

    @property
    def size(self) -> int:
        """The approximate number of bytes that the headers take."""
        sent = self._sent
        if isinstance(sent, str):
            return len(sent)
        return sum(map(len, chain.from_iterable(sent))) + _PER_HEADER * len(sent)

    def __getitem__(self, name: str) -> str:
        values = self.getlist(name)
        if not values:
            raise KeyError(name)
        return values[0]

    def __iter__(self) -> Iterator[str]:
        names: dict[str, str] = {}
        for name, _ in self.pairs:
            names.setdefault(name.lower(), name)
        return iter(names.values())

    def __len__(self) -> int:
        return len({name.lower() for name, _ in self.pairs})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        theirs = other if isinstance(other, Headers) else Headers(tuple(other.items()))
        return _folded(self) == _folded(theirs)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Headers({list(self.pairs)!r})"

    def getlist(self, name: str) -> list[str]:
        """Return all values of a header in order; an empty list if the header is missing.

        Raises ``ContractError`` for a name that is not a string.
        """
        if not isinstance(name, str):
            raise ContractError(f"{name!r} is not the name of a header: pass a string")
        lower_name = name.lower()
        return [value for key, value in self.pairs if key.lower() == lower_name]


def _folded(headers: Headers) -> dict[str, list[str]]:
    return {name.lower(): headers.getlist(name) for name in headers}


NO_HEADERS = Headers()
_NOTHING_CUT: Mapping[str, int] = MappingProxyType({})


class FactsReader(Protocol):
    """What reads the facts of a call, such as an app; an object, because each call keeps it."""

    def facts_of(self, call: Call) -> dict[str, Any]:
        """Return the facts of a recorded request."""
        ...


class Call:
    """One request and its response.

    ``at_us`` is its time on the cloud's clock, ``ended_us`` that of its response (None until it is
    complete), ``target`` the request target as sent,
    ``request_headers`` and ``response_headers`` are mappings with case-insensitive names, ``route``
    is the name of the endpoint, ``facts`` are details from the service (``command``, ``topic``, …),
    ``faults`` are the injected faults (``kind``, ``description``, ``function``, ``moment``, ``keep``),
    ``fault`` is their descriptions as one text, ``violation`` is the reason why a strict test
    fails, ``note`` the diagnosis shown in reports, ``outcome`` how the response ended (``"open"``
    until it is complete, ``"answered"``, ``"dropped"``, ``"lost"``, …). ``reached`` is True if the
    endpoint carried out the request, even if a fault then changed the response; False if a fault, or
    missing credentials, kept it from the endpoint, or the endpoint rejected it with an error. The
    key-value server has carried out a command when it has a reply to it, also the error of an unknown
    command or of a limit; it rejects what contains no command, such as invalid JSON. ``cut`` maps the
    fields and facts that the journal has cut to their full sizes.
    """

    # Slots, because a server's journal keeps thousands of calls.
    __slots__ = (
        "_facts", "_faults_end", "_interruptions_end", "_request_body", "at_us", "client", "cut",
        "ended_us", "fake", "faults", "method", "note", "number", "outcome", "reached",
        "request_headers", "response_body", "response_headers", "route", "service", "status", "target",
        "violation",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        at_us: int,
        service: str,
        fake: str,
        method: str,
        target: str,
        request_headers: Headers = NO_HEADERS,
        request_body: bytes = b"",
        client: tuple[str, int] | None = None,
        reader: FactsReader | None = None,
        route: str = "",
    ) -> None:
        self.number = number
        self.at_us = at_us
        self.service = service
        self.fake = fake
        self.method = method
        self.target = target
        self.request_headers = request_headers
        self._request_body = request_body
        self.client = client
        self._facts: dict[str, Any] | FactsReader | None = reader
        """The facts, or what reads them."""
        self.route = route
        self.ended_us: int | None = None
        self.status: int | None = None
        self.response_headers = NO_HEADERS
        """The headers of the response; none until it was sent."""
        self.response_body = b""
        self.outcome: Outcome = "open"
        self.reached = False
        self.faults: Sequence[Mapping[str, str]] = ()
        self.violation: str | None = None
        self.note = ""
        self.cut: Mapping[str, int] = _NOTHING_CUT
        self._faults_end = 0
        """The journal number that was reserved when the effects of faults had ended."""
        self._interruptions_end = 0
        """The journal number that was reserved when the interruptions before it had ended."""

    @property
    def facts(self) -> dict[str, Any]:
        """Details from the service, read on first access because most calls are never inspected."""
        facts = self._facts
        if not isinstance(facts, dict):
            facts = self._facts = {} if facts is None else facts.facts_of(self)
        return facts

    @property
    def request_body(self) -> bytes:
        """The body of the request."""
        return self._request_body

    @request_body.setter
    def request_body(self, body: bytes) -> None:
        self._request_body = body

    @property
    def fault(self) -> str | None:
        """The descriptions of the injected faults; None without any."""
        return ", ".join(fault["description"] for fault in self.faults) or None

    @property
    def at(self) -> datetime:
        """The time of the call as an aware UTC datetime."""
        return to_datetime(self.at_us)

    @property
    def path(self) -> str:
        """The request target without its query."""
        return self.target.partition("?")[0]

    @property
    def trace_id(self) -> str | None:
        """The trace that the request belongs to, as 32 hexadecimal digits: that of its header
        ``traceparent`` (W3C Trace Context). None if the header is missing or invalid.
        """
        parent = trace_parent(self.request_headers.get(TRACEPARENT))
        return None if parent is None else parent.trace_id

    def request_json(self) -> Any:
        """Return the request body parsed as JSON; raise ``ContractError`` if it was cut."""
        return parsed_body(cast("bytes", field_of(self, "request_body")))

    def response_json(self) -> Any:
        """Return the response body parsed as JSON; raise ``ContractError`` if it was cut."""
        return parsed_body(cast("bytes", field_of(self, "response_body")))

    def __repr__(self) -> str:
        answer = self.status if self.status is not None else self.outcome
        fault = f" fault={self.fault}" if self.fault else ""
        return f"<Call {self.number} {self.fake} {self.method} {self.target} -> {answer}{fault}>"


def parsed_body(body: bytes) -> Any:
    """Return a body parsed as JSON. A ``ValueError`` for another body has a note that shows the body."""
    try:
        return json.loads(body)
    except ValueError as error:
        error.add_note(f"the body is {brief(body)}")
        raise


def field_of(call: Call, name: str) -> object:
    """Return a field of a call by name; raise ``ContractError`` if the journal has shortened it."""
    if call.cut:
        size = call.cut.get(name) or call.cut.get(_CUT_WITH.get(name, name))
        if size is None and not hasattr(call, name) and name not in call.facts:
            size = call.cut.get("facts")
        if size is not None:
            raise cannot_tell(f"the {name} ({size:,} bytes) of {call!r}")
    value = getattr(call, name, ABSENT)
    return call.facts.get(name, ABSENT) if value is ABSENT else value


def weight_of(call: Call) -> int:
    """Return roughly how many bytes the journal keeps for a call."""
    return (
        len(call.request_body)
        + len(call.response_body)
        + len(call.target)
        + call.request_headers.size
        + call.response_headers.size
    )


def shorten(call: Call, *, read_facts: bool = True) -> None:
    """Cut long fields to their beginning, and record the cuts in ``cut`` and ``note``.

    ``read_facts=False`` drops facts that have not been read, without parsing a large body.
    """
    facts = call.facts if read_facts or isinstance(call._facts, dict) else {}
    cut = {
        name: size
        for name, value in facts.items()
        if name not in call.cut and (size := _size_of(value)) > KEPT_OF_CUT
    }
    shortened: dict[str, Any] = {
        "_facts": {name: _beginning(fact) if name in cut else fact for name, fact in facts.items()}
    }
    if not facts and not read_facts:
        cut["facts"] = len(call.request_body)
    pairs = call.request_headers.pairs
    size = sum(len(name) + len(value) for name, value in pairs)
    if "request_headers" not in call.cut and (size > LIGHT or len(pairs) > _HEADERS_OF_CUT):
        cut["request_headers"] = size
        shortened["request_headers"] = Headers(
            [
                (_beginning(name, _HEADER_OF_CUT), _beginning(value, _HEADER_OF_CUT))
                for name, value in pairs[:_HEADERS_OF_CUT]
            ]
        )
    for name in ("target", "request_body", "response_body"):
        value = getattr(call, name)
        if len(value) > KEPT_OF_CUT and name not in call.cut:
            cut[name] = len(value)
            shortened[name] = _beginning(value) if name == "target" else CutBytes.of(value)
    # Record the cut first, so that no other thread mistakes a shortened field for the whole.
    record_cut(call, cut)
    for name, value in shortened.items():
        setattr(call, name, value)


def record_cut(call: Call, sizes: Mapping[str, int]) -> None:
    """Record the full sizes of fields of which only the beginning is kept."""
    fresh = {name: size for name, size in sizes.items() if name not in call.cut}
    if fresh:
        call.cut = {**call.cut, **fresh}
        listed = ", ".join(f"{name} ({size:,} bytes)" for name, size in fresh.items())
        call.note = f"{call.note}\ncut by the journal: {listed}".lstrip()


def set_faults_end(call: Call, number: int) -> None:
    """Set the journal number that was reserved when the effects of faults on a call had ended. It
    tells reports which other calls came before it was executed (`executed_at()`).
    """
    call._faults_end = number


def faults_end(call: Call) -> int:
    """Return the number that ``set_faults_end()`` set; 0 if no fault was active."""
    return call._faults_end


def set_interruptions_end(call: Call, number: int) -> None:
    """Set the journal number that was reserved when the interruptions before a command had ended."""
    call._interruptions_end = number


def interruptions_end(call: Call) -> int:
    """Return the number that ``set_interruptions_end()`` set; 0 without interruptions."""
    return call._interruptions_end


def set_facts(call: Call, facts: dict[str, Any]) -> None:
    """Replace the facts of a call, instead of reading them from its request."""
    call._facts = facts


def parts_of(call: Call) -> dict[str, Any]:
    """Return the attributes of a call, without those that nothing has set since its request."""
    return {
        name: value
        for name in _PUBLIC
        if (value := getattr(call, name)) is not getattr(_UNANSWERED, name) or name in _OF_REQUESTS
    }


_UNANSWERED = Call(0, 0, "", "", "", "")
_PUBLIC = sorted(["request_body", *(name for name in Call.__slots__ if name[0] != "_")])
_OF_REQUESTS = frozenset({
    "at_us", "client", "fake", "method", "number", "request_body", "request_headers", "service",
    "target",
})  # fmt: skip
"""The attributes that every request sets."""
_CUT_WITH = {"path": "target"}  # fields that are parts of another field


def _size_of(value: object, most: int = 1 << 20) -> int:
    """Return the approximate size of a fact in bytes; stop counting above ``most``."""
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, Mapping):
        value = [*value.keys(), *value.values()]
    if not isinstance(value, list | tuple):
        return 8
    size = 8
    for item in value:
        size += _size_of(item, most - size) + 8
        if size > most:
            break
    return size


def _beginning(value: Any, most: int = KEPT_OF_CUT) -> Any:
    if isinstance(value, str):
        # A short string stays the same object: a new one would lose its subclass (command names
        # have one).
        return cut(value, most)
    if isinstance(value, bytes):
        return value[:most]
    if isinstance(value, list | tuple):
        return [_beginning(item, 64) for item in value[:ITEMS_OF_CUT]]
    if isinstance(value, Mapping):
        return {_beginning(k, 64): _beginning(v, 64) for k, v in list(value.items())[:ITEMS_OF_CUT]}
    return value  # a number or None


class Event:
    """Something other than an HTTP call that happened inside a service.

    ``kind`` is the service's name for this kind of event (``"attempt"``, ``"rebalance"``, …),
    ``text`` a one-line description, ``data`` the details. ``ended_us`` is the time at which a
    delivery attempt ended, and None for events without a duration.
    """

    __slots__ = (
        "_caused_by", "_names", "_values", "at_us", "ended_us", "fake", "kind", "number", "service",
        "text",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        at_us: int,
        service: str,
        fake: str,
        kind: str,
        text: str,
        names: tuple[str, ...] = (),
        values: tuple[Any, ...] = (),
        ended_us: int | None = None,
        caused_by: Entry | None = None,
    ) -> None:
        self.number = number
        self.at_us = at_us
        self.ended_us = ended_us
        self._caused_by = caused_by
        self.service = service
        self.fake = fake
        self.kind = kind
        self.text = text
        self._names = names
        """The names of the details, which events share. A dictionary would take twice the memory."""
        self._values = values
        """The details without those at the end that are None."""

    @property
    def data(self) -> dict[str, Any]:
        """The details, in a new dictionary: changing it does not change the event."""
        return dict(zip_longest(self._names, self._values))

    @data.setter
    def data(self, data: Mapping[str, Any]) -> None:
        self._names, self._values = tuple(data), tuple(data.values())

    @property
    def at(self) -> datetime:
        """The time of the event as an aware UTC datetime."""
        return to_datetime(self.at_us)

    def __repr__(self) -> str:
        return f"<Event {self.number} {self.fake} {self.kind}: {self.text} {self.data}>"


Arguments: TypeAlias = tuple[Sequence[Any], Mapping[str, Any]]
"""The positional arguments of a call of a method, and the others."""


CREATED = "message_id"
"""The name of the detail of an action that has the ID of what the action created, such as a message."""


class Action(Event):
    """An action of the test on a fake. ``call`` has its arguments, if a report can replay it."""

    __slots__ = ("call",)
    call: Arguments | None


Entry = Call | Event


def caused_by(event: Event) -> Entry | None:
    """Return the call or the event that caused an event; None if that was not recorded with it.

    The call of a client whose event is that of a consumer group, for example::

        consume -> join -> rebalance
    """
    return event._caused_by


def on_connection(call: Call) -> bool:
    """Return whether a call is a command on a database connection, not an HTTP request."""
    return call.method == "RESP"


def executed_at(entry: Entry) -> int:
    """Return the journal number at which a call was executed, after any fault's function and any
    interruption before it.
    """
    if not isinstance(entry, Call):
        return entry.number
    if any(fault.get("moment") == "before" for fault in entry.faults):
        return faults_end(entry)
    return interruptions_end(entry) or entry.number


def began(entry: Entry) -> int:
    """Return the journal number at which an entry began; a delivery precedes its calls."""
    number = entry.data.get("began") if isinstance(entry, Event) else None
    return number if isinstance(number, int) else entry.number


def _json_or_absent(read: Callable[[Call], Any], call: Call) -> Any:
    try:
        return read(call)
    except (ValueError, RecursionError):
        return ABSENT


CALL_FIELDS: Mapping[str, Field] = {
    **{
        name: Field(field_type, partial(field_of, name=name))
        for field_type, names in (
            (NUMBER, "number at_us status"),
            (INSTANT, "at"),
            (TEXT, "service fake route fault violation note"),
            (TRACE_ID, "trace_id"),
            (METHOD, "method"),
            (TARGET, "target"),
            (PATH, "path"),
            (HEADERS, "request_headers response_headers"),
            (BYTES, "request_body response_body"),
            (ANYTHING, "client"),
            (OneOf("outcome", get_args(Outcome)), "outcome"),
            (FLAG, "reached"),
        )
        for name in names.split()
    },
    "request_json": Field(JSON, partial(_json_or_absent, Call.request_json)),
    "response_json": Field(JSON, partial(_json_or_absent, Call.response_json)),
}
"""The fields that calls to every service can be filtered by. Services add their own facts."""
EVENT_KINDS = frozenset(("refused", "restored", "changed", "expired"))
"""Kinds of events of every service: rejected bytes, and in the console, data that was restored, data
that was changed without a call, and keys that expired when the clock was moved.
"""
EVENT_FIELDS: Mapping[str, Field] = dict.fromkeys(("began", "alone", "row", "changed"), Field())
"""The data of these events. Services add the data of their own."""


def data_field(name: str, field: Field) -> Field:
    """Return a field of events that is read from their data."""
    return field._replace(read=lambda event: event.data.get(name, ABSENT))


# -- names of calls --------------------------------------------------------------------------------

_NAMED_BY = frozenset({"target", "command", "facts"})  # what the names of a call are read from


class CallNames(Text):
    """Matches a call by one string: ``"POST /path"``, a path, or the name of a route or command."""

    expected = "'POST /path', '/path', a route or a command, or a pattern"
    compares_items = True

    def __init__(self, words: Callable[[], Iterable[str]]) -> None:
        self._words = words

    def check(self, name: str, expected: Any) -> None:
        argument = shown(expected) if name == "what" else f"{name}={shown(expected)}"
        if callable(expected) or not self.accepts(expected):
            raise ContractError(
                f"{argument} does not name a call: pass {self.expected}, or fields as keyword arguments"
            )
        if not isinstance(expected, str):
            return
        method, space, target = expected.partition(" ")
        if space and ("/" in target or target.startswith("*")):
            METHOD.check("method", method)
            TARGET.check("target", target)
        elif "/" in expected:
            TARGET.check(name, expected)
        else:
            self._check_word(argument, expected)

    def _check_word(self, argument: str, name: str) -> None:
        words = set(self._words())
        # Look for the exact name first, which avoids comparing four hundred names in most cases.
        is_exact = name in words or name.upper() in words
        if words and not (is_exact or any(self.equals(word, name) for word in words)):
            raise ContractError(
                f"{argument} is neither a route nor a command"
                f"{did_you_mean(name, sorted(words)) or '.'} Pass {self.expected}"
            )

    def equals(self, actual: Any, expected: Any) -> bool:
        if super().equals(actual, expected):
            return True
        if "/" in expected or not isinstance(actual, str):
            return False
        # Compare command names case-insensitively.
        return super().equals(actual.upper(), expected.upper())

    def differs(self, name: str, actual: Any, expected: Any) -> str:
        return f"is {actual.shown}, not {expected}"

    def check_not_cut(self, actual: Any, expected: Any) -> None:
        # A wanted name with a slash is never compared with commands, so only a cut target matters.
        cut = {"target"} if isinstance(expected, str) and "/" in expected else _NAMED_BY
        if not actual.call.cut.keys().isdisjoint(cut):
            raise cannot_tell(f"whether {actual.call!r} is {expected!r}")


class Listed(Text):
    """A string from a list that the fakes supply when the condition is checked.

    ``noun`` says what the strings are names of. ``""`` is also accepted, because it is the value
    of calls that no route handled. While the list is empty, every string is accepted.
    """

    def __init__(self, noun: str, words: Callable[[], Iterable[str]]) -> None:
        self._noun = noun
        self._words = words
        self.expected = f"a {noun} (* matches anything), a pattern"

    def check(self, name: str, expected: Any) -> None:
        super().check(name, expected)
        if isinstance(expected, str) and expected:
            words = sorted(set(self._words()))
            if words and not any(self.equals(word, expected) for word in words):
                raise ContractError(unknown_name(self._noun, expected, words, name))


class NamesOf(list[str]):
    """The strings by which a call, or one of its ``commands``, can be matched."""

    def __init__(self, call: Call, commands: list[str] | None = None) -> None:
        self.call = call
        self._commands = _commands_of(call) if commands is None else commands
        names: list[str] = []
        for command in self._commands:
            # Add the name without its subcommand too, so that either name matches.
            names += dict.fromkeys((command, command.partition(" ")[0]))
        names += [call.route, call.path, call.target]
        names += [f"{call.method} {call.path}", f"{call.method} {call.target}"]
        super().__init__(names)

    @classmethod
    def each_command(cls, call: Call) -> list[NamesOf] | None:
        """Return the strings for each command of a call, or None if it has fewer than two."""
        commands = _commands_of(call)
        return [cls(call, [command]) for command in commands] if len(commands) > 1 else None

    @property
    def shown(self) -> str:
        """The most specific name."""
        return ", ".join(self._commands) or self.call.route or self.call.path


def _commands_of(call: Call) -> list[str]:
    commands = call.facts.get("command")
    return commands if isinstance(commands, list) else [commands] if commands else []
