"""The column *effects* of the table of commands."""

from __future__ import annotations

from typing import NamedTuple

_REPETITIONS = ("overwrites", "again", "varies")
_WORDS = frozenset({*_REPETITIONS, "other-ttl", "time"})
"""The effects without a value."""


class Effects(NamedTuple):
    """The effects of a row, which the head of ``commands.txt`` explains.

    ``repetition`` is the word about repetitions, or empty. ``event`` is an empty string for
    ``event=none``, and None without this effect.
    """

    repetition: str
    other_ttl: bool
    time: bool
    event: str | None


def parse(text: str) -> Effects:
    """Return the effects in a column; raise ``ValueError`` for a wrong one."""
    words: dict[str, str] = {}
    for effect in text.split():
        word, is_equal, value = effect.partition("=")
        if not ((word in _WORDS and not is_equal) or (word == "event" and value)):
            raise ValueError(
                f"{effect!r} is not an effect; use one that the head of commands.txt explains"
            )
        words[word] = value
    repetitions = [word for word in _REPETITIONS if word in words]
    if len(repetitions) > 1:
        raise ValueError(f"{' and '.join(repetitions)} exclude each other; remove one of them")
    event = words.get("event")
    return Effects(
        repetition="".join(repetitions),
        other_ttl="other-ttl" in words,
        time="time" in words,
        event="" if event == "none" else event,
    )
