"""Anomalies: patterns in a trial that are wrong whatever the application promises."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from fnmatch import fnmatchcase
from functools import partial
from typing import NamedTuple

from ...core.errors import ContractError, shown, unknown_name
from ..values.trial import Anomaly
from .evidence import Evidence, Findings
from .locks import expired_lock, foreign_release
from .lost_effects import early_end, partial_update
from .repetitions import repeated_effect


def _not_serializable(evidence: Evidence) -> Findings:
    """Clients leave what they leave in no order in which each runs in one piece (``serial``)."""
    yield from evidence.unserial_differences


class Pattern(NamedTuple):
    """A pattern of anomalies: the function that finds it, and when it does no harm.

    A search without a promise reports one that ``is_doubtful`` only if it has found no other: whether it
    is wrong depends on what the caller of a client that failed does next.
    """

    find: Callable[[Evidence], Findings]
    harmless_if: str
    is_doubtful: bool = False


PATTERNS = {
    "not serializable": Pattern(_not_serializable, "no rule connects what the clients leave"),
    "foreign release": Pattern(foreign_release, "the holder does not rely on the lock"),
    "expired lock": Pattern(expired_lock, "the late write repeats one that another holder made"),
    "early commit": Pattern(partial(early_end, of_delivery=False), "the effect may be lost"),
    "early acknowledgement": Pattern(
        partial(early_end, of_delivery=True), "the effect may be lost"
    ),
    "partial update": Pattern(
        partial_update, "a later request or a person repairs the difference", is_doubtful=True
    ),
    "repeated effect": Pattern(repeated_effect, "the number counts attempts"),
}
"""All patterns by name, in the order in which they are reported."""


class AnomalyError(AssertionError):
    """The assertion that an anomaly stands for in a search without a promise."""

    def __init__(self, anomaly: Anomaly) -> None:
        allowed = f"{anomaly.name}: {anomaly.subject}"
        harmless_if = PATTERNS[anomaly.name].harmless_if
        super().__init__(f"{anomaly}. It is harmless if {harmless_if}: then pass allow={allowed!r}")


class Allowed:
    """The anomalies that the caller allows: a name, or a name with a subject ("name: key*")."""

    def __init__(self, allow: str | Iterable[str]) -> None:
        texts = (allow,) if isinstance(allow, str) else tuple(allow)
        self._entries = []
        for text in texts:
            if not isinstance(text, str):
                raise ContractError(f"allow={shown(text)} is not the name of an anomaly")
            name, _, subject = text.partition(":")
            if name not in PATTERNS:
                raise ContractError(unknown_name("anomaly", name, PATTERNS, "allow"))
            self._entries.append((text, name, subject.strip() or "*"))

    def entry_for(self, anomaly: Anomaly) -> str | None:
        """Return the first entry that allows an anomaly, or None."""
        for text, name, subject in self._entries:
            if anomaly.name == name and fnmatchcase(anomaly.subject, subject):
                return text
        return None

    def check_used(self, used: Container[str]) -> None:
        """Raise ``ContractError`` for an entry that no trial needed."""
        for text, _, _ in self._entries:
            if text not in used:
                raise ContractError(f"allow={text!r}: no trial shows this anomaly: leave it out")


def find_anomalies(evidence: Evidence) -> list[Anomaly]:
    """Return the anomalies of a trial, one for each name and subject."""
    anomalies: dict[tuple[str, str], Anomaly] = {}
    for name, pattern in PATTERNS.items():
        for subject, words in pattern.find(evidence):
            anomalies.setdefault((name, subject), Anomaly(name, subject, words))
    return [*anomalies.values()]
