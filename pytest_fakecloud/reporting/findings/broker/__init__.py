"""Findings about brokers."""

from __future__ import annotations

from . import commits, deliveries, members

FINDINGS = (
    commits.commit_too_high,
    commits.unknown_header,
    deliveries.produced_again,
    commits.committed_before_failure,
    deliveries.received_again,
    deliveries.started_at_end,
    members.shared_group,
    members.instances_used_once,
    deliveries.records_skipped,
    commits.never_committed,
    deliveries.no_order,
)
