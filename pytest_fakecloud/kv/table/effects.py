"""The column *effects* of the table of commands."""

from __future__ import annotations

from typing import NamedTuple

_REPETITIONS = (
    "idempotent", "if-new", "if-equal", "overwrites", "again", "takes", "moves", "derives",
)  # fmt: skip
_WORDS = (*_REPETITIONS, "time", "hits")


class Effects(NamedTuple):
    """The effects of a row, which the head of ``commands.txt`` explains.

    ``repetition`` is one of ``_REPETITIONS``, or empty.
    """

    repetition: str
    time: bool
    hits: bool


def parse(text: str) -> Effects:
    """Return the effects in a column; raise ``ValueError`` for a wrong one."""
    words = text.split()
    for word in words:
        if word not in _WORDS:
            raise ValueError(f"{word!r} is not an effect; use one of {', '.join(_WORDS)}")
    repetitions = [effect for effect in _REPETITIONS if effect in words]
    if len(repetitions) > 1:
        raise ValueError(f"{' and '.join(repetitions)} exclude each other; remove one of them")
    return Effects("".join(repetitions), "time" in words, "hits" in words)
