"""The report of a test: its assembly, strict-mode violations, rejected credentials, unfinished work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ..base_cloud import closed_addresses
from ..core.calls import Call
from ..core.errors import report_failure
from ..handle import Handle
from ..services import report_part
from .applications import ServedRequest
from .calls import Lookups, lookups_of
from .findings import ObservedTest, find
from .masking import Mask
from .model import WEIGHT, Fake, Finding, Report, Row
from .rows import rows

if TYPE_CHECKING:
    from ..base_cloud import BaseCloud
    from ..core.problems import Problem

MOST_UNFINISHED = 8
"""Maximum number of findings about unfinished work; further ones are only counted."""
_EXPLAINED = {"lost_update": "message_waits", "check_then_set": "message_waits",
              "scheduled_twice": "schedule_waits"}  # fmt: skip
"""Maps a finding to the unfinished work that it explains and that is therefore left out."""


def report_of(
    cloud: BaseCloud,
    *,
    test: str = "",
    failure: str = "",
    served: Sequence[ServedRequest] = (),
    idle_s: float | None = None,
    raised: BaseException | None = None,
    hints: Sequence[str] = (),
    log: str = "",
) -> Report:
    """Return the report of a test about one cloud, with credentials masked.

    ``failure`` is pytest's description of the failure, ``served`` are the requests to the
    application, ``idle_s`` is the wall-clock time in seconds that the test slept, ``raised`` its
    exception, ``hints`` are sentences about requests that did not reach a fake, ``log`` is the
    captured log. A part that cannot be made is replaced by a line in ``failures``.
    """
    mask, lookups = Mask(cloud), Lookups()
    failures: list[str] = []
    every: list[Row] = []
    found: list[Finding] = []
    left: list[Finding] = []
    with report_failure("the lookups failed", failures.append):
        lookups = lookups_of(cloud, list(cloud.journal.entries), mask)
    with report_failure("the findings failed", failures.append):
        found = find(ObservedTest(cloud, lookups, idle_s, raised, served))
    with report_failure("the calls cannot be shown", failures.append):
        every = rows(cloud, served=served, lookups=lookups, mask=mask)
    with report_failure("what is unfinished cannot be shown", failures.append):
        left = unfinished(cloud, lookups, found)
    closed = closed_addresses(cloud).items()
    masked = partial(_masked, mask=mask, numbers=_numbers(every))
    return Report(
        now_us=cloud.clock.now_us(),
        clock=cloud.clock.mode,
        seed=cloud.seed,
        test=test,
        failure=mask.text(failure),
        fakes=[
            *(Fake(one.name, one.service, one.url) for one in cloud.fakes()),
            *(Fake(name, fixture, url, closed=True) for name, (fixture, url) in closed),
        ],
        rows=every,
        findings=list(map(masked, found)),
        unfinished=list(map(masked, left)),
        problems=[masked(one) for one in problems(cloud) if not _repeats(one, found)],
        failures=list(map(mask.text, failures)),
        hints=list(map(mask.text, hints)),
        log=mask.text(log),
        lookups=lookups,
    )


def problems(cloud: BaseCloud) -> list[Finding]:
    """Return the strict-mode violations, counted if identical, and the rejected credentials."""
    groups: dict[object, list[Problem]] = {}
    for problem in cloud.problems():
        # Treat violations that differ only in the message ID as identical.
        facts = {name: value for name, value in problem.facts.items() if name != "message_id"}
        alike = problem.kind, repr(facts) if "message_id" in problem.facts else problem.text
        groups.setdefault(alike, []).append(problem)
    found = []
    for first, *others in groups.values():
        values = {"problem": first.kind, "text": first.text, "times": 1 + len(others)}
        found.append(Finding("problem", str(first.facts.get("handle") or ""), values=values))
    return [*found, *rejected(cloud)]


def rejected(
    cloud: BaseCloud,
    *,
    every_call: bool = False,
    meant: Callable[[Call], bool] = lambda call: False,
) -> Iterator[Finding]:
    """Yield a finding for each fake that answered 401, with the reasons.

    With ``every_call``, only for fakes that answered nothing but 401. ``meant`` calls are ignored.
    """
    for handle in cloud.fakes():
        calls = handle.journal.calls()
        wrong = [call for call in calls if call.status == 401 and call.fault is None]
        if every_call and len(wrong) < len(calls):
            continue
        wrong = [call for call in wrong if not meant(call)]
        if wrong:
            reasons: list[dict[str, str]] = []
            for call in wrong:
                if (reason := _credentials(call, cloud, handle)) not in reasons:
                    reasons.append(reason)
            values = {"rejected": len(wrong), "calls": len(calls), "reasons": reasons}
            yield Finding("rejected", handle.name, (wrong[-1].number,), (), values)


def _credentials(call: Call, cloud: BaseCloud, rejecting: Handle) -> dict[str, str]:
    given = call.request_headers.get("Authorization")
    if given is None:
        return {"kind": "query" if "_token=" in call.target else "none"}
    if given == f"Bearer {getattr(rejecting, 'read_only_token', None)}":
        return {"kind": "read_only"}
    for handle in cloud.fakes():
        if handle is not rejecting and handle.headers.get("Authorization") == given:
            return {"kind": "other", "other": handle.name}
    return {"kind": "unknown"}


def unfinished(
    cloud: BaseCloud, lookups: Lookups, explaining: Sequence[Finding] = ()
) -> list[Finding]:
    """Return the unfinished work that no finding explains, the most important first.

    For example, waiting messages are left out if two writers overwrote each other's data.
    """
    found: list[Finding] = []
    for handle in cloud.fakes():
        detect = getattr(report_part(handle.fixture, "findings"), "unfinished", None)
        failures: list[str] = []
        with report_failure("what waits cannot be shown", failures.append):
            found += detect(handle, lookups) if detect is not None else ()
        found += [Finding("failed", handle.name, values={"text": text}) for text in failures]
    left_out = {_EXPLAINED[one.kind] for one in explaining if one.kind in _EXPLAINED}
    found = [one for one in found if one.kind not in left_out]
    found.sort(key=lambda one: WEIGHT[one.severity])
    if (more := len(found) - MOST_UNFINISHED) > 0:
        found[MOST_UNFINISHED:] = [Finding("more", values={"count": more})]
    return found


def _repeats(problem: Finding, found: Sequence[Finding]) -> bool:
    """Return whether a finding describes the same unused fault in more detail."""
    return problem.values.get("problem") == "unused_fault" and any(
        one.kind == "unused_fault" and one.fake == problem.fake for one in found
    )


def _numbers(every: Sequence[Row]) -> dict[int, int]:
    """Map journal numbers to the rows that show them; a delivery has two numbers."""
    shown = ((one, row) for row in every for one in (row, row.delivery) if one is not None)
    return {one.number: row.number for one, row in shown}


def _masked(finding: Finding, mask: Mask, numbers: Mapping[int, int]) -> Finding:
    """Return a masked copy of a finding, with the numbers of rows in place of journal numbers."""
    rows = tuple(numbers.get(number, number) for number in finding.rows)
    values: dict[str, Any] = mask.value(finding.values)
    subjects = tuple(replace(one, name=mask.text(one.name)) for one in finding.subjects)
    return replace(finding, rows=rows, values=values, subjects=subjects)
