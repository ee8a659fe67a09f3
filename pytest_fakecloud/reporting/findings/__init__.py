"""Findings: facts about what happened that may explain a failure, never guesses.

A detector is a function that yields findings, given an `ObservedTest` and in most cases also one
fake. If a detector raises an exception, the report has a line with the error instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

from ...core.errors import report_failure
from ..model import WEIGHT, Finding
from . import broker, common, kv_keys, kv_results, queue, vector
from .common import ObservedTest
from .kv_history import databases_of

__all__ = ["MOST", "Finding", "ObservedTest", "find"]

MOST = 10
"""Maximum number of findings in one report."""
_KV = (
    kv_keys.check_then_set, kv_keys.ttl_not_set, kv_keys.expires_by_wall_clock,
    kv_keys.lock_without_ttl, kv_keys.key_mismatch, kv_keys.lock_of_another, kv_keys.ttl_removed,
    kv_keys.ttl_renewed, kv_results.accept_missing, kv_keys.python_value_in_key,
    kv_keys.counter_mismatch, kv_keys.lost_update, kv_results.commands_failed,
    kv_results.scan_not_finished, kv_keys.counter_recreated, kv_keys.read_after_expiry,
    kv_keys.no_subscriber, kv_results.equal_scores, kv_keys.changed_nothing,
    kv_results.repeated_after_failure, kv_results.never_acknowledged, kv_results.pages_overlap,
    kv_results.limit_shared, kv_results.stopped_writing,
)  # fmt: skip
_OF_SERVERS = {kv_results.accept_missing, kv_results.commands_failed, kv_keys.no_subscriber}
_OF_KEYS = {*_KV} - _OF_SERVERS
"""Detectors that are called for each database of a key-value server that clients have used."""
_BY_SERVICE: Mapping[str, tuple[Callable[[ObservedTest, Any], Iterator[Finding]], ...]] = {
    "kv": _KV,
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
    databases = cache(partial(databases_of, test))
    calls: list[tuple[Callable[..., Iterator[Finding]], Any]] = []
    for service, detectors in _BY_SERVICE.items():
        fakes = test.handles(service)
        calls += [(detector, fake) for detector in detectors for fake in fakes]
    calls += [(detector, None) for detector in _OF_ALL]
    for detector, fake in calls:
        try:
            if fake is None:
                found += detector(test)
            else:
                for each in databases(fake) if detector in _OF_KEYS else (fake,):
                    found += detector(test, each)
        except BaseException:
            failures: list[str] = []
            with report_failure(f"{detector.__name__} failed", failures.append):
                raise
            found.append(Finding("failed", values={"text": failures[0]}))
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
