"""Commands with their arguments; scripts by their hash, and what a pipeline holds below it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..bodies import compact, parsed, plain, scalar, shortened
from ..connections import is_error, on_connection
from .summary import Scene, Summary, envelope, worked

if TYPE_CHECKING:
    from ...core.calls import Call

__all__ = ["answer", "as_plain", "summary"]

PIPELINED = 12
"""How many commands of a pipeline are shown; of those that failed, all."""
_SEVERAL = ("pipeline", "multi-exec")
_SCRIPTS = ("EVAL", "EVAL_RO", "EVALSHA", "EVALSHA_RO")


def summary(call: Call, scene: Scene) -> Summary | None:
    """A command, or several."""
    lines = call.facts.get("words")
    if not isinstance(lines, list) or not lines:
        return None
    if scene.hidden:
        lines = [[line[0], "***"] for line in lines]
    if call.route in _SEVERAL:
        return _several(call, lines)
    if on_connection(call) and call.number in scene.gathered:
        return _gathered(call, lines[0][0].upper(), scene.gathered[call.number])
    what, script = command(lines[0])
    if not worked(call):
        return Summary(what, "", (), script)
    if on_connection(call) and (not call.answer or "answer" in call.cut):
        size = call.cut.get("answer", 0)
        return Summary(what, f"{size} bytes" if size else "no reply", (), script)
    return Summary(what, answer(envelope(call), _decodes(call)), (), script)


def _gathered(call: Call, name: str, parts: Sequence[Call]) -> Summary:
    """A greeting with all its commands, or a transaction with its steps."""
    if name not in ("EXEC", "DISCARD"):
        words = [part.facts["words"][0] for part in parts]
        named = [line[3] for line in words if line[1:3] and line[1].upper() == "SETINFO"]
        return Summary(f"connect with {shortened(' '.join(named))}" if named else "connect", "OK")
    lines = [part.facts["words"][0] for part in parts]
    result = envelope(call) if worked(call) else None
    several = result if isinstance(result, list) and len(result) == len(lines) else ()
    told = [one if is_error(one) else {"result": one} for one in several]
    summary = _listed(f"{name} of {len(lines)}", lines, told)
    if worked(call) and not isinstance(result, list):
        undone = "null: a key it watched was changed, so nothing was done"
        return replace(summary, answer=undone if result is None else scalar(result))
    return summary


def _several(call: Call, lines: Sequence[Sequence[str]]) -> Summary:
    answers = parsed(call.answer) if worked(call) else None
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
        shown.append(f"and {left} more")
    told = f"{len(answers)} answer{'s' * (len(answers) > 1)}"
    if errors:
        told += f", {errors} of them an error" if errors == 1 else f", {errors} of them errors"
    return Summary(what, told if answers else "", shown, script)


def _decodes(call: Call) -> bool:
    return call.facts.get("encoding") == "base64"


def command(line: Sequence[str]) -> tuple[str, tuple[str, str] | None]:
    """A command in one line, and the script in it by its short hash."""
    # A client of the REST face may write commands in any case; their names stand out in capitals.
    name = line[0].upper()
    if name in _SCRIPTS and len(line) > 2 and line[2].isdigit():
        sha = line[1].lower()
        script = None
        if not name.startswith("EVALSHA"):
            text = line[1].encode("utf-8", "surrogatepass")
            sha = hashlib.sha1(text, usedforsecurity=False).hexdigest()
            script = sha[:8], line[1]
        keys = int(line[2])
        words = [name, sha[:8]]
        words += ["KEYS", *map(word, line[3 : 3 + keys])] if keys else []
        words += ["ARGV", *map(word, line[3 + keys :])] if line[3 + keys :] else []
        return " ".join(words), script
    return " ".join([name, *map(word, line[1:])]), None


def word(text: str) -> str:
    """An argument: in quotes where it is empty or has white space and is no JSON."""
    if text[:1] in ("{", "[") and isinstance(parsed(text), dict | list):
        return shortened(" ".join(text.split()), 80)
    if not text or text != "".join(text.split()):
        return compact(shortened(text))
    return shortened(text)


def answer(value: Any, decodes: bool) -> str:
    """The result of a command; Base64 is decoded where the client asked for it."""
    return scalar(as_plain(value) if decodes else value)


def as_plain(value: Any) -> Any:
    """A result with its Base64 texts decoded."""
    if isinstance(value, list):
        return [as_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: as_plain(each) for key, each in value.items()}
    return plain(value) if isinstance(value, str) else value
