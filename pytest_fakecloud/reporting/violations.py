"""Strict-mode violations and rejected credentials, as findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..cloud.base import BaseCloud, context_of
from ..cloud.fake import Fake
from ..core.calls import Call
from ..core.violations import Violation, without_message
from .calls import calls_in
from .contract import functions_of
from .model import Finding


def violations(cloud: BaseCloud) -> Iterator[Finding]:
    """Yield the strict-mode violations, counted if identical, and the rejected credentials."""
    groups: dict[object, list[Violation]] = {}
    for violation in cloud.violations():
        groups.setdefault(without_message(violation), []).append(violation)
    for first, *others in groups.values():
        values = {"violation": first.kind, "text": first.text, "times": 1 + len(others)}
        yield Finding("violation", str(first.facts.get("fake") or ""), values=values)
    yield from rejected(cloud)


def rejected(
    cloud: BaseCloud,
    *,
    every_call: bool = False,
    meant: Callable[[Call], bool] = lambda call: False,
) -> Iterator[Finding]:
    """Yield a finding for each fake that answered 401 without a fault, with the reasons; with
    ``every_call``, only for fakes that answered so to all calls. Calls that are ``meant`` to be rejected
    are no reason for a finding.
    """
    all_calls = calls_in(cloud.journal.entries)
    for fake in context_of(cloud).fakes:
        calls = [call for call in all_calls if call.fake == fake.name]
        wrong = [call for call in calls if call.status == 401 and call.fault is None]
        if every_call and len(wrong) < len(calls):
            continue
        wrong = [call for call in wrong if not meant(call)]
        if wrong:
            reasons = [_credentials(call, cloud, fake) for call in wrong]
            unique = [reason for at, reason in enumerate(reasons) if reason not in reasons[:at]]
            values = {"rejected": len(wrong), "calls": len(calls), "reasons": unique}
            yield Finding("rejected", fake.name, (wrong[-1].number,), values=values)


def _credentials(call: Call, cloud: BaseCloud, rejecting: Fake) -> dict[str, str]:
    if (rejection := functions_of(call.service).calls.rejection(call, rejecting)) is not None:
        return dict(rejection)
    credentials = call.request_headers.get("Authorization")
    if credentials is None:
        return {"kind": "none"}
    for fake in cloud.fakes():
        if fake is not rejecting and fake.headers.get("Authorization") == credentials:
            return {"kind": "other", "other": fake.name}
    return {"kind": "unknown"}
