"""The differences between recorded responses and those of the fakes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..core.conditions import pieces_matcher
from ..core.found import Found
from ..core.wording import counted
from ..reporting.masking import HIDDEN


class _Absent:
    def __repr__(self) -> str:
        return "absent"


_ABSENT = _Absent()
"""The value of a member that a JSON object does not have."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between a response and the recording: the request, the field and both values.

    The value of a missing member of a JSON object prints as ``absent``.
    """

    number: int
    request: str
    where: str
    recorded: Any
    answered: Any

    def __str__(self) -> str:
        return (
            f"request {self.number} ({self.request}): {self.where} was "
            f"{_short(self.recorded)}, is {_short(self.answered)}"
        )


class Differences(Found[Difference]):
    """The differences found by a replay; empty if the fakes answered as recorded."""

    def assert_none(self) -> None:
        """Fail if there are differences, and list them."""
        __tracebackhide__ = True
        if self:
            raise AssertionError(
                f"{counted(len(self), 'difference')} from the recording:\n"
                + "\n".join(f"  {difference}" for difference in self)
            )


@dataclass(frozen=True, slots=True)
class Change:
    """Two values that differ, and their place in the body."""

    where: str
    recorded: Any
    answered: Any


class Comparison:
    """Compares the bodies of two responses.

    ``changes`` are the differences. ``learned`` maps recorded values of volatile fields to the
    values that the fake returned.
    """

    def __init__(self, recorded: bytes, answered: bytes, volatile: frozenset[str]) -> None:
        self.learned: dict[str, str] = {}
        self._volatile = volatile
        self.changes = list(self._changes(_parsed(recorded), _parsed(answered), "body"))

    def _changes(self, recorded: Any, answered: Any, where: str) -> Iterator[Change]:
        if isinstance(recorded, dict) and isinstance(answered, dict):
            for name in sorted(recorded.keys() | answered.keys()):
                was, is_now = recorded.get(name, _ABSENT), answered.get(name, _ABSENT)
                if name in self._volatile:
                    self._learn(was, is_now)
                else:
                    yield from self._changes(was, is_now, f"{where}.{name}")
        elif isinstance(recorded, list) and isinstance(answered, list):
            if len(recorded) != len(answered):
                yield Change(f"{where} (length)", len(recorded), len(answered))
            for index, (was, is_now) in enumerate(zip(recorded, answered, strict=False)):
                yield from self._changes(was, is_now, f"{where}[{index}]")
        elif not _are_equal(recorded, answered) and not _matches_masked(recorded, answered):
            yield Change(where, recorded, answered)

    def _learn(self, was: Any, is_now: Any) -> None:
        # Short values could also occur elsewhere by chance.
        if isinstance(was, str) and isinstance(is_now, str) and len(was) >= 6:
            self.learned[was] = is_now


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return body.decode("utf-8", "replace")


def _are_equal(recorded: Any, answered: Any) -> bool:
    # In JSON, true is not 1.
    return recorded == answered and isinstance(recorded, bool) == isinstance(answered, bool)


def _matches_masked(recorded: Any, answered: Any) -> bool:
    """Return whether a string in a response matches a recorded string that has masked parts."""
    if not isinstance(recorded, str) or HIDDEN not in recorded or not isinstance(answered, str):
        return False
    return pieces_matcher(recorded.split(HIDDEN))(answered)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
