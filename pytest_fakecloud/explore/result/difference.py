"""The first call in which two undisturbed runs differ, because the code remembers an earlier run."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from ...core.errors import ContractError
from ..run import Line, Run
from .story import line_text, lookups_of_run, reason


def check_same_calls(first: Run, second: Run, when: str, *, with_content: bool) -> None:
    """Raise ``ContractError`` if two undisturbed runs made different calls or got other answers.

    ``when`` completes the sentence, such as "the second time". Without ``with_content``, only
    the strands and the routes of the calls are compared.
    """
    before, after = _calls(first), _calls(second)
    for number, (one, other) in enumerate(itertools.zip_longest(before, after), 1):
        if one is None or other is None or _key(one, with_content) != _key(other, with_content):
            was = f"was '{_text(one, first)}'" if one is not None else "did not exist"
            now = f"'{_text(other, second)}'" if other is not None else "there was none"
            is_same = other is None or one is not None
            found = f"call {number} {was}, and {'' if is_same else 'was '}{now} {when}"
            raise _remembers(found, {**first.notes, **second.notes})
    if first.broken is None and second.broken is not None:
        raise _remembers(f"the promise held, and was broken {when} ({reason(second.broken)})", {})


def _remembers(difference: str, notes: Iterable[str]) -> ContractError:
    text = (
        f"two runs in which no event was applied differ: {difference}. The code remembers an earlier "
        "run, for example in a cache, a counter or a client that it keeps, or depends on something "
        "outside the fakes: create it within the explored functions, or reset it in setup="
    )
    return ContractError("; ".join([text, *notes]))


def _calls(run: Run) -> Sequence[Line]:
    return [line for line in run.lines if line.call is not None]


def _key(line: Line, with_content: bool) -> tuple[object, ...]:
    call = line.call
    assert call is not None
    key = line.strand, call.handle, call.route
    if not with_content:
        return key
    # Compare bytes, because a body that the journal has cut refuses comparisons.
    sent, answer = bytes(call.request_body), bytes(call.response_body)
    return *key, call.method, call.target, sent, call.status, call.outcome, answer


def _text(line: Line, run: Run) -> str:
    return f"{line.strand}: {line_text(line, lookups_of_run(run))}"
