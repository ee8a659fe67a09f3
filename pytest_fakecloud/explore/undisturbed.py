"""What must hold of the trial without disturbances, beside the promise: it makes calls, and repeats."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from ..core.errors import ContractError, broken_promise, shown
from .result.wording import line_text, lookups_of_trial, reason
from .search.player import Player
from .subject.clients import text_of_inputs
from .values.plan import Plan
from .values.trial import Line, Trial

REPEATED = Plan(has_details=True)
"""The plan of the trials that repeat the undisturbed one."""


def check_code(player: Player, trial: Trial) -> None:
    """Raise the first exception of the code that is no failed assertion. It comes before a broken
    promise, because it explains more.
    """
    __tracebackhide__ = True
    inputs = player.subject.inputs
    for name, error in trial.errors.items():
        if broken_promise(error) is not None:
            continue
        error.add_note(
            f"raised by {name} in the undisturbed trial, to which no disturbance was applied: "
            f"{_advice(player, error)}"
        )
        if inputs:
            error.add_note(f"inputs: {text_of_inputs(inputs)}")
        raise error


def check_calls(trial: Trial) -> None:
    if not trial.calls:
        raise ContractError("the code made no call to any fake, so there is nothing to explore")


def _advice(player: Player, error: BaseException) -> str:
    if any(library.is_of_another_loop(error) for library in player.world.async_libraries):
        return "each client has an event loop of its own, so create its connections inside it"
    return "catch it in the client if it is expected"


def check_repeats(player: Player, first: Trial, when: str) -> Trial:
    """Play another undisturbed trial, and return it.

    Raises ``ContractError`` if it makes other calls, gets other answers, or breaks the promise now.
    ``when`` completes the sentence, such as "the second time".
    """
    __tracebackhide__ = True
    second = player.play(REPEATED)
    # Without the process's time, arguments and answers contain wall-clock times.
    has_content = player.world.fakes.process_time is not None
    pairs = itertools.zip_longest(first.call_lines, second.call_lines)
    for number, (line, other) in enumerate(pairs, 1):
        if not (line and other and _content(line, has_content) == _content(other, has_content)):
            was = f"was '{_call_text(line, first)}'" if line else "did not exist"
            now = f"'{_call_text(other, second)}'" if other else "there was none"
            if line and other and was == f"was {now}":
                now = f"the same except for {_difference(line, other)},"
            difference = (
                f"call {number} {was}, and {'was ' if other and not line else ''}{now} {when}"
            )
            raise _error_of_memory(difference, dict.fromkeys((*first.notes, *second.notes)))
    if first.broken is None and second.broken is not None:
        raise _error_of_memory(
            f"the promise held, and was broken {when} ({reason(second.broken)})", {}
        )
    return second


def _error_of_memory(difference: str, notes: Iterable[str]) -> ContractError:
    text = (
        f"two trials in which no disturbance was applied differ: {difference}. The code remembers an "
        "earlier trial, for example in a cache, a counter or a client that it keeps, or depends on "
        "something outside the fakes: create it within the explored functions, or reset it in setup="
    )
    return ContractError("; ".join([text, *notes]))


def _content(line: Line, has_content: bool) -> tuple[object, ...]:
    call = line.call
    assert call is not None
    key = line.strand, call.fake, call.route
    if not has_content:
        return key
    # Compare bytes, because a body that the journal has cut refuses comparisons.
    sent, answer = bytes(call.request_body), bytes(call.response_body)
    return *key, call.method, call.target, sent, call.status, call.outcome, answer


def _difference(line: Line, other: Line) -> str:
    """Describe the first difference of two calls whose lines in a story are alike."""
    assert line.call is not None
    assert other.call is not None
    for part in ("target", "request_body", "status", "outcome", "response_body"):
        before, after = getattr(line.call, part), getattr(other.call, part)
        if isinstance(before, bytes):
            before, after = bytes(before), bytes(after)
            pairs = enumerate(zip(before, after, strict=False))
            at = next((at for at, (one_byte, other_byte) in pairs if one_byte != other_byte), 0)
            before, after = before[max(0, at - 20) : at + 60], after[max(0, at - 20) : at + 60]
        if before != after:
            return (
                f"its {part.replace('_', ' ')}, which had {shown(before)} and then {shown(after)}"
            )
    return "its route"


def _call_text(line: Line, trial: Trial) -> str:
    return f"{line.strand}: {line_text(line, lookups_of_trial(trial))}"
