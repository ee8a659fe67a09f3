"""The keys, fields and members that the entries of a journal read and wrote."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ...core.calls import Arguments, Call
from ...reporting.accesses import DataAccess, ReportSubject, Sought, SubjectKind
from ...reporting.calls import changed_items, has_full_answer
from ...reporting.contract import ExchangedValues
from ...reporting.lookups import Lookups
from ...reporting.model import MaskedAction, MaskedCall, MaskedEvent
from ..command_fields import keys_of
from ..fake import KVServer
from ..table import kinds
from ..table.registry import spec_of
from ..table.ttl import find_ttl
from .calls import (
    command_of,
    commands_of,
    executed_by_test,
    hides_words,
    lines_of,
    loaded_keys,
    result_of,
    word_of,
)
from .effects import CLAIMS, did_something
from .lookups import executed_commands

KEY = SubjectKind("key", has_value=True, links_accesses=True)
CHANNEL = SubjectKind("channel")

_RETURNS_VALUE = (kinds.TAKES | kinds.MOVES) - {"SMOVE"} | {
    "GETDEL", "GETEX", "GETSET", "HGETDEL", "HGETEX", "JSON.ARRPOP",
}  # fmt: skip
"""Writes that return what their first key held. SET does with the option GET."""


def of_call(call: MaskedCall, lookups: Lookups) -> Iterator[DataAccess]:
    commands = () if hides_words(call) else executed_commands(call, lookups)
    for number, (words, answer) in enumerate(commands):
        for access in of_command(call.fake, words, answer):
            yield replace(_with_value(access, words, call), command=number)
    if command_of(call) == "EXEC" and has_full_answer(call) and result_of(call) is None:
        for step in lookups.grouped_calls.get(call.number, ()):
            for name, *arguments in lines_of(step):
                undone = {"error": "a watched key was changed"}
                yield from of_command(call.fake, [name.upper(), *arguments], undone)
    for own_call in (*lookups.grouped_calls.get(call.number, ()), call):
        yield from _named_by(own_call)


def _named_by(call: Call) -> Iterator[DataAccess]:
    """Yield the keys and channels in the commands of a call, whether it executed them or not."""
    for line in lines_of(call):
        name, *arguments = line
        publishes = name.upper() in ("PUBLISH", "SPUBLISH")
        if publishes or name.upper().endswith("SUBSCRIBE"):
            channels = arguments[:1] if publishes else arguments
            yield from (DataAccess.named(CHANNEL, channel, call.fake) for channel in channels)
        else:
            yield from (DataAccess.named(KEY, key, call.fake) for key in keys_of(line))


def _with_value(access: DataAccess, words: list[str], call: Call) -> DataAccess:
    """Return an access with the value that SET or HSET wrote, in the first database."""
    spec = spec_of(words)
    if not access.writes or not access.succeeded or spec is None or call.facts.get("database"):
        return access
    stored: dict[str, str] = {}
    if spec.name in ("HSET", "HMSET"):
        stored = dict(zip(words[2::2], words[3::2], strict=False))
    elif spec.name == "SET" and "KEEPTTL" not in spec.bound(words).options:
        stored = {"": words[2]}
    ttl = find_ttl(spec, words)
    expires_us = None if ttl is None else ttl.deadline_us(call.at_us)
    return replace(access, value=stored.get(access.part), expires_us=expires_us)


def exchanges(call: MaskedCall, lookups: Lookups) -> Iterator[ExchangedValues]:
    """Yield the arguments of each command of a call with its result, and what it accessed."""
    for words, answer in () if hides_words(call) else commands_of(call, lookups):
        result = answer.get("result") if isinstance(answer, dict) else None
        yield ExchangedValues(words[1:], [result], list(of_command(call.fake, words, answer)))


def of_command(fake: str, words: list[str], answer: Any) -> Iterator[DataAccess]:
    spec = spec_of(words)
    if spec is None or "@connection" in spec.categories:
        return
    result = answer.get("result") if isinstance(answer, dict) else None
    error = str(answer.get("error", "")) if isinstance(answer, dict) else ""
    succeeded: bool | None = None
    if isinstance(answer, dict):
        succeeded = not error and did_something(spec, words, result)
    # ARSET names only the first of the indexes that it writes.
    parts = spec.fields_of(words) if spec.group != "array" else ()
    is_set_get = spec.name == "SET" and "GET" in map(str.upper, words[3:])
    returns_value = spec.name in _RETURNS_VALUE or is_set_get
    took_nothing = succeeded is False and not error and (returns_value or spec.name in CLAIMS)
    if spec.name in ("KEYS", "SCAN"):
        pattern = next(iter(spec.bound(words).named("pattern")), "*")
        yield DataAccess(ReportSubject(KEY, pattern, fake), False, "", succeeded, pattern=pattern)
    if spec.changes_any_key:
        yield DataAccess(ReportSubject.all_of(KEY, fake), True, "", succeeded)
    for index, (key, key_spec) in enumerate(spec.keys_of(words)):
        writes = key_spec.stores and not spec.readonly
        # A command that moves an element returns nothing that its second key held.
        returns = writes and returns_value and (index == 0 or spec.name not in kinds.MOVES)
        subject = ReportSubject(KEY, key, fake)
        if writes and spec.name in kinds.SCRIPTS:
            # The answer of a script does not say whether it wrote.
            yield DataAccess(subject, False, "", succeeded, answered_error=bool(error))
            yield DataAccess(subject, True, "", False if error.startswith("NOSCRIPT") else None)
        elif took_nothing and writes:
            # It has only read that there is nothing to take, and leaves the key to move it to as it was.
            if returns or spec.name in CLAIMS:
                yield DataAccess(subject, False, "", False)
        else:
            for part in parts or [""]:
                adds = writes and kinds.adds_to(spec, key_spec, words, part)
                yield DataAccess(
                    subject, writes, part, succeeded, returns, adds, answered_error=bool(error)
                )
    if spec.name == "SEARCH.QUERY" and isinstance(result, list):
        for hit in result:
            yield DataAccess(ReportSubject(KEY, str(hit[0]), fake), False)


def of_action(action: MaskedAction, lookups: Lookups) -> Iterator[DataAccess]:
    if words := executed_by_test(action):
        for access in of_command(action.fake, words, None):
            yield replace(access, succeeded=True)
    for key in loaded_keys(action):
        yield DataAccess(ReportSubject(KEY, key, action.fake), True)


def of_event(event: MaskedEvent, lookups: Lookups) -> Iterator[DataAccess]:
    """Yield the keys that an event without a call changed."""
    for section, item in changed_items(event):
        if section == "keys":
            yield DataAccess.named(KEY, item, event.fake)


def sought(fake: KVServer, method: str, arguments: Arguments) -> list[Sought]:
    """Return the data that a method of the fake looked at."""
    positional, by_name = arguments
    pattern = ""
    if method in ("contents", "keys"):
        pattern = word_of([*positional, by_name.get("pattern", "*")][0])
    key = pattern or word_of([*positional, by_name.get("key", "")][0])
    return [Sought(ReportSubject(KEY, key, fake.name), pattern=pattern)]
