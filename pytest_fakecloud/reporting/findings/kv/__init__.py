"""Findings about key-value servers."""

from __future__ import annotations

from . import application, collections, expiry, locks, names, races, requests

FINDINGS = (
    races.check_then_set,
    expiry.ttl_not_set,
    expiry.by_wall_clock,
    locks.never_expires,
    names.other_name,
    locks.held_by_other,
    expiry.expiry_taken,
    expiry.renewed,
    requests.not_streamed,
    names.python_in_key,
    names.other_counter,
    races.lost_update,
    requests.failed_inside,
    collections.scan_not_ended,
    expiry.made_anew,
    expiry.read_after_expiry,
    names.without_subscriber,
    collections.same_scores,
    locks.changed_nothing,
    application.repeated_after_failure,
    collections.never_acknowledged,
    collections.overlapping_pages,
    application.shared_limit,
    application.stopped_writing,
)
