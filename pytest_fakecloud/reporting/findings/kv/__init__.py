"""Findings about key-value servers."""

from __future__ import annotations

from . import application, expiry, names, races, results
from .history import of_each_database

_OF_SERVERS = {results.accept_missing, results.commands_failed, names.no_subscriber}
"""Detectors of findings that are not about keys."""
FINDINGS = tuple(one if one in _OF_SERVERS else of_each_database(one) for one in (
    races.check_then_set, expiry.ttl_not_set, expiry.expires_by_wall_clock, races.lock_without_ttl,
    names.key_mismatch, races.lock_of_another, expiry.ttl_removed, expiry.ttl_renewed,
    results.accept_missing, names.python_value_in_key, names.counter_mismatch, races.lost_update,
    results.commands_failed, results.scan_not_finished, expiry.counter_recreated,
    expiry.read_after_expiry, names.no_subscriber, results.equal_scores, races.changed_nothing,
    application.repeated_after_failure, results.never_acknowledged, results.pages_overlap,
    application.limit_shared, application.stopped_writing,
))  # fmt: skip
