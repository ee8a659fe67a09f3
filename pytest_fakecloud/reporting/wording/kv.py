"""Wording of the key-value store: commands, scripts, pipelines, and its findings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ...core.wording import counted, listed
from ..bodies import as_plain, compact, parsed, scalar, shortened
from ..connections import on_connection
from ..credentials import HIDDEN
from ..masking import hides_words
from ..resp_reply import is_error
from ..scene import Scene, has_full_answer, hash_of
from .common import Sentences, Summary, Values, clock_time, envelope

if TYPE_CHECKING:
    from ...core.calls import Call

PIPELINED = 12
"""Maximum number of commands of a pipeline that are shown; failed commands are always shown."""
ROOM = 240
"""Maximum length of a command's arguments, in characters."""
_END_OF_TIME_US = 253_402_300_800_000_000
_SEVERAL = ("pipeline", "multi-exec")
_SUBSCRIBING = ("SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE")
_SCRIPTS = ("EVAL", "EVAL_RO", "EVALSHA", "EVALSHA_RO")
_DATES_US = {"EXPIREAT": 1_000_000, "PEXPIREAT": 1_000, "EXAT": 1_000_000, "PXAT": 1_000}
"""Commands and options that set an absolute expiry, with the length of its unit in microseconds."""
_FIRST_OPTION = {"SET": 3, "GETEX": 2, "HGETEX": 2, "HSETEX": 2}
"""Commands with such options, and the index of their first option."""
_LIMITERS = {
    "c12c2b62": "fixed-window", "f8c78d62": "sliding-window", "7b6940a4": "token-bucket",
    "b2efc027": "fixed-window", "74740bb3": "sliding-window", "d60be5bd": "token-bucket",
    "1861a700": "cached-fixed-window",
}  # fmt: skip
"""Names of the scripts of ``upstash_ratelimit`` (first line) and ``@upstash/ratelimit``."""
_PARAMETER = re.compile(r"\blocal\s+(\w+)\s*=\s*(?:tonumber\()?(KEYS|ARGV)\[(\d+)\]")


def summary(call: Call, scene: Scene) -> Summary | None:
    lines = call.facts.get("words")
    if not isinstance(lines, list) or not lines:
        return None
    if hides_words(call):
        lines = [[line[0], HIDDEN] for line in lines]
    if call.route in _SEVERAL:
        return _several(call, lines)
    if on_connection(call) and call.number in scene.grouped_calls:
        return _gathered(call, lines[0][0].upper(), scene.grouped_calls[call.number])
    what, script = command(lines[0], scene.scripts)
    if not has_full_answer(call):
        return Summary(what, "", (), script)
    if on_connection(call) and (not call.answer or "answer" in call.cut):
        size = call.cut.get("answer", 0)
        if lines[0][0].upper() in _SUBSCRIBING and not size:
            return Summary(what, "subscribed", (), script)
        return Summary(what, f"{size} bytes" if size else "no reply", (), script)
    return Summary(what, answer(envelope(call), _decodes(call)), (), script)


def _gathered(call: Call, name: str, parts: Sequence[Call]) -> Summary:
    """Describe the setup of a connection with all its commands, or a transaction with its steps."""
    if name not in ("EXEC", "DISCARD"):
        words = [part.facts["words"][0] for part in parts]
        named = [line[3] for line in words if line[1:3] and line[1].upper() == "SETINFO"]
        return Summary(f"connect with {shortened(' '.join(named))}" if named else "connect", "OK")
    lines = [part.facts["words"][0] for part in parts]
    result = envelope(call) if has_full_answer(call) else None
    several = result if isinstance(result, list) and len(result) == len(lines) else ()
    told = [one if is_error(one) else {"result": one} for one in several]
    summary = _listed(f"{name} of {len(lines)}", lines, told)
    if has_full_answer(call) and not isinstance(result, list):
        undone = "null: a watched key was changed, so nothing was executed"
        return replace(summary, answer=undone if result is None else scalar(result))
    return summary


def _several(call: Call, lines: Sequence[Sequence[str]]) -> Summary:
    answers = parsed(call.answer) if has_full_answer(call) else None
    if not isinstance(answers, list) or len(answers) != len(lines):
        answers = []
    return _listed(f"{call.route} of {len(lines)}", lines, answers, _decodes(call))


def _listed(
    what: str, lines: Sequence[Sequence[str]], answers: Sequence[Any], decodes: bool = False
) -> Summary:
    shown, script, errors, left = [], None, 0, 0
    for number, line in enumerate(lines):
        asked, one = command(line)
        script = script or one
        came = answers[number] if answers else None
        failed = isinstance(came, dict) and "error" in came
        errors += failed
        if number >= PIPELINED and not failed:
            left += 1
            continue
        told = ""
        if isinstance(came, dict):
            told = scalar(came["error"]) if failed else answer(came.get("result"), decodes)
        shown.append(f"{asked} <-- {told}" if came is not None else asked)
    if left:
        shown.append(f"and {left} more commands")
    told = counted(len(answers), "answer")
    if errors:
        told += f", {counted(errors, 'error')}"
    return Summary(what, told if answers else "", shown, script)


def _decodes(call: Call) -> bool:
    return call.facts.get("encoding") == "base64"


def command(
    line: Sequence[str], scripts: Mapping[str, str] = {}
) -> tuple[str, tuple[str, str] | None]:
    """Return a command as one line, with a short hash in place of a script.

    ``scripts`` are the sources of scripts by their hash. A script's arguments are shown under the
    names of the local variables to which the script assigns them.
    """
    # Show command names in capitals, which are easy to see; REST clients may send any case.
    name = line[0].upper()
    if name in _SCRIPTS and len(line) > 2 and line[2].isdigit():
        given = not name.startswith("EVALSHA")
        sha = (hash_of(line[1]) if given else line[1].lower())[:8]
        source = line[1] if given else scripts.get(sha, "")
        keys, named = int(line[2]), _LIMITERS.get(sha)
        words = [name, named or sha]
        for kind, arguments in (("KEYS", line[3 : 3 + keys]), ("ARGV", line[3 + keys :])):
            shown, names = _fitting(arguments), _parameters(source, kind)
            if names.keys() >= set(range(1, len(arguments) + 1)) and len(shown) == len(arguments):
                words += [f"{names[at]}={one}" for at, one in enumerate(shown, 1)]
            else:
                words += [kind, *shown]
        return " ".join(words), (sha, line[1]) if given and named is None else None
    return " ".join([name, *_fitting(line[1:]), *_deadline(name, line)]), None


def _parameters(source: str, kind: str) -> dict[int, str]:
    """Return the local variables to which a script assigns its keys or arguments, by position.

    A position that is assigned to several variables is left out.
    """
    found: dict[int, set[str]] = {}
    for name, which, at in _PARAMETER.findall(source):
        if which == kind:
            found.setdefault(int(at), set()).add(name)
    return {at: names.pop() for at, names in found.items() if len(names) == 1}


def _deadline(name: str, line: Sequence[str]) -> Iterator[str]:
    """Yield the absolute expiry that a command sets, as a date."""
    words = [word.upper() for word in line]
    options = words[_FIRST_OPTION.get(name, len(words)) :]
    options = options[: options.index("FIELDS")] if "FIELDS" in options else options
    if name in _DATES_US:
        options = [name, *line[2:3]]
    for option, number in pairwise(options):
        if option in _DATES_US and number.isascii() and number.isdigit():
            at_us = int(number) * _DATES_US[option]
            if at_us < _END_OF_TIME_US:
                yield f"({clock_time(at_us)})"
            return


def _fitting(arguments: Sequence[str]) -> list[str]:
    """Return the first arguments and, if the arguments need several lines, their total number."""
    found: list[str] = []
    room = ROOM
    for number, each in enumerate(map(word, arguments)):
        room -= len(each) + 1
        if room < 0:
            return [*found, f"... ({len(arguments)} arguments, {number} shown)"]
        found.append(each)
    return found


def word(text: str) -> str:
    """Return an argument; in quotes if it is empty or contains white space and is not JSON."""
    if text[:1] in ("{", "[") and isinstance(parsed(text), dict | list):
        return shortened(" ".join(text.split()), 80)
    if not text or text != "".join(text.split()):
        return compact(shortened(text))
    return shortened(text)


def answer(value: Any, decodes: bool) -> str:
    """Return the result of a command, with Base64 decoded if the client requested it."""
    return shortened(scalar(as_plain(value) if decodes else value), ROOM)


def _replaced(values: Values, scene: Scene) -> str:
    late = "; its WATCH came after that write" if values["watch_late"] else ""
    mine, other, read = (answer(values[name], False) for name in ("written", "overwritten", "read"))
    return (
        f"SET {shortened(values['key'])} wrote {mine} over {other}, which another connection had "
        f"written after this connection's GET returned {read}{late}"
    )


def _changed_nothing(values: Values, scene: Scene) -> str:
    key, option = shortened(values["key"]), values["option"]
    why = {
        "NX": f"{key} already existed (NX)",
        "XX": f"{key} did not exist (XX)",
        "HSETNX": f"{key} already had the field {listed(values['members'], 3)}",
        "ZADD": f"{key} already had {listed(values['members'], 3)} (NX only adds)",
    }[option]
    if values["message"]:
        number, message = values["attempt"], scene.short(values["message"])
        why += f", set by attempt {number} of {message}, which failed"
    return f"this {values['command']} changed nothing: {why}"


def _repeated(values: Values, scene: Scene) -> str:
    if values["message"]:
        earlier = f"attempt {values['attempt']} of {scene.short(values['message'])}"
        why = f"{earlier}, which failed afterwards"
    else:
        why = f"an identical earlier {values['target']}, which failed afterwards"
    told = f"{values['command']} {shortened(values['key'])} repeats one made during {why}"
    if values["marks"]:
        first, now = map(shortened, values["marks"])
        told += f"; the key set with NX was {first} in that attempt and {now} in this one: "
        same = "use the same key in each attempt"
        told += (
            "leave the number of the attempt or retry out of the key"
            if values["numbered"]
            else same
        )
    return told


def _failed_inside(values: Values, scene: Scene) -> str:
    well = values["executed"]
    rest = "the other one was" if well == 1 else f"the other {well} were"
    return (
        f"{values['failed']} of the {values['commands']} commands in this "
        f"{values['what']} failed; {rest} executed"
    )


def _key_mismatch(values: Values, scene: Scene) -> str:
    key, other = shortened(values["key"]), shortened(values["other"])
    told = f"{key} was read but never written; {other} was written but never read"
    if values["run"]:
        told += (
            f", both during workflow run {values['run']}: code outside of steps is executed "
            "again at each delivery, so create the key in a step"
        )
    return told


def _read_after_expiry(values: Values, scene: Scene) -> str:
    seconds = values["seconds"]
    late = f"{_duration(seconds)} after it had expired" if seconds else "as it expired"
    return f"{shortened(values['key'])} was read {late} (its TTL was set by {values['ttl']})"


def _duration(seconds: float) -> str:
    """Return a duration with two significant digits, or more if it is many days."""
    if seconds < 0.001:
        return "less than 1 ms"
    units = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    size, unit = next((one for one in units if seconds >= one[0]), (1, "s"))
    count = seconds / size
    return f"{count:.0f} {unit}" if count >= 9.95 else f"{count:.2g} {unit}"


def _check_then_set(values: Values, scene: Scene) -> str:
    read, write, item = (values[name] for name in ("read", "write", "item"))
    instead = "HSETNX" if write == "HSET" else f"{write} with NX"
    return (
        f"two {read} commands found that {item} did not exist, then two {write} commands wrote it, the "
        f"second over the first: the check and the write are separate; use {instead} or a script"
    )


def _pages_overlap(values: Values, scene: Scene) -> str:
    first, start, stop = values["first"], values["start"], values["stop"]
    range = f"{values['command']} {shortened(values['key'])}"
    return (
        f"{range} {first} {start} and {range} {start} {stop} both returned "
        f"{shortened(values['member'])}: the stop index is inclusive, so a page of "
        f"{start - first} from {first} stops at {start - 1}"
    )


SENTENCES: Sentences = {
    "lock_without_ttl": "{key} was set with NX and has no TTL: the command had neither EX nor PX",
    "ttl_not_set": "{key} has no TTL: the {command} was not executed",
    "key_mismatch": _key_mismatch,
    "read_only_token": "{command} was sent with the read-only token and rejected",
    "lock_of_another": "{key} was deleted while it held {holder:json}; {earlier:json} had set it "
    "before and expired",
    "ttl_removed": "this SET removed the TTL of {key} (it had neither EX, PX nor KEEPTTL), so the "
    "key never expires",
    "ttl_renewed": "the TTL of {key} is {seconds:raw} s and was set again {times:raw} times before it "
    "ended",
    "accept_missing": "{command} sends a stream only if the request has the header Accept: "
    "text/event-stream (it had {accept})",
    "none_in_key": "the key {key} contains None, which is how Python writes a missing value",
    "bytes_in_key": "the key {key} contains {text:raw}, which is how Python writes bytes: decode "
    "answers before using them in keys (decode_responses=True)",
    "stopped_writing": "{command} {key} {field} returned {known:json} after {field} {new:raw} was "
    "received, and {key} was not written: as strings, {new:json} is less than {known:json}; compare "
    "them as numbers",
    "counter_mismatch": "{key} was decremented but never set; {other} was set to {value} but never "
    "used",
    "lost_update": _replaced,
    "check_then_set": _check_then_set,
    "read_after_expiry": _read_after_expiry,
    "no_subscriber": "no client subscribes to {channel}, to which a message was published; clients "
    "subscribe to {others:list}, to which nothing was published",
    "expires_by_wall_clock": "{command} {key} expires at {at:raw}, computed from the wall clock; the "
    "fake's clock is at {now:raw}: use EX, or clock=real",
    "commands_failed": _failed_inside,
    "pages_overlap": _pages_overlap,
    "limit_shared": "{target:raw} returned 429 when {key} reached {count:raw} ({target:raw} {own:raw}, "
    "{others:counts}): limiters with the same prefix and identifier share their count, so give each its "
    "own prefix",
    "scan_not_finished": "this {command} has more results (its cursor is {cursor}, not 0), and no "
    "call continued it",
    "counter_recreated": "{key} had expired, so this {command} recreated it without a TTL",
    "equal_scores": "all {members} members of {key} have the score {score}, so they are ordered by "
    "name",
    "changed_nothing": _changed_nothing,
    "repeated_after_failure": _repeated,
    "never_acknowledged": "group {group} of {key} received {entries:list} again; it has acknowledged "
    "nothing (no XACK)",
}
