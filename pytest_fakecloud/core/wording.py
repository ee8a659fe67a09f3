"""Format values, names, counts and differences for messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .errors import shown

SHOWN = 200
"""Maximum number of characters of a value that is shown in full."""
PIECE = 60
_ABSENT = object()


def brief(value: object, length: int = SHOWN) -> str:
    """Format a value for a message: a function by its name, others by repr, cut if too long."""
    text = getattr(value, "__name__", "") if callable(value) else ""
    text = text or shown(value)
    return text if len(text) <= length else f"{text[:length]}…"


def one_line(text: str, length: int = 1000) -> str:
    """Return a message as one line without control characters, cut if too long."""
    cut = text[: length + 1]
    plain = " ".join("".join(c if c.isprintable() else " " for c in cut).split())
    return plain if len(text) <= length else f"{plain[:length]}…"


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 record``, ``2 records``, ``1,000 records``."""
    return f"{count:,} {plural(noun, count)}"


def plural(noun: str, count: int) -> str:
    """Return a noun, in the plural unless the count is 1."""
    return noun if count == 1 else f"{noun}s"


def shortfall(deed: str, used: int, planned: int) -> str:
    """Describe something that happened less often than planned: ``never fired``, ``fired 1 of 2
    planned times``. ``deed`` is the verb in the past tense.
    """
    if not used and planned == 1:
        return f"never {deed}"
    return f"{deed} {used:,} of {planned:,} planned times"


def listed(items: Sequence[str], most: int = 6) -> str:
    """Return the first items, and the number of further ones."""
    more = len(items) - most
    return ", ".join(items[:most]) + (f" and {more} more" if more > 0 else "")


def unknown_name(noun: str, given: object, known: Iterable[str], argument: str = "") -> str:
    """Return the message for a name that is not among the known names of ``noun``, such as ``"field
    of a call"``. It begins with ``argument=`` if that is given.
    """
    names = list(known)
    named = f"{argument}={brief(given)}" if argument else brief(given)
    article = "an" if noun[0] in "aeiou" else "a"
    return (
        f"{named} is not {article} {noun}{did_you_mean(given, names) or '.'} "
        f"Known {noun.partition(' of ')[0]}s: {listed(names, 40) or 'none'}"
    )


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return ``"; did you mean …?"`` if one of the known words is similar, else an empty string."""
    if not isinstance(word, str):
        return ""
    import difflib  # Imported here because it takes 1 ms, and few tests have such an error.

    folded = {one.lower(): one for one in known}
    found = difflib.get_close_matches(word[:100].lower(), folded, 1, 0.6)
    return f"; did you mean {folded[found[0]]!r}?" if found else ""


def same_json(found: Any, wanted: Any) -> bool:
    """Return whether two JSON values are equal. Unlike ``==``, tell True from 1, and False from 0."""
    return bool(found == wanted) and not _mixes_booleans(found, wanted)


def _mixes_booleans(found: Any, wanted: Any) -> bool:
    if isinstance(found, dict) and isinstance(wanted, dict):
        return any(_mixes_booleans(value, wanted.get(name)) for name, value in found.items())
    if isinstance(found, list) and isinstance(wanted, list):
        return any(map(_mixes_booleans, found, wanted))
    numbers = isinstance(found, int | float) and isinstance(wanted, int | float)
    return numbers and isinstance(found, bool) is not isinstance(wanted, bool)


def differences(found: Any, wanted: Any, place: str) -> Iterator[str]:
    """Describe each difference between two JSON values. Lists of different length are shown whole."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        for name in {**wanted, **found}:
            one, other = found.get(name, _ABSENT), wanted.get(name, _ABSENT)
            yield from differences(one, other, f"{place}.{name}")
    elif isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
            yield from differences(one, other, f"{place}[{number}]")
    elif found is _ABSENT:
        yield f"{place} is absent, not {brief(wanted)}"
    elif wanted is _ABSENT:
        yield f"{place} is {brief(found)}, not expected"
    elif same_json(found, wanted):
        return
    elif isinstance(found, str) and isinstance(wanted, str) and len(found) + len(wanted) > SHOWN:
        yield _text_difference(found, wanted, place)
    else:
        yield f"{place} is {brief(found)}, not {brief(wanted)}"


def _text_difference(found: str, wanted: str, place: str) -> str:
    pairs = enumerate(zip(found, wanted, strict=False))
    at = next((n for n, (a, b) in pairs if a != b), min(len(found), len(wanted)))
    return (
        f"{place} from character {at} on is {brief(found[at:], PIECE)}, "
        f"not {brief(wanted[at:], PIECE)}"
    )
