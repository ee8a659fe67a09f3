"""The fields and the names by which calls and events can be filtered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args

from .calls import Call, Outcome, cannot_tell, field_of
from .errors import ContractError, shown
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
    OneOf,
    Text,
)
from .matching import HEADERS, Field
from .wording import did_you_mean, unknown_name


def _json_or_absent(read: Callable[[Call], Any]) -> Callable[[Call], Any]:
    def value(call: Call) -> Any:
        try:
            return read(call)
        except (ValueError, RecursionError):
            return ABSENT

    return value


def field_reader(name: str) -> Callable[[Call], Any]:
    return lambda call: field_of(call, name)


CALL_FIELDS: Mapping[str, Field] = {
    **{
        name: Field(field_type, field_reader(name))
        for field_type, names in (
            (NUMBER, "number at_us status"),
            (INSTANT, "at"),
            (TEXT, "service handle route fault problem note"),
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
    "request_json": Field(JSON, _json_or_absent(Call.request_json)),
    "response_json": Field(JSON, _json_or_absent(Call.response_json)),
}
"""The fields that calls to every service can be filtered by. Services add their own facts."""
EVENT_KINDS = frozenset(("refused", "run"))
"""Kinds of events of every service: rejected bytes, and runs of ``every_failure``."""
EVENT_FIELDS: Mapping[str, Field] = dict.fromkeys(("began", "alone", "held"), Field())
"""The data of these events. Services add the data of their own."""


# -- names of calls --------------------------------------------------------------------------------

_NAMED_BY = frozenset({"target", "command", "facts"})
"""The fields from which the names of a call are read."""


class CallNames(Text):
    """Matches a call by one string: ``"POST /path"``, a path, or the name of a route or command."""

    expected = "'POST /path', '/path', a route or a command, or a pattern"
    compares_items = True

    def __init__(self, words: Callable[[], Iterable[str]]) -> None:
        self._words = words

    def check(self, name: str, wanted: Any) -> None:
        given = shown(wanted) if name == "what" else f"{name}={shown(wanted)}"
        if callable(wanted) or not self.accepts(wanted):
            raise ContractError(
                f"{given} does not name a call: pass {self.expected}, or fields as keyword arguments"
            )
        if not isinstance(wanted, str):
            return
        method, space, target = wanted.partition(" ")
        if space and ("/" in target or target.startswith("*")):
            METHOD.check("method", method)
            TARGET.check("target", target)
        elif "/" in wanted:
            TARGET.check(name, wanted)
        else:
            self._check_word(given, wanted)

    def _check_word(self, given: str, wanted: str) -> None:
        words = set(self._words())
        # Look for the exact name first, which avoids comparing four hundred names in most cases.
        known = wanted in words or wanted.upper() in words
        if words and not (known or any(self.equals(word, wanted) for word in words)):
            raise ContractError(
                f"{given} is neither a route nor a command"
                f"{did_you_mean(wanted, sorted(words)) or '.'} Pass {self.expected}"
            )

    def equals(self, found: Any, wanted: Any) -> bool:
        if super().equals(found, wanted):
            return True
        if "/" in wanted or not isinstance(found, str):
            return False
        # Compare command names case-insensitively.
        return super().equals(found.upper(), wanted.upper())

    def differs(self, name: str, found: Any, wanted: Any) -> str:
        return f"is {found.shown}, not {wanted}"

    def check_not_cut(self, found: Any, wanted: Any) -> None:
        # A wanted name with a slash is never compared with commands, so only a cut target matters.
        cut = {"target"} if isinstance(wanted, str) and "/" in wanted else _NAMED_BY
        if not found.call.cut.keys().isdisjoint(cut):
            raise cannot_tell(f"whether {found.call!r} is {wanted!r}")


class Listed(Text):
    """A string from a list that the fakes supply when the condition is checked.

    ``noun`` says what the strings are names of. ``""`` is also accepted, because it is the value
    of calls that no route handled. While the list is empty, every string is accepted.
    """

    def __init__(self, noun: str, words: Callable[[], Iterable[str]]) -> None:
        self._noun = noun
        self._words = words
        self.expected = f"a {noun} (* matches anything), a pattern"

    def check(self, name: str, wanted: Any) -> None:
        super().check(name, wanted)
        if isinstance(wanted, str) and wanted:
            words = sorted(set(self._words()))
            if words and not any(self.equals(word, wanted) for word in words):
                raise ContractError(unknown_name(self._noun, wanted, words, name))


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
        return [cls(call, [each]) for each in commands] if len(commands) > 1 else None

    @property
    def shown(self) -> str:
        """The most specific name."""
        return ", ".join(self._commands) or self.call.route or self.call.path


def _commands_of(call: Call) -> list[str]:
    commands = call.facts.get("command")
    return commands if isinstance(commands, list) else [commands] if commands else []
