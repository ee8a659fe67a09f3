"""Findings: facts about what happened that may explain a failure, never guesses.

A detector is a function that yields findings, given an `ObservedTest` and in most cases also one
fake. If a detector raises an exception, the report has a line with the error instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ...core.errors import report_failure
from ..model import WEIGHT, Finding
from . import broker, common, kv, queue, vector
from .common import ObservedTest

__all__ = ["MOST", "Finding", "ObservedTest", "find"]

MOST = 10
"""Maximum number of findings in one report."""
_BY_SERVICE: Mapping[str, tuple[Callable[[ObservedTest, Any], Iterator[Finding]], ...]] = {
    "kv": kv.FINDINGS,
    "vector": vector.FINDINGS,
    "broker": broker.FINDINGS,
}
"""Detectors that are called for each fake of a service."""
_OF_ALL: tuple[Callable[[ObservedTest], Iterator[Finding]], ...] = (
    *queue.FINDINGS,
    *common.FINDINGS,
)


def find(test: ObservedTest) -> list[Finding]:
    """Return the findings about a cloud: the most important first, then the newest."""
    found: list[Finding] = []
    calls: list[partial[Iterator[Finding]]] = []
    for service, detectors in _BY_SERVICE.items():
        calls += [partial(one, test, fake) for one in detectors for fake in test.handles(service)]
    calls += [partial(one, test) for one in _OF_ALL]
    for detector in calls:
        failures: list[str] = []
        with report_failure(f"{detector.func.__name__} failed", failures.append):
            found += detector()
        found += [Finding("failed", values={"text": text}) for text in failures]
    if any(one.severity == "cause" for one in found):
        # If a cause is known, a fake without calls is not worth reporting.
        found = [one for one in found if one.kind != "never_called"]
    found.sort(key=lambda one: (WEIGHT[one.severity], -max(one.rows, default=0)))
    merged: dict[str, Finding] = {}
    for one in found:
        same = repr(replace(one, rows=()))
        earlier = merged[same].rows if same in merged else ()
        merged[same] = replace(one, rows=tuple(dict.fromkeys((*earlier, *one.rows))))
    return list(merged.values())[:MOST]
