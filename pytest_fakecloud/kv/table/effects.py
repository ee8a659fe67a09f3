"""The column *effects* of the table of commands."""

from __future__ import annotations

from typing import NamedTuple

REPETITIONS = ("idempotent", "overwrites", "again", "varies", "takes", "moves", "derives")
_WORDS = (*REPETITIONS, "time")


class Effects(NamedTuple):
    """The effects of a row, which the head of ``commands.txt`` explains. ``repetition`` is one of
    ``REPETITIONS``, or empty.
    """

    repetition: str
    time: bool


def parse(text: str) -> Effects:
    """Return the effects in a column; raise ``ValueError`` for a wrong one."""
    words = text.split()
    for word in words:
        if word not in _WORDS:
            raise ValueError(f"{word!r} is not an effect; use one of {', '.join(_WORDS)}")
    repetitions = [word for word in REPETITIONS if word in words]
    if len(repetitions) > 1:
        raise ValueError(f"{' and '.join(repetitions)} exclude each other; remove one of them")
    return Effects("".join(repetitions), "time" in words)
