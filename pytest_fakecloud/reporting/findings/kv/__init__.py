"""Findings about key-value servers."""

from __future__ import annotations

from . import application, collections, expiry, locks, names, races, requests

FINDINGS = (
    races.check_then_set,
    expiry.ttl_not_set,
    expiry.expires_by_wall_clock,
    locks.lock_without_ttl,
    names.key_mismatch,
    locks.lock_of_another,
    expiry.ttl_removed,
    expiry.ttl_renewed,
    requests.accept_missing,
    names.python_value_in_key,
    names.counter_mismatch,
    races.lost_update,
    requests.commands_failed,
    collections.scan_not_finished,
    expiry.counter_recreated,
    expiry.read_after_expiry,
    names.no_subscriber,
    collections.equal_scores,
    locks.changed_nothing,
    application.repeated_after_failure,
    collections.never_acknowledged,
    collections.pages_overlap,
    application.limit_shared,
    application.stopped_writing,
)
