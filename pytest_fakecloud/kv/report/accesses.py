"""The keys, fields and members that the entries of a journal read and wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from ...core.calls import Action, Arguments, Call, ReplayedScript, on_connection
from ...inspect.data import State
from ...reporting.calls import QUEUED, SEVERAL, Lookups, error_of, is_error, lines_of, reply
from ...reporting.model import DataAccess, ReportRow, ReportSubject, Sought
from ...reporting.replayed import scripts_of
from ...reporting.values import each_from_base64, hides_words, parsed, scalar, shortened
from ..table import kinds
from ..table.registry import CommandSpec, spec_of
from .history import Expiries, with_expiries
from .wording import command_text

if TYPE_CHECKING:
    from ...reporting.report import ObservedTest

_RESULT = 120
"""Maximum length of a result, in characters."""
_UNKNOWN = "no known answer"
_REMOVES = (kinds.ONLY_DELETES | kinds.TAKES | kinds.MOVES) - {"XGROUP DELCONSUMER"}
"""Commands that reply with a number of removed elements, or with what they removed."""


def accesses(row: ReportRow, lookups: Lookups) -> Iterator[DataAccess]:
    entry = row.entry
    if isinstance(entry, Action):
        yield from _of_action(row, entry, lookups)
    elif isinstance(entry, Call) and not hides_words(entry):
        runs = list(lookups.script_runs.get(entry.number, ()))
        for words, answer in _commands(entry, lookups):
            yield from _of_line(entry.fake, words, answer, runs, lookups)


def script_runs(test: ObservedTest, fake: Any) -> Mapping[int, Sequence[ReplayedScript]]:
    """Return what the scripts of a server's entries executed, from a replay of its journal; nothing if
    there are no scripts, or the replay did not reproduce the data.
    """
    calls = [call for call in test.calls_of(fake) if call.reached]
    lines = [line for call in calls for line in lines_of(call)]
    lines += [[_word(word) for word in action.call[0]] for action in test.actions_on(fake)
              if action.kind == "execute" and action.call is not None]  # fmt: skip
    if not any(line and line[0].upper() in kinds.SCRIPTS for line in lines):
        return {}
    return _with_skipped(scripts_of(test.cloud, fake), test.lookups)


def _with_skipped(
    runs: Mapping[int, Sequence[ReplayedScript]], lookups: Lookups
) -> Mapping[int, Sequence[ReplayedScript]]:
    """Return runs of scripts with the keys that each did not write, unlike other runs of its script."""
    places: dict[str, set[int]] = {}
    described: list[tuple[int, ReplayedScript, str, list[str], set[str]]] = []
    for number, runs_of_entry in runs.items():
        for run in runs_of_entry:
            words = [run.line[0].upper(), *run.line[1:]]
            script = command_text(words, lookups.scripts).split(" ")[1]
            spec = spec_of(words)
            keys = [] if spec is None else [key for key, _ in _keys_of(spec, words)]
            written = {key for line, _ in run.commands for key in _written_by(line)}
            places.setdefault(script, set()).update(
                at for at, key in enumerate(keys) if key in written
            )
            described.append((number, run, script, keys, written))
    complete: dict[int, list[ReplayedScript]] = {}
    for number, run, script, keys, written in described:
        skipped = {key for at, key in enumerate(keys) if at in places[script]} - written
        complete.setdefault(number, []).append(run._replace(skipped=frozenset(skipped)))
    return complete


def _written_by(line: Sequence[str]) -> Iterator[str]:
    words = [line[0].upper(), *line[1:]]
    spec = spec_of(words)
    for key, writes in _keys_of(spec, words) if spec is not None else ():
        if writes:
            yield key


def _of_line(
    fake: str, words: list[str], answer: Any, runs: list[ReplayedScript], lookups: Lookups
) -> Iterator[DataAccess]:
    """Yield the accesses of a command; those of a script are the commands that it executed."""
    run = next((run for run in runs if _same_line(run.line, words)), None)
    if run is None:
        yield from _of_command(fake, words, answer, lookups)
        return
    runs.remove(run)
    text = command_text(words, lookups.scripts)
    result, _ = _result_of(answer)
    spec = spec_of(words)
    for key, _ in _keys_of(spec, words) if spec is not None else ():
        subject = ReportSubject("key", key, fake)
        yield DataAccess(subject, False, text, result, value=result)
        if key in run.skipped:
            what = f"{text}, which {_read_in(run)}did not write {key}"
            yield DataAccess(subject, True, what, result, succeeded=False)
    script = " ".join(text.split(" ")[:2])
    for line, answer in run.commands:
        line = [line[0].upper(), *line[1:]]
        for access in _of_command(fake, line, answer, lookups):
            yield replace(access, what=f"{access.what} in {script}")


def _read_in(run: ReplayedScript) -> str:
    """Return the last command with which a script read, and its answer; empty if it read nothing."""
    reads = [f"{' '.join(line)} <-- {_result_of(answer)[0]}" for line, answer in run.commands
             if not any(_written_by(line))]  # fmt: skip
    return f"read {shortened(reads[-1], _RESULT)} and " if reads else ""


def _same_line(line: Sequence[str], words: Sequence[str]) -> bool:
    return line[0].upper() == words[0] and line[1:] == list(words[1:])


def _commands(call: Call, lookups: Lookups) -> Iterator[tuple[list[str], Any]]:
    """Yield each command of a call with its reply, ``{"result": …}`` or ``{"error": …}``, or None."""
    lines = call.facts.get("words")
    if not isinstance(lines, list) or "words" in call.cut or call.response_body == QUEUED:
        return
    if not call.reached and call.fault is None:
        return
    answers: Sequence[Any] = [None] * len(lines)
    if not call.reached:
        status = " ".join(filter(None, error_of(call))) or call.outcome
        answers = [{"error": f"{status} (fault: {call.fault}), not executed"}] * len(lines)
    elif on_connection(call):
        steps = lookups.grouped_calls.get(call.number)
        answers = (
            [reply(call)] if call.response_body and "response_body" not in call.cut else [None]
        )
        if steps is not None:
            results = answers[0].get("result") if isinstance(answers[0], dict) else None
            if not isinstance(results, list):
                return  # A watched key was changed, or a connection was set up.
            lines = [step.facts["words"][0] for step in steps]
            answers = [value if is_error(value) else {"result": value} for value in results]
    else:
        body = parsed(call.response_body)
        answers = body if call.route in SEVERAL and isinstance(body, list) else [body] * len(lines)
    if call.facts.get("encoding") == "base64":
        answers = [each_from_base64(answer) for answer in answers]
    for line, answer in zip_longest(lines, answers):
        if line:
            yield [line[0].upper(), *line[1:]], answer


def _of_command(fake: str, words: list[str], answer: Any, lookups: Lookups) -> Iterator[DataAccess]:
    spec = spec_of(words)
    if spec is None or "@connection" in spec.categories:
        return
    result, succeeded = _result_of(answer)
    if succeeded and _changed_nothing(spec, words, answer["result"]):
        result, succeeded = f"{result} (wrote nothing)", False
    what = _described(words, spec, lookups)
    # ARSET names only the first of the indexes that it writes.
    parts = spec.fields_of(words) if spec.group != "array" else ()
    value = answer.get("result") if isinstance(answer, dict) else None
    for key, writes in _keys_of(spec, words):
        written = words[2:] if writes else value
        for part in parts or [""]:
            subject = ReportSubject("key", key, fake)
            returned = value if writes else None
            yield DataAccess(subject, writes, what, result, part, written, succeeded, returned)
    if spec.name == "SEARCH.QUERY" and isinstance(value, list):
        for hit in value:
            # The read of the index has the whole result.
            yield DataAccess(ReportSubject("key", str(hit[0]), fake), False, what, value=hit)


def _keys_of(spec: CommandSpec, words: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Yield each key of a command, and whether the command writes it; ``*`` for all keys."""
    for key, key_spec in spec.keys_of(words):
        yield key, key_spec.stores
    if spec.changes_any_key:
        yield "*", True


def expiries(test: ObservedTest, fake: Any) -> Iterator[tuple[int, int, DataAccess]]:
    """Yield each key that has expired: its access, the number of the entry that had set its TTL, and
    the time, in the order in which the keys expired.
    """
    expired: dict[tuple[str, int], tuple[int, int, DataAccess]] = {}

    def find(ttls: Expiries, at_us: int) -> None:
        for key, setter in ttls.items():
            if ttls.expired(key, at_us):
                subject = ReportSubject("key", key, fake.name)
                access = DataAccess(subject, True, f"{key} expired", "", value=setter.words)
                number = setter.entry.number
                expired.setdefault((key, number), (number, setter.deadline_us or 0, access))

    ttls = Expiries()
    for command, ttls in with_expiries(test, fake):
        find(ttls, command.at_us)
    find(ttls, test.cloud.clock.now_us())
    yield from sorted(expired.values(), key=itemgetter(1))


def _result_of(answer: Any) -> tuple[str, bool | None]:
    if not isinstance(answer, dict):
        return _UNKNOWN, None
    if "error" in answer:
        return shortened(scalar(answer["error"]), _RESULT), False
    result = answer.get("result")
    return shortened(scalar(result), _RESULT), True


def _described(words: list[str], spec: CommandSpec, lookups: Lookups) -> str:
    text = command_text(words, lookups.scripts)
    is_script = "no_mandatory_keys" in spec.flags and not spec.readonly
    return f"{text} (a script that may write it)" if is_script else text


def _changed_nothing(spec: CommandSpec, words: Sequence[str], result: Any) -> bool:
    """Return whether a condition of a command, such as NX, was not met, or it had nothing to remove."""
    if spec.name in _REMOVES:
        removed = result if isinstance(result, list) else [result or None]
        return all(item is None for item in removed)
    if spec.name == "SET":
        return result is None and "GET" not in spec.bound(words).options
    return spec.name in kinds.IF_NEW and result == 0


def _of_action(row: ReportRow, action: Action, lookups: Lookups) -> Iterator[DataAccess]:
    arguments, named = action.call or ((), {})
    if action.kind == "execute" and arguments:
        words = [_word(arguments[0]).upper(), *map(_word, arguments[1:])]
        runs = list(lookups.script_runs.get(action.number, ()))
        for access in _of_line(action.fake, words, None, runs, lookups):
            if access.result == _UNKNOWN:
                value = access.value if access.writes else None
                access = replace(access, result="", value=value, succeeded=True)
            yield access
    elif action.kind == "load":
        data = arguments[0] if arguments else named.get("data")
        for key, value in data.items() if isinstance(data, Mapping) else ():
            subject = ReportSubject("key", _word(key), action.fake)
            yield DataAccess(subject, True, f"load {_word(key)}", shortened(repr(value), _RESULT),
                         value=value)  # fmt: skip
    elif action.kind in ("reset", "restore"):
        yield DataAccess(ReportSubject("key", "*", action.fake), True, action.kind)


def _word(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def sought(fake: Any, method: str, arguments: Arguments) -> list[Sought]:
    """Return the data that a method of the fake looked at."""
    positional, named = arguments
    if method in ("contents", "keys"):
        pattern = _word([*positional, named.get("pattern", "*")][0])
        return [Sought(ReportSubject("key", pattern, fake.name))]
    key = _word([*positional, named.get("key", "")][0])
    return [Sought(ReportSubject("key", key, fake.name))]


def stored(state: State, fake: str) -> Iterator[Sought]:
    """Yield the keys of a state, each with its fields or members."""
    for section, items in state.items():
        for name, item in items.items() if section.startswith("keys") else ():
            subject = ReportSubject("key", name, fake)
            has_parts = item["type"] in ("hash", "set", "zset")
            yield from (Sought(subject, part) for part in (item["value"] if has_parts else [""]))
