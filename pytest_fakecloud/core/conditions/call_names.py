"""Names by which a test can refer to a call: its method and path, its route or its command."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..calls import Call, cannot_tell
from ..errors import ContractError, shown
from ..field_types import METHOD, TARGET, TEXT, FieldType
from ..wording import did_you_mean, unknown_name
from .comparers import is_text_pattern

_NAMED_BY = frozenset({"target", "command", "facts"})
"""The fields from which the names of a call are read."""


class CallNames(FieldType):
    """Matches a call by one string: ``"POST /path"``, a path, or the name of a route or command."""

    expected = "'POST /path', '/path', a route or a command, or a pattern"

    def __init__(self, words: Callable[[], Iterable[str]]) -> None:
        self._words = words

    def accepts(self, wanted: Any) -> bool:
        return isinstance(wanted, str) or is_text_pattern(wanted)

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


class Listed(FieldType):
    """A string from a list that the fakes supply when the condition is checked.

    ``noun`` says what the strings are names of. ``""`` is also accepted, because it is the value
    of calls that no route handled. While the list is empty, every string is accepted.
    """

    samples: tuple[object, ...] = ("",)

    def __init__(self, noun: str, words: Callable[[], Iterable[str]]) -> None:
        self._noun = noun
        self._words = words
        self.expected = f"a {noun} (* matches anything), a pattern"

    def accepts(self, wanted: Any) -> bool:
        return TEXT.accepts(wanted)

    def check(self, name: str, wanted: Any) -> None:
        super().check(name, wanted)
        if isinstance(wanted, str) and wanted:
            words = sorted(set(self._words()))
            if words and not any(self.equals(word, wanted) for word in words):
                raise ContractError(unknown_name(self._noun, wanted, words, name))


class NamesOf(list[str]):
    """The strings by which a call can be matched. ``shown`` is the most specific of them."""

    def __init__(self, call: Call) -> None:
        self.call = call
        commands = call.facts.get("command")
        listed = commands if isinstance(commands, list) else [commands] if commands else []
        self.shown = ", ".join(listed) or call.route or call.path
        for each in listed:
            # Add the name without its subcommand too, so that either name matches.
            self += dict.fromkeys((each, each.partition(" ")[0]))
        self += [call.route, call.path, call.target]
        self += [f"{call.method} {call.path}", f"{call.method} {call.target}"]
