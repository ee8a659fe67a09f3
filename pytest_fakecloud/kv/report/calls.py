"""Read calls to a key-value server: their commands, with the reply to each."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...core.bodies import from_base64, parsed
from ...core.calls import ITEMS_OF_CUT, Action, Call, on_connection
from ...core.characters import map_strings
from ...reporting.lookups import Lookups
from ...reporting.model import MaskedCall
from ..resp.replies import is_error, reply
from ..table import kinds
from ..table.registry import COMMANDS

SEVERAL = ("pipeline", "multi-exec")
"""Routes for several commands."""
QUEUED = b"+QUEUED\r\n"
"""The reply to a command in a transaction; EXEC executes the command."""


def lines_of(call: Call) -> list[list[str]]:
    """Return the commands of a call, each with its name and arguments."""
    lines = call.facts.get("words")
    return lines if isinstance(lines, list) else []


def command_of(call: Call) -> str:
    """Return the first command of a call; empty for a call to another service."""
    return str((call.facts.get("command") or [""])[0])


def single_command(call: Call) -> str:
    """Return the command of a call with a single one; empty for any other call."""
    return command_of(call) if len(call.facts.get("command", ())) == 1 else ""


def may_wait(call: Call) -> bool:
    """Return whether a command of a call may wait. One with an option BLOCK waits only with it."""
    for line in lines_of(call):
        name, *words = map(str.upper, line)
        if name in kinds.BLOCKING and ("BLOCK" in words or "BLOCK" not in COMMANDS[name].options):
            return True
        if name == "DEBUG" and words[:1] == ["SLEEP"]:  # The server itself sleeps.
            return True
    return False


_PASSWORD_COMMANDS = {"AUTH": 2, "HELLO": 3, "ACL": 3, "CONFIG": 3, "MIGRATE": 3}
"""Maps commands to the minimum number of words, including the name, of a call with a password."""
_MOST_WORDS = 100
"""Maximum number of commands of a call whose words are repeated beside its body."""


def hides_words(call: Call) -> bool:
    """Return whether a command of a call may contain a password."""
    if "facts" in call.cut:
        return True  # The command with a password may be lost.
    words = lines_of(call)
    return ("words" in call.cut and len(words) >= ITEMS_OF_CUT) or any(
        len(line) >= _PASSWORD_COMMANDS.get(line[0].upper(), math.inf) for line in words
    )


def shown_facts(call: MaskedCall) -> Mapping[str, Any]:
    """Return the facts of a call, without its commands if they are hidden or many."""
    if not hides_words(call) and len(lines_of(call)) <= _MOST_WORDS:
        return call.facts
    return {name: value for name, value in call.facts.items() if name != "words"}


def result_of(call: Call) -> Any:
    """Return the ``result`` of a response.

    Raises ``LookupError``, ``TypeError`` or ``ValueError`` if the response has none.
    """
    return (reply(call) if on_connection(call) else parsed(call.response_body))["result"]


def commands_of(call: Call, lookups: Lookups) -> Iterator[tuple[list[str], Any]]:
    """Yield each command of a call with its reply, ``{"result": …}`` or ``{"error": …}``, or None."""
    lines = call.facts.get("words")
    if not isinstance(lines, list) or "words" in call.cut or call.response_body == QUEUED:
        return
    if not call.reached and call.fault is None:
        return
    answers: Sequence[Any] = [None] * len(lines)
    if not call.reached:
        answers = [{"error": f"not executed (fault: {call.fault})"}] * len(lines)
    elif on_connection(call):
        steps = lookups.grouped_calls.get(call.number)
        answers = (
            [reply(call)] if call.response_body and "response_body" not in call.cut else [None]
        )
        if steps is not None:
            if command_of(call) != "EXEC":
                return  # A connection was set up, or a transaction was discarded.
            lines = [step.facts["words"][0] for step in steps]
            if answers[0] is not None:
                results = answers[0].get("result")
                if not isinstance(results, list):
                    return  # A watched key was changed.
                answers = [value if is_error(value) else {"result": value} for value in results]
    else:
        body = parsed(call.response_body)
        answers = body if call.route in SEVERAL and isinstance(body, list) else [body] * len(lines)
    answers = decoded_answer(call, answers)
    if len(answers) != len(lines):
        answers = [None] * len(lines)  # A command of a transaction may be hidden.
    for line, answer in zip(lines, answers, strict=True):
        if line:
            yield [line[0].upper(), *line[1:]], answer


def decoded_answer(call: Call, answer: Any) -> Any:
    """Return an answer with its strings decoded if the client asked for Base64."""
    is_encoded = call.facts.get("encoding") == "base64"
    return map_strings(answer, from_base64, names=False) if is_encoded else answer


def executed_by_test(action: Action) -> list[str]:
    """Return the command that an action executes; empty for any other action."""
    arguments, _ = action.call or ((), {})
    if action.kind != "execute" or not arguments:
        return []
    return [word_of(arguments[0]).upper(), *map(word_of, arguments[1:])]


def loaded_keys(action: Action) -> list[str]:
    """Return the keys that an action loads, as far as they are known."""
    arguments, by_name = action.call or ((), {})
    data = arguments[0] if arguments else by_name.get("data")
    return list(map(word_of, data)) if action.kind == "load" and isinstance(data, Mapping) else []


def word_of(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def hash_of(script: str) -> str:
    """Return the hash that EVALSHA uses to refer to a script."""
    text = script.encode("utf-8", "surrogatepass")
    return hashlib.sha1(text, usedforsecurity=False).hexdigest()
