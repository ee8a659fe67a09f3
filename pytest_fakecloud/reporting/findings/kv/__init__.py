"""Findings about key-value servers."""

from __future__ import annotations

from . import races, results
from .history import of_each_database

_OF_SERVERS = {results.accept_missing, results.commands_failed, results.no_subscriber}
"""Detectors of findings that are not about keys."""
FINDINGS = tuple(one if one in _OF_SERVERS else of_each_database(one) for one in (
    races.check_then_set, races.ttl_not_set, races.expires_by_wall_clock, races.lock_without_ttl,
    results.key_mismatch, races.lock_of_another, races.ttl_removed, races.ttl_renewed,
    results.accept_missing, results.python_value_in_key, results.counter_mismatch, races.lost_update,
    results.commands_failed, results.scan_not_finished, races.counter_recreated,
    races.read_after_expiry, results.no_subscriber, results.equal_scores, races.changed_nothing,
    results.repeated_after_failure, results.never_acknowledged, results.pages_overlap,
    results.limit_shared, results.stopped_writing,
))  # fmt: skip
