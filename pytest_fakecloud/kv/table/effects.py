"""The column *effects* of the table of commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_REPETITIONS = (
    "idempotent", "if-new", "if-equal", "overwrites", "again", "takes", "moves", "derives",
)  # fmt: skip
_REPLIES = ("counts", "names")
_WORDS = (*_REPETITIONS, *_REPLIES, "time", "hits")


class Effects(NamedTuple):
    """The effects of a row, which the head of ``commands.txt`` explains.

    ``repetition`` is one of ``_REPETITIONS`` and ``reply`` one of ``_REPLIES``; both can be empty.
    """

    repetition: str
    reply: str
    time: bool
    hits: bool


def parse(text: str) -> Effects:
    """Return the effects in a column; raise ``ValueError`` for a wrong one."""
    words = text.split()
    for word in words:
        if word not in _WORDS:
            raise ValueError(f"{word!r} is not an effect; use one of {', '.join(_WORDS)}")
    return Effects(
        _only_one(_REPETITIONS, words), _only_one(_REPLIES, words), "time" in words, "hits" in words
    )


def _only_one(effects: Sequence[str], words: Sequence[str]) -> str:
    """Return the one of some effects that is in a column, or an empty string."""
    present = [effect for effect in effects if effect in words]
    if len(present) > 1:
        raise ValueError(f"{' and '.join(present)} exclude each other; remove one of them")
    return "".join(present)
