"""Wording of the key-value store: commands, scripts, pipelines, and its findings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from itertools import zip_longest
from typing import Any

from ...core.bodies import compact, parsed, scalar
from ...core.calls import on_connection
from ...core.characters import first_words, shortened
from ...core.errors import counted, listed
from ...core.secrets import HIDDEN
from ...core.timers import clock_time
from ...reporting.calls import has_full_answer
from ...reporting.lookups import Lookups
from ...reporting.model import MaskedCall, ScriptSource, Sentences, Summary, Values
from ..resp.replies import is_error
from ..table import kinds
from ..table.registry import spec_of
from ..table.ttl import find_ttl
from .accesses import of_command
from .background import NOTHING_KNOWN, KVBackground, WatchedChange
from .calls import SEVERAL, command_of, decoded_answer, hash_of, hides_words, lines_of, result_of
from .lookups import KVLookups

ROOM = 240
"""Maximum length of a command's arguments, in characters."""
_PIPELINED = 12
"""Maximum number of commands of a pipeline that are shown; refused ones are always shown."""
_WITH_FIELDS = 3
"""Maximum number of hits of a search that are shown with their fields."""
_END_OF_TIME_US = 253_402_300_800_000_000
_SUBSCRIBING = ("SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE")
_SCRIPTS = ("EVAL", "EVAL_RO", "EVALSHA", "EVALSHA_RO")
_PARAMETER = re.compile(r"\blocal\s+(\w+)\s*=\s*(?:tonumber\()?(KEYS|ARGV)\[(\d+)\]")


def summary(call: MaskedCall, lookups: Lookups) -> Summary | None:
    """Describe the commands of a call, and what its scripts executed; return None if it has none."""
    words, scripts = _summary(call, lookups), lookups.of(KVLookups)
    if words is None:
        return None
    executed = scripts.script_commands.get(call.number, ())
    commands = [(command.words, command.answer) for command in executed]
    texts, refused = _shown(commands, NOTHING_KNOWN, "executed ")
    cut_numbers = scripts.cut_numbers.get(call.number, {}).items()
    cuts = [f"the script returned {number!r}, which is cut to {cut}" for number, cut in cut_numbers]
    remarks = [*words.remarks, *texts, *cuts]
    return replace(words, remarks=remarks, refused=[*words.refused, *refused])


def _summary(call: MaskedCall, lookups: Lookups) -> Summary | None:
    lines = lines_of(call)
    if not lines:
        return None
    if hides_words(call):
        lines = [[line[0], HIDDEN] for line in lines]
    background: KVBackground = lookups.background.get(call.number, NOTHING_KNOWN)
    if call.route in SEVERAL and (len(lines) > 1 or call.route != "pipeline"):
        return _several_commands(f"{call.route} of {len(lines)}", lines, _replies(call), background)
    if on_connection(call) and call.number in lookups.grouped_calls:
        steps = [step.facts["words"][0] for step in lookups.grouped_calls[call.number]]
        if command_of(call) not in ("EXEC", "DISCARD"):
            clients = [own[3] for own in steps if own[1:3] and own[1].upper() == "SETINFO"]
            what = f"connect with {shortened(' '.join(clients))}" if clients else "connect"
            return Summary(what, "OK")
        return _transaction(call, steps, background)
    answer = _answer(call, lines[0], background)
    if call.route in SEVERAL:  # of a client that makes pipelines automatically
        answer = "".join(_reply_text(lines[0], reply, background) for reply in _replies(call)[:1])
    return Summary(
        command_text(lines[0], lookups.of(KVLookups).scripts), answer, script=_sent_script(lines[0])
    )


def _replies(call: MaskedCall) -> list[Any]:
    """Return the replies to several commands; empty if they are unknown."""
    replies = decoded_answer(call, parsed(call.response_body)) if has_full_answer(call) else ()
    return replies if isinstance(replies, list) else []


def _answer(call: MaskedCall, line: Sequence[str], background: KVBackground) -> str:
    if not has_full_answer(call) or call.route in SEVERAL:
        return ""
    if on_connection(call) and (not call.response_body or "response_body" in call.cut):
        if size := call.cut.get("response_body"):
            return f"{size} bytes"
        return "subscribed" if line[0].upper() in _SUBSCRIBING else "no reply"
    return _result(line, decoded_answer(call, result_of(call)), background)


def _transaction(
    call: MaskedCall, lines: Sequence[Sequence[str]], background: KVBackground
) -> Summary:
    result = result_of(call) if has_full_answer(call) else []
    results = result if isinstance(result, list) else []
    replies = [result if is_error(result) else {"result": result} for result in results]
    summary = _several_commands(f"{command_of(call)} of {len(lines)}", lines, replies, background)
    if isinstance(result, list):
        return summary
    undone = f"null: {_watched(background.watched)}, so nothing was executed"
    return replace(summary, answer=undone if result is None else scalar(result))


def _watched(change: WatchedChange | None) -> str:
    """Return the change of a watched key; the words of a command may name the key itself."""
    if change is None:
        return "a watched key was changed"
    command = first_words(command_text(change.words), 80)
    return f"the watched {shortened(change.key)} was changed by {command}"


def _several_commands(
    what: str, lines: Sequence[Sequence[str]], replies: Sequence[Any], background: KVBackground
) -> Summary:
    """Describe several commands with their replies, which are ignored if their number differs."""
    if len(replies) != len(lines):
        replies = ()
    texts, refused = _shown(list(zip_longest(lines, replies)), background)
    answer = counted(len(replies), "answer") if replies else ""
    if errors := sum(map(_has_failed, replies)):
        answer += f", {counted(errors, 'error')}"
    script = next(filter(None, map(_sent_script, lines)), None)
    return Summary(what, answer, texts, script, refused=refused)


def _shown(
    exchanges: Sequence[tuple[Sequence[str], Any]], background: KVBackground, lead: str = ""
) -> tuple[list[str], list[str]]:
    """Describe the first commands, after a ``lead``, and those that were refused, with their replies;
    return the descriptions, and those of refused commands again.
    """
    texts, refused = list[str](), list[str]()
    for number, (line, reply) in enumerate(exchanges):
        words = [line[0].upper(), *line[1:]]
        is_refused = _has_failed(reply) or any(
            own.is_refused for own in of_command("", words, reply)
        )
        if number < _PIPELINED or is_refused:
            answer = _reply_text(line, reply, background)
            text = command_text(line) + (f" <-- {answer}" if answer else "")
            texts.append(text if texts else lead + text)
            refused += texts[-1:] if is_refused else ()
    if len(exchanges) > len(texts):
        texts.append(f"and {len(exchanges) - len(texts)} more commands")
    return texts, refused


def _reply_text(line: Sequence[str], reply: Any, background: KVBackground) -> str:
    """Describe the reply to one of several commands; return an empty string if it is unknown."""
    if _has_failed(reply):
        return scalar(reply["error"])
    return _result(line, reply.get("result"), background) if isinstance(reply, dict) else ""


def _has_failed(reply: Any) -> bool:
    return isinstance(reply, dict) and "error" in reply


def command_text(line: Sequence[str], scripts: Mapping[str, str] | None = None) -> str:
    """Return a command as one line, with a short hash in place of a script."""
    # Show command names in capitals, which are easy to see; REST clients may send any case.
    name = line[0].upper()
    script = _script(line, scripts or {})
    if script is None:
        return " ".join([name, *_fitting(line[1:]), *_deadline(line)])
    end_of_keys = 3 + int(line[2])
    keys = _script_arguments(script, "KEYS", line[3:end_of_keys])
    arguments = _script_arguments(script, "ARGV", line[end_of_keys:])
    return " ".join([name, script.sha, *keys, *arguments])


def _script(line: Sequence[str], scripts: Mapping[str, str]) -> ScriptSource | None:
    """Return the script that a command runs; its source is empty if it is unknown."""
    name = line[0].upper()
    if name not in _SCRIPTS or len(line) < 3 or not line[2].isdigit():
        return None
    if name.startswith("EVALSHA"):
        sha = line[1].lower()[:8]
        return ScriptSource(sha, scripts.get(sha, ""))
    return ScriptSource(hash_of(line[1])[:8], line[1])


def _sent_script(line: Sequence[str]) -> ScriptSource | None:
    """Return the script that a command contains; None if it has only the hash of one."""
    script = _script(line, {})
    return script if script and script.source else None


def _script_arguments(script: ScriptSource, kind: str, arguments: Sequence[str]) -> list[str]:
    """Return arguments, named by the script's variables if it assigns all of them."""
    shown, names = _fitting(arguments), _parameters(script.source, kind)
    if names.keys() >= set(range(1, len(arguments) + 1)) and len(shown) == len(arguments):
        return [f"{names[at]}={argument}" for at, argument in enumerate(shown, 1)]
    return [kind, *shown] if arguments else []


def _parameters(source: str, kind: str) -> dict[int, str]:
    """Return the local variables to which a script assigns its keys or arguments, by position.

    A position that is assigned to several variables is left out.
    """
    names_by_place: dict[int, set[str]] = {}
    for name, which, at in _PARAMETER.findall(source):
        if which == kind:
            names_by_place.setdefault(int(at), set()).add(name)
    return {at: names.pop() for at, names in names_by_place.items() if len(names) == 1}


def _deadline(line: Sequence[str]) -> Iterator[str]:
    spec = spec_of(line)
    ttl = None if spec is None else find_ttl(spec, line)
    if ttl is not None and ttl.unit.is_absolute and ttl.number.isascii() and ttl.number.isdigit():
        at_us = ttl.deadline_us(0) or 0
        if at_us < _END_OF_TIME_US:
            yield f"({clock_time(at_us)})"


def _fitting(arguments: Sequence[str]) -> list[str]:
    """Return the first arguments and, if the arguments need several lines, their total number."""
    texts: list[str] = []
    room = ROOM
    for number, argument in enumerate(map(_argument, arguments)):
        room -= len(argument) + 1
        if room < 0:
            return [*texts, f"... ({len(arguments)} arguments, {number} shown)"]
        texts.append(argument)
    return texts


def _argument(text: str) -> str:
    """Return an argument; in quotes if it is empty or contains white space and is not JSON."""
    if text[:1] in ("{", "[") and isinstance(parsed(text), dict | list):
        return shortened(" ".join(text.split()), 80)
    if not text or text != "".join(text.split()):
        return compact(shortened(text))
    return shortened(text)


def _result(line: Sequence[str], value: Any, background: KVBackground) -> str:
    """Return the result of a command, with what the server holds if the answer does not say it."""
    words = (line[0].upper(), *line[1:])
    if words[0] == "SEARCH.QUERY" and isinstance(value, list):
        return _hits(words, value, background.totals.get(words))
    text = shortened(scalar(value), ROOM)
    if entries := background.before_start.get(words):
        text += f" ({entries} {'entry' if entries == 1 else 'entries'} before its start)"
    stored = _stored_scores(words)
    return f"{text} (stored as {listed(stored)})" if stored else text


def _hits(words: Sequence[str], hits: Sequence[Any], total: int | None) -> str:
    texts = []
    for hit in hits:
        key, score, *rest = hit if isinstance(hit, list) else [hit]
        shown = rest[0] if rest and len(hits) <= _WITH_FIELDS else ()
        fields = [shortened(f"{name} {scalar(value)}", 60) for name, value in shown]
        texts.append(" ".join([str(key), str(score), *fields]))
    if not hits and not total:
        return "no hits"
    text = counted(len(hits), "hit")
    if total is not None and total > len(hits):
        text = f"{len(hits)} of {counted(total, 'hit')}"
        text += "" if "LIMIT" in map(str.upper, words) else ", no LIMIT: default 10"
    return f"{text}: {listed(texts)}" if texts else text


def _stored_scores(words: Sequence[str]) -> list[str]:
    """Return the scores of a command as they are stored, if they are not those that were sent: a score
    has 53 bits.
    """
    spec = spec_of(list(words)) if words[0] in kinds.SCORES else None
    stored = []
    for sent in () if spec is None else spec.bound(words).named("score"):
        with suppress(ValueError, ArithmeticError):
            if Decimal(repr(float(sent))) != Decimal(sent):
                stored.append(f"{float(sent):.17g}")
    return stored


def _never_executed(values: Values) -> str:
    reason = "no EXEC followed"
    if values["discarded"]:
        reason = "DISCARD followed"
    elif values["ended"]:
        change = WatchedChange(**values["watched"]) if "watched" in values else None
        reason = f"{_watched(change)}, so EXEC executed nothing"
    commands = listed(list(map(shortened, values["commands"])))
    return f"{commands} queued in a transaction, but not executed: {reason}"


def _searched_before_ready(values: Values) -> str:
    keys = listed(list(map(shortened, values["keys"])))
    return (
        f"the search found nothing because changes of {keys} were not indexed yet: run "
        "SEARCH.WAITINDEXING before it"
    )


def _ttl_in_other_unit(values: Values) -> str:
    kind = "Unix time" if values["is_time"] else "a duration"
    return (
        f"{shortened(values['given'])} of {shortened(values['key'])} is read as {kind} in "
        f"{values['unit']}; the number is Unix time in {values['meant']}"
    )


def _unlikely_ttl(values: Values) -> str:
    seconds = values["seconds"]
    span = f"{seconds:g} s" if seconds < 60 else str(timedelta(seconds=seconds))
    return f"{shortened(values['given'])} of {shortened(values['key'])} is {span}"


def _ttl_removed(values: Values) -> str:
    why = ": it has neither EX, PX nor KEEPTTL" if values["command"] == "SET" else ""
    return f"this {values['command']} removed the TTL of {shortened(values['key'])}{why}"


def _lock_of_another(values: Values) -> str:
    holder, earlier = (compact(shortened(values[name])) for name in ("holder", "earlier"))
    return (
        f"{shortened(values['key'])} was deleted while it held {holder}; {earlier}, which it held "
        "before, had expired"
    )


SENTENCES: Sentences = {
    "never_executed": _never_executed,
    "searched_before_ready": _searched_before_ready,
    "ttl_in_other_unit": _ttl_in_other_unit,
    "score_in_other_unit": "{command} {key} has the bound {bound}, Unix time in {unit}; the scores, "
    "such as {score}, are in {other}",
    "unlikely_ttl": _unlikely_ttl,
    "expires_by_wall_clock": "{command} {key} expires at {at}, computed from the wall clock; the fake's "
    "clock is at {now}: use EX, or clock=real",
    "expire_not_executed": "{key} has no TTL: the {command} was not executed",
    "expired": "{key} expired at {at}",
    "ttl_removed": _ttl_removed,
    "lock_of_another": _lock_of_another,
    "rejected_query": "the _token in the URL is wrong",
    "rejected_no_password": "no password was sent, use {fake}.database_url",
    "rejected_password": "the user or the password is not that of {fake}.database_url",
}
